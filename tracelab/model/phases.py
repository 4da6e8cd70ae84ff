"""Phases of a training step on the host, from loading data to the optimizer, and modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tracelab.base.arrays import Int8Array, Int32Array, Int64Array, IntArray
from tracelab.base.intervals import Intervals, contains, join, subtract, union
from tracelab.base.names import name_test
from tracelab.model.frames import MODULE_PREFIX, is_autograd_node, is_backward, is_module_call
from tracelab.model.host import NOTHING_RECORDED, Host
from tracelab.model.lookup import Nesting, groups_of, map_names, match_names
from tracelab.model.program.call_sites import waiting_threads
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, Trace


class Phase(IntEnum):
    """Phase of a step, in the usual order."""

    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3  # its step, zero_grad, gradient clipping and scaling
    OTHER = 4
    WAITING = 5  # the main thread waited for other threads of its process
    UNKNOWN = 6


# As whole words: "FSDP::pre_forward" is a hook beside the forward pass. DualPipe and zero-bubble
# schedules write (F), and (B) and (W) for the two halves of a backward pass.
_is_forward_name = name_test(r"(?<![a-z_])(?:forward|fwd)(?![a-z_])|\(F\)$", re.IGNORECASE)
_is_backward_name = name_test(r"(?<![a-z_])(?:backward|bwd)(?![a-z_])|\([BW]\)$", re.IGNORECASE)
_is_optimizer_name = name_test(r"optimi[sz]er|zero_grad", re.IGNORECASE)
_is_lightning_step = name_test(r"^\[pl\]\[\w+\].*\.(?:training|validation|test|predict)_step\b")

_is_forward_frame = name_test(r"\): forward$|(?:^|/)torch/nn/functional\.py\(")
_is_backward_frame = name_test(
    r"(?:^|/)torch/(?:_tensor\.py\(\d+\): backward|autograd/__init__\.py\(\d+\): (?:backward|grad)"
    r"|autograd/graph\.py\(\d+\): _engine_run_backward)$"
)
_is_optimizer_frame = name_test(
    r"(?:^|/)torch/(?:optim/|nn/utils/clip_grad\.py\("
    r"|(?:amp|cuda/amp)/grad_scaler\.py\(\d+\): (?:step|update|unscale_)$)"
)


def phase_of_annotation(name: str) -> Phase | None:
    """The phase that a region which somebody named is about; None for any other."""
    if _is_optimizer_name(name):
        return Phase.OPTIMIZER
    is_forward = _is_forward_name(name) or _is_lightning_step(name)
    is_backward_name = _is_backward_name(name)
    if is_forward == is_backward_name:  # a region of both is about neither
        return None
    return Phase.FORWARD if is_forward else Phase.BACKWARD


def phase_of_frame(name: str) -> Phase | None:
    """The phase that a Python function is about; None for any other."""
    if _is_optimizer_frame(name):
        return Phase.OPTIMIZER
    if is_backward(name) or _is_backward_frame(name):
        return Phase.BACKWARD
    is_forward = is_module_call(name) or _is_forward_frame(name)
    return Phase.FORWARD if is_forward else None


def phase_of_operator(name: str) -> Phase | None:
    """BACKWARD for autograd's engine at work, else None."""
    return Phase.BACKWARD if is_autograd_node(name) else None


_PHASE_OF: Mapping[Category, Callable[[str], Phase | None]] = MappingProxyType(
    {
        Category.OPERATOR: phase_of_operator,
        Category.PYTHON: phase_of_frame,
        Category.ANNOTATION: phase_of_annotation,
    }
)


