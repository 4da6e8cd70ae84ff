"""The page's charts as geometry: what stands where, in percent of a width or in pixels.

They say nothing that no table says; the template makes SVG of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType

from tracelab.base.arrays import OneLine, dataclass
from tracelab.render.html.summary import Part, parts_of
from tracelab.render.job_heat_map import COMPUTE, COPIES, IDLE, TRANSFER, WAIT, heat_map, merged
from tracelab.render.sections.times import selection_name
from tracelab.render.words import percent_text, share_text, ticks, time_text, time_unit
from tracelab.report.schema import Job, OverlapMetrics
from tracelab.report.views import RankView

_CHART_PX, _COLUMN_PX, _MAX_STEPS = 150, 64, 400
_TOP_PX = 6
_MAX_SELECTIONS = 12
_MAX_HEAT_MAP_COLUMNS = 40
_LETTER_PX, _CELL_PX, _MIN_CELL_PX, _ROW_PX = 6.6, 46, 9, 22
_SORTS = {"kind": "compute", "stream": "copy", "device": "graph"}
_Value = tuple[float | None, str]  # a share, and what it says
_KINDS: Mapping[str, str] = MappingProxyType(
    {
        COMPUTE: "compute",
        WAIT: "host_blocked",
        TRANSFER: "comm",
        COPIES: "copy",
        IDLE: "unknown",
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class Box(OneLine):
    """A rectangle.

    Example row: ``Box(kind="compute", x="12.5", y="0", width="25", height="100", text="...")``

    Attributes:
        kind: the name of its color.
        x, width: in percent of the chart's width.
        y, height: in pixels.
        text: what it says when it is pointed at.
    """

    kind: str
    x: str
    y: str
    width: str
    height: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Label(OneLine):
    """A text at a place: ``Label("step 3", "12.5")``."""

    text: str
    at: str


@dataclass(frozen=True, slots=True, repr=False)
class StepChart(OneLine):
    """A column per step, as high as the step is long, of what the GPU did and why it was idle.

    Attributes:
        name: what it shows, for those who do not see it.
        height: in pixels, without the labels below.
        width: in pixels, where there is room for it.
        boxes: the parts of the columns.
        steps: the numbers below, at percents of the width.
        lines: times, at pixels from above.
        parts: each sort of part once, as a legend has them.
    """

    name: str
    height: int
    width: int
    boxes: tuple[Box, ...]
    steps: tuple[Label, ...]
    lines: tuple[Label, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Cell(OneLine):
    """A cell of a heat map.

    Example row: ``Cell(text="42", title="compute, then comm: 42 %", x=100, strength="0.29")``

    Attributes:
        text: what stands in it.
        title: what it says when it is pointed at.
        x: its left edge in pixels.
        strength: how opaque its color is, 0 to 1; "" without a value.
    """

    text: str
    title: str
    x: int
    strength: str


@dataclass(frozen=True, slots=True, repr=False)
class HeatRow(OneLine):
    """A row of a heat map, N pixels from the top: ``HeatRow("rank 0", 22, (Cell(...),))``."""

    name: str
    y: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, repr=False)
class HeatChart(OneLine):
    """Shares as a table of colored cells.

    Attributes:
        title: what it shows.
        kind: the name of its color.
        corner: what its rows are.
        columns: their names, at pixels from the left.
        rows: from above.
        left, cell, width, height: of the rows' names, of a cell, and of all, in pixels.
    """

    title: str
    kind: str
    corner: str
    columns: tuple[Label, ...]
    rows: tuple[HeatRow, ...]
    left: int
    cell: int
    width: int
    height: int


def placed(parts: Sequence[Part]) -> list[Box]:
    """Place the parts of a bar, which are in percent, one after another.

    >>> [(box.x, box.width) for box in placed([Part("compute", "", 70), Part("launch", "", 30)])]
    [('0', '70'), ('70', '30')]
    """
    starts = accumulate((part.size for part in parts), initial=0)
    return [
        Box(part.kind, str(start), "0", str(part.size), "100%", f"{part.name} {part.size} %")
        for start, part in zip(starts, parts, strict=False)
    ]


def step_chart(rank: RankView) -> StepChart | None:
    """The steps of a file on the GPU that decides; None of fewer than two."""
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
    slot, boxes, labels = 100 / len(steps), [], []
    every = math.ceil(len(steps) / _MAX_HEAT_MAP_COLUMNS)
    kinds: dict[str, Part] = {}
    for index, (view, device) in enumerate(steps):
        bottom = float(_TOP_PX + _CHART_PX)
        for part in parts_of(device):
            height = _CHART_PX * part.size / longest_ns
            bottom -= height
            kinds.setdefault(part.name, part)
            text = f"step {view.step}, {part.name}: {time_text(part.size)}"
            x, width = _digits(slot * (index + 0.1)), _digits(slot * 0.8)
            boxes.append(Box(part.kind, x, _digits(bottom), width, _digits(height), text))
        if index % every == 0:
            labels.append(Label(str(view.step), _digits(slot * (index + 0.5))))
    tick_ns, texts = ticks(longest_ns, at_most=4)
    unit, _ = time_unit(longest_ns)
    lines = (
        Label(f"{text} {unit}" if ns else "0", _digits(_TOP_PX + _CHART_PX * (1 - ns / longest_ns)))
        for ns, text in zip(tick_ns.tolist(), texts, strict=True)
    )
    return StepChart(
        f"Each step on GPU {number}: what ran, and why nothing ran",
        _CHART_PX,
        _COLUMN_PX * len(steps),
        tuple(boxes),
        tuple(labels),
        tuple(lines),
        tuple(kinds.values()),
    )


def overlap_charts(pairs: Sequence[OverlapMetrics], *, several: bool) -> list[HeatChart]:
    """Return the charts of overlap between kinds, streams or GPUs.

    Args:
        pairs: those of one window.
        several: whether more than one GPU worked.
    """
    charts = []
    for sort, title in (("kind", "Kinds"), ("stream", "Streams"), ("device", "GPUs")):
        of_sort = [pair for pair in pairs if pair.a.startswith(f"{sort}:")]
        times = {name: ns for x in of_sort for name, ns in ((x.a, x.a_ns), (x.b, x.b_ns))}
        busiest = sorted(times, key=lambda name: -times[name])[:_MAX_SELECTIONS]
        chosen = [name for name in times if name in busiest]
        together = {(x.a, x.b): x.overlap_ns for x in of_sort}
        together |= {(x.b, x.a): x.overlap_ns for x in of_sort}
        if len(chosen) < 2:
            continue
        names = [selection_name(name, several=several) for name in chosen]
        charts.append(
            _heat_chart(
                f"{title}: how much of the row's time the column ran, too",
                _SORTS[sort],
                "",
                names,
                names,
                [
                    [_beside(row, other, times, together, several=several) for other in chosen]
                    for row in chosen
                ],
            )
        )
    return charts


def _beside(
    row: str,
    other: str,
    times: Mapping[str, int],
    together: Mapping[tuple[str, str], int],
    *,
    several: bool,
) -> _Value:
    """Return the share of one's time in which the other ran, too."""
    if (row, other) not in together:
        return None, ""
    ns, of_ns = together[row, other], times[row]
    name, other_name = (selection_name(x, several=several) for x in (row, other))
    share = percent_text(ns, of_ns)
    text = f"{time_text(ns)} of the {time_text(of_ns)} of {name} ({share}) ran next to {other_name}"
    return ns / max(1, of_ns), text


