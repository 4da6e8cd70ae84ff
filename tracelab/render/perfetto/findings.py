"""The findings as rows of slices: each where its evidence is, with arrows to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import OneLine
from tracelab.base.intervals import Int64Array, union
from tracelab.base.text import clean
from tracelab.findings.finding import Finding, call_site_of
from tracelab.model.wording import describe
from tracelab.render.perfetto.tracks import Places, Texts, Track, Tracks, texts_of
from tracelab.render.text.cells import FINDING_CAUSE_NAMES
from tracelab.render.text.savings import amount, price
from tracelab.render.words import shorten
from tracelab.report.schema import Report
from tracelab.report.views import Scope, ranks_of

_LONGEST_LABEL = 120


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FindingTrack(OneLine):
    """A finding's row, and the rows of `Tracks.places` that arrows lead to.

    Attributes:
        track: its slices.
        slice_index: intp[k], from which slice each arrow leads.
        place_row: intp[k], to which place.
    """

    track: Track
    slice_index: NDArray[np.intp]
    place_row: NDArray[np.intp]


def finding_tracks(tracks: Tracks, report: Report, rank: int) -> Iterator[FindingTrack]:
    """The findings of one file, numbered as the report is printed.

    Those about the trace itself are nowhere in time.
    """
    scope = next(one.main.scope for one in ranks_of(report) if one.trace.rank == rank)
    for number, finding in enumerate(report.findings, 1):
        if finding.rank == rank and finding.about == "program":
            yield _track(number, finding, scope, tracks)


def _track(number: int, finding: Finding, scope: Scope, tracks: Tracks) -> FindingTrack:
    places = tracks.places
    place_row = _rows_of(finding.evidence, places)
    start_ns, end_ns = places.start_ns[place_row], places.end_ns[place_row]
    if not len(place_row):
        start_ns, end_ns = np.array([[tracks.window.start_ns], [tracks.window.end_ns]])
    # Events without a length are evidence, too.
    shown = union(start_ns, np.maximum(end_ns, start_ns + 1))
    slice_index = np.searchsorted(shown.starts, places.start_ns[place_row], side="right") - 1
    count = len(shown)
    figures = {
        "cost_ns": finding.cost_ns,
        "saves_ns": finding.saves_ns,
        "saves_low_ns": finding.saves_low_ns,
        "saves_high_ns": finding.saves_high_ns,
    }
    texts = {
        "finding": f"{number}. {finding.shown_title}",
        "price": price(finding, scope),
        "where": describe(
            call_site_of(finding.where), finding.where.api or finding.where.activity or ""
        ),
        "fix": finding.fix,
        "rule": finding.rule,
        "severity": finding.severity,
        "more": finding.source or "",
    }
    arguments: dict[str, Texts | Int64Array] = {
        key: texts_of([clean(text)] * count) for key, text in texts.items() if text
    }
    arguments |= {
        key: np.full(count, figure) for key, figure in figures.items() if figure is not None
    }
    if len(place_row):  # where Perfetto drops the event itself, its name is still said
        _, first = np.unique(slice_index, return_index=True)
        arguments["cites"] = Texts(places.name.index[place_row[first]], places.name.table)
    cause = FINDING_CAUSE_NAMES.get(finding.cause, finding.cause)
    track = Track(
        label=shorten(
            f"{number} {amount(finding, scope)}: {finding.rule} {clean(finding.shown_title)}",
            _LONGEST_LABEL,
        ),
        category="finding",
        start_ns=shown.starts,
        end_ns=shown.ends,
        name=texts_of([f"{finding.rule} {cause}"] * count),
        arguments=arguments,
    )
    return FindingTrack(track, slice_index, place_row)


def _rows_of(evidence: Sequence[int], places: Places) -> NDArray[np.intp]:
    """The rows of events that have a place."""
    if not len(places.event_id):
        return np.zeros(0, dtype=np.intp)
    event_ids = np.array(evidence, dtype=np.int64)
    rows = np.minimum(np.searchsorted(places.event_id, event_ids), len(places.event_id) - 1)
    found: NDArray[np.intp] = rows[places.event_id[rows] == event_ids]
    return found
