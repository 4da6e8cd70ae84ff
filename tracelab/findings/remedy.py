r"""A remedy: what to write instead of one recognizable pitfall, and how to add one.

A remedy is recognized by host events: Python frames, operators, annotations or calls. Blocking
calls, launches and idle time inside them are its own. To add one, add a record to `remedies.toml`:

    [[remedy]]
    id = "optimizer-loop"
    name = "an optimizer that updates one parameter at a time"
    title = "The optimizer updates one parameter at a time"
    shows = "`_single_tensor_adam` in `Optimizer.step#`, with a set of kernels for each parameter."
    not_when = "The optimizer must be differentiable."
    source = "PyTorch documentation: torch.optim"
    url = "https://docs.pytorch.org/docs/stable/optim.html"
    rules = ["TL301"]
    frames = 'torch/optim/\w+\.py\(\d+\): _single_tensor_\w+$'
    occurs = [{ is = "launches", least = 5 }]
    edit = "fuse:{place}"
    fixes = [{ text = "Pass `fused=True` to the optimizer.", since = "2.0" }]

``occurs`` names recognizers: `remedies/recognizers.py` has them. Test it on a trace with the
pitfall and on one without it, in ``tests/unit/findings/remedies/``. A program makes one with
`Remedy(id="optimizer-loop", ...)`, where ``occurs`` is a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, Int64Array, IntArray, Record, read_only
from tracelab.base.intervals import Intervals, intersect, measure, union
from tracelab.findings.finding import MAX_SHORT_LETTERS
from tracelab.findings.places import PLACE
from tracelab.measures.idle_causes import Bubbles
from tracelab.model.blocking_calls import is_inside
from tracelab.model.graph import Graph
from tracelab.model.host import Host
from tracelab.model.lookup import Nesting
from tracelab.model.program.call_sites import regions_around
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, ReadArguments, Trace
from tracelab.simulate.sites import REMEDY

FIRST_USE = "TL305"  # the rule about what a program does once

_VERSION = re.compile(r"(\d+)\.(\d+)")


class Instead(Record):
    """A fix: what to write instead.

    Attributes:
        text: sentences, with the call or the flag.
        since: the first PyTorch that has it, such as "2.3", or "".
        short: as of `Finding.fix_short`.
    """

    text: str
    since: str = ""
    short: str = ""

    @property
    def summary(self) -> str:
        """The short form; "" if the text is long and has no short form."""
        return short_form(self.text, self.short)

    @property
    def versioned(self) -> Instead:
        """The same with the version that it needs."""
        if not self.since:
            return self
        needs = f" This needs PyTorch {self.since}."
        return replace(self, text=self.text + needs, short=self.summary and self.summary + needs)


NO_FIX = Instead("")


class Remedy(Record, kw_only=True):
    """The fix of one pitfall, and how a trace shows it.

    Attributes:
        id: words with hyphens; it never changes.
        name: the pitfall, in a few words.
        title: the finding's, without figures; "" for the rule's own.
        shows: how a trace shows it.
        not_when: when it does not apply.
        fixes: the newest API first.
        source, url: where this is documented.
        rules: ids of the rules whose findings it refines.
        edit: the change that a replay makes, such as "remove:{place}"; None if its saving is
            unknown. The place is all that was recognized, or with `by_call_site` the finding's.
        frames: a regular expression, searched in names of Python functions, or "".
        operators: the same for operators and annotations; with both, operators inside such
            functions.
        occurs: chooses among the events that match (int64[k], event ids), or finds some without a
            pattern.
        by_arguments: adds to these events, or takes away, by the "args" of some.
        by_call_site: whether each place is changed by itself.
        is_general: whether any other remedy comes before it.
        is_whole: whether all inside goes with it, whatever is recognized there.
        needs_same_sizes: whether the awaited sizes must be the same in every step; if that is not
            shown, its saving is a bound.
        is_bound: whether its saving is always a bound.
    """

    id: str
    name: str
    title: str = ""
    shows: str
    not_when: str
    fixes: tuple[Instead, ...]
    source: str
    url: str
    rules: tuple[str, ...]
    edit: str | None = None
    frames: str = ""
    operators: str = ""
    occurs: Callable[[Graph, Int64Array], Int64Array] | None = None
    by_arguments: Callable[[Graph, Int64Array, ReadArguments], Int64Array] | None = None
    by_call_site: bool = False
    is_general: bool = False
    is_whole: bool = False
    needs_same_sizes: bool = False
    is_bound: bool = False

    def fix_for(self, torch: str | None) -> Instead | None:
        """Return the fix for the PyTorch that wrote a trace, if known; None where it has none."""
        for fix in self.fixes:
            if torch is None:
                return fix.versioned
            if is_available(fix.since, torch):
                return fix
        return None

    @property
    def edit_of_finding(self) -> str | None:
        """The edit of its finding; with {place} where that is the finding's own."""
        if self.edit is None or self.by_call_site:
            return self.edit
        return self.edit.replace(PLACE, f"{REMEDY}{self.id}")

    @property
    def is_first_use(self) -> bool:
        """True for what a program does once: loading, planning, compiling."""
        return self.rules == (FIRST_USE,)

    @property
    def documented(self) -> str:
        """The source, in words and with a link."""
        return f"{self.source} ({self.url})"


