"""What a measure tells the rest of the program about itself: its table in the report.

A new measure is one file beside this one and one line in `tracelab.measures.registry`. Its rows then
reach the merged report of several ranks, the JSON and its schema, the text and comparisons by the
same way as all others, keyed by rank and step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Measure:
    """One table of the report.

    Attributes:
        key: the table's key in the JSON.
        row: the type of its rows, a frozen dataclass. The first two fields are ``rank: int``, which
            the measure leaves at 0, and ``step: int | None``, None for the whole trace; lengths of
            time end in ``_ns``. Its docstring describes the columns in the schema.
        rows: gives the rows of one file. Its parameters are named after results of the analysis,
            ``graph`` and ``windows`` for most (`tracelab.analysis.STAGES` lists them all).

    Example:
        >>> @dataclass(frozen=True, slots=True)
        ... class Launches:
        ...     rank: int
        ...     step: int | None
        ...     launches: int
        >>> def launches(graph, windows):
        ...     launch_id = graph.host.timeline.launch_id
        ...     return [Launches(0, window.step, len(set(launch_id))) for window in windows[:1]]
        >>> LAUNCHES = Measure("launches", Launches, launches)
        >>> LAUNCHES.key
        'launches'
    """

    key: str
    row: type[Any]
    rows: Callable[..., Iterable[Any]]


def constrained(**schema: Any) -> Mapping[str, Any]:
    """The metadata of a field whose type does not say all that the JSON schema should.

    >>> constrained(enum=["h2d", "d2h"])
    {'schema': {'enum': ['h2d', 'd2h']}}
    """
    return {"schema": schema}


def keyed_by(members: Iterable[IntEnum], *, complete: bool) -> Mapping[str, Any]:
    """The metadata of a field that maps the names of an enum's members to lengths of time.

    Args:
        members: whose names in small letters may be keys.
        complete: every one of them is a key.
    """
    names = [member.name.lower() for member in members]
    lengths = {"type": "integer", "minimum": 0}
    return constrained(
        additionalProperties=False,
        properties=dict.fromkeys(names, lengths),
        required=names if complete else [],
    )
