"""Times as texts that Perfetto reads back to the nanosecond, as far as a double can say it.

Perfetto reads a time in microseconds as a double, multiplies it by 1,000 and rounds; whole ones it
multiplies as integers. Below 2**42 us that gives every nanosecond back; below 2**43 us a
neighboring double does where the nearest one does not; above, as in files whose times are
microseconds since 1970, times are up to 256 ns off, those of the file itself as well. There a
duration reaches to where Perfetto reads its end, so that slices that touch still do, and none
reaches into the next: Perfetto 51 to 56 would drop it.
"""

from __future__ import annotations

import math

_EXACT_BELOW_NS = 2**42 * 1000
_POSSIBLE_BELOW_NS = 2**43 * 1000


def microseconds(time_ns: int) -> str:
    """A time as a JSON number of microseconds.

    >>> microseconds(4_359_759_616_840_547), microseconds(-1)
    ('4359759616840.547', '-0.001')
    """
    text = _decimal(time_ns)
    if _EXACT_BELOW_NS <= abs(time_ns) < _POSSIBLE_BELOW_NS and perfetto_ns(text) != time_ns:
        for toward in (-math.inf, math.inf):
            neighbor = repr(math.nextafter(float(text), toward))
            if perfetto_ns(neighbor) == time_ns:
                return neighbor
    return text


def slice_times(start_ns: int, end_ns: int) -> tuple[str, str]:
    """The texts of when a slice begins and how long it is.

    >>> slice_times(4_359_759_616_840_547, 4_359_759_616_841_797)
    ('4359759616840.547', '1.250')
    """
    start = microseconds(start_ns)
    if start_ns > -_POSSIBLE_BELOW_NS and end_ns < _POSSIBLE_BELOW_NS:
        return start, _decimal(end_ns - start_ns)
    return start, _decimal(perfetto_ns(microseconds(end_ns)) - perfetto_ns(start))


def perfetto_ns(text: str) -> int:
    """Return the nanoseconds that Perfetto reads from a number of microseconds.

    >>> perfetto_ns("4359759616840.547"), perfetto_ns("1740461679470630.547")
    (4359759616840547, 1740461679470630400)
    """
    us = float(text)
    if us.is_integer():
        return int(us) * 1000
    scaled = abs(us) * 1000.0
    whole = math.floor(scaled)
    return int(math.copysign(whole + (scaled - whole >= 0.5), us))


def _decimal(time_ns: int) -> str:
    whole, rest = divmod(abs(time_ns), 1000)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}"
