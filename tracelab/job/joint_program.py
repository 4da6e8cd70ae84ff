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

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.job.matching import ENDS_TOGETHER
from tracelab.job.members import Members
from tracelab.job.part import RankPart
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NodeKind, Program, Via

# --- where ranks meet: in collectives, and each sender with its receiver ---


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Meetings(Frozen):
    """Activities of the ranks' programs that meet: k members of m meetings.

    Example row: ``(meeting_index=0, rank_index=1, node=57, waits=True)``.

    Attributes:
        meeting_index: int64[k], ascending, each of 0 to m - 1.
        rank_index: int64[k], into the programs.
        node: int64[k], of that program, the activity; the same in several meetings where one kernel
            carries out several operations.
        waits: bool[k], the activity ends after all have met; else it ends without the others, as a
            sender does whose message a buffer holds.
    """

    meeting_index: Int64Array
    rank_index: Int64Array
    node: Int64Array
    waits: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of meetings."""
        return int(self.meeting_index.max(initial=-1)) + 1


def find_meetings(members: Members, programs: Sequence[Program]) -> Meetings:
    """Find the matched operations whose activities are all in the programs of their ranks.

    Args:
        members: the matched operations.
        programs: of each rank.
    """
    node = members.matches.member_values(
        [_activity_nodes(*of_rank) for of_rank in zip(programs, members.parts, strict=True)]
    )
    is_whole = np.ones(len(members.matches), dtype=np.bool_)
    is_whole[members.match_index[node == ABSENT]] = False
    chosen = np.flatnonzero(is_whole[members.match_index])
    # Who ended before the last one came did not need it.
    ends_ns = members.arrival_ns + members.length_ns
    ends_together = np.isin(members.operation, ENDS_TOGETHER)
    awaited_ns = members.last_arrival_ns[members.match_index]
    return Meetings(
        meeting_index=(np.cumsum(is_whole) - 1)[members.match_index[chosen]].astype(np.int64),
        rank_index=members.part_index[chosen].astype(np.int64),
        node=node[chosen],
        waits=(ends_together | (ends_ns >= awaited_ns))[chosen],
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Visits(Frozen):
    """The activities that meet others, each once; v of them.

    Attributes:
        rank_index, node: int64[v], ascending.
        transfer_ns: int64[v], ns, what is left of each once all have met.
        of_member: intp[k], of each member of a meeting its activity.
    """

    rank_index: Int64Array
    node: Int64Array
    transfer_ns: Int64Array
    of_member: NDArray[np.intp]


def _activity_nodes(program: Program, part: RankPart) -> Int64Array:
    """int64[c], the node of each operation's activity; ABSENT where the program lacks it."""
    node = np.flatnonzero(program.kind == NodeKind.ACTIVITY)
    order = np.argsort(program.event_id[node], kind="stable")
    event_id = program.event_id[node[order]]
    place = np.minimum(np.searchsorted(event_id, part.kernel_id), max(0, len(node) - 1))
    if not len(node):
        return np.full(len(part), ABSENT, dtype=np.int64)
    return np.where(event_id[place] == part.kernel_id, node[order[place]], ABSENT)


def find_visits(programs: Sequence[Program], meetings: Meetings) -> Visits:
    """Find the activities that meet others, and what is left of each from then.

    The rank that comes last does not wait: a transfer is as long as the shortest activity of its
    meeting, and an activity as long as the longest of its transfers.
    """
    key = np.stack((meetings.rank_index, meetings.node))
    (rank_index, node), of_member = np.unique(key, axis=1, return_inverse=True)
    of_member = of_member.reshape(-1)
    first = np.cumsum([0, *(len(program.kind) for program in programs)])
    cost_ns = np.concatenate([program.cost_ns for program in programs])[first[rank_index] + node]
    shortest_ns = np.full(len(meetings), np.iinfo(np.int64).max)
    np.minimum.at(shortest_ns, meetings.meeting_index, cost_ns[of_member])
    transfer_ns = np.zeros(len(node), dtype=np.int64)
    np.maximum.at(transfer_ns, of_member, shortest_ns[meetings.meeting_index])
    return Visits(rank_index, node, transfer_ns, of_member)


