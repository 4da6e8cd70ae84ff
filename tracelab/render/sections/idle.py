"""Sections about idle time: its causes, its culprits, replays of CUDA graphs, blocking calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.base.names import threads_of
from tracelab.render.section import LABEL, PART, PROSE, Section, table
from tracelab.render.sections.times import section_title
from tracelab.render.words import (
    largest,
    percent_text,
    time_text,
)
from tracelab.report.glossary import CAUSES, REASONS_UNKNOWN
from tracelab.report.schema import (
    BlockingCallMetrics,
    CulpritMetrics,
    DeviceMetrics,
    GraphIdleMetrics,
)
from tracelab.report.views import View

_MAX_CULPRITS, _MAX_NODES, _MAX_CALLS = 6, 6, 10
# Of the window.
_MIN_SHARE = 0.001


def idle(view: View) -> Iterator[Section]:
    """Show for each device what it waited for."""
    for device in view.window.devices:
        yield table(
            section_title(view, "Idle by cause", device),
            _causes(device),
            ("cause", lambda row: CAUSES.name_of(row[0]), LABEL),
            ("time", lambda row: time_text(row[1])),
            ("of idle", lambda row, of=device.idle_ns: percent_text(row[1], of)),
            ("of window", lambda row: percent_text(row[1], view.length_ns)),
            ("meaning", lambda row: row[2], PROSE),
            lines=[] if device.idle_ns else [f"GPU {device.device} was never idle."],
            notes=_call_notes(device),
        )


def _causes(device: DeviceMetrics) -> Iterator[tuple[str, int, str]]:
    reasons = largest(device.unknown_reasons)
    for cause, time_ns in largest(device.bubbles):
        if cause == "unknown" and len(reasons) == 1:
            yield cause, time_ns, REASONS_UNKNOWN.meaning_of(reasons[0][0])
            continue
        yield cause, time_ns, CAUSES.meaning_of(cause)
        for reason, part_ns in reasons if cause == "unknown" else ():
            yield "  of it", part_ns, REASONS_UNKNOWN.meaning_of(reason)


def _call_notes(device: DeviceMetrics) -> Iterator[str]:
    """Note how much blocking calls cause besides the time inside of them, which has a cause."""
    if device.idle_by_calls_ns:
        yield (
            "Only time inside the calls counts as blocking call here. With what they delayed after "
            f"it, blocking calls cause {time_text(device.idle_by_calls_ns)} of the "
            f"{time_text(device.idle_ns)} idle."
        )


def culprits(view: View) -> Iterator[Section]:
    """Show what blocked the GPUs, the most expensive first."""
    rows = sorted(view.holders, key=lambda x: (-x.idle_ns, x.device, x.longest_start_ns))
    shown = [x for x in rows if x.idle_ns >= _MIN_SHARE * view.length_ns][:_MAX_CULPRITS]
    if shown:
        yield table(
            "Idle by culprit",
            rows,
            view.several and ("GPU", lambda x: str(x.device)),
            ("cause", lambda x: CAUSES.name_of(x.cause), LABEL),
            ("time", lambda x: time_text(x.idle_ns)),
            ("times", lambda x: f"{x.count:,}"),
            ("longest", lambda x: time_text(x.longest_ns)),
            ("what and where", lambda x: PART.join(filter(None, (x.name, _code(x)))), LABEL),
            most=len(shown),
        )


def _code(culprit: CulpritMetrics) -> str:
    line = "" if culprit.line is None else f":{culprit.line}"
    code = culprit.operator or ""
    if culprit.function is not None:
        code = f"{culprit.function} {culprit.file}{line}"
    by = "" if culprit.waited_in is None else f"in {threads_of(culprit.waited_in)}"
    return ", ".join(part for part in (code, by) if part)


def biggest_cause(device: DeviceMetrics) -> str:
    """Name the cause of most of a device's idle time, with its share."""
    return "".join(
        f"{CAUSES.name_of(cause)}{PART}{percent_text(cause_ns, device.idle_ns)}"
        for cause, cause_ns in largest(device.bubbles)[:1]
    )