def short_form(text: str, short: str) -> str:
    """Return the short form of a fix, else its text where that is short enough, else ""."""
    return short or (text if len(text) <= MAX_SHORT_LETTERS else "")


def is_available(since: str, torch: str) -> bool:
    """Tell whether a version of PyTorch has what came with another one.

    >>> is_available("2.3", "2.11.0+cu130"), is_available("2.12", "2.11.0"), is_available("", "1.8")
    (True, False, True)
    """
    first, own = _VERSION.match(since), _VERSION.match(torch)
    if first is None or own is None:
        return True
    return tuple(map(int, own.groups())) >= tuple(map(int, first.groups()))


# --- where a file shows them ---

_NO_EVENTS: Int64Array = read_only(np.zeros(0, dtype=np.int64))


class Recognized:
    """The remedies that host events of a file (int64[k], event ids) belong to.

    The innermost around an event counts, for autograd's threads that around the backward call;
    whole ones come before all others, general ones after.
    """

    def __init__(
        self, timeline: Timeline, events_of: Iterable[tuple[Remedy, Int64Array]] = ()
    ) -> None:
        self.events_of = tuple((remedy, events) for remedy, events in events_of if len(events))
        self._timeline, self._regions = timeline, cache(self._find_regions)

    @property
    def places(self) -> Mapping[str, Int64Array]:
        """The host events (int64[k], event ids) of each remedy, by its id."""
        return {remedy.id: events for remedy, events in self.events_of}

    def remedies(self, events: IntArray, rule_id: str) -> tuple[Remedy | None, ...]:
        """Return the remedy of each host event (int[k], ABSENT for none) for a rule, or None."""
        number = np.full(len(events), ABSENT, dtype=np.int64)
        for rank in range(3):
            regions, number_of = self._regions(rule_id, rank)
            open_ = np.flatnonzero((number == ABSENT) & (events != ABSENT))
            index = regions_around(self._timeline, regions, events[open_])
            number[open_] = number_of[index]
        known = [*(remedy for remedy, _ in self.events_of), None]  # the last is that of ABSENT
        return tuple(known[i] for i in number.tolist())

    def _find_regions(self, rule_id: str, rank: int) -> tuple[Nesting, Int64Array]:
        """Make trees of the events of remedies, with the number of the first that each has."""
        chosen = [
            (number, events)
            for number, (remedy, events) in enumerate(self.events_of)
            if rule_id in remedy.rules and _rank(remedy) == rank
        ]
        event_id = np.concatenate([_NO_EVENTS, *(events for _, events in chosen)])
        numbers = (np.full(len(events), i, dtype=np.int64) for i, events in chosen)
        number = np.concatenate([_NO_EVENTS, *numbers])
        event_id, first = np.unique(event_id, return_index=True)
        nesting = Nesting(self._timeline.trace, event_id)
        own = number[first][np.searchsorted(event_id, nesting.event_id)]
        return nesting, np.append(own, ABSENT)  # the last is that of ABSENT


def _rank(remedy: Remedy) -> int:
    return 0 if remedy.is_whole else 1 + remedy.is_general


def nothing_known(event_ids: Iterable[int]) -> Mapping[int, Mapping[str, Any]]:  # noqa: ARG001
    """Return no "args", as of a file that has none."""
    return {}


def recognize(
    graph: Graph, remedies: Sequence[Remedy], arguments: ReadArguments = nothing_known
) -> Recognized:
    """Find the pitfalls that remedies know, with fixes that the file's PyTorch has."""
    timeline = graph.host.timeline
    names, torch = _Names(graph.host), timeline.trace.info.software.get("torch")
    known = (remedy for remedy in remedies if remedy.fix_for(torch) is not None)
    return Recognized(timeline, [(x, _events_of(x, names, graph, arguments)) for x in known])


