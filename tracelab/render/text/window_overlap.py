"""The section of the text report about what ran at the same time in a window."""

from __future__ import annotations

from collections.abc import Iterable

from tracelab.base.text import counted
from tracelab.measures.overlap import OverlapMetrics
from tracelab.render.text.cells import percent_text, time_text
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import NONE, Column, Fit, Section
from tracelab.report.views import View

_MOST_PAIRS = 10
_WORTH_SHOWING = 0.001  # of the window: an overlap with less on one side is no news


def overlap(view: View) -> Section:
    """What ran at the same time: kinds first, then streams and devices."""
    if not any(device.busy_ns for device in view.window.devices):
        return Section("Overlap", ("There was no GPU work.",))
    if not view.overlaps:
        return Section("Overlap", ("One kind of work on one stream: nothing can overlap.",))
    of_kinds = [pair for pair in view.overlaps if pair.a.startswith("kind:")]
    of_streams_and_devices = [pair for pair in view.overlaps if not pair.a.startswith("kind:")]
    shown = [_largest_pairs(view, of_kinds), _largest_pairs(view, of_streams_and_devices)]
    left_out = len(view.overlaps) - sum(len(group) for group in shown)
    if not any(shown):
        count = counted(left_out, "pair", "pairs")
        tiny = f"one side of {'it' if left_out == 1 else 'each'} is below 0.1 % of the window"
        return Section("Overlap", (f"Nothing to overlap: {count}, and {tiny} {ALL_IN_JSON}.",))
    rows = [[_overlap_row(view, pair) for pair in group] for group in shown]
    between = [("",) * 7] if all(shown) else []
    more = f"… and {counted(left_out, 'pair', 'pairs')} more {ALL_IN_JSON}."
    return Section(
        "Overlap",
        columns=(
            Column("first", Fit.LABEL),
            Column("time"),
            Column("second", Fit.LABEL),
            Column("time"),
            Column("together"),
            Column("of\nfirst"),
            Column("of\nsecond"),
        ),
        rows=(*rows[0], *between, *rows[1]),
        notes=(more,) if left_out else (),
    )


def _largest_pairs(view: View, pairs: Iterable[OverlapMetrics]) -> list[OverlapMetrics]:
    least_ns = _WORTH_SHOWING * view.length_ns
    worth_showing = [pair for pair in pairs if min(pair.a_ns, pair.b_ns) >= least_ns]
    return sorted(worth_showing, key=lambda pair: -min(pair.a_ns, pair.b_ns))[:_MOST_PAIRS]


def _overlap_row(view: View, pair: OverlapMetrics) -> tuple[str, ...]:
    return (
        selection_name(pair.a, several=view.several),
        time_text(pair.a_ns),
        selection_name(pair.b, several=view.several),
        time_text(pair.b_ns),
        time_text(pair.overlap_ns) if pair.overlap_ns else NONE,
        percent_text(pair.overlap_ns, pair.a_ns),
        percent_text(pair.overlap_ns, pair.b_ns),
    )


def selection_name(selection: str, *, several: bool) -> str:
    """What people call a selection of activities.

    >>> selection_name("kind:0/comm", several=False), selection_name("stream:0/7", several=True)
    ('comm', 'GPU 0 stream 7')

    Args:
        selection: "kind:0/comm", "stream:0/7", "stream:0/graphs" or "device:0".
        several: whether more than one GPU worked.
    """
    sort, _, path = selection.partition(":")
    device, _, part = path.partition("/")
    names = [f"GPU {device}"] if several or not part else []
    if part == "graphs":
        names.append("streams of CUDA graphs")
    elif part:
        names.append(f"stream {part}" if sort == "stream" else part)
    return " ".join(names)
