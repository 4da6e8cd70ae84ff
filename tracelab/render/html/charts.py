"""The page's charts, without their geometry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Record
from tracelab.render.first_screen import busy_parts, idle_parts
from tracelab.render.ranks import RankShares, rank_shares
from tracelab.render.sections.times import selection_name
from tracelab.render.text.savings import percent
from tracelab.render.words import percent_text, ticks, time_text, time_unit
from tracelab.report.glossary import CAUSES
from tracelab.report.headline import PERCENTS, headline_of
from tracelab.report.schema import DeviceMetrics, OverlapMetrics, Report
from tracelab.report.views import RankView

_MAX_RANK_BARS, _MAX_HEAT_ROWS = 8, 64
_MAX_STEPS = 400
_WIDE_COLUMNS = 12
_MAX_HEAT_MAP_COLUMNS = 40
_LETTER_PX, _CELL_PX, _MIN_CELL_PX, _MIN_TEXT_PX = 6.6, 46, 9, 24
_OVERLAP_COLORS = {"kind": "compute", "stream": "copy", "device": "graph"}
_OF_RANKS = {
    "compute": ("compute", "compute"),
    "wait": ("wait", "wait for other ranks"),
    "transfer": ("transfer", "transfer"),
    "unmatched": ("comm", "unmatched communication"),
    "copies": ("copy", "copies"),
    "idle": ("unknown", "idle"),
}
# Field of a step and color, by title of a job's heat map.
_OF_STEPS = {
    "compute": ("compute_ns", "compute"),
    "wait for other ranks": ("wait_ns", "host_blocked"),
    "transfer": ("transfer_ns", "comm"),
    "copies": ("copy_ns", "copy"),
    "idle": ("idle_ns", "unknown"),
}
_MIN_COPY_SHARE = 0.01
_Value = tuple[float, str]  # share or NaN, text


class Segment(Record):
    """A part of a bar, in whole percents, or of a step's column, ns; `kind` is its color."""

    kind: str
    name: str
    size: int


class Bar(Record):
    """A step: ``Bar("rank 0", (Segment(...), ...))``, parts of 100 %."""

    name: str
    parts: tuple[Segment, ...]


class StepChart(Record):
    """A column a step: work of the GPU and causes of its idle time.

    Attributes:
        columns: number, label or "", and parts of each step.
        lines: names and heights, ns.
    """

    name: str
    longest_ns: int
    columns: tuple[tuple[int, str, tuple[Segment, ...]], ...]
    lines: tuple[tuple[str, int], ...]

    @property
    def legend(self) -> tuple[Segment, ...]:
        """Each sort of part once."""
        return legend_of(parts for *_, parts in self.columns)


class Cell(Record):
    """A cell of a heat map: text, tooltip, and opacity, 0 to 1 ("" for none)."""

    text: str
    title: str
    strength: str


class HeatChart(Record):
    """Shares as a table of colored cells.

    Attributes:
        kind: name of its color.
        columns: names, or "".
        left, cell: width of the rows' names and of a cell, pixels.
    """

    title: str
    kind: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    left: int
    cell: int


def bars_of_ranks(report: Report) -> list[Bar]:
    """Show each rank's step of a job."""
    return [
        Bar(
            f"rank {shares.rank}",
            tuple(Segment(*_OF_RANKS[key], size) for key, size in shares.percents.items() if size),
        )
        for shares in _most_waiting(report, _MAX_RANK_BARS)
    ]


def _most_waiting(report: Report, most: int) -> list[RankShares]:
    late = {x.rank for x in report.job.stragglers} if report.job else set()
    order = sorted(
        rank_shares(report), key=lambda x: (x.rank not in late, -x.wait_ns / max(1, x.length_ns))
    )
    return sorted(order[:most], key=lambda x: x.rank)


def bar_of(rank: RankView) -> Bar:
    """Divide a step of the GPU that decides into work and idle time."""
    headline = headline_of(rank)
    if headline.device is None:
        return Bar("", ())
    idle = [(_color_of(x.key), f"idle: {x.name}", x.share) for x in idle_parts(headline)]
    busy = [(x.key, x.name, x.share) for x in busy_parts(rank)]
    shares = [*busy, *(idle or [("unknown", "idle", headline.idle_share)])]
    parts = (Segment(kind, name, round(share * PERCENTS)) for kind, name, share in shares)
    name = f"GPU {headline.device} in {rank.main.scope.name}: work, and causes of idle time"
    return Bar(name, tuple(part for part in parts if part.size))


def parts_of(device: DeviceMetrics) -> Iterable[Segment]:
    """Divide a step of a GPU into work and idle time, ns."""
    order = [term.key for term in CAUSES.terms]
    causes = [*order, *(cause for cause in device.bubbles if cause not in order)]
    parts = (
        Segment("compute", "compute", device.compute_ns),
        Segment("exposed_comm", "exposed communication", device.exposed_comm_ns),
        Segment("exposed_copy", "exposed copies", device.exposed_copy_ns),
        Segment("memset", "memsets", device.alone_memset_ns),
        *(
            Segment(_color_of(x), f"idle: {CAUSES.name_of(x)}", device.bubbles.get(x, 0))
            for x in causes
        ),
    )
    return (part for part in parts if part.size)


def legend_of(bars: Iterable[Sequence[Segment]]) -> tuple[Segment, ...]:
    """Return each sort of part once."""
    return tuple({part.name: part for parts in bars for part in parts}.values())


def _color_of(cause: str) -> str:
    return cause if cause in CAUSES.names else "unknown"


