"""The sections of the text report about idle time in a window: its causes and its culprits."""

from __future__ import annotations

from tracelab.base.text import counted
from tracelab.measures.idle_culprits import CulpritMetrics
from tracelab.measures.window_times import DeviceMetrics
from tracelab.model.wording import threads_of
from tracelab.render.text.cells import (
    CAUSE_MEANINGS,
    CAUSE_NAMES,
    PART,
    REASON_MEANINGS,
    largest,
    meaning_of,
    percent_text,
    time_text,
)
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section, section_title
from tracelab.report.views import View

_MOST_CULPRITS = 6
_WORTH_SHOWING = 0.001  # of the window


def idle(view: View) -> list[Section]:
    """Per device: what it waited for."""
    return [_idle(view, device) for device in view.window.devices]


def _idle(view: View, device: DeviceMetrics) -> Section:
    title = section_title(view, "Idle by cause", device)
    if not device.idle_ns:
        return Section(title, (f"GPU {device.device} was never idle.",))
    rows: list[tuple[str, ...]] = []

    def add(label: str, time_ns: int, meaning: str) -> None:
        shares = percent_text(time_ns, device.idle_ns), percent_text(time_ns, view.length_ns)
        name = meaning_of(CAUSE_NAMES, label)
        rows.append((name, time_text(time_ns), *shares, meaning))

    reasons = largest(device.unknown_reasons)
    for cause, time_ns in largest(device.bubbles):
        if cause == "unknown" and len(reasons) == 1:
            add(cause, time_ns, meaning_of(REASON_MEANINGS, reasons[0][0]))
            continue
        add(cause, time_ns, meaning_of(CAUSE_MEANINGS, cause))
        for reason, part_ns in reasons if cause == "unknown" else ():
            add("  of it", part_ns, meaning_of(REASON_MEANINGS, reason))
    columns = (
        Column("cause", Fit.LABEL),
        Column("time"),
        Column("of idle"),
        Column("of window"),
        Column("meaning", Fit.PROSE),
    )
    return Section(title, columns=columns, rows=tuple(rows), notes=_of_calls(device))


def _of_calls(device: DeviceMetrics) -> tuple[str, ...]:
    """How much blocking calls cause besides the time inside of them, which has a cause's name."""
    if not device.idle_by_calls_ns:
        return ()
    return (
        "Only time inside the calls counts as blocking call here. With what they delayed after it, "
        f"blocking calls cause {time_text(device.idle_by_calls_ns)} of the "
        f"{time_text(device.idle_ns)} idle.",
    )


def culprits(view: View) -> list[Section]:
    """What blocked the GPUs, the most expensive first."""
    ordered = sorted(
        view.holders,
        key=lambda culprit: (-culprit.idle_ns, culprit.device, culprit.longest_start_ns),
    )
    least_ns = _WORTH_SHOWING * view.length_ns
    shown = [culprit for culprit in ordered if culprit.idle_ns >= least_ns][:_MOST_CULPRITS]
    if not shown:
        return []
    left_out = len(ordered) - len(shown)
    more = f"… and {counted(left_out, 'row', 'rows')} more {ALL_IN_JSON}."
    rows = [
        (
            *([str(culprit.device)] if view.several else []),
            meaning_of(CAUSE_NAMES, culprit.cause),
            time_text(culprit.idle_ns),
            f"{culprit.count:,}",
            time_text(culprit.longest_ns),
            PART.join(part for part in (culprit.name, _code(culprit)) if part),
        )
        for culprit in shown
    ]
    gpu = [Column("GPU")] if view.several else []
    return [
        Section(
            "Idle by culprit",
            columns=(
                *gpu,
                Column("cause", Fit.LABEL),
                Column("time"),
                Column("times"),
                Column("longest"),
                Column("what and where", Fit.LABEL),
            ),
            rows=tuple(rows),
            notes=(more,) if left_out else (),
        )
    ]


def _code(culprit: CulpritMetrics) -> str:
    """The function and line of what blocked the GPU, else its operator; and in which threads."""
    line = "" if culprit.line is None else f":{culprit.line}"
    code = culprit.operator or ""
    if culprit.function is not None:
        code = f"{culprit.function} {culprit.file}{line}"
    by = "" if culprit.waited_in is None else f"in {threads_of(culprit.waited_in)}"
    return ", ".join(part for part in (code, by) if part)


def biggest_cause(device: DeviceMetrics) -> str:
    """The cause of most of a device's idle time, with its share."""
    return "".join(
        f"{meaning_of(CAUSE_NAMES, cause)}{PART}{percent_text(cause_ns, device.idle_ns)}"
        for cause, cause_ns in largest(device.bubbles)[:1]
    )
