"""The program that a replay runs: what takes time, and what has to wait for what.

A node is the return of a host call, the begin of one, or the end of a GPU activity. It is reached
once everything before it was, each with its latency; then comes what it costs itself. So a change
to the program is another cost, another latency, an edge more or an edge less: see `edits`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array

NEVER = -(2**60)  # ns, the latency of an edge that an edit took away

# The columns of a program's nodes that stay as they are where only some of its nodes are kept.
NODE_COLUMNS = (
    "kind",
    "event_id",
    "row",
    "cost_ns",
    "moment_ns",
    "thread_index",
    "stream_index",
    "activity_kind",
)


class NodeKind(IntEnum):
    """Kind of a node."""

    CALL = 0  # a host call that launches or blocks has returned
    BEGIN = 1  # such a call begins, where what it launches starts before it returns
    ACTIVITY = 2  # a GPU activity has ended
    ARRIVAL = 3  # of a job: an activity that needs other ranks has begun
    MEETING = 4  # of a job: all of them have


class Via(IntEnum):
    """Reason why one node comes after another."""

    HOST = 0  # the work of a thread between two of its calls
    THREAD = 1  # one thread goes on where another one stopped
    LAUNCH = 2  # a call put the activity on the GPU
    STREAM = 3  # the activity before it in its stream
    EVENT = 4  # what its stream was made to wait for
    QUEUE = 5  # work of another stream in the same hardware queue or copy engine
    SM = 6  # kernels of another stream, which left no multiprocessor free
    WAIT = 7  # a blocking call returns after what it waited for
    LIMIT = 8  # a launch waits until the queue of its stream has room
    MEETING = 9  # of a job: another rank has arrived


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Program(Frozen):
    """Consecutive steps that are repeated; nodes in an order in which they can be computed.

    Example node: ``(kind=NodeKind.ACTIVITY, event_id=84, row=12, cost_ns=3_000, ...)``; example
    edge: ``(source=40, target=41, via=Via.LAUNCH, lag=0, latency_ns=2_100)``.

    Attributes:
        kind: int8[n], a `NodeKind`.
        event_id: int64[n], the event of each node.
        row: int64[n], the timeline row of activities, else ABSENT.
        cost_ns: int64[n], ns, what each takes by itself: the duration of an activity, that of a
            call without what it waited for.
        moment_ns: int64[n], ns, when it was reached in the recording.
        thread_index: int32[n], index into `Trace.threads` of calls, else ABSENT.
        stream_index: intp[n], index into `Timeline.streams` of activities, else ABSENT.
        activity_kind: int8[n], the `Kind` of activities, else ABSENT.
        launch_node: intp[n], of activities the CALL node of what launched them, else ABSENT.
        source, target: intp[e], nodes.
        via: int8[e], a `Via`.
        lag: int8[e], 1 where the source is of the repetition before, else 0 and before the target.
        latency_ns: int64[e], ns, between the two; `NEVER` for an edge that was taken away.
        steps: how many steps it is.
        length_ns: ns, how long they took in the recording.
        is_repeated: whether the steps are repeated; a program without steps runs once.
    """

    kind: NDArray[np.int8]
    event_id: Int64Array
    row: Int64Array
    cost_ns: Int64Array
    moment_ns: Int64Array
    thread_index: NDArray[np.int32]
    stream_index: NDArray[np.intp]
    activity_kind: NDArray[np.int8]
    launch_node: NDArray[np.intp]
    source: NDArray[np.intp]
    target: NDArray[np.intp]
    via: NDArray[np.int8]
    lag: NDArray[np.int8]
    latency_ns: Int64Array
    steps: int
    length_ns: int
    is_repeated: bool

    def __len__(self) -> int:
        return len(self.kind)
