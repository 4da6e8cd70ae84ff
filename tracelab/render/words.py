"""Times, shares and names as people read them, in text and in pictures."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.base.names import qualified_name

ELLIPSIS = "…"
NO_SHARE = "-"  # of nothing
_LONGEST_NAME = 60
_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_PLAIN = re.compile(r"Mem(?:cpy|set)\b|(?!.*(?:[<(]|::))")  # a copy, or no C++ at all


def time_unit(length_ns: int) -> tuple[str, int]:
    """The unit in which a stretch of time reads best, and its length in ns.

    >>> time_unit(16_682_383)
    ('ms', 1000000)
    """
    return next(((unit, ns) for unit, ns in _UNITS if length_ns >= ns), _UNITS[-1])


def ticks(length_ns: int, at_most: int) -> tuple[Int64Array, list[str]]:
    """Round points in ``[0, length_ns]`` and their labels in the unit of the length.

    >>> ticks(1_222_000_000, at_most=6)
    (array([         0,  500000000, 1000000000]), ['0', '0.5', '1.0'])

    Returns:
        int64[n], ns, and n labels.
    """
    least = max(1, -(-length_ns // at_most))
    power = 10 ** (len(str(least)) - 1)
    spacing_ns = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    tick_ns = np.arange(0, length_ns + 1, spacing_ns, dtype=np.int64)
    _, unit_ns = time_unit(length_ns)
    decimals = max(0, len(str(unit_ns)) - len(str(spacing_ns)))
    return tick_ns, ["0", *(f"{int(ns) / unit_ns:.{decimals}f}" for ns in tick_ns[1:])]


def duration_text(length_ns: int) -> str:
    """A length of time with three digits, as a picture has room for.

    >>> duration_text(16_682_383)
    '16.7 ms'
    """
    unit, unit_ns = time_unit(length_ns)
    value = length_ns / unit_ns
    decimals = 0 if unit_ns == 1 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f} {unit}"


def share_text(part: int, whole: int, decimals: int = 0) -> str:
    """A share in percent; only nothing is 0 % and only everything is 100 %.

    >>> share_text(415, 1000), share_text(1, 1000), share_text(1, 1000, decimals=1)
    ('42 %', '<1 %', '0.1 %')
    """
    if whole <= 0:
        return NO_SHARE
    if part in (0, whole):
        return "100 %" if part else "0 %"
    percent, smallest = 100 * part / whole, 10**-decimals
    if 0 < percent < smallest:
        return f"<{smallest:g} %"
    if 100 - smallest < percent < 100:
        return f">{100 - smallest:g} %"
    return f"{percent:.{decimals}f} %"


def bare_name(name: str) -> str:
    """The part of an activity's name that tells people what it is.

    Of a C++ function that is its own name, without return type, namespaces, template and call
    arguments. A copy keeps its direction and its memories.

    >>> bare_name("void at::native::reduce_kernel<512, 1, at::native::ReduceOp>(float*)")
    'reduce_kernel'
    >>> bare_name("Memcpy HtoD (Pageable -> Device)")
    'HtoD (Pageable -> Device)'
    """
    if _PLAIN.match(name):
        return shorten(name.removeprefix("Memcpy "), _LONGEST_NAME)
    return shorten(qualified_name(name).rpartition("::")[2] or name, _LONGEST_NAME)


def shorten(text: str, most: int) -> str:
    """Cut a text to `most` letters, with an ellipsis at its end.

    >>> shorten("reduce_kernel", 7)
    'reduce…'
    """
    return text if len(text) <= most else text[: max(most - 1, 0)] + ELLIPSIS
