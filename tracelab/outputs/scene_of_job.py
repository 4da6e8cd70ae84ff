"""Scenes of a report's files: findings, and a job's ranks on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.analysis.reports import FileResult
from tracelab.base.names import short_names
from tracelab.base.safe_text import visible
from tracelab.findings.finding import Finding, call_site_of
from tracelab.findings.rules import waiting_ranks
from tracelab.model.wording import describe
from tracelab.render.scene import Lane, Mark, Places, Scene, Span
from tracelab.render.text.savings import amount, price
from tracelab.report.finding_groups import finding_groups
from tracelab.report.glossary import FINDING_CAUSES
from tracelab.report.schema import Job, Report
from tracelab.report.views import Scope, ranks_of


def scenes_of_report(report: Report, scenes: Sequence[Scene]) -> list[Scene]:
    """Complete scenes, by rank: headings, findings, and a job's clock."""
    rank_of = {trace.path: trace.rank for trace in report.traces}
    by_rank = sorted((replace(x, rank=rank_of[x.path]) for x in scenes), key=lambda x: x.rank)
    job = report.job
    if job is not None and job.per_rank and len(scenes) == len(job.ranks):
        shown = align_scenes(job, [replace(x, label=f"rank {x.rank}") for x in by_rank])
    else:
        names = map(visible, short_names([scene.path for scene in by_rank]))
        shown = [replace(x, label=name) for x, name in zip(by_rank, names, strict=True)]
    marks = marks_of(report, shown)
    return [replace(x, marks=tuple(of_file)) for x, of_file in zip(shown, marks, strict=True)]


def scenes_of_ranks(report: Report, results: Iterable[FileResult]) -> dict[int, Scene]:
    """Make the scenes of a job's ranks on its clock: steps, work and waits."""
    assert report.job is not None
    rank_of = {trace.path: trace.rank for trace in report.traces}
    scenes = [_scene_of_rank(result) for result in results if result.part is not None]
    by_rank = [replace(x, rank=rank_of[x.path]) for x in scenes]
    return {scene.rank: scene for scene in align_scenes(report.job, by_rank)}


def _scene_of_rank(result: FileResult) -> Scene:
    part = result.part
    assert part is not None
    steps, whole = part.steps, Span(part.first_ns, part.last_ns)
    times = part.shown.values()
    work = Lane(
        id=f"work:{part.device}",
        label=f"GPU {part.device}",
        device=part.device,
        kinds=tuple(part.shown),
        start_ns=np.concatenate([x.starts for x in times]),
        end_ns=np.concatenate([x.ends for x in times]),
        kind=np.repeat(np.arange(len(times), dtype=np.uint8), list(map(len, times))),
        more={},
    )
    of_steps = Lane(
        id="steps",
        label="steps",
        kinds=("step",),
        start_ns=steps.start_ns,
        end_ns=steps.end_ns,
        kind=np.zeros(len(steps.number), dtype=np.uint8),
        more={"number": steps.number},
    )
    return Scene(
        path=part.path,
        window=whole,
        focus=whole,
        start_ns=whole.start_ns,
        end_ns=whole.end_ns,
        threads=(),
        names=(),
        lanes=(of_steps, work.select(np.argsort(work.start_ns, kind="stable"))),
        device=part.device,
        base_ns=part.origin_ns,
        usual_steps=tuple(steps.number[steps.is_steady].tolist()),
    )


def align_scenes(job: Job, scenes: Sequence[Scene]) -> list[Scene]:
    """Put the scenes of a job's ranks on its clock, with waits."""
    clocks = job_clocks(job, {scene.rank: scene for scene in scenes})
    waits = _waits(job)
    moved = []
    for scene in scenes:
        timed = scene.moved_to_clock(clocks[scene.rank])
        moved.append(_add_waits(timed, waits[scene.rank]) if waits[scene.rank] else timed)
    return moved


