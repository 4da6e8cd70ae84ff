"""Pages of the site about the keys of the JSON, from its schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.build.json_schema import brief_schema, json_schema
from tests.build.site_parts import Pages, slug, tree

_Schema = Mapping[str, Any]
_REFERENCE = "#/$defs/"


def pages() -> Pages:
    """A page for each key of a report, with all that is below it, and one of the short form."""
    schema = json_schema()
    types = schema["$defs"]
    known: dict[str, str] = {}  # the page of each type
    names = {}
    for key, value in schema["properties"].items():
        if new := [x for x in _types_below(value, types) if x not in known]:
            names[key] = new
            known |= dict.fromkeys(new, key)
    found = {
        f"reference/json/{key}": "\n".join(
            [f"# `{key}`\n", *(_section(x, types[x], known, key) for x in new)]
        )
        for key, new in names.items()
    }
    rows = []
    for key, value in schema["properties"].items():
        about = next((types[x].get("description", "") for x in _references(value)), "")
        rows.append(f"| `{key}` | {_type(value, known, 'json/')} | {_cell(about)} |")
    found["reference/json/brief"] = _brief_page()
    return {**found, "reference/_json": _table(rows) + tree(found)}


def _brief_page() -> str:
    schema = brief_schema()
    known = dict.fromkeys(schema["$defs"], "brief")
    sections = [_section(x, value, known, "brief") for x, value in schema["$defs"].items()]
    about = f"{schema['description']} `tracelab analyze --brief` prints it."
    return "\n".join(["# The short form\n", about, "", _keys(schema, known, "brief"), *sections])


def _types_below(value: _Schema, types: _Schema) -> list[str]:
    """The types that a value refers to, and those that these refer to, each once."""
    found: dict[str, None] = {}
    pending = [*_references(value)]
    while pending:
        name = pending.pop(0)
        if name not in found:
            found[name] = None
            pending += _references(types[name])
    return [*found]


def _references(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield value["$ref"].removeprefix(_REFERENCE)
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


def _section(name: str, value: _Schema, known: Mapping[str, str], page: str) -> str:
    about = value.get("description", "")
    return f"## {name}\n\n{about}\n\n{_keys(value, known, page)}"


def _keys(value: _Schema, known: Mapping[str, str], page: str) -> str:
    rows = [
        f"| `{key}` | {_type(x, known, page=page)} | {_cell(x.get('description', ''))} |"
        for key, x in value.get("properties", {}).items()
    ]
    return _table(rows) if rows else ""


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| key | value | |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("None", "null")


def _type(value: _Schema, known: Mapping[str, str], folder: str = "", page: str = "") -> str:
    """What stands behind a key, in a cell."""
    if "$ref" in value:
        name = value["$ref"].removeprefix(_REFERENCE)
        file = "" if known[name] == page else f"{folder}{known[name]}.md"
        return f"[{name}]({file}#{slug(name)})"
    if "anyOf" in value:
        return " or ".join(_type(x, known, folder, page) for x in value["anyOf"])
    if texts := [value["const"]] if "const" in value else value.get("enum"):
        return ", ".join(f"`{json.dumps(x)}`" for x in texts)
    kind = value.get("type", "any")
    if kind == "array" and "items" in value:
        item = _type(value["items"], known, folder, page)
        return f"list of {item}{'s' if 'type' in value['items'] else ''}"
    if kind == "object" and isinstance(value.get("additionalProperties"), Mapping):
        return f"map to {_type(value['additionalProperties'], known, folder, page)}"
    return " or ".join(kind) if isinstance(kind, list) else kind
