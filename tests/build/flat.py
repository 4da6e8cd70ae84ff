"""Bubbles with each piece by itself, however many devices share it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.measures.idle_causes import Bubbles


class Flat(Arrays):
    """Pieces of idle time by device and start; columns as in `Bubbles`."""

    device_number: NDArray[Any]
    next_id: NDArray[Any]
    start_ns: NDArray[Any]
    end_ns: NDArray[Any]
    cause: NDArray[Any]
    reason: NDArray[Any]


def flat(idle: Bubbles) -> Flat:
    bubble, piece = idle.pieces_of(np.arange(len(idle.first)))
    of_piece = (idle.start_ns, idle.end_ns, idle.cause, idle.reason)
    return Flat(
        idle.device_number[bubble], idle.next_id[bubble], *(column[piece] for column in of_piece)
    )
