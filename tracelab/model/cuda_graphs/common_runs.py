"""Which part of a sequence occurs somewhere else as well: the longest one, and where.

Windows of 1, 2, 4, 8 ... numbers are compared by a number for each different window, which is made
of those of its halves. So a level takes a sort of the windows that are still in question, and a
run is found whatever its length; nothing is compared by a hash that could collide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.lookup import expand_ranges, groups_of
from tracelab.model.trace import ABSENT

_MOST_OCCURRENCES = 64  # of a window: of more the last ones count
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


class CommonRun(NamedTuple):
    """Numbers ``[first, first + length)`` of a sequence, and where they occur in the text.

    Example: ``CommonRun(first=0, length=3, text_first=(17, 29))``.
    """

    first: int
    length: int
    text_first: tuple[int, ...]


def longest_common_runs(
    text: Int64Array, sequences: Sequence[Int64Array], fewest: int = 1
) -> list[CommonRun | None]:
    """Of each sequence the longest run that also occurs in a text; None where there is none.

    Also None where two different parts of a sequence are the longest. Of more than 64 places in
    the text at which it occurs, those are given that come last. The slow reference model is
    ``tests/reference/origins.py``.

    Args:
        text: int64[n], any numbers; negative ones end a run.
        sequences: int64[...], numbers that are not negative.
        fewest: shorter runs are none.

    >>> longest_common_runs(np.array([5, 1, 2, 3, -1, 1, 2, 3]), [np.array([9, 1, 2, 3])])
    [CommonRun(first=1, length=3, text_first=(1, 5))]
    """
    longest: list[CommonRun | None] = [None] * len(sequences)
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.intp)
    joined = np.concatenate([np.append(x, ABSENT) for x in (text, *sequences)]).astype(np.int64)
    first = len(text) + 1 + np.cumsum(lengths + 1) - (lengths + 1)
    sequence_of = np.repeat(np.arange(-1, len(sequences)), [len(text) + 1, *(lengths + 1)])
    number, size = _shared(joined, joined >= 0, len(text)), 1
    position = np.flatnonzero(number != ABSENT)
    while len(position):
        longer = _doubled(number, position, size, len(text))
        next_position = np.flatnonzero(longer != ABSENT)
        goes_on = np.zeros(len(sequences) + 1, dtype=np.bool_)
        goes_on[sequence_of[next_position]] = True
        is_text = position < len(text)
        ends_here = position[~is_text & ~goes_on[sequence_of[position]]]
        if 2 * size > fewest and len(ends_here):
            sequence = sequence_of[ends_here]
            for index, run in _runs(number, position[is_text], ends_here, sequence, size):
                if run is not None and run.length >= fewest:
                    longest[index] = run._replace(first=run.first - int(first[index]))
        number, position, size = longer, next_position, 2 * size
    return longest


def _shared(key: Int64Array, is_chosen: NDArray[np.bool_], text_length: int) -> Int64Array:
    """int64[n], a number for each chosen key that occurs in the text and in a sequence.

    ABSENT for all others.
    """
    position = np.flatnonzero(is_chosen)
    is_text = position < text_length
    in_text, in_sequence = position[is_text], position[~is_text]
    shared = np.full(len(key), ABSENT, dtype=np.int64)
    keys, number = np.unique(key[in_sequence], return_inverse=True)
    if not len(keys):
        return shared
    # The sequences are short: to look up what is in the text takes less than to sort it.
    of_text = np.minimum(np.searchsorted(keys, key[in_text]), len(keys) - 1)
    is_known = keys[of_text] == key[in_text]
    is_shared = np.zeros(len(keys), dtype=np.bool_)
    is_shared[of_text[is_known]] = True
    shared[in_text[is_known]] = of_text[is_known]
    shared[in_sequence] = np.where(is_shared[number], number, ABSENT)
    return shared


def _doubled(
    number: Int64Array, position: NDArray[np.intp], size: int, text_length: int
) -> Int64Array:
    """The numbers of windows of twice the size, of those of their halves."""
    second = np.append(number, np.full(size, ABSENT))[position + size]
    key = np.full(len(number), ABSENT, dtype=np.int64)
    key[position] = np.where(second == ABSENT, ABSENT, number[position] * len(number) + second)
    return _shared(key, key != ABSENT, text_length)


def _runs(
    number: Int64Array,
    in_text: NDArray[np.intp],
    in_sequence: NDArray[np.intp],
    sequence: NDArray[np.intp],
    size: int,
) -> Iterator[tuple[int, CommonRun | None]]:
    """The longest run of each sequence of which no window of twice the size is in the text.

    Args:
        number: int64[n], of the windows of that size.
        in_text: where windows of the text begin.
        in_sequence: intp[k], where windows of these sequences begin.
        sequence: intp[k], of each of those its sequence.
        size: of the windows.

    Returns:
        pairs: the sequence and its run, whose `first` is a position among all.
    """
    in_text = in_text[np.argsort(number[in_text], kind="stable")]
    begin, end = (np.searchsorted(number[in_text], number[in_sequence], side) for side in _SIDES)
    index, member = expand_ranges(np.maximum(begin, end - _MOST_OCCURRENCES), end)
    place, sequence, shift = (
        in_sequence[index],
        sequence[index],
        in_text[member] - in_sequence[index],
    )
    # Windows that follow each other on both sides are one run.
    order = np.lexsort((place, shift, sequence))
    place, shift, sequence = place[order], shift[order], sequence[order]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (np.diff(sequence) != 0) | (np.diff(shift) != 0) | (np.diff(place) != 1)
    run_index = np.flatnonzero(begins)
    length = np.diff(run_index, append=len(order)) + size - 1
    for own, runs in groups_of(sequence[run_index]):
        longest = runs[length[runs] == length[runs].max()]
        places = place[run_index[longest]]
        if (places != places[0]).any():
            yield own, None
            continue
        text_first = np.sort(places + shift[run_index[longest]])
        yield own, CommonRun(int(places[0]), int(length[longest[0]]), tuple(text_first.tolist()))
