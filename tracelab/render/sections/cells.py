"""Cells and titles of tables whose columns are not known before: by type and name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracelab.render.section import Fit
from tracelab.render.text.cells import percent_text, time_text


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
