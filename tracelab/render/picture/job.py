"""The picture of a job: all ranks on one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from statistics import median

from tracelab.base.intervals import Intervals, clip, gaps, intersect, join, measure, subtract, union
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.layout import LEFT_PX, RIGHT_PX
from tracelab.render.picture.rows import Band, Layer, Row
from tracelab.render.picture.save import DEFAULT_LOOK, Look, Picture
from tracelab.render.picture.timeline import Panel, draw_panels
from tracelab.render.ranks import RankShares
from tracelab.render.scene import NOTHING, Scene, Span
from tracelab.render.words import duration_text
from tracelab.report.schema import Job

_WORK = ("forward", "backward", "other_compute", "compute", "copy", "memset")
_MAX_RANKS = 64


def draw_job(
    job: Job,
    scenes: Mapping[int, Scene],
    *,
    title: str,
    verdict: str,
    shares: Mapping[int, RankShares],
    look: Look = DEFAULT_LOOK,
) -> Picture:
    """Draw a job in steps of usual length; scenes and shares are by rank."""
    ranks = _chosen(job)
    steps = choose_steps(job, scenes)
    grid = _grid(job, scenes, steps, look.width_px - LEFT_PX - RIGHT_PX)
    rows, busy = zip(*(_row(scenes[rank], grid, shares.get(rank)) for rank in ranks), strict=True)
    steps_of = {
        times.rank: {x.step: Span(x.start_ns, x.end_ns) for x in times.steps}
        for times in job.per_rank
    }
    of = ["compute / wait: shares of a mean step"] if shares else []
    panel = Panel(
        grid=grid,
        names=(),
        rows=rows,
        steps=[steps_of[rank] for rank in ranks],
        busy=dict(zip(ranks, busy, strict=True)),
        title=title,
        lines=(verdict, "  ·  ".join([*_caption(job, ranks, steps, grid), *of])),
        below=_roles(job),
        zero_ns=grid.start_ns,
        unit="rank",
        marked={x.rank for x in job.stragglers},
    )
    return draw_panels([panel], look)


def _chosen(job: Job) -> list[int]:
    stragglers = [straggler.rank for straggler in job.stragglers]
    kept = list(dict.fromkeys([*stragglers, *job.ranks]))[:_MAX_RANKS]
    return sorted(kept)


def choose_steps(job: Job, scenes: Mapping[int, Scene]) -> tuple[int, ...]:
    """Choose two steps in a row whose lengths are nearest the median, of those that all ranks have.

    There are fewer if the job has no more.
    """
    length_ns: dict[int, int] = {}
    seen = Counter[int]()
    for times in job.per_rank:
        scene = scenes[times.rank]
        for x in times.steps:
            if x.step in (scene.step, *scene.usual_steps):
                seen[x.step] += 1
                length_ns[x.step] = max(length_ns.get(x.step, 0), x.end_ns - x.start_ns)
    numbers = sorted(number for number, count in seen.items() if count == len(job.per_rank))
    if not numbers:
        return ()
    usual_ns = median(length_ns[number] for number in numbers)
    choices: list[tuple[int, ...]] = list(pairwise(numbers)) or [(numbers[0],)]
    return min(choices, key=lambda steps: sum(abs(length_ns[x] - usual_ns) for x in steps))


def _grid(job: Job, scenes: Mapping[int, Scene], steps: Sequence[int], columns: int) -> Grid:
    shown = [(x.start_ns, x.end_ns) for rank in job.per_rank for x in rank.steps if x.step in steps]
    shown = shown or [(scene.start_ns, scene.end_ns) for scene in scenes.values()]
    starts, ends = zip(*shown, strict=True)
    return Grid(min(starts), max(ends), columns)


def _row(scene: Scene, grid: Grid, shares: RankShares | None) -> tuple[Row, Intervals]:
    """Build the row of a rank, and return when it is not idle, as far as its file says."""
    within = Span(grid.start_ns, grid.end_ns)
    [work] = scene.lanes_of_type("work")
    covered = {kind: work.covered(kind, within) for kind in work.kinds}
    nothing = union([], [])
    waiting = scene.lane("wait")
    waits, transfers = (
        nothing if waiting is None else waiting.covered(kind, within)
        for kind in ("wait", "transfer")
    )
    busy = reduce(join, covered.values(), nothing)

    def layer(kind: str, of_kind: Intervals) -> Layer:
        return Layer(kind, of_kind, NOTHING, NOTHING, NOTHING)

    # Where one kernel waits while another one transfers, both are seen.
    communication = (
        layer("transfer", join(transfers, subtract(covered["comm"], waits))),
        layer("wait", subtract(waits, transfers)),
    )
    beside = (layer("wait", intersect(waits, transfers)),)
    bands = (
        Band(0, 0.6, 0.16, tuple(layer(kind, covered[kind]) for kind in _WORK)),
        Band(0.66, 1, 0.3, communication),
        Band(0.66, 0.83, 0.3, beside),
    )
    known = clip(union([scene.start_ns], [scene.end_ns]), *within)
    percents = shares.percents if shares else {}
    label = " / ".join(f"{percents[name]} %" for name in ("compute", "wait") if percents)
    return Row(label, scene.rank, measure(busy), bands), join(busy, gaps(known, *within))


def _caption(job: Job, ranks: Sequence[int], steps: Sequence[int], grid: Grid) -> list[str]:
    parts = []
    if len(ranks) < len(job.ranks):
        parts.append(f"{len(ranks)} of {len(job.ranks):,} ranks")
    if steps:
        names = " and ".join(map(str, steps))
        recorded = {x.step for times in job.per_rank for x in times.steps}
        choice = f" (nearest the usual length of {len(recorded):,} steps)"
        choice *= len(recorded) > len(steps)
        parts.append(f"step{'s' * (len(steps) > 1)} {names}{choice}")
    parts.append(duration_text(grid.length_ns))
    if job.alignment is not None and job.alignment.residual_ns is not None:
        parts.append(f"the ranks' clocks agree within {duration_text(job.alignment.residual_ns)}")
    return parts


def _roles(job: Job) -> dict[int, str]:
    stages = job.pipeline.per_stage if job.pipeline else ()
    roles = {x.rank: f"stage {x.stage}" for x in stages}
    return roles | {x.rank: "others wait for it" for x in job.stragglers}
