"""Where the ranks of a job meet: in collectives, and each sender with its receiver."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.job.collectives import ENDS_TOGETHER
from tracelab.job.members import Members
from tracelab.job.rank_part import RankPart
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NodeKind, Program


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Meetings(Frozen):
    """Which activities of the ranks' programs meet: k members of m meetings.

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
        """How many meetings there are."""
        return int(self.meeting_index.max(initial=-1)) + 1


def find_meetings(members: Members, programs: Sequence[Program]) -> Meetings:
    """Find the matched operations whose activities are all in the programs of their ranks.

    Args:
        members: the matched operations.
        programs: of each rank.
    """
    node = members.matches.of_members(
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
    """The activities of the ranks' programs that meet others, and what is left of each from then.

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
    """In which turn each node, arrival and meeting is reached; None if no order fits all ranks.

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
    """Where a rank arrives, and what waits for the end of what meets others, in its own order.

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