def graph_idle(view: View) -> Iterator[Section]:
    """Show before which nodes the GPUs idled inside replays."""
    rows = sorted(view.graph_idle, key=lambda row: (not row.name, -row.idle_ns, row.device))
    shown = [x for x in rows if x.name and x.idle_ns >= _MIN_SHARE * view.length_ns][:_MAX_NODES]
    if shown:
        yield table(
            "Idle inside CUDA graphs",
            rows,
            view.several and ("GPU", lambda x: str(x.device)),
            ("time", lambda x: time_text(x.idle_ns)),
            ("per replay", lambda x: time_text(x.idle_ns // x.replays)),
            ("times", lambda x: f"{x.count:,}"),
            ("start after", lambda x: time_text(x.latency_ns)),
            (
                "before the node, and what it waits for",
                lambda x: PART.join(filter(None, (f"{x.name} (stream {x.stream})", _awaited(x)))),
                LABEL,
            ),
            most=len(shown),
            notes=_graph_notes(rows),
        )


def _awaited(row: GraphIdleMetrics) -> str:
    if row.awaited is None:
        return ""
    apart = ", on which it does not depend" if row.wait == "queue" else ""
    return f"after {row.awaited} (stream {row.awaited_stream}){apart}"


def _graph_notes(rows: Sequence[GraphIdleMetrics]) -> Iterator[str]:
    unknown_ns = sum(row.idle_ns for row in rows if row.wait == "not_in_file")
    if unknown_ns:
        yield (
            "Before nodes whose dependencies are not known, the GPU idled "
            f"{time_text(unknown_ns)}: there the node before it in its stream is shown."
        )


def blocking_calls(view: View) -> Section:
    """Show the host calls that blocked, where, and what each cost."""
    title = "Blocking calls"
    if not view.syncs:
        return Section(title, ("No blocking calls.",))
    notes = []
    if all(call.function is None for call in view.syncs):
        notes.append("The file has no Python functions: record with_stack=True to see them.")
    return table(
        title,
        view.syncs,
        (f"call{PART}kind", lambda x: f"{x.api}{PART}{x.kind}", LABEL),
        ("count", lambda x: f"{x.count:,}"),
        ("blocked", lambda x: time_text(x.blocked_ns)),
        ("caused\nidle", lambda x: time_text(x.caused_idle_ns)),
        ("where", _place, LABEL),
        most=_MAX_CALLS,
        noun="place",
        lines=(
            _total(view),
            "Caused idle is the GPU's idle time while a call blocks, and after it as far as "
            "the call delayed the CPU. Blocking costs nothing while the GPU is busy.",
        ),
        notes=notes,
    )


def _total(view: View) -> str:
    caused_ns = sum(call.caused_idle_ns for call in view.syncs)
    if not caused_ns:
        return "Blocking calls cause no idle time."
    after_ns = sum(call.idle_after_ns for call in view.syncs)
    idle_ns = sum(device.idle_ns for device in view.window.devices)
    of_idle = f" of the {time_text(idle_ns)}" if caused_ns <= idle_ns else ""
    gpus = " on all GPUs" if view.several else ""
    return (
        f"Blocking calls cause {time_text(caused_ns)}{of_idle} idle{gpus}: "
        f"{time_text(caused_ns - after_ns)} while they block, {time_text(after_ns)} after them, "
        "until new work arrives."
    )


def _place(call: BlockingCallMetrics) -> str:
    file = call.file if call.line is None else f"{call.file}:{call.line}"
    waited_for = f"for {call.waited_for}" if call.waited_for else ""
    where = (call.operator, call.function, file, waited_for)
    return PART.join(filter(None, where)) or "the file does not say"
