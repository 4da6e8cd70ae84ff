"""An independent account of a job's critical path: slow, one node of one rank after the other.

It takes the recorded programs of the ranks as they are: the tests of recorded programs check those.
It follows jobs whose ranks all begin at once, and whose clocks differ by a constant alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.measures.critical_path import PathKind
from tracelab.model.binding import Constraint
from tracelab.model.graph import Graph
from tracelab.model.trace import ABSENT
from tracelab.simulate.recorded import record_program

Segment = tuple[int, int, int, PathKind]  # rank, start and end on the job's clock, kind


class _Rank:
    """The nodes of one rank on the job's clock, and what each waited for."""

    def __init__(self, graph: Graph, offset: int) -> None:
        timeline, program = graph.host.timeline, record_program(graph).program
        self.constraint = graph.binding.constraint.tolist()
        self.row, self.events = program.row.tolist(), program.event_id.tolist()
        self.kind = program.activity_kind.tolist()
        self.end = [moment + offset for moment in program.moment_ns.tolist()]
        self.start = [
            end - cost if row != ABSENT else end
            for end, cost, row in zip(self.end, program.cost_ns.tolist(), self.row, strict=True)
        ]
        self.edges = list(zip(program.source.tolist(), program.target.tolist(), strict=True))
        self.first = offset + min(window.start_ns for window in timeline.windows)
        self.last = offset + timeline.windows[0].end_ns

    def latest(self, nodes: Sequence[int]) -> int | None:
        """The node that was reached last, the latest one of several."""
        return max(nodes, key=lambda node: (self.end[node], node), default=None)

    def before(self, node: int) -> int | None:
        return self.latest([source for source, target in self.edges if target == node])

    def before_the_end(self) -> int | None:
        ended = [node for node, end in enumerate(self.end) if end <= self.last]
        last = [node for node in ended if self.end[node] == self.last]
        calls = [node for node in ended if self.row[node] == ABSENT]
        return (
            min(last)
            if last
            else min(
                (node for node in calls if self.end[node] == max(self.end[x] for x in calls)),
                default=None,
            )
        )

    def kind_between(self, before: int | None, node: int) -> PathKind:
        follows_activity = before is not None and self.row[before] != ABSENT
        if self.row[node] == ABSENT:
            return PathKind.SYNC if follows_activity else PathKind.HOST
        if before is None or self.constraint[self.row[node]] == Constraint.UNKNOWN:
            return PathKind.UNKNOWN
        return PathKind.QUEUE if follows_activity else PathKind.LAUNCH


def slow_job_path(
    graphs: Sequence[Graph], offsets: Sequence[int], meetings: Sequence[Sequence[int]]
) -> list[Segment]:
    """The segments of the whole recordings, ascending.

    Args:
        graphs: of each rank.
        offsets: what is added to each rank's times on the job's clock.
        meetings: of each collective the event id of its kernel on each rank, ABSENT where a rank
            takes no part.
    """
    ranks = [_Rank(graph, offset) for graph, offset in zip(graphs, offsets, strict=True)]
    meeting_of = {
        (rank, ranks[rank].events.index(event)): {
            other: ranks[other].events.index(of) for other, of in enumerate(meeting) if of != ABSENT
        }
        for meeting in meetings
        for rank, event in enumerate(meeting)
        if event != ABSENT
    }
    found: list[Segment] = []
    passed: set[tuple[int, int]] = set()
    ends = [one.last for one in ranks]
    rank, now = ends.index(max(ends)), max(ends)
    first = max(one.first for one in ranks)

    def spend(since: int, kind: PathKind) -> None:
        nonlocal now
        since = min(now, max(since, first))
        if since < now:
            found.append((rank, since, now, kind))
        now = since

    def awaited_by(rank: int, node: int) -> tuple[int, int] | None:
        """The kernel that began last, if it began after this one; of several the first rank's."""
        meeting = meeting_of.get((rank, node), {})
        starts = {other: ranks[other].start[of] for other, of in meeting.items()}
        if not starts or max(starts.values()) <= ranks[rank].start[node]:
            return None
        last = max(starts, key=lambda other: (starts[other], -other))
        return last, meeting[last]

    node = ranks[rank].before_the_end()
    spend(first if node is None else ranks[rank].end[node], PathKind.HOST)
    while node is not None and now > first:
        one = ranks[rank]
        last = awaited_by(rank, node) if now >= one.start[node] else None
        if last is not None:
            arrived = ranks[last[0]].start[last[1]]
            if now >= min(arrived, one.end[node]) and (rank, node) not in passed:
                passed.add((rank, node))
                spend(arrived, PathKind.COMM)
                rank, node = last
            else:
                spend(one.start[node], PathKind.UNKNOWN)
        elif one.row[node] != ABSENT:
            spend(one.start[node], PathKind(one.kind[node]))
        one = ranks[rank]
        before = one.before(node)
        since = first if before is None else min(one.end[before], one.start[node])
        spend(since, one.kind_between(before, node))
        node = before
    spend(first, PathKind.UNKNOWN)
    return found[::-1]
