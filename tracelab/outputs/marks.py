"""Marks of findings in the scenes of a report's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.finding import Finding, call_site_of
from tracelab.findings.rules import tl304_straggler
from tracelab.model.wording import describe
from tracelab.render.scene import Mark, Places, Scene
from tracelab.render.text.savings import amount, price
from tracelab.render.words import FINDING_CAUSE_NAMES
from tracelab.report.schema import Job, Report
from tracelab.report.views import Scope, ranks_of


def marks_of(report: Report, scene: Scene) -> Iterator[Mark]:
    """Yield the marks of a file's findings, numbered as the report is printed.

    Args:
        report: of this file, and of others perhaps.
        scene: the file, with its number in the report.
    """
    scopes = [x.main.scope for x in ranks_of(report) if x.trace.rank == scene.rank and x.views]
    for number, finding in enumerate(report.findings, 1):
        if scopes and finding.rank == scene.rank:
            yield _mark(number, finding, scopes[0], report.job, scene)


def _mark(number: int, finding: Finding, scope: Scope, job: Job | None, scene: Scene) -> Mark:
    place = _rows_of_events(finding.evidence, scene.places)
    where, title = finding.where, finding.shown_title
    texts = {
        "finding": f"{number}. {title}",
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
    cause = FINDING_CAUSE_NAMES.get(finding.cause, finding.cause)
    return Mark(
        number=number,
        about=finding.about,
        label=f"{number} {amount(finding, scope)}: {finding.rule} {title}",
        name=f"{finding.rule} {cause}",
        texts={key: text for key, text in texts.items() if text},
        figures={key: figure for key, figure in figures.items() if figure is not None},
        place=place,
        device=scene.device if where.device is None else where.device,
        since_ns=_waited_since(job, finding, scene.places.start_ns[place]),
    )


def _rows_of_events(evidence: tuple[int, ...], places: Places) -> NDArray[np.intp]:
    """intp[k], the rows of events that have a place."""
    if not len(places):
        return np.zeros(0, dtype=np.intp)
    event_ids = np.array(evidence, dtype=np.int64)
    rows = np.minimum(np.searchsorted(places.event_id, event_ids), len(places) - 1)
    found: NDArray[np.intp] = rows[places.event_id[rows] == event_ids]
    return found


def _waited_since(
    job: Job | None, finding: Finding, start_ns: NDArray[np.int64]
) -> Mapping[int, int]:
    """Return the start of each kernel of a straggler, and when the first rank began to wait."""
    if job is None or finding.rule != tl304_straggler.RULE.id:
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
