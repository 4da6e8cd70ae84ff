"""What a file says of single communication operations, as it is written there.

The arguments of PyTorch's operator around an operation, and of its kernel, which has a copy of
most. `tracelab.model.collectives` says which operations ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array


class GroupText(NamedTuple):
    """A process group as one event describes it.

    Example: ``GroupText(name="0", ranks="[0, 1, 2, 3]", size=4, first_rank=0, rank_stride=1)``.

    Attributes:
        name: "" where the event has none.
        ranks: the list of its global ranks, of which a long one ends in dots; "" where there is
            none.
        size: how many ranks it has, else ABSENT.
        first_rank: the first of its global ranks, else ABSENT.
        rank_stride: how far apart they are, else ABSENT.
    """

    name: str
    ranks: str
    size: int
    first_rank: int
    rank_stride: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Messages(Frozen):
    """The arguments of k communication operations; every event has its own row.

    One more row comes last, in which all is `ABSENT`: that of events without any.

    Attributes:
        name_index: int32[k + 1], into `names`.
        group_index: int32[k + 1], into `groups`.
        sequence: int64[k + 1], the number of the operation in its group.
        peer_rank: int64[k + 1], the global rank that is sent to or received from.
        in_bytes: int64[k + 1], what this rank gives.
        out_bytes: int64[k + 1], what this rank gets.
        names: what the operations are called.
        groups: the process groups.

    Example row: ``(name_index=0, group_index=0, sequence=17, peer_rank=ABSENT,
    in_bytes=33_554_432, out_bytes=67_108_864)`` with ``names[0] == "_allgather_base"``.
    """

    name_index: NDArray[np.int32]
    group_index: NDArray[np.int32]
    sequence: Int64Array
    peer_rank: Int64Array
    in_bytes: Int64Array
    out_bytes: Int64Array
    names: tuple[str, ...]
    groups: tuple[GroupText, ...]

    def __len__(self) -> int:
        return len(self.sequence) - 1