def job_charts(job: Job, ranks: Sequence[int]) -> list[HeatChart]:
    """Return heat maps of each rank's steps: compute, waits, transfers, copies, idle."""
    content = heat_map(job, ranks)
    if not content.steps or not content.ranks:
        return []
    every = math.ceil(len(content.steps) / _MAX_HEAT_MAP_COLUMNS)
    charts = []
    for title, share in content.shares.items():
        shown, first = merged(share, every)
        steps = [content.steps[index] for index in first]
        values = [
            [_step_value(value, rank, step, title) for value, step in zip(row, steps, strict=True)]
            for row, rank in zip(shown.tolist(), content.ranks, strict=True)
        ]
        rows = [f"rank {rank}" for rank in content.ranks]
        numbers = [str(step) for step in steps]
        charts.append(
            _heat_chart(title.capitalize(), _KINDS[title], "% of step", rows, numbers, values)
        )
    return charts


def _step_value(value: float, rank: int, step: int, title: str) -> _Value:
    if math.isnan(value):
        return None, ""
    return value, f"rank {rank}, step {step}: {title} {_share_text(value)}"


def _heat_chart(
    title: str,
    kind: str,
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[_Value]],
) -> HeatChart:
    left = round(_LETTER_PX * max(map(len, [corner, *rows]))) + 10
    widest = round(_LETTER_PX * max(map(len, columns))) + 8
    room = max(_MIN_CELL_PX, round(12 * _CELL_PX / max(12, len(columns))))
    cell = max(room, widest) if len(columns) <= _MAX_SELECTIONS else room
    every = math.ceil(widest / cell)
    has_text = cell >= 24
    return HeatChart(
        title=title,
        kind=kind,
        corner=corner,
        columns=tuple(
            Label(text, str(left + cell * index + cell // 2))
            for index, text in enumerate(columns)
            if index % every == 0
        ),
        rows=tuple(
            HeatRow(
                name,
                _ROW_PX * (row + 1),
                tuple(
                    _cell(value, left + cell * column, has_text=has_text)
                    for column, value in enumerate(of_row)
                ),
            )
            for row, (name, of_row) in enumerate(zip(rows, values, strict=True))
        ),
        left=left,
        cell=cell,
        width=left + cell * len(columns) + 2,
        height=_ROW_PX * (len(rows) + 1) + 2,
    )


def _cell(value: _Value, x: int, *, has_text: bool) -> Cell:
    share, title = value
    if share is None:
        return Cell("", "", x, "")
    text = _share_text(share).removesuffix(" %") if has_text else ""
    return Cell(text, title, x, _digits(0.04 + 0.56 * min(1.0, share)))


def _share_text(share: float) -> str:
    return share_text(round(1_000_000 * share), 1_000_000)


def _digits(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")
