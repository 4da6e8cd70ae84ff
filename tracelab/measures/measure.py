"""A measure: the type of its rows and one function, which gives the rows of a file; tables of rows.

A table reaches every output by the same way, keyed by rank and step. To add one, see
``tests/unit/measures/short_activities.py``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache, cached_property
from importlib import import_module
from os import PathLike
from types import GenericAlias, NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import numpy as np
import orjson
from msgspec import Meta
from msgspec.structs import force_setattr

from tracelab.base.arrays import Int64Array, IntArray, Record
from tracelab.base.errors import MissingSupportError
from tracelab.base.printing import Shown
from tracelab.base.safe_text import clean, counted, json_bytes
from tracelab.system.files import write_file

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    _Base = Sequence
else:  # polars takes what `isinstance` calls a sequence apart by itself
    _Base = Generic

# Without the row of others.
MAX_ROWS = 200
OTHERS = "others"


class Figure(Record):
    """A column of figures as text and page show it.

    Attributes:
        title: its heading, in which a line may end.
        unit: "ns", "share", "bytes" or "per step" (a count, perhaps with a decimal); "" for what
            the name ends in.
    """

    name: str
    title: str
    unit: str = ""


class Measure(Record):
    """One table of the report.

    Attributes:
        key: the table's key in the JSON.
        row: the type of its rows, a `Record` or a frozen dataclass, which begins with ``rank: int``
            (left at 0) and ``step: int | None`` (None for the whole trace). Its docstring describes
            the columns in the schema.
        rows: gives the rows of one file. Its parameters are named after properties of the
            `Analysis`: ``graph`` first, if needed, then ``windows``, then others (`STAGES` of
            `analysis/analysis.py`).
        figures: the columns that a section of its own shows; else all fields, by name.
    """

    key: str
    row: type[Any]
    rows: Callable[..., Iterable[Any]]
    figures: tuple[Figure, ...] = ()


def constrained(**schema: Any) -> Meta:
    """The metadata of a field whose type does not say all that the JSON schema should."""
    texts = "|".join(map(re.escape, schema.get("enum", ())))
    pattern = f"^(?:{texts})$" if texts else schema.get("pattern")
    return Meta(pattern=pattern, extra_json_schema=schema)


def keyed_by(
    members: Iterable[IntEnum], *, complete: bool, added: Collection[IntEnum] = ()
) -> Meta:
    """The metadata of a field that maps names of members, in small letters, to lengths of time.

    All are required if it is `complete`, but those that were `added` later.
    """
    names = {member: member.name.lower() for member in members}
    required = [name for member, name in names.items() if complete and member not in added]
    length = {"type": "integer", "minimum": 0}
    return constrained(
        additionalProperties=False,
        properties=dict.fromkeys(names.values(), length),
        required=required,
    )


def ranked(size: Int64Array, names: Sequence[str], most: int) -> tuple[list[int], list[int]]:
    """The indices of the largest, and of the others; both by size, then name.

    Two or more are left to the others, never one.
    """
    sizes = size.tolist()
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], names[i]))
    most = most if len(order) > most + 1 else len(order)
    return order[:most], order[most:]


def summed(label: IntArray, values: Int64Array, count: int) -> Int64Array:
    """The sum of the values of each label: int64[count]."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, label, values)
    return sums


def per_step(total: int, steps: int | None) -> int:
    """A total by the number of steps, rounded half up; the total itself without steps."""
    return (2 * total + steps) // (2 * steps) if steps else total


def share_of(part: int, whole: int) -> float:
    """A share, 0 of nothing."""
    return part / whole if whole else 0.0


JOINT = "; "  # between the items of a list in one cell
_FORMULA = ("=", "+", "-", "@")  # a spreadsheet would compute what begins so
_BELOW = "."  # between the name of a field and that of a field in it
_MAX_LINE_LETTERS = 100
_ARROW_TYPES = {bool: "bool", int: "int64", float: "double", str: "string"}
_EXTRAS = {"pyarrow": "arrow"}  # where it is not named like its package

_Row = TypeVar("_Row")

Cells = dict[str, Any]


