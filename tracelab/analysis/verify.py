"""Figures again by slow code: loops over plain numbers that share nothing with what made them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.analysis.analysis import Analysis
from tracelab.base.arrays import Record
from tracelab.measures.idle_causes import Cause
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import MIN_DELAY_NS
from tracelab.model.trace import ABSENT
from tracelab.report.schema import Report

_ONE_IN = 100
_Check = tuple[str, int, int]  # the time that it is of, as it was reported, and as it is
_Stretch = tuple[int, int]


class Verified(Record):
    """Result of a verification.

    Attributes:
        sums: figures of a report that are to be the sum of others.
        tilings: lengths measured again on a trace's activities and bubbles.
        bindings: times looked up again that activities waited for.
        differences: a clause each.
    """

    sums: int
    tilings: int
    bindings: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        done = f"{self.sums:,} sums, {self.tilings:,} tilings and {self.bindings:,} bindings"
        return f"verified {done}: {'; '.join(self.differences) or 'nothing differs'}"


def verify(report: Report, of_files: Sequence[Verified] = ()) -> Verified:
    """Add up what belongs together in each window of a report; and all that files' results say."""
    found = [_verified(sums=list(_sums(report))), *of_files]
    return Verified(
        sum(x.sums for x in found),
        sum(x.tilings for x in found),
        sum(x.bindings for x in found),
        tuple(clause for x in found for clause in x.differences),
    )


def verify_file(analysis: Analysis) -> Verified:
    """Measure the time of each device again, and look up one in a hundred bindings."""
    return _verified(tilings=list(_tilings(analysis)), bindings=list(_bindings(analysis)))


def _verified(
    sums: Sequence[_Check] = (), tilings: Sequence[_Check] = (), bindings: Sequence[_Check] = ()
) -> Verified:
    differences = tuple(
        f"{what} is {is_ns:,} ns and not {reported_ns:,} ns"
        for what, reported_ns, is_ns in (*sums, *tilings, *bindings)
        if reported_ns != is_ns
    )
    return Verified(len(sums), len(tilings), len(bindings), differences)


def _sums(report: Report) -> Iterator[_Check]:
    for window in report.windows:
        for x in window.devices:
            of = f"{_name(window.step)} on GPU {x.device} of rank {window.rank}: "
            yield f"{of}busy and idle time", window.length_ns, x.busy_ns + x.idle_ns
            yield f"{of}idle time by cause", x.idle_ns, sum(x.bubbles.values())
            unknown_ns = x.bubbles.get("unknown", 0)
            yield f"{of}unknown idle time", unknown_ns, sum(x.unknown_reasons.values())
            # Older reports lack it.
            if x.bubbles_by_calls:
                by_cause_ns = sum(x.bubbles_by_calls.values())
                yield f"{of}idle time by calls", x.idle_by_calls_ns, by_cause_ns


def _tilings(analysis: Analysis) -> Iterator[_Check]:
    timeline, bubbles = analysis.timeline, analysis.bubbles
    bubble, piece = bubbles.pieces_of(slice(None))
    activities = _spans(timeline.device_number, timeline.kind, timeline.start_ns, timeline.end_ns)
    bounds_ns = bubbles.start_ns[piece], bubbles.end_ns[piece]
    pieces = _spans(bubbles.device_number[bubble], bubbles.cause[piece], *bounds_ns)
    for i, device in enumerate(timeline.device_numbers):
        own = [(of, span) for number, of, span in activities if number == device]
        idle = [(of, span) for number, of, span in pieces if number == device]
        by_figure = {kind.name.lower(): _union(x for of, x in own if of == kind) for kind in Kind}
        by_figure["busy"] = _union(span for _, span in own)
        by_cause = {x.name.lower(): sorted(span for of, span in idle if of == x) for x in Cause}
        for window in analysis.tables["windows"]:
            of, bounds = f"{_name(window.step)} on GPU {device}: ", (window.start_ns, window.end_ns)
            reported = window.devices[i]
            for name, spans in by_figure.items():
                yield f"{of}{name} time", getattr(reported, f"{name}_ns"), _within(spans, *bounds)
            for name, spans in by_cause.items():
                yield f"{of}idle time `{name}`", reported.bubbles[name], _within(spans, *bounds)
            tiled = _within(_union((*by_figure["busy"], *(span for _, span in idle))), *bounds)
            yield f"{of}time that is busy or idle", window.length_ns, tiled


def _spans(
    device_number: NDArray[np.int32],
    sort: NDArray[np.int8],
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
) -> list[tuple[int, int, _Stretch]]:
    spans = zip(start_ns.tolist(), end_ns.tolist(), strict=True)
    return list(zip(device_number.tolist(), sort.tolist(), spans, strict=True))


def _bindings(analysis: Analysis) -> Iterator[_Check]:
    graph, timeline, host = analysis.graph, analysis.timeline, analysis.graph.host
    starts_ns, ends_ns = timeline.start_ns.tolist(), timeline.end_ns.tolist()
    reach_ns: dict[int, int] = {}
    for row, stream in enumerate(timeline.stream_index.tolist()):
        before_ns = reach_ns.get(stream)
        reach_ns[stream] = max(ends_ns[row], ends_ns[row] if before_ns is None else before_ns)
        if row % _ONE_IN:
            continue
        start_ns, call = starts_ns[row], int(timeline.launch_id[row])
        launch_ns, stream_ns, event_row = ABSENT, ABSENT, int(graph.binding.event_row[row])
        if call != ABSENT:
            launch_ns = int(timeline.trace.end_ns[call])
            if launch_ns > start_ns:
                launch_ns = min(int(host.launched_ns[call]), start_ns)
        if before_ns is not None and before_ns <= start_ns:
            stream_ns = before_ns
        elif before_ns is not None and timeline.overlaps_previous[row]:
            is_dependent = call == ABSENT or start_ns - launch_ns > MIN_DELAY_NS
            stream_ns = start_ns if is_dependent else ABSENT
        elif before_ns is not None and ends_ns[row - 1] <= start_ns:
            stream_ns = ends_ns[row - 1]
        of = f"activity {row:,}: the end of what it waited for in its "
        yield f"{of}launch", int(graph.binding.launch_ns[row]), launch_ns
        yield f"{of}stream", int(graph.binding.stream_ns[row]), stream_ns
        event_ns = ABSENT if event_row == ABSENT else ends_ns[event_row]
        yield f"{of}event", int(graph.binding.event_ns[row]), event_ns


def _name(step: int | None) -> str:
    return "the trace" if step is None else f"step {step}"


def _union(spans: Iterable[_Stretch]) -> list[_Stretch]:
    """Unite stretches, ascending.

    >>> _union([(40, 50), (0, 10), (5, 20), (60, 60)])
    [(0, 20), (40, 50)]
    """
    found: list[_Stretch] = []
    for start_ns, end_ns in sorted(spans):
        if found and start_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(end_ns, found[-1][1])
        elif end_ns > start_ns:
            found.append((start_ns, end_ns))
    return found


def _within(spans: Sequence[_Stretch], start_ns: int, end_ns: int) -> int:
    """Measure disjoint stretches, ascending, between two moments.

    >>> _within([(0, 20), (40, 50)], 10, 45)
    15
    """
    total_ns = 0
    for i in range(max(0, bisect_right(spans, (start_ns,)) - 1), len(spans)):
        if spans[i][0] >= end_ns:
            break
        total_ns += max(0, min(spans[i][1], end_ns) - max(spans[i][0], start_ns))
    return total_ns
