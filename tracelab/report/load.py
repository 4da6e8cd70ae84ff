"""Read a report that was saved as JSON."""

from __future__ import annotations

import keyword
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, make_dataclass
from functools import cache
from os import PathLike
from typing import Any, overload

import orjson

from tracelab.base.errors import UnreadableInputError
from tracelab.findings.finding import Finding
from tracelab.findings.registry import about_of
from tracelab.findings.savings import Savings
from tracelab.job.merge import Job
from tracelab.measures import window_times
from tracelab.measures.registry import MEASURES
from tracelab.read.streams import READ_ERRORS, Source, open_source
from tracelab.report.schema import SCHEMA, Note, Provenance, Report, TraceInfo, WhatIf
from tracelab.simulate.causal_profile import CausalMetrics

_HEAD_BYTES = 4096  # in which a saved report names its schema
_OTHER_KEYS = frozenset(field.name for field in fields(Report)) - {"tables"} | {"headline"}
_COLUMN_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)  # no "__class__": they become attributes


@overload
def load_report(path: str | PathLike[str]) -> Report: ...  # type: ignore[overload-overlap]
@overload
def load_report(path: Sequence[str | PathLike[str]]) -> list[Report]: ...
def load_report(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
) -> Report | list[Report]:
    """Read a saved report, or several.

    Args:
        path: a file that `Report.save` or ``tracelab analyze --json`` wrote, packed or not, or a
            list of such files.

    Returns:
        the report; a list of them for a list.

    Raises:
        UnreadableInputError: a file is missing or is no report of this schema.
    """
    if not isinstance(path, str | PathLike):
        return [load_report(one) for one in path]
    return load_source(Source(str(path), None, named=True))


def load_source(source: Source) -> Report:
    """A saved report, wherever it lies and however it is packed.

    Raises:
        UnreadableInputError: it cannot be read, or is no report of this schema.
    """
    try:
        with open_source(source) as stream:
            content = stream.read()
    except READ_ERRORS as error:
        raise UnreadableInputError(f"{source.path}: {error}") from None
    return parse_report(content, source.path)


def is_saved_report(source: Source) -> bool:
    """Whether a file is a saved report, by the schema that stands at its beginning.

    Raises:
        TracelabError: it cannot be opened.
    """
    with open_source(source) as stream:
        try:
            head = stream.read(_HEAD_BYTES)
        except READ_ERRORS:
            return False  # the reader of traces says what is wrong with it
    return b'"schema"' in head and b'"tracelab.report/' in head


def is_saved_report_in_any_order(source: Source) -> bool:
    """Whether it is one that something saved again with its keys in another order."""
    try:
        with open_source(source) as stream:
            data = orjson.loads(stream.read())
    except (*READ_ERRORS, ValueError):
        return False
    return isinstance(data, dict) and str(data.get("schema")).startswith("tracelab.report/")


def parse_report(content: bytes, path: str) -> Report:
    """Read a report from the bytes of its file.

    Tables that this version does not know are kept; any other key is ignored.

    Raises:
        UnreadableInputError: they are no report of this schema.
    """
    try:
        data = orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        raise UnreadableInputError(f"{path}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UnreadableInputError(f"{path}: this is not a report of the schema {SCHEMA}")
    try:
        tables = {
            measure.key: _build(tuple[measure.row, ...], data[measure.key])  # type: ignore[name-defined]
            for measure in MEASURES
            # A report of an older version lacks tables; without windows there is no report.
            if measure.key in data or measure is window_times.MEASURE
        }
        unknown = {
            key: _rows_of_unknown(key, rows)
            for key, rows in data.items()
            if key not in tables and key not in _OTHER_KEYS and _is_table(rows)
        }
        traces = _build(tuple[TraceInfo, ...], data["traces"])
        if missing := {x.rank for x in traces} - {x.rank for x in tables["windows"]}:
            raise TypeError(f"rank {min(missing)} has no window")
        return Report(
            schema=data["schema"],
            version=_build(str, data["version"]),
            provenance=_build(Provenance, data["provenance"]),
            traces=traces,
            tables={**tables, **unknown},
            findings=_build(tuple[Finding, ...], _with_about(data["findings"])),
            notes=_build(tuple[Note, ...], data.get("notes", [])),
            whatif=_build(WhatIf | None, data.get("whatif")),
            job=_build(Job | None, data.get("job")),
            savings=_build(tuple[Savings, ...], data.get("savings", [])),
            causal=_build(tuple[CausalMetrics, ...], data.get("causal", [])),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise UnreadableInputError(f"{path}: the report is damaged: {error}") from None


def _with_about(findings: list[Any]) -> list[Any]:
    """Findings that each say what they are about, as older reports do not.

    Raises:
        KeyError, TypeError: they are no findings.
    """
    return [{"about": about_of(finding["rule"]), **finding} for finding in findings]


def _is_table(value: Any) -> bool:
    """Whether a value is rows of one window each, in columns that can be attributes of a row."""
    return isinstance(value, list) and all(
        isinstance(row, dict)
        and isinstance(row.get("rank"), int)
        and isinstance(row.get("step", ""), int | None)
        and all(_COLUMN_NAME.fullmatch(name) and not keyword.iskeyword(name) for name in row)
        for row in value
    )


def _rows_of_unknown(key: str, rows: list[Any]) -> tuple[Any, ...]:
    """The rows of a table that this version does not know, as dataclasses of the same columns."""
    names = dict.fromkeys(name for row in rows for name in row)
    row_type = make_dataclass(key, [*names], frozen=True, slots=True)
    return tuple(row_type(**{name: row.get(name) for name in names}) for row in rows)


# The types are texts; to evaluate them takes longer than to build what they say.
_hints_of: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)


def _build(kind: Any, value: Any) -> Any:
    """Turn decoded JSON into the dataclass, tuple, mapping or plain value that a type says.

    Raises:
        AttributeError, KeyError, TypeError: it is nothing of that type.
    """
    if is_dataclass(kind):
        hints = _hints_of(kind)
        # A key that later versions added has a default; a report of before has no such key.
        present = [x.name for x in fields(kind) if x.name in value or x.default is MISSING]
        return kind(**{name: _build(hints[name], value[name]) for name in present})  # type: ignore[operator]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_build(arguments[0], item) for item in value) if arguments else ()
    if origin is types.UnionType:
        return None if value is None else _build(arguments[0], value)
    if origin is Mapping:
        return {key: _build(arguments[1], item) for key, item in value.items()}
    if kind in (int, str) and type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
