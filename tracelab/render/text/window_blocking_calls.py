"""The section of the text report about the host calls that blocked in a window."""

from __future__ import annotations

from tracelab.base.text import counted
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.render.text.cells import PART, time_text
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.report.views import View

_MOST_CALLS = 10


def blocking_calls(view: View) -> Section:
    """The host calls that blocked, where, and what each cost."""
    if not view.syncs:
        return Section("Blocking calls", ("No blocking calls.",))
    lines = (
        _total(view),
        "Caused idle is the GPU's idle time while a call blocks, and after it as far as the call "
        "delayed the CPU. Blocking costs nothing while the GPU is busy.",
    )
    notes = []
    left_out = view.syncs[_MOST_CALLS:]
    if left_out:
        rest = time_text(sum(call.caused_idle_ns for call in left_out))
        count = counted(len(left_out), "place", "places")
        notes.append(f"… and {count} more that caused {rest} idle {ALL_IN_JSON}.")
    if all(call.function is None for call in view.syncs):
        notes.append("The file has no Python functions: record with_stack=True to see them.")
    return Section(
        "Blocking calls",
        lines,
        (
            Column(f"call{PART}kind", Fit.LABEL),
            Column("count"),
            Column("blocked"),
            Column("caused\nidle"),
            Column("where", Fit.LABEL),
        ),
        tuple(_row(call) for call in view.syncs[:_MOST_CALLS]),
        tuple(notes),
    )


def _total(view: View) -> str:
    """What they cause together, in one sentence that no other figure contradicts."""
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


def _row(call: BlockingCallMetrics) -> tuple[str, ...]:
    file = call.file if call.line is None else f"{call.file}:{call.line}"
    where = [part for part in (call.operator, call.function, file) if part]
    if call.waited_for:
        where.append(f"for {call.waited_for}")
    return (
        f"{call.api}{PART}{call.kind}",
        f"{call.count:,}",
        time_text(call.blocked_ns),
        time_text(call.caused_idle_ns),
        PART.join(where) or "the file does not say",
    )
