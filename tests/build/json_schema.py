"""The JSON schemas of a report and of its short form, made from the classes that they consist of.

``make documents`` writes them beside ``tracelab/report/schema.py``. The type of a field says most;
what it cannot say (which keys a mapping has, which texts there are) stands in the field's metadata.
The descriptions are those of the docstrings.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

from msgspec import Meta

from tracelab.findings.finding import Finding, Savings
from tracelab.job.merge import Job
from tracelab.measures.measure import Measure, Table
from tracelab.measures.registry import MEASURES
from tracelab.render.brief import MAX_BYTES, Brief
from tracelab.report.headline import Headline
from tracelab.report.schema import SCHEMA, Note, Provenance, TraceInfo, WhatIf
from tracelab.simulate.causal_profile import CausalMetrics

_REPORT = (
    "The report of tracelab on one or several traces. Times are integer nanoseconds since the "
    "first event of the trace that they belong to. Further keys may be added; those listed here "
    "stay."
)
_BRIEF = (
    f"The first screen of tracelab, in at most {MAX_BYTES:,} bytes. Further keys may be "
    "added; those listed here stay."
)
_NUMBER_NAMES = frozenset(
    ("rank", "step", "device", "stream", "line", "lines", "function_line")
)  # of the user's; any integer
# After the first version.
_ADDED_KEYS = ("notes", "savings", "headline", "causal", "lines", "modules", "graph_idle")
_PLAIN = {str: "string", bool: "boolean", float: "number"}
_ATTRIBUTE = re.compile(r"^ {4}(\w[\w, ]*): (.+(?:\n {8}.+)*)", re.MULTILINE)


def json_schema(measures: Sequence[Measure] = MEASURES) -> dict[str, Any]:
    """The schema of a report with these tables.

    >>> json_schema()["properties"]["overlaps"]["items"]
    {'$ref': '#/$defs/OverlapMetrics'}
    """
    definitions: dict[str, Any] = {}
    tables = {measure.key: tuple[measure.row, ...] for measure in measures}  # type: ignore[name-defined]
    kinds = {
        "provenance": Provenance,
        "traces": tuple[TraceInfo, ...],
        **tables,
        "findings": tuple[Finding, ...],
        "notes": tuple[Note, ...],
        "savings": tuple[Savings, ...],
        "headline": tuple[Headline, ...],
        "whatif": WhatIf | None,
        "causal": tuple[CausalMetrics, ...],
        "job": Job | None,
    }
    properties = {
        "schema": {"const": SCHEMA},
        "version": {"type": "string"},
        **{key: _schema_of(kind, definitions) for key, kind in kinds.items()},
    }
    properties["traces"]["minItems"] = 1
    required = [key for key in properties if key not in _ADDED_KEYS]
    return _whole_schema("report", _REPORT, required, properties, definitions)


def brief_schema() -> dict[str, Any]:
    """The schema of what `render_brief` writes.

    >>> brief_schema()["properties"]["findings"]["items"]
    {'$ref': '#/$defs/BriefFinding'}
    """
    definitions: dict[str, Any] = {}
    _schema_of(Brief, definitions)
    brief = definitions.pop(Brief.__name__)
    for one in definitions.values():
        del one["additionalProperties"]  # what reads a brief accepts keys of later versions
    return _whole_schema("brief", _BRIEF, brief["required"], brief["properties"], definitions)


def _whole_schema(
    name: str,
    description: str,
    required: Sequence[str],
    properties: Mapping[str, Any],
    definitions: Mapping[str, Any],
) -> dict[str, Any]:
    """Put together the schema of a document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:tracelab:{name}:1",
        "title": f"tracelab {name}",
        "description": description,
        "type": "object",
        "required": required,
        "properties": properties,
        "$defs": definitions,
    }


def _schema_of(kind: Any, definitions: dict[str, Any], name: str = "") -> dict[str, Any]:
    """The schema of a value of this type, which stands under this name."""
    if is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # so that it may hold others of its own type
            definitions[kind.__name__] = _describe_dataclass(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (tuple, Table):
        return {"type": "array", "items": _schema_of(arguments[0], definitions, name)}
    if origin is Mapping:
        values = _schema_of(arguments[1], definitions, "count")
        return {"type": "object", "additionalProperties": values}
    if origin in (types.UnionType, typing.Union):
        some, allowed = arguments[0], {}
        for texts in getattr(some, "__metadata__", ()):
            some, allowed = some.__origin__, {"enum": [*texts.extra_json_schema["enum"], None]}
        return {"anyOf": [_schema_of(some, definitions, name), {"type": "null"}], **allowed}
    if kind is int:
        is_amount = name not in _NUMBER_NAMES and not name.endswith(("start_ns", "grown_bytes"))
        return {"type": "integer", "minimum": 0} if is_amount else {"type": "integer"}
    return {"type": _PLAIN[kind]}


def _describe_dataclass(kind: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    text = inspect.getdoc(kind) or ""
    inherited = "\n".join(inspect.getdoc(base) or "" for base in kind.__bases__)
    hints = typing.get_type_hints(kind, include_extras=True)
    descriptions = dict((*_described(inherited), *_described(text)))
    properties, required = {}, []
    for name in (field.name for field in fields(kind)):
        hint, metadata = hints[name], []
        if typing.get_origin(hint) is Annotated:
            hint, *metadata = typing.get_args(hint)
        one = _schema_of(hint, definitions, name)
        if name in descriptions:
            one["description"] = descriptions[name]
        for extra in metadata:
            one |= extra.extra_json_schema if isinstance(extra, Meta) else {}
        properties[name] = one
        if {"added": True} not in metadata:
            required.append(name)
    return {
        "type": "object",
        "description": text.partition("\n")[0],
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


def _described(docstring: str) -> Iterable[tuple[str, str]]:
    """The attributes that a docstring describes, each with its sentence."""
    for names, text in _ATTRIBUTE.findall(docstring):
        sentence = " ".join(text.split())
        for name in names.split(", "):
            yield name, sentence[0].upper() + sentence[1:]