class Table(_Base[_Row], Shown):
    """Rows of one type, in a sequence like a tuple that knows their columns.

    A field that holds fields is a column for each of them (``where.line``), and so is each key of a
    map (``bubbles_ns.launch``). Rows within a row are in none: ``table[0].devices`` has them. With
    pyarrow, DuckDB, polars and pandas take a table as it is, by Arrow's C interface.

    >>> kernels = tracelab.analyze("traces/events_item.pt.trace.json.gz").kernels
    >>> kernels[0].count, kernels.columns["count"][0]
    (16.0, 16.0)
    """

    if not TYPE_CHECKING:
        count, index = Sequence.count, Sequence.index

    def __init__(self, rows: Iterable[_Row] = (), row: type[_Row] | None = None) -> None:
        self._rows = tuple(rows)
        self._row: Any = type(self._rows[0]) if self._rows else row

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[_Row]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> _Row: ...
    @overload
    def __getitem__(self, index: slice) -> Table[_Row]: ...
    def __getitem__(self, index: int | slice) -> _Row | Table[_Row]:
        if isinstance(index, slice):
            return Table(self._rows[index], self._row)
        return self._rows[index]

    def __eq__(self, other: object) -> bool:
        return self._rows == (other._rows if isinstance(other, Table) else other)

    def __hash__(self) -> int:
        return hash(self._rows)

    def __repr__(self) -> str:
        names = f": {', '.join(self.columns)}" if self.columns else ""
        line = f"<Table of {counted(len(self), 'row', 'rows')}{names}>"
        return line if len(line) <= _MAX_LINE_LETTERS else f"{line[: _MAX_LINE_LETTERS - 2]}…>"

    @property
    def columns(self) -> Mapping[str, tuple[Any, ...]]:
        """Cells of each column by its name, None where a row has none; as in the JSON."""
        return {name: tuple(row.get(name) for row in self._cells) for name in self._kinds}

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame of pandas; whole numbers stay whole where some are missing.

        Raises:
            MissingSupportError: pandas is not installed, as with the other packages below.
        """
        package = _import("pandas")
        series = {
            name: package.Series(list(cells), dtype=_pandas_type(self._kinds[name], cells))
            for name, cells in self.columns.items()
        }
        frame: pandas.DataFrame = package.DataFrame(series)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return a data frame of polars."""
        package = _import("polars")
        schema = {
            name: package.List(*get_args(kind)) if get_origin(kind) is list else kind
            for name, kind in self._kinds.items()
        }
        return package.DataFrame(self.columns, schema=schema, strict=False)

    def to_arrow(self) -> pyarrow.Table:
        """Return a table of Arrow."""
        package = _import("pyarrow")
        arrays = {
            name: package.array(cells, _arrow_type(package, self._kinds[name]))
            for name, cells in self.columns.items()
        }
        return package.table(arrays)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the columns to whoever knows the Arrow C interface; needs pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_csv(self, path: str | PathLike[str] | None = None) -> str | None:
        """Return the table as CSV, or write it to a file.

        Raises:
            OutputError: the file cannot be written.
        """
        text = csv_text(list(self._kinds), self._cells)
        if path is None:
            return text
        write_file(path, text.encode())
        return None

    @cached_property
    def _cells(self) -> list[Cells]:
        return [flatten(row)[0] for row in orjson.loads(json_bytes(self, is_indented=False))]

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        kinds: dict[str, Any] = {}
        present = dict.fromkeys(name for row in self._cells for name in row)
        for name, kind in _walk(self._row, "") if self._row else ():
            if name.endswith(_BELOW):
                kinds |= dict.fromkeys((x for x in present if x.startswith(name)), kind)
            else:
                kinds[name] = kind
        return kinds


class Tabled(Record):
    """Base of records some of whose fields are tables: they take rows in any tuple."""

    def __post_init__(self) -> None:
        for name, row in _tables_of(type(self)).items():
            force_setattr(self, name, Table(getattr(self, name), row))


@cache
def _tables_of(record: Any) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {name: get_args(x)[0] for name, x in hints.items() if get_origin(x) is Table}


def decode_table(kind: Any, content: Any) -> Any:
    """Make a table of what JSON has of it, for `msgspec.convert` with this ``dec_hook``."""
    from msgspec import convert

    [row] = get_args(kind)
    return Table(convert(content, GenericAlias(tuple, (row, ...)), dec_hook=decode_table))


def flatten(row: Cells) -> tuple[Cells, dict[str, Sequence[Cells]]]:
    """Sort what a row of JSON holds: cells by their column, and rows within it by theirs."""
    cells: Cells = {}
    lists: dict[str, Sequence[Cells]] = {}
    for name, value in row.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            lists[name] = value
        elif isinstance(value, dict):
            below, lists_below = flatten(value)
            cells |= {f"{name}{_BELOW}{key}": cell for key, cell in below.items()}
            lists |= {f"{name}{_BELOW}{key}": rows for key, rows in lists_below.items()}
        else:
            cells[name] = value
    return cells, lists


def csv_text(columns: Sequence[str], rows: Iterable[Cells]) -> str:
    """Return a table as CSV: a row may lack columns that others have."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_csv_cell, columns))
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)
    return stream.getvalue()


def _csv_cell(value: Any) -> str | int | float:
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


def _walk(row: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The columns of a type of rows, each with its kind; a map ends in `_BELOW`."""
    hints = get_type_hints(row)
    for field in fields(row):
        name, kind = f"{prefix}{field.name}", _required(hints[field.name])
        origin, arguments = get_origin(kind), get_args(kind)
        if is_dataclass(kind) and isinstance(kind, type):
            yield from _walk(kind, f"{name}{_BELOW}")
        elif origin is Mapping:
            yield f"{name}{_BELOW}", _kind(arguments[1])
        elif origin not in (tuple, Table):
            yield name, _kind(kind)
        elif not is_dataclass(arguments[0]):
            yield name, list[_kind(arguments[0])]  # type: ignore[misc]


def _required(hint: Any) -> Any:
    kinds = [x for x in get_args(hint) if x is not NoneType]
    return kinds[0] if NoneType in get_args(hint) else hint


def _kind(hint: Any) -> Any:
    """The plain type of a cell; None where that is open."""
    return next((x for x in _ARROW_TYPES if isinstance(hint, type) and issubclass(hint, x)), None)


def _pandas_type(kind: Any, cells: Iterable[Any]) -> Any:
    if kind in (int, bool) and None in cells:
        return "Int64" if kind is int else "boolean"
    return kind if kind in (int, bool, float) else None if kind is str else object


def _arrow_type(pyarrow: Any, kind: Any) -> Any:
    if get_origin(kind) is list:
        return pyarrow.list_(_arrow_type(pyarrow, *get_args(kind)))
    return None if kind is None else pyarrow.type_for_alias(_ARROW_TYPES[kind])


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        extra = _EXTRAS.get(package, package)
        raise MissingSupportError(f"this form of a table needs {package}", extra=extra) from None
