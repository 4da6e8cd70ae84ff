"""Tables of a report as CSV; columns are named by the keys of the JSON.

Maps have a column a key (``bubbles.host_blocked``), lists of rows a table (``windows.devices``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import orjson

from tracelab.report.schema import Report, csv_text, flatten
from tracelab.system.files import identities, require_output, write_file

_NO_TABLES = ("schema", "version", "provenance")
_KEYS = ("rank", "step", "device")
_NUMBER = "number"
_NO_NAME = re.compile(r"[^\w.-]")  # in names of saved reports

_Row = dict[str, Any]


def csv_tables(report: Report) -> dict[str, str]:
    """Return the tables with rows, by name."""
    content = orjson.loads(report.to_json())
    content["findings"] = [
        {_NUMBER: number, **finding} for number, finding in enumerate(content["findings"], 1)
    ]
    tables: dict[str, list[_Row]] = {}
    for name, rows in content.items():
        if name not in _NO_TABLES and rows is not None:
            _add_rows(tables, name, rows if isinstance(rows, list) else [rows], {})
    return {
        name: csv_text(list(dict.fromkeys(column for row in rows for column in row)), rows)
        for name, rows in tables.items()
    }


def write_csv(report: Report, folder: str | PathLike[str]) -> list[Path]:
    """Write each table into a folder, which is made; return the files.

    Raises:
        OutputError: one of them cannot be written, or is one of the traces.
    """
    inputs = identities(trace.path for trace in report.traces)
    written = []
    for name, text in csv_tables(report).items():
        path = Path(folder) / f"{_NO_NAME.sub('_', name)}.csv"
        require_output(path, inputs)
        write_file(path, text.encode())
        written.append(path)
    return written


def _add_rows(
    tables: dict[str, list[_Row]], name: str, rows: Iterable[_Row], keys: Mapping[str, Any]
) -> None:
    for row in rows:
        own, lists = flatten(row)
        cells = {**keys, **own}
        own_keys = {key: cells[key] for key in _KEYS if key in cells}
        if cells.keys() - own_keys:
            tables.setdefault(name, []).append(cells)
        for key, below in lists.items():
            _add_rows(tables, f"{name}.{key}", below, own_keys)
