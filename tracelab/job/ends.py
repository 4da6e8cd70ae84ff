"""What the ends of matched operations say of the clocks that they were recorded by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.job.collectives import ENDS_TOGETHER, Matches
from tracelab.job.rank_part import RankPart
from tracelab.model.collectives import Operation

_ONE_WAY, _EXCHANGE, _MIXED = range(3)  # what a kernel does
MESSAGES_PER_COLLECTIVE = 8  # that say as much of a clock as one collective
# Of jobs of one host, whose clock is one, the ends of one collective are up to 20 us apart at the
# median; up to 98 us, a fifth of the transfer, where a GPU computes or moves other data meanwhile.
_LEAST_APART_NS, _APART_SHARE = 30_000, 4
_PRECISE = 2  # times as far as those of the most precise quarter: more is not looked at


class Role(IntEnum):
    """What the end of an operation says of the ends on other ranks."""

    TOGETHER = 0  # of a collective: they are the same
    EXCHANGED = 1  # of messages in both directions: they are the same
    SENT = 2  # the receive does not end before
    RECEIVED = 3  # the send does not end after
    LOOSE = 4  # usually they are the same, but some rank (a broadcast's root) may end long before
    NOTHING = 5  # the kernel ends when another of its operations does


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ends(Frozen):
    """The ends of matched operations; k members.

    Attributes:
        match_index: intp[k], ascending.
        part_index: int32[k].
        recorded_ns: int64[k], ns since the reference's origin, by the recorded clock.
        role: int8[k], a `Role`.
        apart_ns: int64[k], ns, how far apart the ends of its operation may be by nature.

    Example row: ``(match_index=3, part_index=1, recorded_ns=190_000, role=Role.TOGETHER,
    apart_ns=30_000)``.
    """

    match_index: NDArray[np.intp]
    part_index: NDArray[np.int32]
    recorded_ns: Int64Array
    role: NDArray[np.int8]
    apart_ns: Int64Array

    def __len__(self) -> int:
        return len(self.role)


def ends_of(parts: Sequence[RankPart], matches: Matches, begin_ns: Sequence[int]) -> Ends:
    """The ends of matched operations, and what they say.

    The rank that came last to an operation did not wait in it: it took no longer than the transfer.
    """
    length_ns = matches.of_members([part.end_ns - part.start_ns for part in parts])
    shortest_ns = np.full(len(matches), np.iinfo(np.int64).max)
    np.minimum.at(shortest_ns, matches.match_index, length_ns)
    apart_ns = np.maximum(shortest_ns // _APART_SHARE, _LEAST_APART_NS)
    return Ends(
        match_index=matches.match_index,
        part_index=matches.part_index,
        recorded_ns=matches.of_members(
            [part.end_ns + begin for part, begin in zip(parts, begin_ns, strict=True)]
        ),
        role=_roles(parts, matches),
        apart_ns=apart_ns[matches.match_index],
    )


def _roles(parts: Sequence[RankPart], matches: Matches) -> NDArray[np.int8]:
    """int8[k], the `Role` of each member of a match."""
    operation = matches.of_members([part.operation for part in parts])
    role = np.full(len(operation), Role.LOOSE, dtype=np.int8)
    role[np.isin(operation, ENDS_TOGETHER)] = Role.TOGETHER
    is_send = operation == Operation.SEND
    is_message = is_send | (operation == Operation.RECV)
    traffic = matches.of_members([_traffic(part) for part in parts])
    has_exchange, is_sent = np.ones(len(matches), np.bool_), np.zeros(len(matches), np.bool_)
    has_exchange[matches.match_index[traffic != _EXCHANGE]] = False
    is_sent[matches.match_index[is_send & (traffic == _ONE_WAY)]] = True
    has_exchange, is_sent = has_exchange[matches.match_index], is_sent[matches.match_index]
    role[is_message] = Role.NOTHING
    role[is_message & is_sent] = np.where(is_send, Role.SENT, Role.RECEIVED)[is_message & is_sent]
    role[is_message & has_exchange] = Role.EXCHANGED
    return role


def _traffic(part: RankPart) -> NDArray[np.int8]:
    """int8[c], what else the kernel of each send or receive does.

    `_ONE_WAY` if it only sends to one rank, or only receives from one; `_EXCHANGE` if it sends to
    one rank and receives from it; else `_MIXED`.
    """
    kernel = part.kernel_index
    count = int(kernel.max(initial=-1)) + 1
    peer = np.zeros(count, dtype=np.int64)
    peer[kernel] = part.peer_rank
    has_others = np.zeros(count, np.bool_)
    has_others[kernel[peer[kernel] != part.peer_rank]] = True
    traffic = np.where(part.is_exchange, _EXCHANGE, _ONE_WAY)
    return np.where(has_others[kernel], _MIXED, traffic).astype(np.int8)


def most_telling(role: NDArray[np.int8], apart_ns: Int64Array) -> tuple[NDArray[np.intp], str]:
    """intp[chosen], the operations that say most of a clock, and which basis that is.

    Those of the sort that says most; where ends come together, those that do so most precisely.
    """
    is_together, is_exchange = role == Role.TOGETHER, role == Role.EXCHANGED
    is_message = (role == Role.SENT) | (role == Role.RECEIVED)
    exchanges, messages = int(is_exchange.sum()), int(is_message.sum())
    collectives = int(is_together.sum())
    if collectives and MESSAGES_PER_COLLECTIVE * collectives >= exchanges + messages:
        chosen, basis = is_together, "collectives"
    elif messages > exchanges:
        return np.flatnonzero(is_message), "point_to_point"
    elif exchanges:
        chosen, basis = is_exchange, "point_to_point"
    else:
        chosen = role == Role.LOOSE
        basis = "collectives" if chosen.any() else "recorded clock"
    index = np.flatnonzero(chosen)
    if len(index):
        index = index[apart_ns[index] <= _PRECISE * np.percentile(apart_ns[index], 25)]
    return index, basis
