"""The program that a replay runs: what takes time and what waits for what; and changes of it.

A node is the return or begin of a host call, or the end of an activity: reached when all before it
are, each with its latency; then comes its own cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, IntArray, Record
from tracelab.base.intervals import measure_within, union
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT

_Result = TypeVar("_Result")

NEVER = -(2**60)  # ns, the latency of an edge that an edit took away

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
_EDGE_COLUMNS = ("via", "lag", "latency_ns")  # likewise of its edges


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


class Program(Arrays):
    """Consecutive steps that are repeated; nodes in an order in which they can be computed.

    Attributes:
        kind: int8[n], a `NodeKind`.
        row: int64[n], the timeline row of activities, else ABSENT.
        cost_ns: int64[n], ns, without waits.
        moment_ns: int64[n], ns, when it was reached in the recording.
        thread_index: int32[n], index into `Trace.threads` of calls, else ABSENT.
        stream_index: intp[n], index into `Timeline.streams` of activities, else ABSENT.
        activity_kind: int8[n], a `Kind`, else ABSENT.
        launch_node: intp[n], the CALL node that launched an activity, else ABSENT.
        source, target: intp[e], nodes.
        via: int8[e], a `Via`.
        lag: int8[e], 1 where the source is of the repetition before, else 0 and before the target.
        latency_ns: int64[e], ns; `NEVER` for a removed edge.
        steps, length_ns: how many steps it is, and their recorded length, ns.
        is_repeated: False for a program without steps, which runs once.
    """

    kind: NDArray[np.int8]
    event_id: Int64Array
    row: Int64Array
    cost_ns: Int64Array
    moment_ns: Int64Array
    thread_index: NDArray[np.int32]
    stream_index: IndexArray
    activity_kind: NDArray[np.int8]
    launch_node: IndexArray
    source: IndexArray
    target: IndexArray
    via: NDArray[np.int8]
    lag: NDArray[np.int8]
    latency_ns: Int64Array
    steps: int
    length_ns: int
    is_repeated: bool

    def __len__(self) -> int:
        return len(self.kind)

    def select(self, nodes: BoolArray, edges: BoolArray, source: IndexArray) -> Program:
        """Select some nodes (bool[n]), and the edges (bool[e]) between these.

        Edges come from new sources (intp[e]), ABSENT for none.
        """
        edges = edges & nodes[self.target] & nodes[source] & (source != ABSENT)
        number = np.full(len(self), ABSENT, dtype=np.intp)
        number[nodes] = np.arange(int(nodes.sum()))
        launch_node = self.launch_node[nodes]
        return replace(
            self,
            **{name: getattr(self, name)[nodes] for name in NODE_COLUMNS},
            **{name: getattr(self, name)[edges] for name in _EDGE_COLUMNS},
            launch_node=np.where(launch_node == ABSENT, ABSENT, number[launch_node]),
            source=number[source[edges]],
            target=number[self.target[edges]],
        )


class Edges(Arrays):
    """Edges of one or more kinds; columns as in `Program`."""

    source: IndexArray
    target: IndexArray
    via: NDArray[np.int8]
    latency_ns: Int64Array


def edges(source: IntArray, target: IntArray, via: Via, latency_ns: IntArray | int) -> Edges:
    """Edges of one kind; the latency may be the same for all."""
    return Edges(
        source.astype(np.intp),
        target.astype(np.intp),
        np.full(len(source), via, dtype=np.int8),
        np.broadcast_to(np.asarray(latency_ns, dtype=np.int64), len(source)).copy(),
    )


# The reason of an edit without effect: what waits there needs the result on the host immediately.
TRUE_DEPENDENCY = "true_dependency"


def join_pairs(pairs: Iterable[tuple[IndexArray, IndexArray]]) -> tuple[IndexArray, IndexArray]:
    """The sources and the targets of several sets of pairs, one after another: intp[k] each."""
    source, target = np.concatenate(
        [np.zeros((2, 0), dtype=np.intp), *map(np.stack, pairs)], axis=1
    )
    return source, target


class Edited(Record):
    """A program with a change, as far as the change is known.

    Attributes:
        program: the prediction.
        low, high: its bounds, the faster one first; often the same.
        count: changed calls, activities or waits.
        reason: why there is no better answer, a clause.
    """

    program: Program
    low: Program
    high: Program
    count: int
    reason: str | None = None

    @classmethod
    def exactly(cls, program: Program, count: int, reason: str | None = None) -> Edited:
        """A change that leaves nothing open."""
        return cls(program, program, program, count, reason)

    @property
    def programs(self) -> tuple[Program, Program, Program]:
        """The prediction and its bounds."""
        return self.program, self.low, self.high

    def call_each(self, function: Callable[[Program], _Result]) -> tuple[_Result, _Result, _Result]:
        """The results of a function of the three, which is called once of what is one program."""
        results = {program: function(program) for program in dict.fromkeys(self.programs)}
        return results[self.program], results[self.low], results[self.high]


def replace_cost(program: Program, nodes: BoolArray, cost_ns: ArrayLike) -> Program:
    """Let some nodes (bool[n]) take so long by themselves, ns."""
    return replace(program, cost_ns=np.where(nodes, cost_ns, program.cost_ns))


def times(ns: Int64Array, factor: ArrayLike) -> Int64Array:
    """Scale times or costs, int64[k], to the nearest ns."""
    return np.asarray(np.rint(ns * np.asarray(factor)).astype(np.int64))


def replace_latency(program: Program, edges: BoolArray, latency_ns: ArrayLike) -> Program:
    """Let some edges (bool[e]) take so long, ns; those taken away stay away."""
    changes = edges & (program.latency_ns != NEVER)
    if not changes.any():
        return program
    return replace(program, latency_ns=np.where(changes, latency_ns, program.latency_ns))


def remove_edges(program: Program, edges: BoolArray) -> Program:
    """Take some edges (bool[e]) away."""
    return replace_latency(program, edges, NEVER)


def add_edges(
    program: Program,
    source: IndexArray,
    target: IndexArray,
    via: ArrayLike,
    latency_ns: ArrayLike,
    lag: ArrayLike = 0,
) -> Program:
    """Add edges, columns as in `Program`; sources without a lag come first."""
    if not len(source):
        return program
    added = {"source": source, "target": target, "via": via, "lag": lag, "latency_ns": latency_ns}
    columns: dict[str, Any] = {}
    for name, values in added.items():
        column = getattr(program, name)
        new = np.broadcast_to(np.asarray(values, dtype=column.dtype), len(source))
        columns[name] = np.append(column, new)
    return replace(program, **columns)


def kept_before(program: Program, nodes: BoolArray) -> tuple[IndexArray, NDArray[np.int8]]:
    """Return the predecessor of each activity in its stream if some (bool[n]) were removed.

    Returns intp[n], else ABSENT; and int8[n], 1 if it is of the repetition before.
    """
    before = np.full(len(program.kind), ABSENT, dtype=np.intp)
    lag = np.zeros(len(before), dtype=np.int8)
    edges = (program.via == Via.STREAM) & (program.latency_ns != NEVER)
    before[program.target[edges]] = program.source[edges]
    lag[program.target[edges]] = program.lag[edges]
    open_ = np.flatnonzero((before != ABSENT) & nodes[before])
    while len(open_):
        skipped = before[open_]
        lag_of_open = lag[open_] + lag[skipped]
        before[open_] = np.where(lag_of_open > 1, ABSENT, before[skipped])
        lag[open_] = lag_of_open
        open_ = open_[(before[open_] != ABSENT) & nodes[before[open_]]]
    return before, lag


def remove_activities(program: Program, nodes: BoolArray, gap_ns: Int64Array) -> Program:
    """Take some activities (bool[n]) away: the next in a stream follows the one before.

    Typical gaps in a stream are int64[kinds, kinds], ns.
    """
    into, out_of = nodes[program.target], nodes[program.source]
    is_stream = program.via == Via.STREAM
    before, _ = kept_before(program, nodes)
    kind = program.activity_kind
    gap_to_kept_ns = gap_ns[kind[before[program.target]], kind[program.target]]
    changed = replace_cost(program, nodes, 0)
    changed = replace_latency(changed, is_stream & into, 0)
    changed = replace_latency(changed, is_stream & out_of & ~into, gap_to_kept_ns)
    holds_queue = np.isin(program.via, (Via.QUEUE, Via.SM)) & (into | out_of)
    waits = (program.via == Via.LAUNCH) & into
    return remove_edges(changed, holds_queue | waits)


def out_of_stream(program: Program, nodes: BoolArray, gap_ns: Int64Array) -> Program:
    """Let some activities (bool[n]) neither wait for their stream nor their stream for them.

    What waits for them also waits for what came before them. Gaps as of `remove_activities`.
    """
    into, out_of = nodes[program.target], nodes[program.source]
    before, lag = kept_before(program, nodes)
    of_gpu = (Via.STREAM, Via.QUEUE, Via.SM)
    is_gone = np.isin(program.via, of_gpu) & (into | out_of)
    lag_now = program.lag + lag[program.source]
    is_followed = out_of & ~into & np.isin(program.via, (Via.STREAM, Via.EVENT, Via.WAIT))
    is_followed &= (before[program.source] != ABSENT) & (program.latency_ns != NEVER)
    edges = np.flatnonzero(is_followed & (lag_now <= 1))
    source, target, via = before[program.source[edges]], program.target[edges], program.via[edges]
    own_gap_ns = gap_ns[program.activity_kind[source], program.activity_kind[target]]
    latency_ns = np.where(via == Via.STREAM, own_gap_ns, program.latency_ns[edges])
    changed = remove_edges(program, is_gone)
    return add_edges(changed, source, target, via, latency_ns, lag_now[edges])


def chain_activities(program: Program, nodes: IndexArray, gap_ns: ArrayLike) -> Program:
    """Let activities (intp[k], ascending) follow one another, the first one the last of before.

    The gaps before each are int64[k] or one number, ns.
    """
    gaps_ns = np.broadcast_to(gap_ns, len(nodes))
    changed = add_edges(program, nodes[:-1], nodes[1:], Via.STREAM, gaps_ns[1:])
    return add_edges(changed, nodes[-1:], nodes[:1], Via.STREAM, gaps_ns[:1], lag=1)


# All measured on H200s of 132 multiprocessors, by ``tests/benchmarks/contention.py``.

# Beside NCCL's 24 blocks matrix products of 1.7 ms took 30 % longer, 0.2 ms 47 %, 0.04 ms 97 % (two
# waves); elementwise kernels 17 to 74 %.
_LONG_NS = 1_000_000
_SLOWER_LONG, _SLOWER = 0.30, 0.47
# During copies, matrix products took longer by this share; from 0.2 ms on they began later by this,
# ns.
_BESIDE_COPY = {"p2p": (0.035, 3_000), "h2d": (0.01, 3_000), "d2h": (0.01, 1_200)}
_LARGE_NS = 100_000


def slower_beside(
    program: Program, copy_direction: NDArray[np.str_], source: IndexArray, target: IndexArray
) -> Program:
    """Let compute take longer for as long as communication or copies run beside it.

    Sources (intp[k]) now run beside others, targets are the first activity of another stream beside
    each. Directions are str[n].
    """
    is_long = program.cost_ns >= _LONG_NS
    by_comm = np.where(is_long, _SLOWER_LONG, _SLOWER)
    changed = _slower(program, program.activity_kind[source] == Kind.COMM, source, target, by_comm)
    for direction, (share, gap_ns) in _BESIDE_COPY.items():
        later = np.where(program.cost_ns >= _LARGE_NS, gap_ns / np.maximum(program.cost_ns, 1), 0)
        is_such = copy_direction[source] == direction
        changed = _slower(changed, is_such, source, target, share + later)
    return changed


def _slower(
    program: Program,
    chosen: BoolArray,
    source: IndexArray,
    target: IndexArray,
    slower: NDArray[np.float64],
) -> Program:
    source, target = source[chosen], target[chosen]
    slower = np.where(program.activity_kind == Kind.COMPUTE, slower, 0)
    cost_ns = program.cost_ns.copy()
    for stream, index in groups_of(program.stream_index[target]):
        nodes = np.flatnonzero(program.stream_index == stream)
        end_ns = np.cumsum(program.cost_ns[nodes])
        start_ns = end_ns - program.cost_ns[nodes]
        first = np.searchsorted(nodes, target[index])
        beside_ns = program.cost_ns[source[index]] / (1 + slower[target[index]])
        beside = union(start_ns[first], start_ns[first] + beside_ns.astype(np.int64))
        within_ns = measure_within(beside, start_ns, end_ns)
        cost_ns[nodes] += (within_ns * slower[nodes]).astype(np.int64)
    return replace_cost(program, np.ones(len(cost_ns), dtype=np.bool_), cost_ns)
