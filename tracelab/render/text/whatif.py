"""The words of ``tracelab whatif``: what a step would take with each change, and with all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.findings.fixes import NO_EDIT, NO_FINDING
from tracelab.findings.places import TOGETHER
from tracelab.measures.steady import UNPROFILED
from tracelab.render.text.causal_profile import causal_section
from tracelab.render.text.cells import PART, interval_text, listed, percent_text, time_text
from tracelab.render.text.hints import COMPARE_WITH_PREDICTION
from tracelab.render.text.savings import REASONS
from tracelab.render.text.sections import Chapter, Column, Fit, Section, Tone
from tracelab.report.schema import Report, WhatIf
from tracelab.simulate.predict import Prediction

_REASONS = {
    NO_FINDING: "there is no such finding",
    NO_EDIT: "its fix is not a change that can be replayed",
    **REASONS,
}
_MOST_EDITS = 3  # that are written beside a change


def render_whatif(whatif: WhatIf, *, width: int, color: bool) -> str:
    """Predictions as text; lines are at most `width` long, but at least 80."""
    from tracelab.render.text.terminal import draw

    return draw([Chapter("", tuple(sections(whatif)))], width=width, color=color)


def render_predictions(report: Report, *, width: int, color: bool) -> str:
    """All that ``tracelab whatif`` prints of a report: predictions, then the causal profile."""
    from tracelab.render.text.terminal import draw

    first, *others = report.traces
    what = f"a job of {len(report.traces)} ranks{PART}{first.path}" if others else first.path
    shown = [Section("", (f"tracelab {report.version}{PART}{what}",))]
    if report.whatif is not None:
        shown += sections(report.whatif)
        if report.whatif.predictions:
            shown.append(Section("", notes=(COMPARE_WITH_PREDICTION,)))
    if report.causal or report.whatif is None:
        shown.append(causal_section(report.causal, next(iter(report.savings), None)))
    return draw([Chapter("", tuple(shown))], width=width, color=color)


def sections(whatif: WhatIf) -> list[Section]:
    """What the predictions are of, then each in a row."""
    if whatif.not_replayed is not None:
        text = f"No predictions: {_lower(whatif.not_replayed)}"
        return [Section("", (text,), tone=Tone.WARNING)]
    if not whatif.predictions:
        return [Section("", ("No finding has a change whose effect a replay can predict.",))]
    opening = Section("", (_basis(whatif),), tone=Tone.STRONG)
    return [opening, _table(whatif)]


def picture_titles(name: str, prediction: Prediction) -> tuple[str, str]:
    """The headlines of a step as it is and of the step with a change."""
    saves = interval_text(*_saves_ns(prediction))
    return (
        f"{name}{PART}a step as it is: {time_text(prediction.step_ns)}",
        f"{prediction.name}{PART}predicted: {time_text(prediction.predicted_ns)}, saves {saves}",
    )


def _saves_ns(prediction: Prediction) -> tuple[int, int, int]:
    """How much shorter the step gets: as predicted, at least, at most."""
    step_ns = prediction.step_ns
    return (
        step_ns - prediction.predicted_ns,
        step_ns - prediction.high_ns,
        step_ns - prediction.low_ns,
    )


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _basis(whatif: WhatIf) -> str:
    """What is predicted, and how well the replay without a change does."""
    first = whatif.predictions[0]
    length = time_text(first.step_ns)
    if whatif.is_of_trace:
        what = f"The trace has no steps: all of it, {length}, is replayed once"
    elif whatif.basis == UNPROFILED:
        what = f"A step takes {length} without the profiler; predictions are of that"
    else:
        what = f"A step takes {length} with the profiler; predictions are of that"
    error = whatif.baseline_error
    if error is None:
        return f"{what}."
    if abs(error) < 0.0005:
        return f"{what}. Replayed without a change, it takes as long."
    longer = "longer" if error > 0 else "shorter"
    return f"{what}. Replayed without a change, it is {abs(error):.1%} {longer}.".replace("%", " %")


def _table(whatif: WhatIf) -> Section:
    first = whatif.predictions[0]
    unit = "the trace" if whatif.is_of_trace else "a step"
    as_it_is = ("as it is", time_text(first.step_ns), "", "")
    return Section(
        "",
        columns=(
            Column("change", Fit.LABEL),
            Column(f"{unit}\ntakes"),
            Column("saves (interval)"),
            Column(f"of\n{unit}"),
        ),
        rows=(as_it_is, *map(_row, whatif.predictions)),
        notes=tuple(_reasons(whatif.predictions)),
    )


def _reasons(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Why there is no better answer, each reason once with all that it is about."""
    names: dict[str, list[str]] = {}
    for prediction in predictions:
        parts = prediction.reason.split("; ") if prediction.reason else []
        # What is said of a change alone is not said again of all together.
        for part in parts if prediction.name != TOGETHER else [x for x in parts if x not in names]:
            names.setdefault(part, []).append(prediction.name)
    for reason, of_reason in names.items():
        clause = _REASONS.get(reason, reason)
        yield f"{listed(of_reason)}: {_lower(clause).rstrip('.')}."


def _row(prediction: Prediction) -> tuple[str, ...]:
    saves_ns, *bounds_ns = _saves_ns(prediction)
    share = percent_text(abs(saves_ns), prediction.step_ns)
    return (
        _change(prediction),
        time_text(prediction.predicted_ns),
        interval_text(saves_ns, *bounds_ns),
        f"-{share}" if saves_ns < 0 else share,
    )


def _change(prediction: Prediction) -> str:
    """What is changed: the finding and its edits; of all together only that."""
    is_named_alike = prediction.edits == (prediction.name,)
    is_long = len(prediction.edits) > _MOST_EDITS
    edits = () if is_named_alike or is_long else prediction.edits
    number = f"{prediction.findings[0] + 1}. " if len(prediction.findings) == 1 else ""
    is_together = prediction.name == TOGETHER
    return PART.join((prediction.name if is_together else number + prediction.name, *edits))
