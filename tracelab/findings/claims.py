"""What claims are made of: groups of events by place, evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from tracelab.findings.finding import Where
from tracelab.model.call_sites import CallSite

MOST_EVIDENCE = 20

_Key = TypeVar("_Key", bound=Hashable)


def grouped(keys: Iterable[_Key]) -> dict[_Key, list[int]]:
    """The positions of each key, in order of appearance."""
    groups: dict[_Key, list[int]] = defaultdict(list)
    for position, key in enumerate(keys):
        groups[key].append(position)
    return groups


def most_expensive(events: Iterable[int], costs: Iterable[int]) -> tuple[int, ...]:
    """A few of these events, the dearest first."""
    order = sorted(zip(costs, events, strict=True), key=lambda x: (-x[0], x[1]))
    return tuple(dict.fromkeys(event for _, event in order))[:MOST_EVIDENCE]


def where(place: CallSite, *, count: int, **more: Any) -> Where:
    """A place as the place of a finding."""
    return Where(
        count=count,
        operator=place.operator,
        annotation=place.annotation,
        function=place.function,
        file=place.file,
        line=place.line,
        call=place.call,
        **more,
    )