def _events_of(remedy: Remedy, names: _Names, graph: Graph, arguments: ReadArguments) -> Int64Array:
    events = _NO_EVENTS
    if remedy.frames:
        events = names.find(remedy.frames, Category.PYTHON)
        if remedy.operators and len(events):
            regions = Nesting(graph.host.timeline.trace, events)
            events = names.find(remedy.operators, Category.OPERATOR, Category.ANNOTATION)
            events = events[regions.innermost(events) != ABSENT]
    elif remedy.operators:
        events = names.find(remedy.operators, Category.OPERATOR, Category.ANNOTATION)
    if remedy.occurs is not None and (len(events) or not (remedy.frames or remedy.operators)):
        events = remedy.occurs(graph, events)
    if remedy.by_arguments is not None and len(events):
        events = remedy.by_arguments(graph, events, arguments)
    return events


class _Names:
    """The program's host events by name, without the profiler's; each name is listed once."""

    def __init__(self, host: Host) -> None:
        timeline = host.timeline
        self._trace = timeline.trace
        frames = self._trace.of_category(Category.PYTHON)
        self._events = {
            Category.PYTHON: frames[~is_inside(self._trace, frames, host.profiler_calls)],
            Category.OPERATOR: timeline.ids_except_steps(Category.OPERATOR),
            Category.ANNOTATION: timeline.ids_except_steps(Category.ANNOTATION),
        }
        names = self._trace.name_index
        self._names = {category: np.unique(names[x]) for category, x in self._events.items()}

    def find(self, pattern: str, *categories: Category) -> Int64Array:
        search, strings = re.compile(pattern).search, self._trace.strings
        found = [_NO_EVENTS]
        for category in categories:
            matched = [name for name in self._names[category].tolist() if search(strings[name])]
            if matched:
                events = self._events[category]
                found.append(events[np.isin(self._trace.name_index[events], matched)])
        return np.concatenate(found).astype(np.int64)


# --- first use ---


class FirstUse(Arrays, dict=True):
    """Host events of things that a program does once, by kind: loading, planning, compiling.

    An unrecorded pause does not count. If `is_most` of a file without steps is idle in it, nothing
    is typical.
    """

    trace: Trace
    parts: tuple[tuple[Remedy, Int64Array], ...]
    is_most: bool = False

    @cached_property
    def event_id(self) -> Int64Array:
        """int64[k], all its host events, ascending."""
        events = [_NO_EVENTS, *(events for _, events in self.parts)]
        return read_only(np.unique(np.concatenate(events)))

    @cached_property
    def time(self) -> Intervals:
        """Time in which any thread was in one of them."""
        return union(self.trace.start_ns[self.event_id], self.trace.end_ns[self.event_id])

    def holds(self, events: Int64Array) -> BoolArray:
        """bool[k], which host events (event ids) are among them, or inside one of their thread."""
        return np.asarray(self._regions.innermost(events) != ABSENT)

    @cached_property
    def _regions(self) -> Nesting:
        return Nesting(self.trace, self.event_id)


def find_first_use(graph: Graph, recognized: Recognized, bubbles: Bubbles) -> FirstUse:
    """Choose the things that come once in a program, and inside nothing that recurs."""
    trace = graph.host.timeline.trace
    again = [
        events
        for remedy, events in recognized.events_of
        if FIRST_USE in remedy.rules and not remedy.is_first_use
    ]
    goes_on = Nesting(trace, np.concatenate([_NO_EVENTS, *again]))
    parts = [
        (remedy, events[goes_on.innermost(events) == ABSENT])
        for remedy, events in recognized.events_of
        if remedy.is_first_use
    ]
    found = FirstUse(trace, tuple((remedy, events) for remedy, events in parts if len(events)))
    return replace(found, is_most=_is_most(found, graph.host.timeline, bubbles))


def _is_most(first_use: FirstUse, timeline: Timeline, bubbles: Bubbles) -> bool:
    if timeline.steps:
        return False
    [window, *_] = timeline.windows
    idle = bubbles.all_idle.intervals(timeline.busiest_device(window))
    once = intersect(intersect(idle, first_use.time), union([window.start_ns], [window.end_ns]))
    return 2 * measure(once) > window.length_ns
