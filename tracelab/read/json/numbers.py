"""Numbers and times as trace files write them: integers, floats or text."""

from __future__ import annotations

import re
from array import array
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, Int64Array
from tracelab.base.errors import UnreadableInputError
from tracelab.model.trace import ABSENT

Number = int | float | str | None  # as files write numbers

# A duration of a hundred days and more is a wrapped counter, not work.
MAX_DURATION_NS = 2**43 * 1000

# A float64 of microseconds with three decimals still tells nanoseconds apart below this value.
_EXACT_BELOW_US = 2.0**43
# 142 years: any two such times, and a duration more, are less than int64 nanoseconds apart.
_LAST_US = 2**52
_LAST_NUMBER = re.compile(r"(?<!\d)-?\d{1,19}$")


class InexactTimesError(UnreadableInputError):
    """Times came as floats that are too coarse for nanoseconds."""


def natural_number(value: Any) -> int:
    """A natural number that may be written as text, "stream 7"; `ABSENT` for anything else."""
    if type(value) is not int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        else:
            digits = _LAST_NUMBER.search(value) if isinstance(value, str) else None
            value = int(digits[0]) if digits else ABSENT
    return value if ABSENT < value < 2**63 else ABSENT


def natural_numbers(values: list[Any]) -> Int64Array:
    """`natural_number` of each value."""
    numbers = _make_array(values)
    if numbers is not None and numbers.dtype == np.int64:
        natural: Int64Array = np.maximum(numbers, ABSENT)
        return natural
    return np.array([natural_number(value) for value in values], dtype=np.int64)


def nanoseconds(values: list[Number]) -> tuple[Int64Array, BoolArray]:
    """Microseconds, as numbers or text, in exact ns, and whether each is a time (else 0).

    An InexactTimesError if a float is too large to tell nanoseconds apart.
    """
    us = _make_array(values)
    if us is not None and us.dtype == np.int64:
        is_time = (us >= -_LAST_US) & (us <= _LAST_US)
        return np.where(is_time, us, 0) * 1000, is_time
    if us is not None and np.all(np.abs(us) < _EXACT_BELOW_US):
        whole = np.floor(us)
        fraction = np.rint((us - whole) * 1000)
        return whole.astype(np.int64) * 1000 + fraction.astype(np.int64), np.ones(len(us), np.bool_)
    if any(type(value) is float and abs(value) >= _EXACT_BELOW_US for value in values):
        raise InexactTimesError("its times are written so that nanoseconds are lost")
    exact_ns = [_exact_nanoseconds(value) for value in values]
    is_time = np.array([time_ns is not None for time_ns in exact_ns], dtype=np.bool_)
    return np.array([time_ns or 0 for time_ns in exact_ns], dtype=np.int64), is_time


def _make_array(values: list[Any]) -> NDArray[Any] | None:
    # None if a value is not a number, or too large. numpy would make texts of them all.
    for type_code in "qd":
        try:
            return np.asarray(array(type_code, values))
        except (TypeError, OverflowError):
            continue
    return None


def _exact_nanoseconds(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        us = Decimal(value) if isinstance(value, int) else Decimal(str(value))
        if not -_LAST_US <= us <= _LAST_US:
            return None
        return int((us * 1000).to_integral_value())
    except InvalidOperation:
        return None
