"""An independent account of a job's critical path: slow, one event of one rank after the other.

Within a rank it is the walk of `tests.reference.walks`; from rank to rank it goes by definition. It
follows jobs whose ranks all begin at once, and whose clocks differ by a constant alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.build.rows import Row
from tests.reference.walks import Walks
from tracelab.measures.critical_path import PathKind
from tracelab.model.graph import Graph
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT

Segment = tuple[int, int, int, PathKind]  # rank, start and end on the job's clock, kind


def slow_job_path(
    ranks: Sequence[tuple[list[Row], Graph]],
    offsets: Sequence[int],
    meetings: Sequence[Sequence[int]],
) -> list[Segment]:
    """The segments of the whole recordings, ascending.

    Args:
        ranks: the rows of each rank, and their graph.
        offsets: what is added to each rank's times on the job's clock.
        meetings: of each collective the event id of its kernel on each rank, ABSENT where a rank
            takes no part.
    """
    walks = [Walks(rows, graph) for rows, graph in ranks]
    meeting_of = {
        (rank, event): meeting
        for meeting in meetings
        for rank, event in enumerate(meeting)
        if event != ABSENT
    }
    found: list[Segment] = []
    passed: set[tuple[int, int]] = set()

    def on_job_clock(rank: int, time: int) -> int:
        return time + offsets[rank]

    def start_of(rank: int, event: int) -> int:
        return on_job_clock(rank, walks[rank].events[event].start)

    def go_to(rank: int, now: int) -> None:
        whole = ranks[rank][1].host.timeline.windows[0]
        first = min(window.start_ns for window in ranks[rank][1].host.timeline.windows)
        walks[rank].window = Window(None, first, whole.end_ns)
        walks[rank].now, walks[rank].segments = now, []

    def leave(rank: int) -> None:
        for start, end, kind, _ in walks[rank].segments:
            found.append((rank, on_job_clock(rank, start), on_job_clock(rank, end), kind))

    def awaited_by(rank: int, event: int) -> int | None:
        """The rank whose kernel began last, if it began after this one; of several the first."""
        meeting = meeting_of.get((rank, event), ())
        starts = {each: start_of(each, of) for each, of in enumerate(meeting) if of != ABSENT}
        if not starts or max(starts.values()) <= start_of(rank, event):
            return None
        return max(starts, key=lambda each: (starts[each], -each))

    ends = [
        on_job_clock(rank, graph.host.timeline.windows[0].end_ns)
        for rank, (_, graph) in enumerate(ranks)
    ]
    rank = ends.index(max(ends))
    walk = walks[rank]
    go_to(rank, ends[rank] - offsets[rank])
    row = walk._last_ended(walk.now)
    if row == ABSENT or walk.end[row] < walk.now:
        row = walk._through_host(ABSENT, ABSENT)
    while row != ABSENT and walk.now > walk.window.start_ns:
        event = walk.event_id[row]
        last = None
        if (rank, event) in meeting_of and walk.now >= walk.start[row]:
            last = awaited_by(rank, event)
        if last is not None:
            arrived = start_of(last, meeting_of[rank, event][last])
            until = min(arrived, on_job_clock(rank, walk.end[row]))
            if on_job_clock(rank, walk.now) >= until and (rank, event) not in passed:
                passed.add((rank, event))
                walk._spend(arrived - offsets[rank], PathKind.COMM, event)
                leave(rank)
                event, rank = meeting_of[rank, event][last], last
                walk = walks[rank]
                go_to(rank, walk.events[event].start)
                row = walk.event_id.index(event)
            else:
                walk._spend(walk.start[row], PathKind.UNKNOWN, event)
        row = walk._before(row)
    walk._spend(walk.window.start_ns, PathKind.UNKNOWN, ABSENT)
    leave(rank)
    return found[::-1]