class Phases:
    """The phases of a file's host.

    One thread counts at each moment: one of autograd's while it works, else the main thread.

    Attributes:
        main_thread: index into `Trace.threads` of the thread that runs the steps and launches, or
            that launches most; ABSENT where none but autograd's launches.
        is_forward_inferred: whether no region is of the forward pass, so that what the main thread
            did before each backward pass, since the phase before, is taken for it.
    """

    def __init__(self, host: Host) -> None:
        timeline = host.timeline
        trace = timeline.trace
        phase_of_event = _named_phases(host)
        phase_of_event[[step.event_id for step in timeline.steps]] = ABSENT
        self._regions = Nesting(trace, np.flatnonzero(phase_of_event != ABSENT))
        self.timeline, self._trace, self._operators = timeline, trace, timeline.operators
        self.autograd_threads = _autograd_threads(trace, self._operators)
        self.main_thread = _main_thread(host, self.autograd_threads)
        self._waiting = host.states.get(self.main_thread, NOTHING_RECORDED).waiting
        self._phase = self._corrected(phase_of_event[self._regions.event_id])
        self._autograd = self._autograd_at_work()
        marks = self._marks()
        is_forward = bool((self._phase == Phase.FORWARD).any())
        self.is_forward_inferred = not is_forward and bool((marks[1] == Phase.BACKWARD).any())
        self._mark_ns, self._mark_phase = marks

    def phases_of(self, events: Int64Array) -> Int8Array:
        """[k], the `Phase` in which each host event was made, by its thread or that waiting."""
        thread, start_ns = self._trace.thread_index[events].copy(), self._trace.start_ns[events]
        region = self._regions.innermost(events)
        open_ = np.flatnonzero(region == ABSENT)
        waiting = waiting_threads(self.timeline, events[open_])
        region[open_] = self._regions.innermost_on(waiting, events[open_])
        thread[open_] = np.where(waiting == ABSENT, thread[open_], waiting)
        return self._completed(region, thread, start_ns)

    def phases_at(self, thread: int, moments_ns: Int64Array) -> Int8Array:
        """[k], the `Phase` that a thread was in at each moment, ascending."""
        # It is the same until the next boundary: there are fewer of them than moments.
        since_ns = np.sort(np.concatenate((moments_ns[:1], self.boundaries_ns(thread))))
        region = self._regions.innermost_at(thread, since_ns)
        phase = self._completed(region, np.full(len(since_ns), thread), since_ns)
        if thread == self.main_thread:
            phase[contains(self._waiting, since_ns) & (phase != Phase.DATA)] = Phase.WAITING
        begun = np.bincount(np.searchsorted(moments_ns, since_ns), minlength=len(moments_ns) + 1)
        return phase[np.cumsum(begun[:-1]) - 1]

    def boundaries_ns(self, thread: int) -> Int64Array:
        """Moments at which the phase of a thread may change; in any order."""
        own = self._regions.entries_of(thread)
        inferred_ns = self._mark_ns if self.is_forward_inferred else self._mark_ns[:0]
        boundaries_ns = [self._regions.start_ns[own], self._regions.end_ns[own], inferred_ns]
        if thread == self.main_thread:
            boundaries_ns += [self._waiting.starts, self._waiting.ends]
        return np.concatenate(boundaries_ns)

    def spans_of(self, thread: int) -> tuple[Int64Array, Int64Array, Int8Array]:
        """Work of a thread, one after the other, in any phase: starts and ends, and the `Phase`."""
        at_work = self._autograd.get(thread)
        moments_ns = [self.boundaries_ns(thread)]
        if at_work is not None:
            moments_ns += [at_work.starts, at_work.ends]
        since_ns = np.unique(np.concatenate(moments_ns))
        phase = self.phases_at(thread, since_ns)
        if at_work is not None:
            phase[~contains(at_work, since_ns)] = Phase.OTHER
        first = np.flatnonzero(np.diff(phase, prepend=ABSENT))
        ends_ns = since_ns[np.append(first[1:], len(since_ns) - 1)] if len(first) else since_ns
        chosen = phase[first] < Phase.OTHER
        return since_ns[first][chosen], ends_ns[chosen], phase[first][chosen]

    def threads_in_charge(self, within: Intervals) -> list[tuple[int, Intervals]]:
        """Divide intervals among threads in charge; the main thread, or ABSENT, comes last."""
        parts: list[tuple[int, Intervals]] = []
        for thread, at_work in self._autograd.items():
            rest = subtract(within, at_work)
            parts.append((thread, subtract(within, rest)))
            within = rest
        return [*parts, (self.main_thread, within)]

    def _completed(self, region: Int64Array, thread: IntArray, moments_ns: Int64Array) -> Int8Array:
        """The phase of each region, and of what is in none (ABSENT) by its thread."""
        phase = np.full(len(region), Phase.OTHER, dtype=np.int8)
        if self.is_forward_inferred:
            before = np.append(self._mark_phase, ABSENT)[
                np.searchsorted(self._mark_ns, moments_ns, side="right")
            ]
            phase[(thread == self.main_thread) & (before == Phase.BACKWARD)] = Phase.FORWARD
        phase[np.isin(thread, self.autograd_threads)] = Phase.BACKWARD
        in_region = region != ABSENT
        phase[in_region] = self._phase[region[in_region]]
        return phase

    def _corrected(self, phase: Int8Array) -> Int8Array:
        forward = np.flatnonzero(phase == Phase.FORWARD)
        recomputes = self._regions.around(forward, phase == Phase.BACKWARD) != ABSENT
        recomputes |= np.isin(self._regions.thread_index[forward], self.autograd_threads)
        phase[forward[recomputes]] = Phase.BACKWARD
        return phase

    def _autograd_at_work(self) -> dict[int, Intervals]:
        # The time between two of its operators counts where the main thread began nothing.
        begun_ns = [np.zeros(0, dtype=np.int64)]
        if self.main_thread != ABSENT:
            begun_ns += [
                nesting.start_ns[nesting.entries_of(self.main_thread)]
                for nesting in (self._operators, self._regions)
            ]
        main_ns = np.sort(np.concatenate(begun_ns))
        at_work = {}
        for thread in self.autograd_threads.tolist():
            own = self._operators.entries_of(thread)
            active = union(self._operators.start_ns[own], self._operators.end_ns[own])
            before, after = np.searchsorted(main_ns, (active.ends[:-1], active.starts[1:]))
            bridged = np.flatnonzero(before == after)
            at_work[thread] = join(
                active, Intervals(active.ends[bridged], active.starts[bridged + 1])
            )
        return at_work

    def _marks(self) -> tuple[Int64Array, Int8Array]:
        own = self._regions.entries_of(self.main_thread) if self.main_thread != ABSENT else slice(0)
        work_ns = [at_work.starts for at_work in self._autograd.values()]
        mark_ns = np.concatenate((self._regions.start_ns[own], *work_ns))
        mark_phase = np.full(len(mark_ns), Phase.BACKWARD, dtype=np.int8)
        mark_phase[: len(self._phase[own])] = self._phase[own]
        order = np.argsort(mark_ns, kind="stable")
        return mark_ns[order], mark_phase[order]


