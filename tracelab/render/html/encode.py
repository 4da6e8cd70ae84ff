"""The timeline's lanes as bytes that a page reads back.

A lane is a handful of integer columns, written as byte planes, whose alike neighbors suit gzip.
Ordered columns (the launch of each activity) are written as differences; times that follow those
of activities, as differences from them. `tests/reference/page_lanes.py` is the readable
definition.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, Int64Array, Record
from tracelab.base.intervals import measure_within, union
from tracelab.render.picture.coverage import Grid
from tracelab.render.scene import DELTA, LANE_TYPES, Column, Lane

BINS = 4096
_MAX_BIN_NS = 2**32 - 1
_ESCAPED_GAP, _ESCAPED = 0x7FFF_FFFF, 0xFFFF_FFFF  # the value stands in the lane's escapes
_ALL = (Column("gap", 4), Column("dur", 4), Column("kind", 1))
_ESCAPABLE = ("gap", "dur", "cost")

Rows = tuple[Int64Array, Int64Array]  # starts and ends of activities, ns


class EncodedLane(Record, eq=False):
    """A lane on a page: description and bytes."""

    meta: Mapping[str, Any]
    columns: bytes


def rows_of(lanes: Iterable[Lane]) -> Rows:
    """Return the activities of a group's streams, lane after lane."""
    none = np.zeros(0, dtype=np.int64)
    streams = [lane for lane in lanes if lane.type == "stream"]
    return (
        np.concatenate([none, *(lane.start_ns for lane in streams)]),
        np.concatenate([none, *(lane.end_ns for lane in streams)]),
    )


def encode(
    lane: Lane, start_ns: int, rows: Rows, binned: Lane | None = None, grid: Grid | None = None
) -> EncodedLane:
    """Encode one lane as bytes.

    Args:
        lane: the lane.
        start_ns: origin of its first gap.
        rows: the activities of its column "row".
        binned: the lane at all times, if `lane` is a part.
        grid: the bins for that.
    """
    columns = (*_ALL, *(x for x in LANE_TYPES[lane.type].columns if x.name in lane.more))
    before_ns = np.append(np.int64(start_ns), lane.end_ns)[:-1]
    has_rows = "row" in lane.more
    expected = _expected(lane, before_ns, rows) if has_rows else (before_ns, lane.start_ns)
    values: dict[str, NDArray[Any]] = {
        "gap": lane.start_ns - expected[0],
        "dur": lane.end_ns - expected[1],
        "kind": lane.kind,
        **lane.more,
    }
    escapes: dict[str, list[list[int]]] = {}
    parts = []
    for column in columns:
        value = values[column.name]
        if column.name in _ESCAPABLE:
            is_signed = column.name == "gap" or (column.name == "dur" and has_rows)
            most = _ESCAPED_GAP if is_signed else _ESCAPED
            value, escapes[column.name] = _escaped(value, most)
        if column.code == DELTA:
            value = np.diff(value, prepend=0)
        parts.append(planes(value, column.size))
    bins = None
    if binned is not None and grid is not None:
        parts += [planes(of_kind, 4) for of_kind in _binned(binned, grid)]
        bins = {
            "count": grid.columns,
            "start": grid.start_ns,
            "end": grid.end_ns,
            "kinds": list(lane.kinds),
        }
    meta: dict[str, Any] = {
        "id": lane.id,
        "type": lane.type,
        "label": lane.label,
        "device": lane.device,
        "count": len(lane),
        "summary": lane.summary,
        "unit": lane.unit,
        "kinds": list(lane.kinds),
        "columns": [list(column) for column in columns],
        "escapes": escapes,
        "bins": bins,
    }
    if len(lane.streams) > 1:
        meta["streams"] = list(lane.streams)
    if "level" in lane.more:
        meta["levels"] = int((binned or lane).more["level"].max(initial=0)) + 1
    return EncodedLane(meta, b"".join(parts))


def _expected(lane: Lane, before_ns: Int64Array, rows: Rows) -> Rows:
    """Return the expected starts and ends of items, ns.

    They start at the end of the item before, or of the activity before their row, if later; they
    end where their row starts, or, if that is not after the item's start, where it ends.
    """
    row = lane.more["row"]
    starts_ns, ends_ns = (np.append(column, 0) for column in rows)  # of row ABSENT
    earlier_ns = ends_ns[np.maximum(row - 1, ABSENT)]
    start_ns = np.where(row > 0, np.maximum(before_ns, earlier_ns), before_ns)
    end_ns = np.where(lane.start_ns < starts_ns[row], starts_ns[row], ends_ns[row])
    return start_ns, np.where(row == ABSENT, lane.start_ns, end_ns)


def compress(lanes: Iterable[EncodedLane]) -> bytes:
    """Pack the bytes of all lanes, deterministically."""
    return gzip.compress(b"".join(lane.columns for lane in lanes), 9, mtime=0)


def planes(values: NDArray[Any], size: int) -> bytes:
    """Return the lowest bytes of all numbers, then the second lowest, and so on."""
    as_bytes = values.astype("<i8").view(np.uint8).reshape(-1, 8)
    return as_bytes[:, :size].T.tobytes()


def bin_grid(start_ns: int, end_ns: int, count: int = BINS) -> Grid:
    """Return bins of whole ns, enough for 32 bits."""
    length_ns = max(1, end_ns - start_ns)
    count = max(count, -(-length_ns // _MAX_BIN_NS))
    return Grid(start_ns, start_ns + count * -(-length_ns // count), count)


def _escaped(values: Int64Array, most: int) -> tuple[Int64Array, list[list[int]]]:
    """Return the numbers within 32 bits, and the others with their places."""
    is_large = (values >= most) | (values < -(2**31))
    index = np.flatnonzero(is_large)
    return np.where(is_large, most, values), np.stack((index, values[index]), axis=1).tolist()


def _binned(lane: Lane, grid: Grid) -> Sequence[Int64Array]:
    edges_ns = grid.edges_ns
    lasting = (
        union(lane.start_ns[lane.kind == kind], lane.end_ns[lane.kind == kind])
        for kind in range(len(lane.kinds))
    )
    return [measure_within(of_kind, edges_ns[:-1], edges_ns[1:]) for of_kind in lasting]
