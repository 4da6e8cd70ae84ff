"""The idle time that blocking calls caused.

A blocking call costs nothing while the GPU has work. It costs the time in which a device was idle
while the call blocked. What is idle from its return until work launched after it reaches the device
it costs as far as it delayed the host: without the call, the host would have been earlier by the
time in which it blocked beside a busy device. What is idle beyond that is the host's own.

Of several calls before one bubble, a moment in which they block is that of the first of them; what
is idle after them is that of the last, then of the one before it. A call costs nothing where the
thread that launched next was busy itself when it began. An allocation that stalled another thread's
call counts for that thread, too, from when both had begun until that call returned, as if the
thread had made it itself. The launch of a blocking copy blocks until the copy starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, concatenated
from tracelab.base.intervals import Int64Array, Intervals, measure_within, overlapping_pairs, union
from tracelab.measures.bubbles import Gaps, device_gaps, inside_replays
from tracelab.measures.host_stalls import HostStalls, host_stalls, waits_for
from tracelab.model.host import Host
from tracelab.model.lookup import expand_ranges
from tracelab.model.trace import ABSENT


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AttributedIdle(Frozen):
    """Which stretches of idle time are attributed to which call; disjoint on each device.

    Attributes:
        call_index: intp[c], index into the blocking calls.
        device_number: int32[c].
        start_ns, end_ns: int64[c], ns, never empty.

    Example row: ``(call_index=2, device_number=0, start_ns=400, end_ns=900)``.
    """

    call_index: NDArray[np.intp]
    device_number: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array

    @property
    def length_ns(self) -> Int64Array:
        """int64[c], ns."""
        return self.end_ns - self.start_ns


_NO_IDLE = AttributedIdle(
    call_index=np.zeros(0, dtype=np.intp),
    device_number=np.zeros(0, dtype=np.int32),
    start_ns=np.zeros(0, dtype=np.int64),
    end_ns=np.zeros(0, dtype=np.int64),
)


def attributed_idle(host: Host) -> AttributedIdle:
    """Find the idle time of each device that blocking calls caused.

    The slow reference model is ``tests/reference/ticks.py``.
    """
    if not len(host.blocking_calls):
        return _NO_IDLE
    stalls = host_stalls(host)
    of_devices = (_of_device(host, stalls, device) for device in host.timeline.device_numbers)
    return concatenated([_NO_IDLE, *of_devices])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Delays(Frozen):
    """When the launch that ends a gap was held up; by gap and start, disjoint in each gap.

    Attributes:
        gap_index: intp[d], index into the gaps of a device.
        call_index: intp[d], index into the blocking calls.
        start_ns, end_ns: int64[d], ns, never empty.
    """

    gap_index: NDArray[np.intp]
    call_index: NDArray[np.intp]
    start_ns: Int64Array
    end_ns: Int64Array


def _of_device(host: Host, stalls: HostStalls, device: int) -> AttributedIdle:
    idle = device_gaps(host, device)
    delays = _disjoint(_delays(host, stalls, idle, device))
    gap_start_ns, gap_end_ns = idle.start_ns[delays.gap_index], idle.end_ns[delays.gap_index]
    start_ns = np.maximum(delays.start_ns, gap_start_ns)
    end_ns = np.minimum(delays.end_ns, gap_end_ns)
    during = np.flatnonzero(end_ns > start_ns)
    start_ns, end_ns = start_ns[during], end_ns[during]
    # Before the gap it held the host up as well, while the device was busy: no moment counts twice.
    until_ns = np.maximum(delays.start_ns, np.minimum(delays.end_ns, gap_start_ns))
    owed_ns = until_ns - delays.start_ns
    owed_ns -= measure_within(union(start_ns, end_ns), delays.start_ns, until_ns)
    owing, owed_start_ns, owed_end_ns = _owed(idle, delays, owed_ns)
    call_index = delays.call_index[np.concatenate((during, owing))]
    return AttributedIdle(
        call_index=call_index,
        device_number=np.full(len(call_index), device, dtype=np.int32),
        start_ns=np.concatenate((start_ns, owed_start_ns)),
        end_ns=np.concatenate((end_ns, owed_end_ns)),
    )


def _owed(
    idle: Gaps, delays: _Delays, owed_ns: Int64Array
) -> tuple[NDArray[np.intp], Int64Array, Int64Array]:
    """What is idle after delays, given out until what they owe is used up, the last one's first.

    Args:
        idle: the gaps of a device.
        delays: what stands before each.
        owed_ns: int64[d], the most that each delay may be given, ns.

    Returns:
        the delay, start and end of each stretch.
    """
    gap_index = delays.gap_index
    gap_start_ns, gap_end_ns = idle.start_ns[gap_index], idle.end_ns[gap_index]
    changes = gap_index[1:] != gap_index[:-1]
    next_start_ns = np.where(np.append(changes, True), gap_end_ns, np.roll(delays.start_ns, -1))
    start_ns = np.clip(delays.end_ns, gap_start_ns, gap_end_ns)
    length_ns = np.clip(next_start_ns, start_ns, gap_end_ns) - start_ns
    # All stretches one behind the other, and what is owed beside them, each gap where it begins.
    place_ns = np.cumsum(length_ns) - length_ns
    first = np.flatnonzero(np.append(True, changes)[: len(gap_index)])
    count = np.diff(np.append(first, len(gap_index)))
    group = np.repeat(np.arange(len(first)), count)
    last_first = (first + first + count - 1)[group] - np.arange(len(gap_index))
    owed_ns = owed_ns[last_first]
    owed_before_ns = np.cumsum(owed_ns) - owed_ns
    owed_place_ns = (place_ns - owed_before_ns)[first][group] + owed_before_ns
    place_end_ns = (place_ns + length_ns)[first + count - 1][group]
    owed_end_ns = np.minimum(owed_place_ns + owed_ns, place_end_ns)
    idle_index = np.flatnonzero(length_ns > 0)
    owing_index = np.flatnonzero(owed_end_ns > owed_place_ns)
    given, by = overlapping_pairs(
        Intervals(place_ns[idle_index], (place_ns + length_ns)[idle_index]),
        Intervals(owed_place_ns[owing_index], owed_end_ns[owing_index]),
    )
    given, by = idle_index[given], owing_index[by]
    offset_ns = start_ns[given] - place_ns[given]
    return (
        last_first[by],
        offset_ns + np.maximum(place_ns[given], owed_place_ns[by]),
        offset_ns + np.minimum((place_ns + length_ns)[given], owed_end_ns[by]),
    )


def _disjoint(delays: _Delays) -> _Delays:
    """The same delays by gap and start: a moment of several in one gap is that of the first."""
    order = np.lexsort((delays.call_index, delays.start_ns, delays.gap_index))
    gap_index, end_ns = delays.gap_index[order], delays.end_ns[order]
    # The latest end so far within each gap: ranks of ends, not ends, so that gaps stay apart.
    by_end = np.argsort(end_ns, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[by_end] = np.arange(len(order))
    own = gap_index * len(order)
    reach_ns = end_ns[by_end][np.maximum.accumulate(own + rank) - own]
    is_followed = gap_index[1:] == gap_index[:-1]
    start_ns = delays.start_ns[order]
    start_ns[1:] = np.where(is_followed, np.maximum(start_ns[1:], reach_ns[:-1]), start_ns[1:])
    is_left = end_ns > start_ns
    return _Delays(
        gap_index[is_left], delays.call_index[order][is_left], start_ns[is_left], end_ns[is_left]
    )


def _delays(host: Host, stalls: HostStalls, idle: Gaps, device: int) -> _Delays:
    """The host stalls that delayed the launch which ends a gap, from the launch before it on.

    No work for the device was launched between the two, and the work that was launched next had not
    reached the device before it: a graph's nodes wait for no host. They may overlap, or be empty.
    """
    timeline, calls = host.timeline, host.blocking_calls
    is_launched = timeline.select(device=device) & (timeline.launch_id != ABSENT)
    launched_ns = np.sort(host.launched_ns[timeline.launch_id[is_launched]])
    # Of one thread's stalls, in order and none inside another, those before a gap are neighbors.
    launched_gaps = np.flatnonzero((idle.launch_id != ABSENT) & ~inside_replays(timeline, idle))
    next_ns = host.launched_ns[idle.launch_id[launched_gaps]]
    previous_ns = np.concatenate(([ABSENT], launched_ns))[np.searchsorted(launched_ns, next_ns)]
    delays = []
    for group in stalls.groups:
        first = np.searchsorted(stalls.end_ns[group], previous_ns, side="right")
        last = np.searchsorted(stalls.start_ns[group], next_ns)
        range_index, position = expand_ranges(first, last)
        launching_thread = timeline.trace.thread_index[idle.launch_id[launched_gaps[range_index]]]
        stall_index = group[position]
        # Of each thread at once: of thousands that block side by side, hardly any is waited for.
        is_awaited = waits_for(
            host, launching_thread, stalls.thread_index[stall_index], stalls.start_ns[stall_index]
        )
        range_index, stall_index = range_index[is_awaited], stall_index[is_awaited]
        delays.append(
            _Delays(
                launched_gaps[range_index],
                stalls.call_index[stall_index],
                np.maximum(stalls.start_ns[stall_index], previous_ns[range_index]),
                np.minimum(stalls.end_ns[stall_index], next_ns[range_index]),
            )
        )
    # The launch of a blocking copy is a blocking call itself, and stands before its own gap.
    blocking_gaps = np.flatnonzero(np.isin(idle.launch_id, calls.event_id))
    by_event = np.argsort(calls.event_id)
    own_index = by_event[
        np.searchsorted(calls.event_id, idle.launch_id[blocking_gaps], sorter=by_event)
    ]
    own = _Delays(blocking_gaps, own_index, calls.start_ns[own_index], idle.end_ns[blocking_gaps])
    return concatenated([*delays, own])
