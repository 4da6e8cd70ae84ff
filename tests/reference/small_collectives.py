"""An independent account of small collectives in a row: slow, one row after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_IN_A_ROW, MAX_LAUNCHES_BETWEEN, MIN_BANDWIDTH_BYTES, MAX_LATENCY = 4, 2, 1_000_000, 200_000


@dataclass(frozen=True)
class Launched:
    """A kernel: when its launch began, on which thread; of a collective the rest, too.

    `sort` is its stream, group and operation, `moved` its size in bytes, None where it is not
    known, `step` None outside any.
    """

    launched: int
    thread: int
    start: int = 0
    end: int = 0
    sort: tuple[object, ...] | None = None
    moved: int | None = None
    step: int | None = None
    is_gradient: bool = False

    @property
    def is_small(self) -> bool:
        return self.moved is not None and 0 < self.moved < MIN_BANDWIDTH_BYTES

    @property
    def length(self) -> int:
        return self.end - self.start


def saved(kernels: Sequence[Launched]) -> list[tuple[int, int, int]]:
    """By start, of each small collective that another one could carry: start, latency, gap start.

    The latency is the shortest one's of its sort, 0 where that is too long for one; the gap begins
    as the one before it ends.
    """
    found = []
    for row in _rows(kernels):
        small = [one for one in row if one.is_small]
        if len(small) < MIN_IN_A_ROW:
            continue
        remains = () if len(small) < len(row) else (row[0],)
        latency = min(x.length for x in kernels if x.sort == row[0].sort and x.is_small)
        for before, one in zip([None, *row], row, strict=False):
            if not one.is_small or one in remains:
                continue
            gap = one.start if before is None or one.is_gradient else min(before.end, one.start)
            found.append((one.start, latency if latency <= MAX_LATENCY else 0, gap))
    return sorted(found)


def _rows(kernels: Sequence[Launched]) -> list[list[Launched]]:
    """Collectives that one could replace, by start."""
    rows: list[list[Launched]] = []
    compute = [kernel for kernel in kernels if kernel.sort is None]
    for sort in {kernel.sort for kernel in kernels if kernel.sort is not None}:
        of_sort = sorted((x for x in kernels if x.sort == sort), key=lambda x: x.start)
        for before, one in zip([None, *of_sort], of_sort, strict=False):
            if before is not None and _are_in_a_row(before, one, compute):
                rows[-1].append(one)
            else:
                rows.append([one])
    return rows


def _are_in_a_row(before: Launched, one: Launched, compute: Sequence[Launched]) -> bool:
    if (before.thread, before.step, before.is_gradient) != (one.thread, one.step, one.is_gradient):
        return False
    between = [x for x in compute if before.launched < x.launched < one.launched]
    if one.is_gradient:
        return all(x.thread == one.thread for x in between)
    return sum(x.thread == one.thread for x in between) <= MAX_LAUNCHES_BETWEEN
