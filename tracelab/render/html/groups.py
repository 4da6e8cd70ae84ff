"""The files of a page as groups of lanes on one clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelab.base.arrays import OneLine
from tracelab.base.file_names import short_names
from tracelab.base.intervals import Int64Array
from tracelab.base.text import visible
from tracelab.job.merge import Job
from tracelab.model.trace import ABSENT
from tracelab.render.html.encode import Lane
from tracelab.render.html.file_part import FilePart, Name
from tracelab.render.job_clock import JobTime, collective_times, job_times
from tracelab.report.schema import Report

_WAIT_KINDS = ("wait", "transfer")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Group(OneLine):
    """The lanes of one file, on the page's clock.

    Attributes:
        rank: the file's number in the report.
        label: what stands above its lanes.
        part: the file.
        lanes: its lanes; their names, operators and lines are indices into `names`.
        names: all its names.
        to_page_ns: brings moments of the file (int64[n], ns) to the page's clock.
        steps: number of each step to its start and end, ns.
        steady: the numbers of the steady ones.

    Example: ``Group(rank=1, label="rank 1", part=FilePart(...), lanes=(Lane("steps", ...), ...),
    names=(Name("gemm"), ...), to_page_ns=JobTime(...), steps={3: (900, 2_100)}, steady=(3,))``.
    """

    rank: int
    label: str
    part: FilePart
    lanes: tuple[Lane, ...]
    names: tuple[Name, ...]
    to_page_ns: Callable[[Int64Array], Int64Array]
    steps: Mapping[int, tuple[int, int]]
    steady: tuple[int, ...]

    @property
    def start_ns(self) -> int:
        """When the first thing in its lanes begins, ns."""
        return min(int(lane.start_ns.min()) for lane in self.lanes if len(lane))

    @property
    def end_ns(self) -> int:
        """When the last thing in its lanes ends, ns."""
        return max(int(lane.end_ns.max()) for lane in self.lanes if len(lane))

    def lane_index(self, lane_id: str) -> int:
        """The place of a lane, ABSENT where there is none."""
        ids = [lane.id for lane in self.lanes]
        return ids.index(lane_id) if lane_id in ids else ABSENT


def is_on_one_clock(report: Report, files: Sequence[FilePart]) -> bool:
    """Whether files are all ranks of a job, whose clocks became one."""
    job = report.job
    return job is not None and len(job.per_rank) > 0 and len(files) == len(job.ranks)


def page_times(report: Report, by_rank: Mapping[int, FilePart]) -> dict[int, JobTime]:
    """How the times of a job's files become those of the page; none of other files.

    Args:
        report: of these files, and of others perhaps.
        by_rank: files by their number in the report.
    """
    if report.job is None or not is_on_one_clock(report, list(by_rank.values())):
        return {}
    return job_times(report.job, by_rank)


def groups_of(report: Report, files: Sequence[FilePart]) -> list[Group]:
    """The groups of a page, by rank.

    The ranks of a job are on the job's clock. Of other files each has a clock of its own, from its
    first event on.

    Args:
        report: of these files, and of others perhaps.
        files: at least one.
    """
    rank_of = {trace.path: trace.rank for trace in report.traces}
    by_rank = {rank_of[part.path]: part for part in files}
    in_order = sorted(by_rank.items())
    times = page_times(report, by_rank)
    if report.job is None or not times:
        names = short_names([part.path for _, part in in_order])
        return [
            _group(rank, visible(name), part, np.asarray, ())
            for (rank, part), name in zip(in_order, names, strict=True)
        ]
    waits = _waits(report.job)
    return [_group(rank, f"rank {rank}", part, times[rank], waits[rank]) for rank, part in in_order]


def _group(
    rank: int,
    label: str,
    part: FilePart,
    to_page_ns: Callable[[Int64Array], Int64Array],
    waits: Sequence[tuple[int, int, int, str]],
) -> Group:
    first_line = len(part.names)
    lines = [
        Name(f"{where} · {name}" if where else name, where or "") for name, where in part.lines
    ]
    wait_texts = dict.fromkeys(text for *_, text in waits)
    first_wait = first_line + len(lines)

    def moved(lane: Lane) -> Lane:
        more = dict(lane.more)
        if "line" in more:
            more["line"] = np.where(more["line"] == ABSENT, ABSENT, more["line"] + first_line)
        start_ns, end_ns = to_page_ns(lane.start_ns), to_page_ns(lane.end_ns)
        return replace(lane, start_ns=start_ns, end_ns=end_ns, more=more)

    lanes = [*map(moved, part.lanes)]
    if waits:
        names = {text: first_wait + i for i, text in enumerate(wait_texts)}
        lanes.insert(1 if lanes[0].type == "steps" else 0, _wait_lane(waits, names))
    numbered = {window.step: window for window in part.windows if window.step is not None}
    bounds_ns = [np.array([x.start_ns, x.end_ns]) for x in numbered.values()]
    on_page = ((int(x[0]), int(x[1])) for x in map(to_page_ns, bounds_ns))
    return Group(
        rank=rank,
        label=label,
        part=part,
        lanes=tuple(lanes),
        names=(*part.names, *lines, *map(Name, wait_texts)),
        to_page_ns=to_page_ns,
        steps=dict(zip(numbered, on_page, strict=True)),
        steady=part.steps,
    )


def _waits(job: Job) -> dict[int, list[tuple[int, int, int, str]]]:
    """Of each rank, per collective: when it began, all had arrived and it ended, and what it is."""
    waits: dict[int, list[tuple[int, int, int, str]]] = {rank: [] for rank in job.ranks}
    for collective, rank, start_ns, arrived_ns, end_ns in collective_times(job):
        what = visible(collective.operation)
        if collective.last_rank is not None:
            what += f", rank {collective.last_rank} came last: it {visible(collective.why)}"
        waits[rank].append((start_ns, arrived_ns, end_ns, what))
    return waits


def _wait_lane(waits: Sequence[tuple[int, int, int, str]], names: Mapping[str, int]) -> Lane:
    """When a rank waited for others in communication, and when it transferred."""
    begun, arrived, ended = np.array([x[:3] for x in waits], dtype=np.int64).T
    start_ns, end_ns = np.concatenate((begun, arrived)), np.concatenate((arrived, ended))
    kind = np.repeat(np.array([0, 1], dtype=np.uint8), len(waits))
    name = np.tile([names[text] for *_, text in waits], 2)
    order = np.lexsort((end_ns, start_ns))
    order = order[end_ns[order] > start_ns[order]]
    return Lane(
        id="wait",
        type="wait",
        label="waits for other ranks",
        device=None,
        summary=True,
        kinds=_WAIT_KINDS,
        start_ns=start_ns[order],
        end_ns=end_ns[order],
        kind=kind[order],
        more={"name": name[order]},
    )
