"""The JSON schema of a report in brief, made from the dataclasses that it consists of.

``python -m tracelab.render.brief_schema`` prints it; ``report/brief.schema.json`` is what it
prints, and a test holds it to that.
"""

from __future__ import annotations

from typing import Any

from tracelab.render.brief import MAX_BYTES, Brief
from tracelab.report.json_schema import schema_of

_DESCRIPTION = (
    f"The first screen of tracelab, in at most {MAX_BYTES:,} bytes. Further keys may be "
    "added; those listed here stay."
)


def brief_schema() -> dict[str, Any]:
    """Return the schema of what `render_brief` writes.

    >>> brief_schema()["properties"]["findings"]["items"]
    {'$ref': '#/$defs/BriefFinding'}
    """
    definitions: dict[str, Any] = {}
    schema_of(Brief, definitions)
    brief = definitions.pop(Brief.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tracelab:brief:1",
        "title": "tracelab brief",
        "description": _DESCRIPTION,
        "type": "object",
        "required": brief["required"],
        "properties": brief["properties"],
        "$defs": definitions,
    }


if __name__ == "__main__":
    import json

    print(json.dumps(brief_schema(), indent=2))
