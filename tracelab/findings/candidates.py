"""Candidates, which rules find, and their parts: groups by call site, evidence, recurrence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import field

from tracelab.base.arrays import BoolArray, Int64Array, IntArray, Record
from tracelab.base.intervals import Intervals, join
from tracelab.findings.finding import CALL_SITE_FIELDS, SPECIFIC, Where
from tracelab.findings.remedy import Remedy
from tracelab.model.program.call_sites import CallSite

MAX_EVIDENCE = 20
# Two steps make a recurrence: one may have it by chance, or because it ran first.
_MIN_STEPS, _MAX_RARE_SHARE = 2, 0.25

_Key = TypeVar("_Key", bound=Hashable)


class Candidate(Record):
    """A finding to be: the time that its fix would save, if it were the only one.

    Attributes:
        fix, fix_short: as in `Finding`; the rule's if empty.
        lost: device to the time lost on it, within the window.
        limit_ns: device to the most that the fix saves there, ns; else all that is lost.
        severity_override: a severity whatever the bound.
        edit: the change that a replay makes, such as "unblock:{place}".
        remedy: the recognized pitfall's title, fix and edit.
        is_typical: whether typical steps have it.
        is_possible: False if the trace does not show that it can be fixed: its saving is a bound.
        becomes_finding: False if its time is part of none.
    """

    title: str
    cause: str
    where: Where
    evidence: tuple[int, ...] = ()
    fix: str = ""
    lost: Mapping[int, Intervals] = field(default_factory=dict)
    limit_ns: Mapping[int, int] = field(default_factory=dict)
    severity_override: str | None = None
    edit: str | None = None
    remedy: Remedy | None = None
    is_typical: bool = True
    role: str = SPECIFIC
    is_possible: bool = True
    becomes_finding: bool = True
    fix_short: str = ""


def only_one(texts: Sequence[str]) -> str:
    """Return the text that all of these are; "" where they differ."""
    return texts[0] if len(set(texts)) == 1 else ""


def grouped(keys: Iterable[_Key]) -> dict[_Key, list[int]]:
    """Map each key to its positions, in order of appearance.

    >>> grouped(["item", "copy_", "item"])
    {'item': [0, 2], 'copy_': [1]}
    """
    groups: dict[_Key, list[int]] = defaultdict(list)
    for position, key in enumerate(keys):
        groups[key].append(position)
    return dict(groups)


def key_of(remedy: Remedy | None, otherwise: Hashable) -> Hashable:
    """Return the key to group an event by: a remedy of all call sites, else both."""
    if remedy is None or remedy.by_call_site:
        return remedy and remedy.id, otherwise
    return remedy.id


def most_expensive(event_ids: Iterable[int], costs: Iterable[int]) -> tuple[int, ...]:
    """Choose at most `MAX_EVIDENCE` of these events, the most expensive first, each once."""
    order = sorted(zip(costs, event_ids, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return tuple(dict.fromkeys(event_id for _, event_id in order))[:MAX_EVIDENCE]


def join_by_device(
    times: Mapping[int, Intervals], others: Mapping[int, Intervals]
) -> dict[int, Intervals]:
    """Device to its time in the one or the other."""
    joined = {device: join(time, times.get(device, time)) for device, time in others.items()}
    return {**times, **joined}


def sum_by_device(device_number: IntArray, ns: Int64Array) -> dict[int, int]:
    """Device to the sum of its times, ns."""
    devices = np.unique(device_number).tolist()
    return {device: int(ns[device_number == device].sum()) for device in devices}


def is_regular(steps_seen: int, steps: int) -> bool:
    """Return True if `steps_seen` of some steps show that something recurs."""
    return steps_seen >= min(_MIN_STEPS, steps)


def are_rare(steps_seen: IntArray, steps: int) -> BoolArray:
    """bool[k], things that `steps_seen` of some steps have (int[k]) and a usual step has not."""
    return np.asarray(steps_seen <= max(1, int(_MAX_RARE_SHARE * steps)))


def where(call_site: CallSite, *, count: int, **more: Any) -> Where:
    """Make the `Where` of a call site; `more` are the fields that no call site has."""
    place = {name: getattr(call_site, name) for name in CALL_SITE_FIELDS}
    return Where(count=count, **place, **more)
