"""Times, shares and names as a picture has room for them."""

from __future__ import annotations

import re

import numpy as np

from tracelab.intervals import Int64Array
from tracelab.model.kernel_kinds import qualified_name

ELLIPSIS = "…"
_LONGEST_NAME = 60
_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_PLAIN = re.compile(r"Mem(?:cpy|set)\b|(?!.*(?:[<(]|::))")  # a copy, or no C++ at all


def time_unit(length_ns: int) -> tuple[str, int]:
    """The unit in which a stretch of time reads best, and its length in ns."""
    return next(((unit, ns) for unit, ns in _UNITS if length_ns >= ns), _UNITS[-1])


def ticks(length_ns: int, at_most: int) -> tuple[Int64Array, list[str]]:
    """Round points in ``[0, length_ns]`` and their labels in the unit of the length."""
    least = max(1, -(-length_ns // at_most))
    power = 10 ** (len(str(least)) - 1)
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    at = np.arange(0, length_ns + 1, step, dtype=np.int64)
    _, unit_ns = time_unit(length_ns)
    decimals = max(0, len(str(unit_ns)) - len(str(step)))
    return at, ["0", *(f"{int(ns) / unit_ns:.{decimals}f}" for ns in at[1:])]


def duration_text(length_ns: int) -> str:
    """A length of time with three digits: 16.7 ms."""
    unit, unit_ns = time_unit(length_ns)
    value = length_ns / unit_ns
    decimals = 0 if unit_ns == 1 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f} {unit}"


def share_text(part_ns: int, whole_ns: int) -> str:
    """A share in per cent; only nothing is 0 % and only everything is 100 %."""
    percent = 100 * part_ns / whole_ns
    if 0 < percent < 1:
        return "<1 %"
    if 99 < percent < 100:
        return ">99 %"
    return f"{percent:.0f} %"


def bare_name(name: str) -> str:
    """The part of an activity's name that tells people what it is.

    Of a C++ function that is its own name, without return type, namespaces, template and call
    arguments: ``void at::native::reduce_kernel<512, 1, ...>(...)`` is ``reduce_kernel``. A copy
    keeps its direction and its memories.
    """
    if _PLAIN.match(name):
        return shorten(name.removeprefix("Memcpy "), _LONGEST_NAME)
    return shorten(qualified_name(name).rpartition("::")[2] or name, _LONGEST_NAME)


def shorten(text: str, most: int) -> str:
    """The text, or so much of its beginning that it has `most` letters with the ellipsis."""
    return text if len(text) <= most else text[: max(most - 1, 0)] + ELLIPSIS
