"""The nodes of a recorded program, before they are ordered: calls, begins of calls, activities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.model.host import Host
from tracelab.model.trace import ABSENT
from tracelab.simulate.calls import Calls, find_calls


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Nodes(Frozen):
    """First the return of each call, then the begins of some, then the end of each activity.

    Attributes:
        calls: the calls; call *i* is node *i*.
        begin_call: intp[b], the calls that have a node for their begin: those that return after
            what they launch has started.
        entry: intp[c], the node that each call begins with, its own where that is the return.
        launch_call: int64[m], per timeline row the call that launched it, ABSENT where the file
            does not have that.
        activity: intp[m], the node of each timeline row.

    Example: of two calls the second has a begin, and each launches an activity:
    ``begin_call=[1], entry=[0, 2], launch_call=[0, 1], activity=[3, 4]``.
    """

    calls: Calls
    begin_call: NDArray[np.intp]
    entry: NDArray[np.intp]
    launch_call: Int64Array
    activity: NDArray[np.intp]

    @property
    def is_launched(self) -> NDArray[np.bool_]:
        """bool[m], which timeline rows have their launch in the file."""
        is_launched: NDArray[np.bool_] = self.launch_call != ABSENT
        return is_launched

    @property
    def host_call(self) -> NDArray[np.intp]:
        """intp[c + b], the call of each node of the host."""
        return np.concatenate((np.arange(len(self.calls)), self.begin_call))

    def __len__(self) -> int:
        return len(self.calls) + len(self.begin_call) + len(self.activity)


def find_nodes(host: Host) -> Nodes:
    """The nodes of a file."""
    timeline, calls = host.timeline, find_calls(host)
    launch_call = np.where(timeline.launch_id == ABSENT, ABSENT, calls.index_of[timeline.launch_id])
    starts_inside = launch_call != ABSENT
    starts_inside &= timeline.start_ns < calls.end_ns[launch_call]
    begin_call = np.unique(launch_call[starts_inside]).astype(np.intp)
    entry = np.arange(len(calls))
    entry[begin_call] = len(calls) + np.arange(len(begin_call))
    first_activity = len(calls) + len(begin_call)
    return Nodes(
        calls=calls,
        begin_call=begin_call,
        entry=entry,
        launch_call=launch_call,
        activity=first_activity + np.arange(len(timeline.event_id)),
    )
