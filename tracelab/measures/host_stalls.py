"""When a host thread got no further, and whose fault that was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.model.host import Host
from tracelab.model.lookup import groups_of


@dataclass(frozen=True, slots=True, eq=False)
class HostStalls:
    """The stretches in which a thread got no further; what the blocking calls held up comes last.

    Attributes:
        call: intp[h], index into the blocking calls: whose fault it was.
        thread: int32[h], index into `Trace.threads` of who got no further.
        start_ns, end_ns: int64[h], ns.
        groups: the halts of one thread and sort, each by start and by end.
    """

    call_index: NDArray[np.intp]
    thread_index: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array
    groups: tuple[NDArray[np.intp], ...]


def host_stalls(host: Host) -> HostStalls:
    """The blocking calls, each of its own thread, and what allocations held up."""
    calls, held = host.blocking_calls, host.stalled_calls
    thread = np.concatenate((calls.thread_index, held.thread_index))
    number = np.arange(len(thread))
    return HostStalls(
        call_index=np.concatenate((number[: len(calls)], held.allocation_index)),
        thread_index=thread,
        start_ns=np.concatenate((calls.start_ns, held.start_ns)),
        end_ns=np.concatenate((calls.end_ns, held.end_ns)),
        groups=tuple(
            group
            for _, own in groups_of(thread)
            for group in np.split(own, [np.searchsorted(own, len(calls))])
        ),
    )


def waits_for(
    host: Host,
    thread: NDArray[np.integer[Any]],
    other: NDArray[np.integer[Any]],
    moment_ns: Int64Array,
) -> NDArray[np.bool_]:
    """bool[k], whether launching threads wait for what begins then in others, or in themselves."""
    waits = np.isin(other, list(host.launching_threads))
    for number, places in groups_of(thread):
        if number in host.states:
            recorded, moments = host.states[number].recorded, moment_ns[places]
            begun = np.searchsorted(recorded.starts, moments, side="right")
            waits[places] &= begun == np.searchsorted(recorded.ends, moments, side="right")
    own: NDArray[np.bool_] = other == thread
    return waits | own
