"""What the text report says first: how much time is lost, to what, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tracelab.findings.finding import INFO, Finding
from tracelab.measures.window_times import DeviceMetrics
from tracelab.render.text.cells import PART, counted, percent_text, time_text
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.report.views import View

_MOST_IN_FULL, _MOST_BRIEF = 5, 6
_MUCH = 0.1  # of the window: so much is worth a word though nothing hides it
_OF_BUSY_TIME = ("TL203", "TL205")  # they find streams that took turns


def verdict(view: View) -> str:
    """In a sentence or two: what share is lost, and the most expensive finding."""
    most_ns = max(device.busy_ns for device in view.window.devices)
    active = [device for device in view.window.devices if 100 * device.busy_ns >= most_ns]
    device = max(active, key=_lost_ns)
    lost = percent_text(_lost_ns(device), view.length_ns)
    name = "the trace" if view.window.step is None else f"step {view.window.step}"
    sentence = (
        f"{lost} of {name} is lost on GPU {device.device}: idle, or copies and communication that "
        "nothing hid."
    )
    of_window = ""
    if view.window.unprofiled_ns is not None:
        overhead_ns = view.length_ns - view.unprofiled_ns
        rest = percent_text(max(0, _lost_ns(device) - overhead_ns), view.unprofiled_ns)
        of_window = " of that"
        sentence += (
            f" But much of it is the profiler's own: without it, this takes "
            f"{time_text(view.unprofiled_ns)}, of which {rest} is lost."
        )
    alarms = [finding for finding in view.findings if finding.severity != INFO and finding.bound_ns]
    if not alarms:
        sentence += " No single change would win 2 % of it."
        costliest = max(view.findings, key=lambda finding: finding.cost_ns, default=None)
        if costliest and costliest.cost_ns >= _MUCH * view.length_ns:
            share = percent_text(costliest.cost_ns, view.length_ns)
            sentence += f" The most, {share}: {costliest.title}. {costliest.fix}"
        return sentence
    saved = percent_text(alarms[0].bound_ns, view.unprofiled_ns)
    if alarms[0].rule in _OF_BUSY_TIME:
        sentence += " But it is busy with one stream at a time."
    return f"{sentence} The most to win, up to {saved}{of_window}: {alarms[0].title}."


def _lost_ns(device: DeviceMetrics) -> int:
    return device.idle_ns + device.exposed_comm_ns + device.exposed_copy_ns


def findings(view: View) -> list[Section]:
    """The findings about time: those that can save most in full, the others in a table."""
    about_time = [finding for finding in view.findings if finding.about != "trace"]
    full = [finding for finding in about_time if finding.severity != INFO]
    brief = [finding for finding in about_time if finding.severity == INFO]
    sections = [
        _in_full(number, finding, view.unprofiled_ns)
        for number, finding in enumerate(full[:_MOST_IN_FULL], 1)
    ]
    brief = [*full[_MOST_IN_FULL:], *brief]
    if brief:
        sections.append(_brief(brief, view))
    return sections


def about_the_trace(view: View) -> list[Section]:
    """What the trace lacks, and what that does to the numbers."""
    of_trace = [finding for finding in view.findings if finding.about == "trace"]
    if not of_trace:
        return []
    lines = tuple(f"{finding.rule}  {finding.title}." for finding in of_trace)
    note = "What each does to the numbers: tracelab explain " + of_trace[0].rule
    return [Section("About the trace", lines, notes=(note,))]


def _in_full(number: int, finding: Finding, length_ns: int) -> Section:
    saved = f"{time_text(finding.bound_ns)} ({percent_text(finding.bound_ns, length_ns)})"
    cost = f" of {time_text(finding.cost_ns)} lost" if finding.cost_ns != finding.bound_ns else ""
    title = PART.join(
        (f"{number}. {finding.severity}", f"wins up to {saved}{cost}", f"{finding.rule}")
    )
    return Section(title, (f"{finding.title}. {_circumstances(finding)}", f"Fix: {finding.fix}"))


def _circumstances(finding: Finding) -> str:
    where = finding.where
    parts = [f"cause {finding.cause}", counted(where.count, "time", "times")]
    if where.annotation:
        parts.append(f"in {where.annotation}")
    return f"({', '.join(parts)})"


def _brief(findings: Iterable[Finding], view: View) -> Section:
    rows = [
        (
            finding.rule,
            percent_text(finding.cost_ns, view.length_ns),
            percent_text(finding.bound_ns, view.unprofiled_ns),
            finding.cause,
            finding.title,
        )
        for finding in findings
    ]
    left_out = len(rows) - _MOST_BRIEF
    return Section(
        "Smaller, or nothing to be done",
        columns=(
            Column("rule"),
            Column("lost"),
            Column("to win"),
            Column("cause", Fit.LABEL),
            Column("what", Fit.PROSE),
        ),
        rows=tuple(rows[:_MOST_BRIEF]),
        notes=(f"… and {left_out} more {ALL_IN_JSON}.",) if left_out > 0 else (),
    )


def of_all_ranks(views: Iterable[View]) -> list[Section]:
    """The findings of many ranks, each call site once, with the rank that can save most there."""
    groups: dict[tuple[str, str, str | None, str | None, int | None], list[tuple[View, Finding]]]
    groups = defaultdict(list)
    for view in views:
        for finding in view.findings:
            if finding.severity != INFO and finding.about != "trace":
                where = finding.where
                key = (finding.rule, finding.cause, where.function, where.file, where.line)
                groups[key].append((view, finding))
    rows = []
    for group in groups.values():
        view, finding = max(group, key=lambda pair: pair[1].bound_ns)
        saved = percent_text(finding.bound_ns, view.unprofiled_ns)
        share = finding.bound_ns / max(1, view.unprofiled_ns)
        cells = (finding.rule, str(len(group)), saved, str(finding.rank), finding.title)
        rows.append((share, cells))
    if not rows:
        return []
    return [
        Section(
            "Findings of all ranks",
            columns=(
                Column("rule"),
                Column("ranks"),
                Column("to win,\nat most"),
                Column("on\nrank"),
                Column("what", Fit.PROSE),
            ),
            rows=tuple(cells for _, cells in sorted(rows, reverse=True)[:_MOST_BRIEF]),
        )
    ]
