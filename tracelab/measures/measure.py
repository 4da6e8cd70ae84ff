'''A measure, and how to write one.

A measure is one file with the type of its rows and one function, which gives the rows of a file.
Its table reaches the report, the merged report of several ranks, the JSON and its schema, the text
and comparisons by the same way as all others, keyed by rank and step. To add one:

1. Write ``short_activities.py``, such as the one below. A measure from outside the package may be
   in any module; its key must be new in the report:

       """GPU activities that took less time than their launch, by name."""

       import numpy as np

       from tracelab.base.arrays import Record
       from tracelab.measures.measure import Measure

       _LAUNCH_NS = 5_000


       class ShortActivities(Record):
           """The short GPU activities of one name that started in one window.

           Example row: ``ShortActivities(rank=0, step=3, name="add", count=40, total_ns=90_000)``.
           """

           rank: int
           step: int | None
           name: str
           count: int
           total_ns: int


       def short_activities(graph, windows):
           timeline, strings = graph.host.timeline, graph.host.timeline.trace.strings
           name_index = timeline.trace.name_index[timeline.event_id]
           start_ns, length_ns = timeline.start_ns, timeline.end_ns - timeline.start_ns
           for window in windows:
               is_short = (start_ns >= window.start_ns) & (start_ns < window.end_ns)
               is_short &= length_ns < _LAUNCH_NS
               for name in np.unique(name_index[is_short]):
                   short_ns = length_ns[is_short & (name_index == name)]
                   row = len(short_ns), int(short_ns.sum())
                   yield ShortActivities(0, window.step, strings[name], *row)


       MEASURE = Measure("short_activities", ShortActivities, short_activities)

2. Add the line ``short_activities.MEASURE`` to `tracelab.measures.registry.MEASURES`, or from
   outside: ``tracelab.analyze(path, measures=(*MEASURES, short_activities.MEASURE))``.
3. Test it on a trace made by hand, in ``tests/unit/measures/test_short_activities.py``, and against
   a slow model of its definition, in ``tests/reference``.
'''

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from tracelab.base.arrays import Record
from tracelab.base.intervals import Int64Array

# Without the row of others.
MAX_ROWS = 200
OTHERS = "others"


class Figure(Record):
    """A column of figures as text and page show it.

    Attributes:
        name: of the field of the row.
        title: its heading, in which a line may end.
        unit: says how a figure is written: "ns", "share", "bytes" or "per step" (a count, perhaps
            with a decimal); "" for what the name ends in.
    """

    name: str
    title: str
    unit: str = ""


class Measure(Record):
    """One table of the report.

    Attributes:
        key: the table's key in the JSON.
        row: the type of its rows, a `Record` or a frozen dataclass. The first two fields are
            ``rank: int``, which the measure leaves at 0, and ``step: int | None``, None for the
            whole trace; lengths of time end in ``_ns``. Its docstring describes the columns in the
            schema.
        rows: gives the rows of one file. Its parameters are named after properties of the
            `Analysis`: ``graph`` first, if it needs that, then ``windows``, then others such as
            ``bubbles`` (`STAGES` of `analysis/analysis.py` lists them all).
        figures: the columns that a section of its own shows; without such a section all fields are
            shown, by their names.

    Example:
        >>> from tracelab.measures.overlap import OverlapMetrics, overlaps
        >>> Measure("overlaps", OverlapMetrics, overlaps).key
        'overlaps'
    """

    key: str
    row: type[Any]
    rows: Callable[..., Iterable[Any]]
    figures: tuple[Figure, ...] = ()


def constrained(**schema: Any) -> Meta:
    """The metadata of a field whose type does not say all that the JSON schema should.

    A saved report with another text than the schema allows is refused.

    >>> constrained(enum=["h2d", "d2h"]).extra_json_schema
    {'enum': ['h2d', 'd2h']}
    """
    texts = "|".join(map(re.escape, schema.get("enum", ())))
    pattern = f"^(?:{texts})$" if texts else schema.get("pattern")
    return Meta(pattern=pattern, extra_json_schema=schema)


def keyed_by(
    members: Iterable[IntEnum], *, complete: bool, added: Collection[IntEnum] = ()
) -> Meta:
    """The metadata of a field that maps names of members, in small letters, to lengths of time.

    All are required if it is `complete`, but those that were `added` later.

    >>> class Phase(IntEnum):
    ...     FORWARD = 0
    >>> keyed_by(Phase, complete=True).extra_json_schema["required"]
    ['forward']
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

    >>> ranked(np.array([5, 9, 9, 1]), ["d", "c", "b", "a"], most=2)
    ([2, 1], [0, 3])
    """
    sizes = size.tolist()
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], names[i]))
    most = most if len(order) > most + 1 else len(order)
    return order[:most], order[most:]


def summed(label: NDArray[np.integer[Any]], values: Int64Array, count: int) -> Int64Array:
    """The sum of the values of each label: int64[count].

    >>> summed(np.array([0, 2, 0]), np.array([5, 7, 1]), 3).tolist()
    [6, 0, 7]
    """
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, label, values)
    return sums


def per_step(total: int, steps: int | None) -> int:
    """A total by the number of steps, rounded half up; the total itself without steps.

    >>> per_step(7, 2), per_step(7, None)
    (4, 7)
    """
    return (2 * total + steps) // (2 * steps) if steps else total


def share_of(part: int, whole: int) -> float:
    """A share, 0 of nothing.

    >>> share_of(1, 4), share_of(0, 0)
    (0.25, 0.0)
    """
    return part / whole if whole else 0.0
