"""What a saved report predicted, in ``tracelab diff``: beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.comparison.diff import PredictionDiff
from tracelab.findings.places import TOGETHER
from tracelab.measures.steady import UNPROFILED
from tracelab.render.text.cells import interval_text
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.render.words import duration_text


def predicted(diffs: Sequence[PredictionDiff]) -> list[str]:
    """A sentence about the last prediction, which is of all changes together; none without any."""
    if not diffs:
        return []
    last = diffs[-1]
    without = " without the profiler" if last.basis == UNPROFILED else ""
    saves = f"{_what(last)}: predicted to save {_interval(last)}"
    if last.measured_ns is None:
        return [f"{saves}{without}, which was not measured on both sides."]
    where = "inside" if last.holds else "outside"
    return [f"{saves}, measured {_time(last.measured_ns)}{without}, {where} the interval."]


def predictions(diffs: Sequence[PredictionDiff]) -> list[Section]:
    """A table of several predictions; it is not known which of the changes were made."""
    if len(diffs) < 2:
        return []
    return [
        Section(
            "Predicted savings",
            columns=(Column("change", Fit.LABEL), Column("saves (interval)")),
            rows=tuple((x.name, _interval(x)) for x in diffs),
        )
    ]


def _what(diff: PredictionDiff) -> str:
    return "All changes together" if diff.name == TOGETHER else diff.name


def _interval(diff: PredictionDiff) -> str:
    return interval_text(diff.saves_ns, diff.saves_low_ns, diff.saves_high_ns)


def _time(time_ns: int) -> str:
    return f"-{duration_text(-time_ns)}" if time_ns < 0 else duration_text(time_ns)
