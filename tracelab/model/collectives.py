"""What a file says of its communication: operations, process groups, sizes and peers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tracelab.arrays import OneLine


class Operation(IntEnum):
    """What communication does."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    BROADCAST = 3
    REDUCE = 4
    GATHER = 5
    SCATTER = 6
    ALL_TO_ALL = 7
    BARRIER = 8
    SEND = 9
    RECV = 10
    SEND_RECV = 11  # a kernel that sends or receives, of which nothing more is known
    UNKNOWN = 12


@dataclass(frozen=True, slots=True, repr=False)
class Group(OneLine):
    """A process group.

    Example: ``Group(name="0", ranks=(0, 1, 2, 3), size=4)``.

    Attributes:
        name: as the file names it; "" where it names none.
        ranks: its global ranks; none where the file does not say.
        size: how many ranks it has, None where the file does not say.
    """

    name: str
    ranks: tuple[int, ...]
    size: int | None
