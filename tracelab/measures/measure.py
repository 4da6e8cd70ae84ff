"""A measure: the type of its rows and one function, which gives the rows of a file.

Its table reaches the report, the merged report of several ranks, the JSON and its schema, the text
and comparisons by the same way as all others, keyed by rank and step. To add one, see
``tests/unit/measures/short_activities.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from msgspec import Meta

from tracelab.base.arrays import Record
from tracelab.base.intervals import Int64Array, IntArray

# Without the row of others.
MAX_ROWS = 200
OTHERS = "others"


class Figure(Record):
    """A column of figures as text and page show it.

    Attributes:
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
            whole trace. Its docstring describes the columns in the schema.
        rows: gives the rows of one file. Its parameters are named after properties of the
            `Analysis`: ``graph`` first, if it needs that, then ``windows``, then others such as
            ``bubbles`` (`STAGES` of `analysis/analysis.py` lists them all).
        figures: the columns that a section of its own shows; else all fields are shown, by name.
    """

    key: str
    row: type[Any]
    rows: Callable[..., Iterable[Any]]
    figures: tuple[Figure, ...] = ()


def constrained(**schema: Any) -> Meta:
    """The metadata of a field whose type does not say all that the JSON schema should.

    A saved report with another text than the schema allows is refused.
    """
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
