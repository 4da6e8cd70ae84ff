"""Read a report that was saved as JSON."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from dataclasses import fields, make_dataclass
from typing import Any, NotRequired, TypedDict, overload

import msgspec
import orjson

from tracelab.base.errors import UnreadableInputError
from tracelab.findings.registry import about_of
from tracelab.measures import window_times
from tracelab.measures.measure import decode_table
from tracelab.measures.registry import MEASURES
from tracelab.read.json.damage import MAX_VALUES, count_values
from tracelab.read.sources import Given, Inputs, is_several, named_source, source_of
from tracelab.read.streams import READ_ERRORS, Source, open_source, report_read, watched
from tracelab.report.schema import SCHEMA, Report

_HEAD_BYTES = 4096
# Limits of memory: reports have a value per 25 bytes, and shrink to a tenth.
_MIN_BYTES_PER_VALUE, _MAX_RATIO, _MAX_NUMBER = 8, 30, 2**62
_OTHER_KEYS = frozenset(field.name for field in fields(Report)) - {"tables"} | {"headline"}
# Columns become attributes (no "__class__"), and tables files.
_NAME = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
# Older versions lack tables, but have windows.
_TABLES = TypedDict(  # type: ignore[misc]
    "_TABLES",
    {
        measure.key: tuple[measure.row, ...]  # type: ignore[name-defined]
        if measure is window_times.WINDOWS
        else NotRequired[tuple[measure.row, ...]]  # type: ignore[name-defined]
        for measure in MEASURES
    },
)


@overload
def load_report(path: Given) -> Report: ...  # type: ignore[overload-overlap]
@overload
def load_report(path: Iterable[Given]) -> list[Report]: ...
def load_report(path: Inputs) -> Report | list[Report]:
    """Read a saved report, or several.

    Args:
        path: a file that `Report.save` or ``tracelab analyze --json`` wrote, packed
            or not, its bytes, or an open file; or a list of them.

    Returns:
        the report; a list of them for a list.

    Raises:
        UnreadableInputError: a file is missing or is no report of this schema.
    """
    if is_several(path):
        return [load_report(one) for one in path]
    found = source_of(path, "path")
    return load_source(named_source(found) if isinstance(found, str) else found)


def load_source(source: Source) -> Report:
    """Read a saved report, local or remote, packed or not.

    Raises:
        UnreadableInputError: it cannot be read, or is no report of this schema.
    """
    reads: list[int] = []
    try:
        with watched(reads.append), open_source(source, _MAX_RATIO) as stream:
            content = stream.read()
    except READ_ERRORS as error:
        raise UnreadableInputError(f"{source.path}: {error}") from None
    packed_bytes = sum(reads)
    report_read(packed_bytes)
    few = min(packed_bytes, len(content) // _MIN_BYTES_PER_VALUE)
    if count_values(content) > max(MAX_VALUES, few):
        raise UnreadableInputError(f"{source.path}: holds more values than a report of its size")
    return parse_report(content, source.path)


def is_saved_report(source: Source) -> bool:
    """True if a file begins as a saved report."""
    with open_source(source) as stream:
        try:
            head = stream.read(_HEAD_BYTES)
        except READ_ERRORS:
            return False  # the reader of traces says what is wrong with it
    return b'"schema"' in head and b'"tracelab.report/' in head


def parse_report(content: bytes, path: str) -> Report:
    """Read a report from its bytes.

    Unknown tables are kept; any other unknown key is ignored.

    Raises:
        UnreadableInputError: they are no report of this schema.
    """
    try:
        data = orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        raise UnreadableInputError(f"{path}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UnreadableInputError(f"{path}: this is not a report of the schema {SCHEMA}")
    if _largest(data) >= _MAX_NUMBER:
        raise UnreadableInputError(f"{path}: the report is damaged: a number is too large")
    try:
        tables = msgspec.convert(data, _TABLES)
        unknown = {
            key: _rows_of_unknown(key, rows)
            for key, rows in data.items()
            if key not in tables and key not in _OTHER_KEYS
            if _NAME.fullmatch(key) and _is_table(rows)
        }
        findings = [{"about": about_of(x["rule"]), **x} for x in data["findings"]]
        report = msgspec.convert(
            {**data, "findings": findings, "tables": {**tables, **unknown}},
            Report,
            dec_hook=decode_table,
        )
        _require_consistent(report)
    except (AttributeError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise UnreadableInputError(f"{path}: the report is damaged: {error}") from None
    return report


def _largest(value: Any) -> float:
    largest, waiting = 0.0, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one
        elif isinstance(one, int | float):
            largest = max(largest, abs(one))
    return largest


def _require_consistent(report: Report) -> None:
    if not report.traces:
        raise TypeError("it is of no file")
    if missing := {x.rank for x in report.traces} - {x.rank for x in report.windows}:
        raise TypeError(f"rank {min(missing)} has no window")
    parallel: list[tuple[tuple[int, ...], ...]] = [(x.steps, x.lengths_ns) for x in report.steady]
    if report.job is not None:
        parallel += [
            *((x.ranks, x.arrival_ns, x.wait_ns, x.transfer_ns) for x in report.job.collectives),
            *((x.waiting_ranks, x.wait_ns) for x in report.job.stragglers),
        ]
    if any(len({*map(len, columns)}) > 1 for columns in parallel):
        raise TypeError("lists that belong together have different lengths")


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, dict)
        and isinstance(row.get("rank"), int)
        and isinstance(row.get("step", ""), int | None)
        and all(_NAME.fullmatch(name) and not keyword.iskeyword(name) for name in row)
        for row in value
    )


def _rows_of_unknown(key: str, rows: list[Any]) -> tuple[Any, ...]:
    names = dict.fromkeys(name for row in rows for name in row)
    row_type = make_dataclass(key, [(x, Any) for x in names], frozen=True, slots=True)
    return tuple(row_type(**{name: row.get(name) for name in names}) for row in rows)
