"""The programs of all ranks as one, in which they meet where they communicate.

A rank *arrives* once its stream and its launch let it; the ranks *meet* once the last one has
arrived, and data moves from then on. Waits follow from what the other ranks do.

```
rank 0  ──── arrives ─────┐             ┌── transfer ── end
                          ├── meet ─────┤
rank 1  ──────── arrives ─┘             └── transfer ── end
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, IntArray
from tracelab.job.matching import ENDS_TOGETHER
from tracelab.job.operation_members import Members
from tracelab.job.part import RankPart
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NODE_COLUMNS, NodeKind, Program, Via


class Meetings(Arrays):
    """Activities of the ranks' programs that meet: k members of m meetings.

    Attributes:
        meeting_index, rank_index: int64[k], the first ascending.
        node: int64[k], of that rank's program; repeated where one kernel does several operations.
        waits: bool[k], False if the activity may end before the others come, as a buffered send
            does.
    """

    meeting_index: Int64Array
    rank_index: Int64Array
    node: Int64Array
    waits: BoolArray

    def __len__(self) -> int:
        return int(self.meeting_index.max(initial=-1)) + 1


def find_meetings(members: Members, programs: Sequence[Program]) -> Meetings:
    """Find the matched operations whose activities are all in the programs of their ranks."""
    node = members.matches.member_values(
        [_activity_nodes(*of_rank) for of_rank in zip(programs, members.parts, strict=True)]
    )
    is_whole = np.ones(len(members.matches), dtype=np.bool_)
    is_whole[members.match_index[node == ABSENT]] = False
    chosen = np.flatnonzero(is_whole[members.match_index])
    ends_ns = members.arrival_ns + members.length_ns
    ends_together = np.isin(members.operation, ENDS_TOGETHER)
    awaited_ns = members.last_arrival_ns[members.match_index]
    return Meetings(
        meeting_index=(np.cumsum(is_whole) - 1)[members.match_index[chosen]].astype(np.int64),
        rank_index=members.part_index[chosen].astype(np.int64),
        node=node[chosen],
        waits=(ends_together | (ends_ns >= awaited_ns))[chosen],
    )


def _activity_nodes(program: Program, part: RankPart) -> Int64Array:
    node = np.flatnonzero(program.kind == NodeKind.ACTIVITY)
    node = node[np.argsort(program.event_id[node], kind="stable")]
    place = np.searchsorted(program.event_id[node], part.kernel_id)
    node, event_id = np.append(node, ABSENT), np.append(program.event_id[node], ABSENT)
    return np.where(event_id[place] == part.kernel_id, node[place], ABSENT)


class Joined(Arrays):
    """The programs of some ranks as one of n nodes.

    Attributes:
        program: nodes of the ranks, arrivals, meetings; the edges of each rank, then of meetings.
        rank_index: int64[n], into the programs; ABSENT for meetings.
        transfer_ns: int64[n], ns, of activities that meet others; else ABSENT.
        ends: per program intp[nodes], the nodes that they have become.
        entries: the same, but arrivals of activities that meet others.
        meeting_nodes: per program int64[v], the activities that meet others, ascending.
    """

    program: Program
    rank_index: Int64Array
    transfer_ns: Int64Array
    programs: tuple[Program, ...]
    ends: tuple[IndexArray, ...]
    entries: tuple[IndexArray, ...]
    meeting_nodes: tuple[Int64Array, ...]

    def edited(self, programs: Mapping[int, Program]) -> Program:
        """Edit some ranks' programs, by their index; transfers scale as their activities do."""
        cost_ns, latency_ns = self.program.cost_ns.copy(), self.program.latency_ns.copy()
        first_edge = np.cumsum([0, *(len(program.source) for program in self.programs)])
        added = []
        for index, program in programs.items():
            before, end = self.programs[index], self.ends[index]
            transfer_ns = self.transfer_ns[end]
            share = program.cost_ns / np.maximum(before.cost_ns, 1)
            scaled_ns = np.rint(transfer_ns * share).astype(np.int64)
            cost_ns[end] = np.where(transfer_ns == ABSENT, program.cost_ns, scaled_ns)
            count = len(before.source)
            latency_ns[first_edge[index] : first_edge[index + 1]] = program.latency_ns[:count]
            added.append(_edges_of(program, self.ends[index], self.entries[index], count))
        edges = {name: getattr(self.program, name) for name in _EDGE_COLUMNS}
        columns = _concatenate_edges([edges | {"latency_ns": latency_ns}, *added])
        return replace(self.program, cost_ns=cost_ns, **columns)