def step_chart(rank: RankView) -> StepChart | None:
    """The steps on the GPU that decides; None for fewer than two."""
    number = rank.main.scope.device
    steps = [
        (view, device)
        for view in rank.steps
        for device in view.window.devices
        if device.device == number and view.length_ns > 0
    ]
    if not 2 <= len(steps) <= _MAX_STEPS:
        return None
    longest_ns = max(view.length_ns for view, _ in steps)
    every = math.ceil(len(steps) / _MAX_HEAT_MAP_COLUMNS)
    unit, _ = time_unit(longest_ns)
    tick_ns, texts = ticks(longest_ns, at_most=4)
    return StepChart(
        name=f"Each step on GPU {number}: what ran, and why nothing ran",
        longest_ns=longest_ns,
        columns=tuple(
            (view.step or 0, "" if i % every else str(view.step), tuple(parts_of(device)))
            for i, (view, device) in enumerate(steps)
        ),
        lines=tuple(
            (f"{text} {unit}" if ns else "0", ns)
            for ns, text in zip(tick_ns.tolist(), texts, strict=True)
        ),
    )


def job_charts(report: Report) -> list[HeatChart]:
    """Return heat maps of each rank's steps, or of means of very many."""
    if report.job is None:
        return []
    of_rank = {x.rank: {step.step: step for step in x.steps} for x in report.job.per_rank}
    ranks = [x.rank for x in _most_waiting(report, _MAX_HEAT_ROWS)]
    steps = sorted({step for rank in ranks for step in of_rank[rank] if step is not None})
    if not steps:
        return []
    every = math.ceil(len(steps) / _MAX_HEAT_MAP_COLUMNS)
    shown, names = steps[::every], [f"rank {rank}" for rank in ranks]
    charts = []
    for title, (field, kind) in _OF_STEPS.items():
        share = np.full((len(ranks), len(steps)), np.nan)
        for (row, column), _ in np.ndenumerate(share):
            if x := of_rank[ranks[row]].get(steps[column]):
                share[row, column] = getattr(x, field) / max(1, x.end_ns - x.start_ns)
        if title == "copies" and np.nanmax(share) < _MIN_COPY_SHARE:
            continue
        means = [_mean(share[:, i : i + every]) for i in range(0, len(steps), every)]
        values = [
            [
                (x, "" if math.isnan(x) else f"{name}, step {step}: {title} {percent(x)}")
                for x, step in zip(row, shown, strict=True)
            ]
            for name, row in zip(names, np.transpose(means).tolist(), strict=True)
        ]
        columns = list(map(str, shown))
        charts.append(_heat_chart(title.capitalize(), kind, "% of step", names, columns, values))
    return charts


def _mean(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    count = np.isfinite(shares).sum(axis=1)
    return np.where(count, np.nansum(shares, axis=1) / np.maximum(count, 1), np.nan)


def overlap_charts(pairs: Sequence[OverlapMetrics], *, several: bool) -> list[HeatChart]:
    """Return heat maps of the overlap of kinds, streams and GPUs."""
    charts = []
    for sort, title in (("kind", "Kinds"), ("stream", "Streams"), ("device", "GPUs")):
        of_sort = [pair for pair in pairs if pair.a.startswith(f"{sort}:")]
        times = {name: ns for x in of_sort for name, ns in ((x.a, x.a_ns), (x.b, x.b_ns))}
        busiest = sorted(times, key=lambda name: -times[name])[:_WIDE_COLUMNS]
        chosen = {name: selection_name(name, several=several) for name in times if name in busiest}
        together = {(x.a, x.b): x.overlap_ns for x in of_sort}
        together |= {(x.b, x.a): x.overlap_ns for x in of_sort}
        values = [
            [_overlap_value((a, b), chosen, times[a], together.get((a, b))) for b in chosen]
            for a in chosen
        ]
        if len(chosen) > 1:
            about, names = f"{title}: overlap of the row with the column", [*chosen.values()]
            color = _OVERLAP_COLORS[sort]
            charts.append(_heat_chart(about, color, "% of row", names, names, values))
    return charts


def _overlap_value(
    pair: tuple[str, str], names: Mapping[str, str], of_ns: int, overlap_ns: int | None
) -> _Value:
    if overlap_ns is None:
        return math.nan, ""
    first, second = (names[x] for x in pair)
    share = percent_text(overlap_ns, of_ns)
    about = f"{time_text(overlap_ns)} of the {time_text(of_ns)} of {first} ({share})"
    return overlap_ns / max(1, of_ns), f"{about} overlapped with {second}"


def _heat_chart(
    title: str,
    kind: str,
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[_Value]],
) -> HeatChart:
    widest = round(_LETTER_PX * max(map(len, columns))) + 8
    room = max(_MIN_CELL_PX, round(_WIDE_COLUMNS * _CELL_PX / max(_WIDE_COLUMNS, len(columns))))
    cell = max(room, widest) if len(columns) <= _WIDE_COLUMNS else room
    every = math.ceil(widest / cell)
    return HeatChart(
        title=title,
        kind=kind,
        corner=corner,
        columns=tuple("" if i % every else name for i, name in enumerate(columns)),
        rows=tuple(
            (name, tuple(_cell(*value, has_text=cell >= _MIN_TEXT_PX) for value in row))
            for name, row in zip(rows, values, strict=True)
        ),
        left=round(_LETTER_PX * max(map(len, [corner, *rows]))) + 10,
        cell=cell,
    )


def _cell(share: float, about: str, *, has_text: bool) -> Cell:
    if math.isnan(share):
        return Cell("", "", "")
    strength = f"{0.04 + 0.56 * min(1.0, share):.4f}"
    return Cell(percent(share).removesuffix(" %") if has_text else "", about, strength)
