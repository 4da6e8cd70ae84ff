"""Modules of the model in which the host was."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.model.frames import MODULE_PREFIX
from tracelab.model.lookup import Nesting, match_names
from tracelab.model.program.call_sites import waiting_threads
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

OUTSIDE_MODULES = "outside any module"
_INSIDE = " > "


class ModuleName(NamedTuple):
    """The profiler's name of a module, numbered by class, and the modules around it."""

    name: str
    where: str | None = None


def module_calls(timeline: Timeline) -> Nesting:
    """The calls of modules that the file has, nested."""
    trace = timeline.trace
    events = trace.of_category(Category.PYTHON)
    is_call = match_names(trace, events, lambda name: name.startswith(MODULE_PREFIX))
    return Nesting(trace, events[is_call])


class ModulePaths:
    """The module that the host was in, at any moment: the innermost one.

    `names` has one for each way in which a module was called.
    """

    def __init__(self, timeline: Timeline) -> None:
        trace, calls = timeline.trace, module_calls(timeline)
        self._calls = calls
        names: list[ModuleName] = []
        path = np.full(len(calls.event_id) + 1, ABSENT, dtype=np.int64)  # the last is ABSENT's
        level = np.flatnonzero(calls.parent_index == ABSENT)
        while len(level):
            outer, name = path[calls.parent_index[level]], calls.names(level)
            pairs, pair = np.unique(outer * len(trace.strings) + name, return_inverse=True)
            path[level] = len(names) + pair
            for around, string in np.stack(np.divmod(pairs, len(trace.strings)), axis=1).tolist():
                inside = (
                    None if around == ABSENT else _INSIDE.join(filter(None, names[around][::-1]))
                )
                names.append(ModuleName(trace.strings[string].removeprefix(MODULE_PREFIX), inside))
            level = calls.children(level)
        self.names = tuple(names)
        self._path, self._timeline = path, timeline

    def modules_at(self, thread: int, moments_ns: Int64Array) -> Int64Array:
        """The module that a thread was in at each moment (ascending), else ABSENT."""
        return self._path[self._calls.innermost_at(thread, moments_ns)]

    def modules_of(self, events: Int64Array) -> Int64Array:
        """The index of the innermost module around each event, or the wait for its thread."""
        module = self._calls.innermost(events)
        open_ = np.flatnonzero(module == ABSENT)
        waiting = waiting_threads(self._timeline, events[open_])
        module[open_] = self._calls.innermost_on(waiting, events[open_])
        return self._path[module]

    def begun(self, thread: int) -> tuple[Int64Array, Int64Array]:
        """The starts of a thread's modules, ascending; and which."""
        own = self._calls.entries_of(thread)
        return self._calls.start_ns[own], self._path[own]

    def boundaries_ns(self, thread: int) -> Int64Array:
        """Moments at which the module of a thread may change; in any order."""
        own = self._calls.entries_of(thread)
        return np.concatenate((self._calls.start_ns[own], self._calls.end_ns[own]))
