"""Times, shares and names for readers of texts and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
from rich.cells import cell_len, chop_cells

from tracelab.base.arrays import Int64Array
from tracelab.base.names import kernel_label, qualified_name

ELLIPSIS = "…"
NO_SHARE = "-"
_MODULE_PREFIX = "nn.Module: "
_MAX_NAME_LETTERS = 60
_BYTE_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DECIMAL_UNITS = ((" T", 1e12), (" G", 1e9), (" M", 1e6), (" k", 1e3))
_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_PLAIN = re.compile(r"Mem(?:cpy|set)\b|(?!.*(?:[<(]|::))")  # not C++
# Not to be broken: a number and its unit, a thing and its number.
_WORD = re.compile(r"\(?(?:GPU|[Ss]teps?|[Rr]ank) \S+|\S*\d (?:ns|µs|ms|s|%)(?!\w)\S*|\S+")


class Quantity(str):
    """A figure with the exact one: ``Quantity("795.4 µs", "795,396 ns")``."""

    __slots__ = ("exact",)
    exact: str

    def __new__(cls, text: str, exact: str) -> Self:
        """Make the text with the exact figure."""
        quantity = super().__new__(cls, text)
        quantity.exact = exact
        return quantity

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.exact


def time_unit(length_ns: int) -> tuple[str, int]:
    """The unit for a length of time, and its ns."""
    return next(((unit, ns) for unit, ns in _UNITS if length_ns >= ns), _UNITS[-1])


def axis_unit(start_ns: int, length_ns: int) -> tuple[str, int]:
    """Return the unit of an axis, and its ns: a longer one late in a trace, for short labels."""
    return time_unit(max(length_ns, (start_ns + length_ns) // 100))


def ticks(length_ns: int, at_most: int, start_ns: int = 0) -> tuple[Int64Array, list[str]]:
    """Return round times (int64[n], ns) and their labels in `axis_unit`."""
    least = max(1, -(-length_ns // at_most))
    power = 10 ** (len(str(least)) - 1)
    finer_ns, spacing_ns = next(
        (finer * power, factor * power)
        for finer, factor in pairwise((1, 1, 2, 5, 10))
        if factor * power >= least
    )
    end_ns = start_ns + length_ns
    if end_ns // spacing_ns <= -(-start_ns // spacing_ns):  # one point gives no scale
        spacing_ns = finer_ns
    first_ns = -(-start_ns // spacing_ns) * spacing_ns
    tick_ns = np.arange(first_ns, end_ns + 1, spacing_ns, dtype=np.int64)
    _, unit_ns = axis_unit(start_ns, length_ns)
    decimals = max(0, len(str(unit_ns)) - len(str(spacing_ns)))
    return tick_ns, [f"{ns / unit_ns:,.{decimals}f}" if ns else "0" for ns in tick_ns.tolist()]


def duration_text(length_ns: int) -> str:
    """Write a length of time with three digits."""
    unit, unit_ns = time_unit(length_ns)
    value = length_ns / unit_ns
    decimals = 0 if unit_ns == 1 or value >= 100 else 1 if value >= 10 else 2
    return Quantity(f"{value:.{decimals}f} {unit}", f"{length_ns:,} ns")


def share_text(part: int, whole: int, decimals: int = 0) -> str:
    """Write a share in percent; only nothing is 0 % and only everything is 100 %."""
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
    """Return the telling part of a name; of other C++ functions the bare name."""
    own = "" if _PLAIN.match(name) else qualified_name(name).rpartition("::")[2]
    own = own or name.removeprefix(_MODULE_PREFIX)
    return shorten(kernel_label(name) or own, _MAX_NAME_LETTERS)


def shorten(text: str, most: int) -> str:
    """Cut a text to `most` letters, with an ellipsis."""
    return text if len(text) <= most else text[: max(most - 1, 0)] + ELLIPSIS


def time_text(time_ns: int) -> str:
    """Write a length of time in a suitable unit: 812 ns, 1.64 µs, 123.4 s."""
    if time_ns == 0:
        return "0"
    unit, unit_ns = time_unit(time_ns)
    if time_ns >= 999.95 * unit_ns:  # else rounded to 1000.0
        unit, unit_ns = time_unit(1000 * unit_ns)
    if unit_ns == 1:
        return f"{time_ns} {unit}"
    value = time_ns / unit_ns
    text = f"{value:.2f} {unit}" if value < 99.995 else f"{value:,.1f} {unit}"
    return Quantity(text, f"{time_ns:,} ns")


def signed_time(time_ns: int) -> str:
    """Write a length of time that may be negative."""
    return Quantity(f"{'-' * (time_ns < 0)}{time_text(abs(time_ns))}", f"{time_ns:,} ns")


def interval_text(time_ns: int, low_ns: int, high_ns: int) -> str:
    """Write a time and its interval: 2.21 ms (1.90 to 12.4)."""
    unit, unit_ns = time_unit(abs(time_ns) or max(abs(low_ns), abs(high_ns)))
    time, low, high = (three_digits(ns / unit_ns) for ns in (time_ns, low_ns, high_ns))
    text = f"{time} {unit}" if time_ns else "0"
    if low_ns != high_ns or time_ns != low_ns:
        text += f" ({low} to {high}{'' if time_ns else f' {unit}'})"
    return Quantity(text, f"{time_ns:,} ns")


def three_digits(value: float) -> str:
    """Write three digits: 0, -1.93, 12.3, 1,234."""
    size = abs(value)
    return f"{value:,.{0 if size >= 100 or not value else 1 if size >= 10 else 2}f}"


def percent_text(part: int, whole: int) -> str:
    """Write a share with one decimal; only nothing is 0 % and only the whole is 100 %."""
    text = share_text(part, whole, decimals=1)
    return Quantity(text, f"{100 * part / whole:.6g} %") if whole > 0 else text


def exact_percent(share: float) -> str:
    """Write a share in percent, with one decimal."""
    return percent_text(round(1_000_000 * share), 1_000_000)


def bytes_text(size_bytes: int) -> str:
    """Write a size in a suitable unit: 128 MiB, -1.5 KiB, 4 B."""
    for unit, unit_bytes in _BYTE_UNITS:
        if abs(size_bytes) >= unit_bytes:
            value = f"{size_bytes / unit_bytes:.1f}".removesuffix(".0")
            return Quantity(f"{value} {unit}", f"{size_bytes:,} B")
    return f"{size_bytes:,} B"


def count_text(count: float) -> str:
    """Write a count per step: 40, 15.4, <0.1."""
    if count == int(count):
        return f"{count:,.0f}"
    return Quantity("<0.1" if 0 < count < 0.05 else f"{count:,.1f}", f"{count:,.6g}")


def signed_percent(part: int, whole: int) -> str:
    """Write a share that may be negative, with one decimal."""
    text = f"{'-' if part < 0 else ''}{percent_text(abs(part), whole)}"
    return Quantity(text, f"{100 * part / whole:.6g} %") if whole > 0 else text


def largest(times_ns: Mapping[str, int]) -> list[tuple[str, int]]:
    """List positive times, the largest first."""
    return sorted(
        ((name, time_ns) for name, time_ns in times_ns.items() if time_ns),
        key=lambda pair: -pair[1],
    )


def graph_streams_label(count: int) -> str:
    """Name the nearly empty streams of CUDA graphs."""
    return f"{count:,} streams of CUDA graphs"


def listed(words: Iterable[str], last: str = "and") -> str:
    """Join words: "a, b and c"."""
    *before, end = words
    return f"{', '.join(before)} {last} {end}" if before else end


# --- text in lines of a given width ---


def wrap(text: str, room: int) -> list[str]:
    """Wrap a sentence into `room` cells; a number stays with its unit."""
    lines = [""]
    for word in _WORD.findall(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= room:
            lines[-1] = longer
        else:
            lines += chop_cells(word, room)
    return [line for line in lines if line]


def paragraph(text: str, room: int, most_lines: int) -> list[str]:
    """Wrap a sentence into at most `most_lines`, with an ellipsis if cut."""
    lines = wrap(text, room)
    if len(lines) <= most_lines:
        return lines
    last = lines[most_lines - 1]
    kept = last if cell_len(last) < room else _beginning(last, room - 1)
    return [*lines[: most_lines - 1], kept + ELLIPSIS]


def shorten_middle(text: str, room: int) -> str:
    """Shorten a text to `room` cells in its middle."""
    if cell_len(text) <= room:
        return text
    tail = max(room - 1, 0) // 2
    head = max(room - 1 - tail, 0)
    return _beginning(text, head) + ELLIPSIS + _beginning(text[::-1], tail)[::-1]


def shorten_names(text: str, most: int) -> str:
    """Shorten names of kernels in a text."""
    return " ".join(word if "/" in word else shorten_middle(word, most) for word in text.split(" "))


def _beginning(text: str, room: int) -> str:
    widths = accumulate(cell_len(letter) for letter in text)
    return text[: sum(width <= room for width in widths)]


def rate_text(rate: float) -> str:
    """Write a count, per second or not, to three digits: 623 T, 120."""
    letter, one = next((unit for unit in _DECIMAL_UNITS if rate >= unit[1]), ("", 1))
    number = rate / one
    text = (f"{number:,.0f}" if number >= 100 else f"{number:.3g}") + letter
    return Quantity(text, f"{rate:,.0f}") if letter else text


# By the unit at the end of their column's name.
UNITS: Mapping[str, Callable[[Any], str]] = {
    "ns": time_text,
    "share": exact_percent,
    "bytes": bytes_text,
    "per step": count_text,
    "rate": rate_text,
    "FLOP/s": rate_text,
}
