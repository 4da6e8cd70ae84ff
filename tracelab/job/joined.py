"""The programs of all ranks as one, in which they meet where they communicate.

A collective is split on each rank: the rank *arrives* once its stream and its launch let it, the
ranks *meet* once the last one has arrived, and data moves from then on. So how long a rank waits is
no longer what was recorded: it follows from what the others do.

```
rank 0  ──── arrives ─────┐             ┌── transfer ── end
                          ├── meet ─────┤
rank 1  ──────── arrives ─┘             └── transfer ── end
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.job.meetings import Meetings, Visits, find_visits, take_turns
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NodeKind, Program, Via


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Joined(Frozen):
    """The programs of some ranks as one of n nodes.

    Attributes:
        program: what is replayed. Its nodes are those of the ranks, the arrivals and the meetings;
            its edges those of one rank after another, then those of the meetings.
        rank_index: int64[n], into the programs, of each node; ABSENT of meetings.
        transfer_ns: int64[n], ns, what an activity that meets others takes from then on; ABSENT of
            all other nodes.
        programs: what was joined.
        ends: of each program intp[nodes], the nodes that they have become.
        entries: the same, but of activities that meet others their arrivals, where edges to them
            now lead.
        meeting_nodes: of each program int64[v], the activities that meet others, ascending.
    """

    program: Program
    rank_index: Int64Array
    transfer_ns: Int64Array
    programs: tuple[Program, ...]
    ends: tuple[NDArray[np.intp], ...]
    entries: tuple[NDArray[np.intp], ...]
    meeting_nodes: tuple[Int64Array, ...]

    def edited(self, programs: Mapping[int, Program]) -> Program:
        """The program with other costs and edges of some ranks.

        A transfer takes as many times longer as the activity does in the rank's edited program.

        Args:
            programs: edits of those that were joined, by their index.
        """
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
        return _with_edges(replace(self.program, cost_ns=cost_ns, latency_ns=latency_ns), added)


def join(programs: Sequence[Program], meetings: Meetings) -> Joined | None:
    """Make one program of those of several ranks.

    Args:
        programs: of each rank, of the same steps, at least one.
        meetings: where they meet.

    Returns:
        None where no order of the meetings fits all ranks.
    """
    visits = find_visits(programs, meetings)
    turn = take_turns(programs, meetings, visits)
    if turn is None:
        return None
    sizes = [len(program.kind) for program in programs]
    first, total = np.cumsum([0, *sizes]), sum(sizes)
    rank_index = np.repeat(np.arange(len(programs)), sizes)
    # Numbered rank by rank, then the arrivals, then the meetings; then put in order.
    visited = first[visits.rank_index] + visits.node
    arrival = total + np.arange(len(visited))
    meeting = total + len(visited) + np.arange(len(meetings))
    within = np.concatenate((np.arange(total) - first[rank_index], visits.node, 0 * meeting))
    order = np.lexsort((within, turn))
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    entry = position[:total].copy()
    entry[visited] = position[arrival]
    ranges = [slice(*bounds) for bounds in pairwise(first)]
    ends = tuple(position[:total][of_rank] for of_rank in ranges)
    entries = tuple(entry[of_rank] for of_rank in ranges)
    transfer_ns = np.full(len(order), ABSENT, dtype=np.int64)
    transfer_ns[position[visited]] = visits.transfer_ns
    # An arrival is of the same event as what it is the arrival of; a meeting of none.
    like = np.concatenate((np.arange(total), visited))
    nodes: _Columns = {
        name: _laid_out(columns[like], len(meetings), order)
        for name, columns in _node_columns(programs, first).items()
    }
    is_activity = nodes["launch_node"] != ABSENT
    nodes["launch_node"][is_activity] = position[nodes["launch_node"][is_activity]]
    nodes["kind"][position[arrival]] = NodeKind.ARRIVAL
    nodes["kind"][position[meeting]] = NodeKind.MEETING
    nodes["cost_ns"][position[arrival]] = nodes["cost_ns"][position[meeting]] = 0
    nodes["cost_ns"][position[visited]] = visits.transfer_ns
    nodes |= {name: np.zeros(0, dtype=dtype) for name, dtype in _EDGE_COLUMNS.items()}
    base = replace(
        programs[0],
        **nodes,
        length_ns=max(program.length_ns for program in programs),
    )
    of_ranks = [_edges_of(*of_rank, 0) for of_rank in zip(programs, ends, entries, strict=True)]
    of_meetings = _meeting_edges(meetings, visits, position, visited)
    return Joined(
        program=_with_edges(base, (*of_ranks, of_meetings)),
        rank_index=_laid_out(rank_index[like], len(meetings), order).astype(np.int64),
        transfer_ns=transfer_ns,
        programs=tuple(programs),
        ends=ends,
        entries=entries,
        meeting_nodes=tuple(
            visits.node[visits.rank_index == rank] for rank in range(len(programs))
        ),
    )


_Columns = dict[str, Any]  # arrays by the name of the column
_EDGE_COLUMNS = {
    "source": np.intp,
    "target": np.intp,
    "via": np.int8,
    "lag": np.int8,
    "latency_ns": np.int64,
}
_NODE_COLUMNS = (
    "kind",
    "event_id",
    "row",
    "cost_ns",
    "moment_ns",
    "activity_kind",
)
_OF_RANK = ("thread_index", "stream_index")  # columns with numbers of one file


def _node_columns(programs: Sequence[Program], first: Int64Array) -> _Columns:
    """The columns of the nodes of all programs, one after another."""
    columns = {
        name: np.concatenate([getattr(program, name) for program in programs])
        for name in _NODE_COLUMNS
    }
    for name in _OF_RANK:  # no two ranks have the same one
        stride = 1 + max(int(getattr(program, name).max(initial=0)) for program in programs)
        columns[name] = np.concatenate(
            [_moved(getattr(program, name), rank * stride) for rank, program in enumerate(programs)]
        )
    columns["launch_node"] = np.concatenate(
        [
            _moved(program.launch_node, begin)
            for program, begin in zip(programs, first, strict=False)
        ]
    )
    return columns


def _moved(index: NDArray[np.integer[Any]], by: int) -> NDArray[np.integer[Any]]:
    return np.where(index == ABSENT, ABSENT, index + by).astype(index.dtype)


def _laid_out(
    column: NDArray[np.integer[Any]], meeting_count: int, order: NDArray[np.intp]
) -> NDArray[np.integer[Any]]:
    """A column of all nodes and arrivals, with ABSENT for the meetings, in order."""
    return np.append(column, np.full(meeting_count, ABSENT, dtype=column.dtype))[order]


def _edges_of(
    program: Program, ends: NDArray[np.intp], entries: NDArray[np.intp], first: int
) -> _Columns:
    """The edges of a rank from some on: they come from ends and lead to entries."""
    return {
        "source": ends[program.source[first:]],
        "target": entries[program.target[first:]],
        "via": program.via[first:],
        "lag": program.lag[first:],
        "latency_ns": program.latency_ns[first:],
    }


def _meeting_edges(
    meetings: Meetings, visits: Visits, position: NDArray[np.intp], visited: Int64Array
) -> _Columns:
    """From arrivals to meetings and to what ends; from meetings to the ends that wait for them."""
    total = len(position) - len(visited) - len(meetings)
    arrival = total + np.arange(len(visited))
    meeting = total + len(visited) + meetings.meeting_index
    waits = meetings.waits
    source = np.concatenate((arrival[visits.of_member], meeting[waits], arrival))
    target = np.concatenate((meeting, visited[visits.of_member[waits]], visited))
    none = np.zeros(len(source), dtype=np.int64)
    return {
        "source": position[source],
        "target": position[target],
        "via": none + Via.MEETING,
        "lag": none,
        "latency_ns": none,
    }


def _with_edges(program: Program, edges: Iterable[_Columns]) -> Program:
    """The program with more edges after its own."""
    all_edges = [{name: getattr(program, name) for name in _EDGE_COLUMNS}, *edges]
    columns: _Columns = {
        name: np.concatenate([of[name] for of in all_edges]).astype(dtype)
        for name, dtype in _EDGE_COLUMNS.items()
    }
    return replace(program, **columns)
