"""Find rows by name, group, time or correlation; on whole columns, without a loop over events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.model.trace import ABSENT, Category, Trace


def match_names(
    trace: Trace, events: NDArray[np.integer[Any]], test: Callable[[str], object]
) -> NDArray[np.bool_]:
    """bool[k], which of these events (event ids) have a name that passes a test."""
    passes = np.zeros(len(trace.strings), dtype=np.bool_)
    passes[trace.name_index[events]] = True
    for name in np.flatnonzero(passes).tolist():
        passes[name] = bool(test(trace.strings[name]))
    passing: NDArray[np.bool_] = passes[trace.name_index[events]]
    return passing


def groups_of(values: NDArray[np.integer[Any]]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Every value but ABSENT, ascending, and its places, ascending."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    for places in np.split(order, bounds) if len(values) else ():
        if values[places[0]] != ABSENT:
            yield int(values[places[0]]), places


def expand_ranges(
    first: NDArray[np.intp], last: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """All places of some ranges, one range after another: the number of the range, the place."""
    count = np.maximum(last - first, 0)
    number = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return number, np.arange(len(number)) - np.repeat(before - first, count)


def last_in_group(
    group: NDArray[np.integer[Any]],
    key: Int64Array,
    asked_group: NDArray[np.integer[Any]],
    asked_key: Int64Array,
    side: Literal["left", "right"] = "left",
) -> NDArray[np.intp]:
    """Per question the last entry of a group with a smaller key, or ("right") one no greater.

    Args:
        group: int[entries], ascending.
        key: int64[entries], ascending within each group.
        asked_group: int[questions], in any order; ABSENT for no group.
        asked_key: int64[questions].
        side: as in `numpy.searchsorted`.

    Returns:
        intp[questions], places among the entries, ABSENT where there is none.
    """
    found = np.full(len(asked_group), ABSENT, dtype=np.intp)
    for number, asked in groups_of(asked_group):
        same = group.dtype.type(number)  # another type would have all of the group cast
        first, last = np.searchsorted(group, same), np.searchsorted(group, same, "right")
        place = first + np.searchsorted(key[first:last], asked_key[asked], side) - 1
        found[asked] = np.where(place >= first, place, ABSENT)
    return found


class ByCorrelation:
    """The events of some categories by correlation; the first where several share one.

    Attributes:
        event: intp[c], event ids, by correlation.
    """

    def __init__(self, trace: Trace, *categories: Category) -> None:
        events = trace.of_category(*categories)
        events = events[trace.correlation[events] != ABSENT]
        self._correlation, first = np.unique(trace.correlation[events], return_index=True)
        self.event_id = events[first]

    def find(self, correlation: Int64Array) -> NDArray[np.intp]:
        """intp[k], event ids, ABSENT where there is none."""
        if not len(self.event_id):
            return np.full(len(correlation), ABSENT, dtype=np.intp)
        place = np.searchsorted(self._correlation, correlation)
        place = np.minimum(place, len(self.event_id) - 1)
        return np.where(self._correlation[place] == correlation, self.event_id[place], ABSENT)
