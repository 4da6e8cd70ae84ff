"""Edges of a program while it is built: lists that are joined at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.simulate.program import Via


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Edges(Frozen):
    """Edges of one or more kinds; columns as in `Program`.

    Example row: ``(source=40, target=41, via=Via.LAUNCH, latency_ns=2_100)``.
    """

    source: NDArray[np.intp]
    target: NDArray[np.intp]
    via: NDArray[np.int8]
    latency_ns: Int64Array


def edges(
    source: NDArray[np.integer[Any]],
    target: NDArray[np.integer[Any]],
    via: Via,
    latency_ns: NDArray[np.integer[Any]] | int,
) -> Edges:
    """Edges of one kind; the latency may be the same for all."""
    return Edges(
        source.astype(np.intp),
        target.astype(np.intp),
        np.full(len(source), via, dtype=np.int8),
        np.broadcast_to(np.asarray(latency_ns, dtype=np.int64), len(source)).copy(),
    )
