"""Draw what ``tracelab whatif`` prints: predictions, and the causal profile."""

from __future__ import annotations

from tracelab.render.section import PART, Chapter, Section
from tracelab.render.sections.predictions import causal_section, prediction_sections
from tracelab.render.text.hints import COMPARE_WITH_PREDICTION
from tracelab.report.schema import Report, WhatIf


def render_whatif(whatif: WhatIf, *, width: int, color: bool) -> str:
    """Return predictions as text; lines are at most `width` long, but at least 80."""
    from tracelab.render.text.terminal import draw

    return draw([Chapter("", tuple(prediction_sections(whatif)))], width=width, color=color)


def render_predictions(report: Report, *, width: int, color: bool) -> str:
    """Return all that ``tracelab whatif`` prints of a report: predictions, then the profile."""
    from tracelab.render.text.terminal import draw

    first, *others = report.traces
    what = f"a job of {len(report.traces)} ranks{PART}{first.path}" if others else first.path
    shown = [Section("", (f"tracelab {report.version}{PART}{what}",))]
    if report.whatif is not None:
        shown += prediction_sections(report.whatif)
        if report.whatif.predictions:
            shown.append(Section("", notes=(COMPARE_WITH_PREDICTION,)))
    if report.causal or report.whatif is None:
        shown.append(causal_section(report.causal, next(iter(report.savings), None)))
    return draw([Chapter("", tuple(shown))], width=width, color=color)