def join(programs: Sequence[Program], meetings: Meetings) -> Joined | None:
    """Make one program of those of several ranks; None where no order of the meetings fits all."""
    sizes = [len(program) for program in programs]
    first, total = np.cumsum([0, *sizes]), sum(sizes)
    rank_of = np.repeat(np.arange(len(programs)), sizes)
    # Numbered rank by rank, then the arrivals, then the meetings; then put in order.
    node_of_member = first[meetings.rank_index] + meetings.node
    visited, of_member = np.unique(node_of_member, return_inverse=True)
    arrival = total + np.arange(len(visited))
    meeting = total + len(visited) + np.arange(len(meetings))
    entry = np.arange(total)
    entry[visited] = arrival
    ranges = [slice(*bounds) for bounds in pairwise(first.tolist())]
    edges = [
        _edges_of(program, np.arange(total)[of_rank], entry[of_rank], 0)
        for program, of_rank in zip(programs, ranges, strict=True)
    ]
    waits, meeting_of_member = meetings.waits, meeting[meetings.meeting_index]
    source = np.concatenate((arrival[of_member], meeting_of_member[waits], arrival))
    target = np.concatenate((meeting_of_member, node_of_member[waits], visited))
    none = np.zeros(len(source), dtype=np.int64)
    own = (source, target, none + Via.MEETING, none, none)
    edges.append(dict(zip(_EDGE_COLUMNS, own, strict=True)))
    columns = _concatenate_edges(edges)
    is_own = columns["lag"] == 0
    is_one_rank = rank_of[1:] == rank_of[:-1]
    order = _find_order(
        total + len(visited) + len(meetings),
        np.concatenate((columns["source"][is_own], entry[:-1][is_one_rank])),
        np.concatenate((columns["target"][is_own], entry[1:][is_one_rank])),
    )
    if order is None:
        return None
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    transfer_ns = np.full(len(order), ABSENT, dtype=np.int64)
    # The last rank does not wait: a transfer is as long as its meeting's shortest activity.
    node_ns = np.concatenate([program.cost_ns for program in programs])[node_of_member]
    shortest_ns = np.full(len(meetings), np.iinfo(np.int64).max)
    np.minimum.at(shortest_ns, meetings.meeting_index, node_ns)
    of_visited_ns = np.zeros(len(visited), dtype=np.int64)
    np.maximum.at(of_visited_ns, of_member, shortest_ns[meetings.meeting_index])
    transfer_ns[visited] = of_visited_ns
    columns |= {name: position[columns[name]] for name in ("source", "target")}
    for name, column in _node_columns(programs, first).items():
        of_meetings = np.full(len(meetings), ABSENT, dtype=column.dtype)
        columns[name] = np.concatenate((column, column[visited], of_meetings))
    is_launched = columns["launch_node"] != ABSENT
    columns["launch_node"][is_launched] = position[columns["launch_node"][is_launched]]
    columns["kind"][arrival], columns["kind"][meeting] = NodeKind.ARRIVAL, NodeKind.MEETING
    columns["cost_ns"][total:], columns["cost_ns"][visited] = 0, transfer_ns[visited]
    of_nodes = {name: columns[name][order] for name in (*NODE_COLUMNS, "launch_node")}
    length_ns = max(program.length_ns for program in programs)
    rank_index = np.concatenate((rank_of, rank_of[visited], np.full(len(meetings), ABSENT)))
    return Joined(
        program=replace(programs[0], **columns | of_nodes, length_ns=length_ns),
        rank_index=rank_index[order],
        transfer_ns=transfer_ns[order],
        programs=tuple(programs),
        ends=tuple(position[of_rank] for of_rank in ranges),
        entries=tuple(position[entry[of_rank]] for of_rank in ranges),
        meeting_nodes=tuple(
            visited[rank_of[visited] == rank] - begin for rank, begin in enumerate(first[:-1])
        ),
    )


def _find_order(count: int, source: IndexArray, target: IndexArray) -> IndexArray | None:
    by_source = np.argsort(source, kind="stable")
    targets = target[by_source].tolist()
    bounds = np.searchsorted(source[by_source], np.arange(count + 1)).tolist()
    missing = np.bincount(target, minlength=count)
    ready, left, order = np.flatnonzero(missing == 0).tolist(), missing.tolist(), []
    while ready:
        node = ready.pop()
        order.append(node)
        for other in targets[bounds[node] : bounds[node + 1]]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    return np.array(order, dtype=np.intp) if len(order) == count else None


_Columns = dict[str, Any]  # arrays by the name of the column
_EDGE_COLUMNS = ("source", "target", "via", "lag", "latency_ns")
_OF_RANK = ("thread_index", "stream_index")  # columns with numbers of one file


def _node_columns(programs: Sequence[Program], first: Int64Array) -> _Columns:
    columns: _Columns = {}
    for name in (*NODE_COLUMNS, "launch_node"):
        of_ranks = [getattr(program, name) for program in programs]
        if name in _OF_RANK:
            stride = 1 + max(int(column.max(initial=0)) for column in of_ranks)
            of_ranks = [_moved(column, rank * stride) for rank, column in enumerate(of_ranks)]
        elif name == "launch_node":
            of_ranks = [_moved(*of_rank) for of_rank in zip(of_ranks, first, strict=False)]
        columns[name] = np.concatenate(of_ranks)
    return columns


def _moved(index: IntArray, by: int) -> IntArray:
    return np.where(index == ABSENT, ABSENT, index + by).astype(index.dtype)


def _edges_of(program: Program, ends: IndexArray, entries: IndexArray, first: int) -> _Columns:
    own = {name: getattr(program, name)[first:] for name in _EDGE_COLUMNS}
    return own | {"source": ends[own["source"]], "target": entries[own["target"]]}


def _concatenate_edges(edges: Sequence[_Columns]) -> _Columns:
    return {
        name: np.concatenate([of[name] for of in edges]).astype(column.dtype)
        for name, column in edges[0].items()
    }
