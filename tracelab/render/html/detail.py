"""How much of a timeline fits into a page: all of it, or single activities of some steps alone.

A page is read by mail and in browsers of laptops. What decides is the size of the compressed
columns, which differs from trace to trace: so it is measured.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import OneLine
from tracelab.intervals import Int64Array
from tracelab.model.constraints import Constraint
from tracelab.model.trace import ABSENT
from tracelab.render.html.encode import BINS, EncodedLane, Lane, bin_grid, compress, encode
from tracelab.render.html.groups import Group
from tracelab.render.words import duration_text

MOST_BYTES = 2_400_000  # of the columns; base64 makes 3.2 MB of them
_BYTES_OF_RANK = 165_000  # at most so many for each rank of a job: eight make a page of 2 MB
_SAMPLE = 50_000  # so much of a lane tells what all of it takes
_FEWEST_BINS, _BINS_OF_ALL = 512, 65_536
_LEAST_SHARE = 1e-4  # of the time: less is not worth a detail
_WITHOUT_SOURCE = (Constraint.LAUNCH, Constraint.UNKNOWN)
_DETAILS = ("op", "line", "call", "source")  # what else is known of an activity


class Cited(NamedTuple):
    """What a finding cites, and how much it matters that it is seen in detail.

    Example: ``Cited(group_index=0, start_ns=400, end_ns=900, weight=0.5)``.
    """

    group_index: int
    start_ns: int
    end_ns: int
    weight: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fitted(OneLine):
    """Groups of lanes as a page has them.

    Attributes:
        lanes: of each group.
        details: of each group the start and end, ns, of the time in which all is known.
        columns: the bytes of all.
        note: what is left out, sentences; "" where that is nothing.

    Example: ``Fitted(lanes=((EncodedLane(...), ...),), details=((0, 9_000),), columns=b"...",
    note="")``.
    """

    lanes: tuple[tuple[EncodedLane, ...], ...]
    details: tuple[tuple[int, int], ...]
    columns: bytes
    note: str


def fit(groups: Sequence[Group], cited: Sequence[Cited], *, on_one_clock: bool) -> Fitted | None:
    """As much as fits; None where not even a detail of one step in each group does.

    Args:
        groups: with all that is known; their names are those of the page.
        cited: what findings cite.
        on_one_clock: they are ranks of a job.
    """
    start_ns = min(group.start_ns for group in groups)
    end_ns = max(group.end_ns for group in groups)
    most_bytes = min(MOST_BYTES, _BYTES_OF_RANK * len(groups)) if on_one_clock else MOST_BYTES
    lanes = [lane for group in groups for lane in group.lanes]
    all_bytes = sum(map(_estimated_bytes, lanes))
    if all_bytes <= most_bytes:
        encoded = tuple(
            tuple(encode(_filled(lane, row), start_ns) for lane, row in _with_rows(group.lanes))
            for group in groups
        )
        columns = compress(lane for of_group in encoded for lane in of_group)
        return Fitted(encoded, ((start_ns, end_ns),) * len(groups), columns, "")
    return None


def _estimated_bytes(lane: Lane) -> float:
    """About how much a lane takes, compressed."""
    sample = lane.select(np.arange(len(lane)) < _SAMPLE) if len(lane) > _SAMPLE else lane
    columns = encode(sample, 0).columns
    return len(zlib.compress(columns, 6)) * len(lane) / max(1, len(sample))


def _with_rows(lanes: Sequence[Lane]) -> Iterator[tuple[Lane, int]]:
    """Each lane with the place of its first activity among those of its group."""
    row = 0
    for lane in lanes:
        yield lane, row
        row += len(lane) if lane.type == "stream" else 0


def _filled(lane: Lane, first_row: int) -> Lane:
    """The same with what means nothing in a form that takes no place.

    Where an activity did not wait for another one, its source is written as that before it.
    """
    if lane.type != "stream":
        return lane
    before = np.arange(first_row - 1, first_row - 1 + len(lane))
    has_none = np.isin(lane.more["why"], _WITHOUT_SOURCE)
    source = np.where(has_none, before, lane.more["source"])
    return replace(lane, more={**lane.more, "source": source})