def _named_phases(host: Host) -> Int8Array:
    trace = host.timeline.trace
    phase = np.full(len(trace), ABSENT, dtype=np.int8)
    for category, phase_of in _PHASE_OF.items():
        events = trace.of_category(category)
        phase[events] = map_names(trace, events, phase_of, np.int8)
    phase[host.loading_id] = Phase.DATA
    return phase


def _autograd_threads(trace: Trace, operators: Nesting) -> Int32Array:
    # A backward pass through operators of the CPU runs on the thread that called it.
    outermost = np.flatnonzero(operators.parent_index == ABSENT)
    thread = operators.thread_index[outermost]
    is_engine = operators.have_name(is_autograd_node)[outermost]
    most = 2 * np.bincount(thread[is_engine], minlength=len(trace.threads)) > np.bincount(
        thread, minlength=len(trace.threads)
    )
    is_named = ["autograd" in thread.name for thread in trace.threads]
    return np.flatnonzero(most | np.array(is_named, dtype=np.bool_)).astype(np.int32)


def _main_thread(host: Host, autograd_threads: Int32Array) -> int:
    """The thread that runs the steps; else the non-autograd thread with most launches."""
    timeline = host.timeline
    trace = timeline.trace
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    launches = {thread: len(index) for thread, index in groups_of(trace.thread_index[launch_id])}
    steps = {int(trace.thread_index[step.event_id]) for step in timeline.steps}
    autograd = set(autograd_threads.tolist())
    candidates = [thread for thread in launches if thread not in autograd]
    return max(
        candidates, key=lambda thread: (thread in steps, launches[thread], -thread), default=ABSENT
    )


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
        """int64[k], the innermost module around each event, or its thread's wait; else ABSENT."""
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
