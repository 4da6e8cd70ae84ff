"""The heat map of a job: of each rank and step the shares of compute, wait, transfer and idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import dataclass
from tracelab.report.schema import Job

COMPUTE, WAIT, TRANSFER, COPIES, IDLE = (
    "compute",
    "wait for other ranks",
    "transfer",
    "copies",
    "idle",
)
Shares = NDArray[np.float64]
_MIN_PANEL_STEP_SHARE = 0.01
_TIMES: Mapping[str, str] = MappingProxyType(
    {
        COMPUTE: "compute_ns",
        WAIT: "wait_ns",
        TRANSFER: "transfer_ns",
        COPIES: "copy_ns",
        IDLE: "idle_ns",
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
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
    for title, length in _TIMES.items():
        share = np.full((len(ranks), len(steps)), np.nan)
        for row, rank in enumerate(ranks):
            for column, step in enumerate(steps):
                if x := by_rank[rank].get(step):
                    share[row, column] = getattr(x, length) / max(1, x.end_ns - x.start_ns)
        if title != COPIES or np.nanmax(share, initial=0) >= _MIN_PANEL_STEP_SHARE:
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