def job_clocks(job: Job, scenes: Mapping[int, Scene]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Relate each rank's times to the job's clock by its steps, else by its offset."""
    offsets = {x.rank: x.offset_ns for x in job.alignment.per_rank} if job.alignment else {}
    reference = scenes.get(job.alignment.reference_rank) if job.alignment else None
    clocks = {}
    for x in job.per_rank:
        scene = scenes[x.rank]
        spans = {scene.step: scene.window} | dict(scene.steps.items())
        pairs: dict[int, int] = {}
        for step in x.steps:
            span = spans.get(step.step, ())
            for own_ns, job_ns in zip(span, (step.start_ns, step.end_ns), strict=False):
                pairs.setdefault(own_ns, job_ns)
        if not pairs:
            ahead_ns = _first_event_ns(scene) - _first_event_ns(reference or scene)
            pairs[scene.start_ns] = scene.start_ns + ahead_ns - offsets.get(x.rank, 0)
        clocks[x.rank] = tuple((job_ns, own_ns) for own_ns, job_ns in sorted(pairs.items()))
    return clocks


def _first_event_ns(scene: Scene) -> int:
    return scene.base_ns + scene.origin_ns


def _waits(job: Job) -> dict[int, list[tuple[int, int, int, str]]]:
    """List each rank's waits (0) and transfers (1): start and end, ns, the kind, and a text."""
    waits: dict[int, list[tuple[int, int, int, str]]] = {rank: [] for rank in job.ranks}
    for x in job.collectives:
        text = visible(x.operation)
        if x.last_rank is not None:
            text += f", rank {x.last_rank} came last: it {visible(x.why)}"
        columns = zip(x.ranks, x.arrival_ns, x.wait_ns, x.transfer_ns, strict=True)
        for rank, start_ns, wait_ns, transfer_ns in columns:
            arrived_ns = start_ns + wait_ns
            waits[rank].append((start_ns, arrived_ns, 0, text))
            waits[rank].append((arrived_ns, arrived_ns + transfer_ns, 1, text))
    return waits


def _add_waits(scene: Scene, waits: Sequence[tuple[int, int, int, str]]) -> Scene:
    lasting = sorted((x for x in waits if x[1] > x[0]), key=lambda x: x[:3])
    texts = {
        text: i for i, text in enumerate(dict.fromkeys((*scene.texts, *(x[3] for x in waits))))
    }
    columns = np.array([(*x[:3], texts[x[3]]) for x in lasting], dtype=np.int64).reshape(-1, 4)
    start_ns, end_ns, kind, text = columns.T
    lane = Lane(
        id="wait",
        label="waits for other ranks",
        kinds=("wait", "transfer"),
        start_ns=start_ns,
        end_ns=end_ns,
        kind=kind.astype(np.uint8),
        more={"text": text},
        summary=True,
    )
    steps = tuple(scene.lanes_of_type("steps"))
    others = (x for x in scene.lanes if x not in steps)
    return replace(scene, texts=tuple(texts), lanes=(*steps, lane, *others))


# --- findings ---


def marks_of(report: Report, scenes: Iterable[Scene]) -> Iterator[list[Mark]]:
    """Yield the marks of each file's findings, numbered as in the report."""
    ranks = ranks_of(report)
    scopes = {x.trace.rank: x.main.scope for x in ranks if x.views}
    printed = {  # ranks of one place share a number
        id(finding): number
        for group in finding_groups(report, ranks)
        for number in [group.number_in(report)]
        for finding, _ in group.members
    }
    own: dict[int, list[tuple[int, int, Finding]]] = defaultdict(list)
    for number, finding in enumerate(report.findings, 1):
        if finding.rank in scopes:
            own[finding.rank].append((printed.get(id(finding), number), number, finding))
    for scene in scenes:
        yield [
            _mark(number, shown, finding, scopes[scene.rank], report.job, scene)
            for shown, number, finding in sorted(own[scene.rank], key=lambda x: x[:2])
        ]


def _mark(
    number: int, printed: int, finding: Finding, scope: Scope, job: Job | None, scene: Scene
) -> Mark:
    place = _rows_of_events(finding.evidence, scene.places)
    where, title = finding.where, finding.shown_title
    texts = {
        "finding": f"{printed}. {title}",
        "price": price(finding, scope),
        "where": describe(call_site_of(where), where.api or where.activity or ""),
        "fix": finding.fix,
        "rule": finding.rule,
        "severity": finding.severity,
        "more": finding.source or "",
    }
    figures = {
        "cost_ns": finding.cost_ns,
        "saves_ns": finding.saves_ns,
        "saves_low_ns": finding.saves_low_ns,
        "saves_high_ns": finding.saves_high_ns,
    }
    cause = FINDING_CAUSES.name_of(finding.cause)
    return Mark(
        number=number,
        about=finding.about,
        label=f"{printed} {amount(finding, scope)}: {finding.rule} {title}",
        name=f"{finding.rule} {cause}",
        texts={key: text for key, text in texts.items() if text},
        figures={key: figure for key, figure in figures.items() if figure is not None},
        place=place,
        device=scene.device if where.device is None else where.device,
        since_ns=_waited_since(job, finding, scene.places.start_ns[place]),
        cause=finding.cause,
    )


def _rows_of_events(evidence: tuple[int, ...], places: Places) -> NDArray[np.intp]:
    if not len(places):
        return np.zeros(0, dtype=np.intp)
    event_ids = np.array(evidence, dtype=np.int64)
    rows = np.minimum(np.searchsorted(places.event_id, event_ids), len(places) - 1)
    found: NDArray[np.intp] = rows[places.event_id[rows] == event_ids]
    return found


def _waited_since(
    job: Job | None, finding: Finding, start_ns: NDArray[np.int64]
) -> Mapping[int, int]:
    """Return the start of each kernel of a straggler, and of the first rank's wait."""
    if job is None or finding.rule != waiting_ranks.STRAGGLER.id:
        return {}
    waited = [
        (one.arrival_ns[one.ranks.index(finding.rank)], min(one.arrival_ns))
        for one in job.collectives
        if one.last_rank == finding.rank and finding.rank in one.ranks
    ]
    if not waited:
        return {}
    arrived_ns, first_ns = np.array(sorted(waited), dtype=np.int64).T
    nearest = np.abs(arrived_ns[:, np.newaxis] - start_ns).argmin(axis=0)
    return dict(zip(start_ns.tolist(), first_ns[nearest].tolist(), strict=True))
