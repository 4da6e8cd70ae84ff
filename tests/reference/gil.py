"""An independent account of who waited for the GIL: slow, event by event, from the definition.

A launching thread waited from one moment at which something of its own began or ended to the next,
where that is at least 20 us, if it was in a Python function then and in nothing inside of it; not
in one that sleeps or waits, and in a built-in function only after a call or operator in it ended.
Another thread had the lock if at least two of its functions began or ended meanwhile: between the
first and the last of these, as long as it ran Python itself, or a built-in function of less than
100 us.
"""

from __future__ import annotations

from itertools import pairwise

from tests.build.rows import Row
from tracelab.model.trace import HOST_CALLS, Category

LEAST_WAIT, LONG = 20_000, 100_000


def _events(rows: list[Row], thread):
    kinds = (*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    return [row for row in rows if row.thread == thread and row.category in kinds]


def _moments(rows: list[Row]):
    return sorted({t for row in rows for t in (row.start, row.end)})


def _innermost(rows: list[Row], t):
    """The event of a thread at a moment that began last and is the shortest, or None."""
    around = [row for row in rows if row.start <= t < row.end]
    return max(around, key=lambda row: (row.start, -row.end), default=None)


def _is_built_in(row):
    return row.name.startswith("<built-in")


def _runs_python(row, away):
    return row is not None and row.category == Category.PYTHON and row.name not in away


def gil_waits(rows: list[Row], launching, away):
    """(thread, holder, start, end, held) of each wait, sorted.

    Args:
        rows: of a trace of one process; those of a thread lie inside one another, or apart.
        launching: the threads that launch.
        away: names of functions that sleep or wait.
    """
    threads = sorted({row.thread for row in rows if row.category == Category.PYTHON})
    found = []
    for thread in threads:
        own = _events(rows, thread)
        moments = _moments(own)
        for start, end in pairwise(moments):
            inner = _innermost(own, start)
            if thread not in launching or end - start < LEAST_WAIT:
                continue
            if not _runs_python(inner, away):
                continue
            called = any(row.end == start and row.category != Category.PYTHON for row in own)
            if _is_built_in(inner) and not called:
                continue
            for holder in threads:
                held = 0 if holder == thread else _held(rows, holder, start, end, away)
                if held:
                    found.append((thread, holder, start, end, held))
    return sorted(found)


def _held(rows: list[Row], holder, start, end, away):
    """How long a thread certainly had the lock in a time."""
    others = _events(rows, holder)
    functions = [row for row in others if row.category == Category.PYTHON]
    edges = sorted(t for row in functions for t in (row.start, row.end) if start < t < end)
    held = 0
    if len(edges) >= 2:
        moments = [t for t in _moments(others) if edges[0] <= t <= edges[-1]]
        for since, until in pairwise(moments):
            inner = _innermost(others, since)
            if _runs_python(inner, away):
                is_long = inner.end - inner.start >= LONG
                held += 0 if _is_built_in(inner) and is_long else until - since
    return held
