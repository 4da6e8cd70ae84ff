"""Tables of the report that have no section of their own: any measure's rows as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tracelab.base.text import counted
from tracelab.render.text.cells import percent_text, time_text
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.report.views import TREATED_APART, View

if TYPE_CHECKING:  # what a difference is made of is not needed to show one trace
    from tracelab.comparison.diff import RankDiff, TableDiff
    from tracelab.comparison.noise import Change

_MOST_ROWS = 10
_KEYS = ("rank", "step")


def other_tables(view: View) -> list[Section]:
    """A section for each table of a window that no other section shows."""
    return [
        _section(key, rows)
        for key, rows in view.tables.items()
        if rows and key not in TREATED_APART
    ]


def changed_tables(rank: RankDiff) -> list[Section]:
    """What changed in such tables, each as a section."""
    return [_changes(key, rows, rank) for key, rows in rank.tables.items() if rows]


def table_title(key: str) -> str:
    """A table's title: its key as words.

    >>> table_title("longest_gaps")
    'Longest gaps'
    """
    return key.replace("_", " ").capitalize()


def column_title(name: str) -> str:
    """A column's title: its name as words, without the unit that its cells show.

    >>> column_title("idle_ns")
    'idle'
    """
    return name.removesuffix("_ns").removesuffix("_share").replace("_", " ")


def cell(name: str, value: Any) -> tuple[str, Fit]:
    """A value as a table shows it, by its type and the unit that its column's name ends in.

    >>> cell("idle_ns", 1500)[0], cell("busy_share", 0.25)[0], cell("count", 1200)[0]
    ('1.50 \u00b5s', '25.0 %', '1,200')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value], Fit.NUMBER
    if isinstance(value, int) and name.endswith("_ns"):
        return time_text(value), Fit.NUMBER
    if isinstance(value, int | float) and name.endswith("_share") and math.isfinite(1e6 * value):
        return percent_text(round(1_000_000 * value), 1_000_000), Fit.NUMBER
    if isinstance(value, int | float):
        return f"{value:,}", Fit.NUMBER
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(name, part)[0]}" for key, part in value.items()), Fit.PROSE
    return str(value), Fit.LABEL


def _section(key: str, rows: Sequence[Any]) -> Section:
    names = [x.name for x in fields(rows[0]) if x.name not in _KEYS]
    cells = [[cell(name, getattr(row, name)) for name in names] for row in rows[:_MOST_ROWS]]
    left = len(rows) - len(cells)
    return Section(
        table_title(key),
        columns=tuple(
            Column(column_title(name), fit) for name, (_, fit) in zip(names, cells[0], strict=True)
        ),
        rows=tuple(tuple(text for text, _ in row) for row in cells),
        notes=(f"… and {counted(left, 'row', 'rows')} more {ALL_IN_JSON}.",) if left else (),
    )


def _changes(key: str, rows: Sequence[TableDiff], rank: RankDiff) -> Section:
    lines = [
        (" ".join([*row.names.values(), column_title(name)]), time)
        for row in rows
        for name, time in row.times.items()
    ]
    shown = [(name, time) for name, time in lines if time.difference_ns][:_MOST_ROWS]
    return Section(
        table_title(key) + (", per step" if rank.basis == "step" else ""),
        lines=() if shown else ("As before.",),
        columns=(Column("", Fit.LABEL), *map(Column, ("before", "after", "difference", ""))),
        rows=tuple((name, *_change_cells(time)) for name, time in shown),
    )


def _change_cells(time: Change) -> Iterable[str]:
    sign = "-" if time.difference_ns < 0 else "+"
    yield time_text(time.before_ns)
    yield time_text(time.after_ns)
    yield f"{sign}{time_text(abs(time.difference_ns))}"
    yield "" if time.beyond_noise else "noise"
