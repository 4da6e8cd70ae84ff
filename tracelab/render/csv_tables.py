"""Every table of a report as CSV, with the keys of its JSON as titles of the columns.

A map has a column for each of its keys (``bubbles.host_blocked``), a list of texts or numbers is
one cell, and a list of rows is a table of its own (``windows.devices``), which repeats the rank,
step and device that its rows belong to.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import orjson

from tracelab.base.safe_text import clean
from tracelab.report.schema import Report
from tracelab.system.files import identities, require_output, write_file

JOINT = "; "  # between the items of a list
_NO_TABLES = ("schema", "version", "provenance")
_KEYS = ("rank", "step", "device")  # of a row, by which the rows below it are known
_FORMULA = ("=", "+", "-", "@")  # a spreadsheet would compute what begins so
_NUMBER = "number"

_Row = dict[str, Any]


def csv_tables(report: Report) -> dict[str, str]:
    """Return the tables that have rows, each by its name.

    >>> csv_tables(tracelab.analyze("traces/events_item.pt.trace.json.gz"))["headline"][:27]
    'rank,step,step_ns,profiled_'
    """
    content = orjson.loads(report.to_json())
    content["findings"] = [
        {_NUMBER: number, **finding} for number, finding in enumerate(content["findings"], 1)
    ]
    tables: dict[str, list[_Row]] = {}
    for name, rows in content.items():
        if name not in _NO_TABLES and rows is not None:
            _add_rows(tables, name, rows if isinstance(rows, list) else [rows], {})
    return {name: _written(rows) for name, rows in tables.items()}


def write_csv(report: Report, folder: str | PathLike[str]) -> list[Path]:
    """Write each table into a folder, which is made; files of these names are replaced.

    Args:
        report: of which the tables are.
        folder: where to write ``findings.csv`` and the others.

    Returns:
        the files that were written.

    Raises:
        OutputError: one of them cannot be written, or is one of the traces.
    """
    inputs = identities(trace.path for trace in report.traces)
    written = []
    for name, text in csv_tables(report).items():
        path = Path(folder) / f"{name}.csv"
        require_output(path, inputs)
        write_file(path, text.encode())
        written.append(path)
    return written


def _add_rows(
    tables: dict[str, list[_Row]], name: str, rows: Iterable[_Row], keys: Mapping[str, Any]
) -> None:
    """Add rows to a table, and what they hold as lists of rows to tables of their own."""
    for row in rows:
        cells: _Row = dict(keys)
        lists: dict[str, Sequence[_Row]] = {}
        _flatten("", row, cells, lists)
        own_keys = {key: cells[key] for key in _KEYS if key in cells}
        if cells.keys() - own_keys:
            tables.setdefault(name, []).append(cells)
        for key, below in lists.items():
            _add_rows(tables, f"{name}.{key}", below, own_keys)


def _flatten(prefix: str, row: _Row, cells: _Row, lists: dict[str, Sequence[_Row]]) -> None:
    """Sort what a row holds into cells by their column, and lists of rows."""
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            lists[name] = value
        elif isinstance(value, dict):
            _flatten(f"{name}.", value, cells, lists)
        else:
            cells[name] = value


def _written(rows: Sequence[_Row]) -> str:
    """Return a table as CSV: a row may lack columns that others have."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> str | int | float:
    """Return a number as it is, and a text that no spreadsheet takes for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return value
    if value is None:
        return ""
    items = value if isinstance(value, list) else [value]
    text = clean(JOINT.join(map(str, items)))
    is_name = any(isinstance(item, str) for item in items)
    return f"'{text}" if is_name and text.lstrip().startswith(_FORMULA) else text
