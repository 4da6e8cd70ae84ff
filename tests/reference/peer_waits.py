"""An independent account of what collectives waited for a peer: slow, each against all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MANY_TIMES, SLOW_BYTES_PER_NS, LEAST_BYTES = 2.5, 25, 1_000_000


@dataclass(frozen=True)
class Collective:
    """A collective: when it ran, in which step, and what its twins have in common with it.

    `moved` is its size in bytes, None where it is not known; `step` None outside any.
    """

    start: int
    end: int
    lane: tuple[object, ...]
    moved: int | None
    step: int | None

    @property
    def length(self) -> int:
        return self.end - self.start


def waits(collectives: Sequence[Collective]) -> list[tuple[int | None, int, bool]]:
    """Of each one how long its fastest twin took, how long it waited, whether all are slow."""
    return [_wait(one, collectives) for one in collectives]


def _wait(one: Collective, collectives: Sequence[Collective]) -> tuple[int | None, int, bool]:
    twins = [other for other in collectives if _are_twins(one, other, collectives)]
    fastest = min((other.length for other in twins), default=one.length)
    is_large = one.moved is not None and one.moved >= LEAST_BYTES
    if is_large and fastest * SLOW_BYTES_PER_NS > one.moved:
        return (fastest if len(twins) > 1 else None), one.length, True
    is_late = len(twins) > 1 and one.length >= MANY_TIMES * fastest
    return (fastest if len(twins) > 1 else None), (one.length - fastest if is_late else 0), False


def _are_twins(one: Collective, other: Collective, collectives: Sequence[Collective]) -> bool:
    if one.lane != other.lane or one.moved != other.moved:
        return False
    if one.moved is not None:
        return True
    is_placed = one.step is not None and other.step is not None
    return is_placed and _place(one, collectives) == _place(other, collectives)


def _place(one: Collective, collectives: Sequence[Collective]) -> int:
    """The how many-th of its step, among those of unknown size."""
    return sum(
        1
        for other in collectives
        if (other.lane, other.moved, other.step) == (one.lane, None, one.step)
        and other.start < one.start
    )
