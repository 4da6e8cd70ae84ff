"""The heat map of a job: of each rank and step the shares of compute, wait, transfer and idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Record
from tracelab.report.schema import Job

Shares = NDArray[np.float64]
_MIN_PANEL_STEP_SHARE = 0.01


class Panel(NamedTuple):
    """Panel of the heat map.

    Attributes:
        field: the field of a step that has its time.
        kind: the kind of spans whose color a page gives it.
        color: the darkest one in a picture; none is darker, and colors alone tell nothing.

    Example: ``Panel("compute_ns", "compute", "#0072B2")``.
    """

    field: str
    kind: str
    color: str


# By title.
PANELS: Mapping[str, Panel] = MappingProxyType(
    {
        "compute": Panel("compute_ns", "compute", "#0072B2"),
        "wait for other ranks": Panel("wait_ns", "host_blocked", "#D55E00"),
        "transfer": Panel("transfer_ns", "comm", "#B07900"),
        "copies": Panel("copy_ns", "copy", "#00795A"),
        "idle": Panel("idle_ns", "unknown", "#5F6368"),
    }
)


class HeatMap(Record, eq=False):
    """Contents of the heat map.

    Attributes:
        ranks: the rows.
        steps: the columns.
        shares: of each panel, by its title: float64[ranks, steps], of the step's time on the rank,
            0 to 1; nan where the rank lacks the step.
    """

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    shares: Mapping[str, Shares]


def heat_map(job: Job, ranks: Sequence[int]) -> HeatMap:
    """The shares of all steps of these ranks."""
    by_rank = {times.rank: {x.step: x for x in times.steps} for times in job.per_rank}
    steps = tuple(sorted({step for rank in ranks for step in by_rank[rank] if step is not None}))
    shares = {}
    for title, panel in PANELS.items():
        share = np.full((len(ranks), len(steps)), np.nan)
        for row, rank in enumerate(ranks):
            for column, step in enumerate(steps):
                if x := by_rank[rank].get(step):
                    share[row, column] = getattr(x, panel.field) / max(1, x.end_ns - x.start_ns)
        if title != "copies" or np.nanmax(share, initial=0) >= _MIN_PANEL_STEP_SHARE:
            shares[title] = share
    return HeatMap(tuple(ranks), steps, MappingProxyType(shares))


def merged(share: Shares, every: int) -> tuple[Shares, list[int]]:
    """The mean of N neighboring steps, of very many, and the first step of each column.

    Args:
        share: float64[ranks, steps].
        every: how many steps become one column.
    """
    first = list(range(0, share.shape[1], every))
    if every == 1:
        return share, first
    return np.stack([np.nanmean(share[:, i : i + every], axis=1) for i in first], axis=1), first
