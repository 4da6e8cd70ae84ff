"""Lines of the program in which the host was."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tracelab.base.intervals import Int64Array, Intervals, contains
from tracelab.model.lookup import groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import CallSite, call_sites, program_calls, waiting_threads
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

OUTSIDE_FUNCTIONS = "outside any function"


class LineName(NamedTuple):
    """Name and place of a line.

    Example: ``LineName("train_epoch", "train.py:40")``; where the line is not known, the function
    and what it called, ``LineName("item in train_epoch", "train.py")``; and what a function did
    itself, between its calls, ``LineName("train_epoch", "train.py")``.
    """

    name: str
    where: str | None = None


def line_name(site: CallSite) -> LineName | None:
    """The line of a call site; None where no function of the program is known.

    >>> line_name(CallSite(function="step", file="train.py", line=31, call="item"))
    LineName(name='step', where='train.py:31')
    """
    if site.function is None:
        return None
    if site.line is not None:
        return LineName(site.function, f"{site.file}:{site.line}")
    call = "" if site.call is None else f"{site.call} in "
    return LineName(f"{call}{site.function}", site.file)


class ProgramLines:
    """The line of the program's own code that the host was in, at any moment.

    It is the innermost one: of a function of the program that a library called, its own line. What
    autograd's threads do belongs to the line that called the backward pass. What threads without
    Python in the file do belongs to the line that waits for them, unless two threads are in one
    together.

    Args:
        timeline: the trace.
        lines: where to look for the program's source.
        within: the time that is asked about.

    Attributes:
        names: of the lines; none where the file has no Python functions of the program.
    """

    def __init__(self, timeline: Timeline, lines: SourceLines, within: Intervals) -> None:
        trace, calls = timeline.trace, program_calls(timeline)
        is_there = trace.end_ns[calls.event_id] > (within.starts[0] if len(within) else 0)
        is_there &= trace.start_ns[calls.event_id] < (within.ends[-1] if len(within) else 0)
        event_id, site_id = calls.event_id[is_there], calls.site_id[is_there]
        self._timeline, self._trace, self._calls = timeline, trace, Nesting(trace, event_id)
        self._backward, self._autograd_threads = calls.backward, calls.autograd_threads
        names = list(map(line_name, call_sites(timeline, site_id, lines)))
        numbers = {name: number for number, name in enumerate(filter(None, dict.fromkeys(names)))}
        self.names = tuple(numbers)
        line_of_event = np.full(len(trace), ABSENT, dtype=np.int64)
        line_of_event[event_id] = [ABSENT if name is None else numbers[name] for name in names]
        self._line = np.append(line_of_event[self._calls.event_id], ABSENT)  # the last is ABSENT's

    def at(self, thread: int, moments_ns: Int64Array) -> Int64Array:
        """int64[k], index of the line that a thread was in at each moment, else ABSENT.

        Args:
            thread: index into `Trace.threads`.
            moments_ns: int64[k], ns, ascending.
        """
        line = self._line[self._calls.innermost_at(thread, moments_ns)]
        if thread in self._autograd_threads:
            alone = np.flatnonzero(line == ABSENT)
            line[alone] = self._find_caller_lines(moments_ns[alone])
        return line

    def of_events(self, events: Int64Array) -> Int64Array:
        """int64[k], index of the line in which each event (event id) began, else ABSENT."""
        line = np.full(len(events), ABSENT, dtype=np.int64)
        start_ns = self._trace.start_ns[events]
        for thread, index in groups_of(self._trace.thread_index[events]):
            in_order = index[np.argsort(start_ns[index], kind="stable")]
            line[in_order] = self.at(thread, start_ns[in_order])
        open_ = np.flatnonzero(line == ABSENT)
        for thread, index in groups_of(waiting_threads(self._timeline, events[open_])):
            in_order = open_[index[np.argsort(start_ns[open_[index]], kind="stable")]]
            line[in_order] = self.at(thread, start_ns[in_order])
        return line

    def boundaries_ns(self, thread: int) -> Int64Array:
        """int64[k], ns, when the line of a thread may change; in any order."""
        calls, threads = self._calls, [thread]
        boundaries_ns = []
        if thread in self._autograd_threads:
            threads += list(self._backward)
            boundaries_ns = [x for of in self._backward.values() for x in (of.starts, of.ends)]
        for one in threads:
            own = calls.entries_of(one)
            boundaries_ns += [calls.start_ns[own], calls.end_ns[own]]
        return np.concatenate(boundaries_ns)

    def _find_caller_lines(self, moments_ns: Int64Array) -> Int64Array:
        """int64[k], the line of the only thread that is in a backward pass at each moment."""
        line, count = np.full((2, len(moments_ns)), 0, dtype=np.int64)
        for thread, backward in self._backward.items():
            inside = np.flatnonzero(contains(backward, moments_ns))
            line[inside] = self._line[self._calls.innermost_at(thread, moments_ns[inside])]
            count[inside] += 1
        return np.where(count == 1, line, ABSENT)