def take_turns(
    programs: Sequence[Program], meetings: Meetings, visits: Visits
) -> Int64Array | None:
    """Number the turn in which each node, arrival and meeting is reached; None if no order fits.

    In a turn a rank goes on in its own order, up to what has to wait for the end of an activity
    that has not met the others; or some meet; or an activity ends, once it has met all.
    """
    sizes = [len(program.kind) for program in programs]
    first, total = np.cumsum([0, *sizes]).tolist(), sum(sizes)
    visit_count = len(visits.node)
    visited = (np.array(first)[visits.rank_index] + visits.node).tolist()
    waiting = np.flatnonzero(meetings.waits)
    absent = np.bincount(meetings.meeting_index, minlength=len(meetings)).tolist()
    open_count = (np.bincount(visits.of_member[waiting], minlength=visit_count) + 1).tolist()
    meetings_of = _grouped(meetings.meeting_index, visits.of_member, visit_count)
    waiting_of = _grouped(visits.of_member[waiting], meetings.meeting_index[waiting], len(meetings))
    stops = [_stops(program, rank, visits) for rank, program in enumerate(programs)]
    reached = [0] * len(programs)
    turn = np.full(total + visit_count + len(meetings), ABSENT, dtype=np.int64)
    turns = count()
    goes_on = True
    while goes_on:
        goes_on = False
        for rank, of_rank in enumerate(stops):
            now, until, arrived = next(turns), sizes[rank], []
            while of_rank:
                node, is_arrival, visit = of_rank[0]
                if not is_arrival and open_count[visit]:
                    until = node
                    break
                of_rank.popleft()
                if is_arrival:
                    arrived.append(visit)
            goes_on |= until > reached[rank]
            turn[first[rank] + reached[rank] : first[rank] + until] = now
            reached[rank] = until
            for visit in arrived:
                turn[total + visit] = now
                ended = [visit]
                for meeting in meetings_of[visit]:
                    absent[meeting] -= 1
                    if not absent[meeting]:
                        turn[total + visit_count + meeting] = next(turns)
                        ended += waiting_of[meeting]
                for other in ended:
                    open_count[other] -= 1
                    if not open_count[other]:
                        turn[visited[other]] = next(turns)
    return turn if reached == sizes else None


def _stops(program: Program, rank: int, visits: Visits) -> deque[tuple[int, bool, int]]:
    """List where a rank arrives, and what waits for the end of what meets others, in its order.

    Returns:
        node, whether it arrives there, and the activity, an index into `visits`.
    """
    index = np.flatnonzero(visits.rank_index == rank)
    visit_of = np.full(len(program.kind), ABSENT, dtype=np.int64)
    visit_of[visits.node[index]] = index
    edge = np.flatnonzero((program.lag == 0) & (visit_of[program.source] != ABSENT))
    ends = zip(
        program.target[edge].tolist(),
        repeat(False),
        visit_of[program.source[edge]].tolist(),
        strict=False,
    )
    arrivals = zip(visits.node[index].tolist(), repeat(True), index.tolist(), strict=False)
    return deque(sorted((*ends, *arrivals)))


def _grouped(
    values: NDArray[np.integer[Any]], group: NDArray[np.integer[Any]], group_count: int
) -> list[list[int]]:
    """The values of each group.

    >>> _grouped(np.array([7, 8, 9]), np.array([1, 0, 1]), 3)
    [[8], [7, 9], []]
    """
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(1, group_count))
    return [part.tolist() for part in np.split(values[order], bounds)]


# --- the programs as one ---


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
        return _add_edges(replace(self.program, cost_ns=cost_ns, latency_ns=latency_ns), added)


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
        program=_add_edges(base, (*of_ranks, of_meetings)),
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
    """Make edges from arrivals to meetings and to what ends, and from meetings to waiting ends."""
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


def _add_edges(program: Program, edges: Iterable[_Columns]) -> Program:
    """The program with more edges after its own."""
    all_edges = [{name: getattr(program, name) for name in _EDGE_COLUMNS}, *edges]
    columns: _Columns = {
        name: np.concatenate([of[name] for of in all_edges]).astype(dtype)
        for name, dtype in _EDGE_COLUMNS.items()
    }
    return replace(program, **columns)
