"""What the text report says first: how much is lost, to what, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tracelab.findings.finding import INFO, Finding
from tracelab.findings.rules.trace_quality import is_about_the_trace
from tracelab.render.text.cells import PART, counted, percent_text, time_text
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section, View
from tracelab.report.schema import DeviceMetrics

_MOST_IN_FULL, _MOST_BRIEF = 5, 6
_MUCH = 0.1  # of the window: so much is worth a word though nothing hides it
_OF_BUSY_TIME = ("TL203", "TL205")  # they find streams that took turns


def verdict(view: View) -> str:
    """In a sentence or two: what share is lost, and the dearest thing that it is lost to."""
    most = max(x.busy_ns for x in view.window.devices)
    used = [x for x in view.window.devices if 100 * x.busy_ns >= most]
    device = max(used, key=_lost_ns)
    lost = percent_text(_lost_ns(device), view.length_ns)
    name = "the trace" if view.window.step is None else f"step {view.window.step}"
    sentence = (
        f"{lost} of {name} is lost on GPU {device.device}: idle, or copies and communication that "
        "nothing hid."
    )
    of = ""
    if view.window.unprofiled_ns is not None:
        slowed_ns = view.length_ns - view.unprofiled_ns
        left = percent_text(max(0, _lost_ns(device) - slowed_ns), view.unprofiled_ns)
        of = " of that"
        sentence += (
            f" But much of it is the profiler's own: without it, this takes "
            f"{time_text(view.unprofiled_ns)}, of which {left} is lost."
        )
    alarms = [x for x in view.findings if x.severity != INFO and x.bound_ns]
    if not alarms:
        sentence += " No single change would win 2 % of it."
        hopeless = max(view.findings, key=lambda x: x.cost_ns, default=None)
        if hopeless and hopeless.cost_ns >= _MUCH * view.length_ns:
            share = percent_text(hopeless.cost_ns, view.length_ns)
            sentence += f" The most, {share}: {hopeless.title}. {hopeless.fix}"
        return sentence
    won = percent_text(alarms[0].bound_ns, view.unprofiled_ns)
    if alarms[0].rule in _OF_BUSY_TIME:
        sentence += " But it is busy with one stream at a time."
    return f"{sentence} The most to win, up to {won}{of}: {alarms[0].title}."


def _lost_ns(device: DeviceMetrics) -> int:
    return device.idle_ns + device.exposed_comm_ns + device.exposed_copy_ns


def findings(view: View) -> list[Section]:
    """The findings, what can win most first; then what cannot be helped, and the trace itself."""
    about_time = [x for x in view.findings if not is_about_the_trace(x)]
    full = [x for x in about_time if x.severity != INFO]
    brief = [x for x in about_time if x.severity == INFO]
    sections = [_in_full(i, x, view.unprofiled_ns) for i, x in enumerate(full[:_MOST_IN_FULL], 1)]
    brief = [*full[_MOST_IN_FULL:], *brief]
    if brief:
        sections.append(_brief(brief, view))
    return sections


def about_the_trace(view: View) -> list[Section]:
    """What the trace lacks, and what that does to the numbers."""
    found = [x for x in view.findings if is_about_the_trace(x)]
    if not found:
        return []
    lines = tuple(f"{x.rule}  {x.title}." for x in found)
    note = "What each does to the numbers: tracelab explain " + found[0].rule
    return [Section("About the trace", lines, notes=(note,))]


def _in_full(number: int, finding: Finding, length_ns: int) -> Section:
    won = f"{time_text(finding.bound_ns)} ({percent_text(finding.bound_ns, length_ns)})"
    cost = f" of {time_text(finding.cost_ns)} lost" if finding.cost_ns != finding.bound_ns else ""
    title = PART.join(
        (f"{number}. {finding.severity}", f"wins up to {won}{cost}", f"{finding.rule}")
    )
    return Section(title, (f"{finding.title}. {_circumstances(finding)}", f"Fix: {finding.fix}"))


def _circumstances(finding: Finding) -> str:
    where = finding.where
    parts = [f"cause {finding.cause}", counted(where.count, "time", "times")]
    if where.annotation:
        parts.append(f"in {where.annotation}")
    return f"({', '.join(parts)})"


def _brief(found: Iterable[Finding], view: View) -> Section:
    rows = [
        (
            x.rule,
            percent_text(x.cost_ns, view.length_ns),
            percent_text(x.bound_ns, view.unprofiled_ns),
            x.cause,
            x.title,
        )
        for x in found
    ]
    left = len(rows) - _MOST_BRIEF
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
        notes=(f"… and {left} more {ALL_IN_JSON}.",) if left > 0 else (),
    )


def of_all_ranks(views: Iterable[View]) -> list[Section]:
    """The findings of many ranks, each place once, with the rank that can win most there."""
    groups: dict[tuple[str, str, str | None, str | None, int | None], list[tuple[View, Finding]]]
    groups = defaultdict(list)
    for view in views:
        for x in view.findings:
            if x.severity != INFO and not is_about_the_trace(x):
                where = x.where
                key = (x.rule, x.cause, where.function, where.file, where.line)
                groups[key].append((view, x))
    rows = []
    for group in groups.values():
        view, finding = max(group, key=lambda x: x[1].bound_ns)
        won = percent_text(finding.bound_ns, view.unprofiled_ns)
        share = finding.bound_ns / max(1, view.unprofiled_ns)
        cells = (finding.rule, str(len(group)), won, str(finding.rank), finding.title)
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
