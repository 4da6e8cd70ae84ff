"""An independent account of what ran: slow, nanosecond by nanosecond, from the definitions.

It works on the rows of `tests.build.rows`, and takes from the timeline only which call launched
what, and the steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tests.build.rows import THREADS, Row
from tracelab.model.frames import (
    called_as_shown,
    is_backward,
    is_engine_operator,
    is_program_frame,
    is_wrapper,
    operator_as_call,
    parse_frame,
)
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT, Category

INPUT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
ENGINE = "autograd::engine::evaluate_function: MulBackward0"
PHASES = {
    INPUT: Phase.DATA,
    "forward": Phase.FORWARD,
    "nn.Module: Linear_0": Phase.FORWARD,
    ENGINE: Phase.BACKWARD,
    "## backward ##": Phase.BACKWARD,
    "Optimizer.step#SGD.step": Phase.OPTIMIZER,
}
BACKWARD = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
FRAMES = {
    "train.py(1): step": None,
    "model.py(7): forward": Phase.FORWARD,
    "torch/functional.py(3): norm": None,
    "torch/optim/optimizer.py(480): wrapper": Phase.OPTIMIZER,
    "nn.Module: Linear_0": Phase.FORWARD,
    "nn.Module: Net_0": Phase.FORWARD,
    BACKWARD: Phase.BACKWARD,
}
_PHASES = {**PHASES, **{name: phase for name, phase in FRAMES.items() if phase is not None}}
NOTHING, NO_HOST = "outside any operator", "the file does not say"
NO_LINE, NO_MODULE = ("outside any function", None), ("outside any module", None)


@dataclass
class Account:
    """What each operator, phase, line or module did: counters by its name, and by its place."""

    calls: Counter = field(default_factory=Counter)
    launches: Counter = field(default_factory=Counter)
    host_ns: Counter = field(default_factory=Counter)
    unprofiled_ns: Counter = field(default_factory=Counter)
    gpu_ns: Counter = field(default_factory=Counter)
    idle_ns: Counter = field(default_factory=Counter)


class _Entries:
    """Events of a kind, by start, longest first."""

    def __init__(self, rows, chosen):
        ids = [i for i in chosen if rows[i].thread >= 0]
        self.ids = sorted(ids, key=lambda i: (rows[i].start, -rows[i].end, i))
        self.rows = rows

    def innermost(self, thread, start, end):
        """The last one to begin that lasts from one moment to another, or None."""
        around = [
            i
            for i in self.ids
            if self.rows[i].thread == thread
            and self.rows[i].start <= start
            and self.rows[i].end >= end
        ]
        return around[-1] if around else None

    def at(self, thread, moment):
        return self.innermost(thread, moment, moment + 1)

    def parent(self, event):
        """The nearest one before that ends no earlier, or None."""
        row, before = self.rows[event], self.ids[: self.ids.index(event)]
        enclosing = [
            i for i in before if self.rows[i].thread == row.thread and self.rows[i].end >= row.end
        ]
        return enclosing[-1] if enclosing else None


class _Lines:
    """Which line of the program a thread was in, without the program's source."""

    def __init__(self, rows, operators):
        frames = _Entries(rows, [i for i, x in enumerate(rows) if x.category == Category.PYTHON])
        self.rows, self.frames, self.operators = rows, frames, operators
        called = [i for i in frames.ids if self._is_own(i) or self._is_own(frames.parent(i))]
        direct = [i for i in operators.ids if self._is_direct(i)]
        self.calls = _Entries(rows, [*called, *direct])
        self.backward = [i for i in frames.ids if is_backward(rows[i].name)]
        engine = {rows[i].thread for i in operators.ids if is_engine_operator(rows[i].name)}
        named = {i for i, name in enumerate(THREADS) if "autograd" in name}
        self.autograd = engine | named

    def at(self, thread, moment):
        call = self.calls.at(thread, moment)
        if call is None and thread in self.autograd:
            inside = {
                self.rows[i].thread
                for i in self.backward
                if self.rows[i].start <= moment < self.rows[i].end
            }
            call = self.calls.at(*inside, moment) if len(inside) == 1 else None
        return NO_LINE if call is None else self._name(call)

    def _is_own(self, frame):
        return frame is not None and is_program_frame(self.rows[frame].name)

    def _frame_of(self, event):
        row = self.rows[event]
        return self.frames.innermost(row.thread, row.start, row.end)

    def _is_direct(self, operator):
        frame, outer = self._frame_of(operator), self.operators.parent(operator)
        return self._is_own(frame) and (outer is None or self._frame_of(outer) != frame)

    def _name(self, call):
        name = self.rows[call].name
        if self.rows[call].category == Category.OPERATOR:
            frame, call_text = self._frame_of(call), operator_as_call(name)[0]
        elif self._is_own(call):
            frame, call_text = call, None
        else:
            frame, call_text = self.frames.parent(call), called_as_shown(self._wrapped(call))
        of = parse_frame(self.rows[frame].name)
        return (f"{call_text} in {of.function}" if call_text else of.function), of.file

    def _wrapped(self, frame):
        """The name of what a wrapper stands around."""
        inner = [i for i in self.frames.ids if self.frames.parent(i) == frame]
        if is_wrapper(self.rows[frame].name) and inner:
            longest = max(inner, key=lambda i: (self._length(i), self.frames.ids.index(i)))
            if not self._is_own(longest):
                return self._wrapped(longest)
        return self.rows[frame].name

    def _length(self, frame):
        return self.rows[frame].end - self.rows[frame].start


class HostWork:
    """The account of the steady steps of some rows: of operators, phases, lines and modules."""

    def __init__(self, rows: list[Row], timeline, clock=None, origin_of=MappingProxyType({})):
        # `origin_of`: of nodes of graphs, by event id, the call that they come from
        self.rows, self.timeline, self.clock, self.origin_of = rows, timeline, clock, origin_of
        steps = {step.event_id for step in timeline.steps}
        of = range(len(rows))
        self.operators = _Entries(rows, [i for i in of if rows[i].category == Category.OPERATOR])
        self.regions = _Entries(
            rows,
            [
                i
                for i in of
                if rows[i].name in _PHASES
                and i not in steps
                and rows[i].category in (Category.OPERATOR, Category.PYTHON, Category.ANNOTATION)
            ],
        )
        self.autograd = self._autograd_threads()
        self.main = self._main_thread()
        self.phase = {i: self._corrected(i) for i in self.regions.ids}
        self.at_work = {thread: self._work_of(thread) for thread in self.autograd}
        marks = [
            (rows[i].start, self.phase[i]) for i in self.regions.ids if rows[i].thread == self.main
        ]
        for work in self.at_work.values():
            marks += [(t, Phase.BACKWARD) for t in sorted(work) if t - 1 not in work]
        self.marks = sorted(marks, key=lambda mark: mark[0])
        self.inferred = Phase.FORWARD not in self.phase.values() and any(
            phase == Phase.BACKWARD for _, phase in self.marks
        )
        self.lines = _Lines(rows, self.operators)
        self.modules = _Entries(rows, [i for i in of if rows[i].name.startswith("nn.Module: ")])
        self.by_operator, self.by_phase = Account(), Account()
        self.by_line, self.by_module = Account(), Account()
        self._count()

    def _autograd_threads(self):
        threads = []
        for thread, name in enumerate(THREADS):
            outermost = [
                i
                for i in self.operators.ids
                if self.rows[i].thread == thread and self.operators.parent(i) is None
            ]
            engine = sum(self.rows[i].name == ENGINE for i in outermost)
            if "autograd" in name or 2 * engine > len(outermost):
                threads.append(thread)
        return threads

    def _main_thread(self):
        launches = Counter(
            self.rows[i].thread for i in self.timeline.launch_id.tolist() if i != ABSENT
        )
        of_steps = {self.rows[step.event_id].thread for step in self.timeline.steps}
        candidates = [thread for thread in launches if thread not in self.autograd]
        by_rank = sorted(candidates, key=lambda x: (x not in of_steps, -launches[x], x))
        return by_rank[0] if by_rank else None

    def _corrected(self, region):
        phase = _PHASES[self.rows[region].name]
        if phase == Phase.FORWARD:
            if self.rows[region].thread in self.autograd:
                return Phase.BACKWARD
            outer = self.regions.parent(region)
            while outer is not None:
                if _PHASES[self.rows[outer].name] == Phase.BACKWARD:
                    return Phase.BACKWARD
                outer = self.regions.parent(outer)
        return phase

    def _work_of(self, thread):
        """The moments at which one of autograd's threads worked."""
        own = [self.rows[i] for i in self.operators.ids if self.rows[i].thread == thread]
        work = {t for row in own for t in range(row.start, row.end)}
        begun = {
            self.rows[i].start
            for i in (*self.operators.ids, *self.regions.ids)
            if self.rows[i].thread == self.main
        }
        for t in sorted(work):
            if t + 1 not in work and (later := [x for x in work if x > t]):
                gap = set(range(t + 1, min(later)))
                if not gap & begun:
                    work |= gap
        return work

    def _phase(self, region, thread, moment):
        if region is not None:
            return self.phase[region]
        if thread in self.autograd:
            return Phase.BACKWARD
        following = [phase for start, phase in self.marks if start > moment]
        if self.inferred and thread == self.main and following[:1] == [Phase.BACKWARD]:
            return Phase.FORWARD
        return Phase.OTHER

    def _module(self, module):
        """Its name, and the modules that it was called in."""
        if module is None:
            return NO_MODULE
        name, outer, around = self._class(module), self.modules.parent(module), []
        while outer is not None:
            around.insert(0, self._class(outer))
            outer = self.modules.parent(outer)
        return name, " > ".join(around) or None

    def _class(self, module):
        return self.rows[module].name.removeprefix("nn.Module: ")

    def _thread_at(self, moment):
        working = [thread for thread in self.autograd if moment in self.at_work[thread]]
        return working[0] if working else self.main

    def _scope(self):
        """The chosen rows of the timeline, and the moments of the host's steps and windows."""
        timeline, steady = self.timeline, self.timeline.steady
        if steady is None:
            [window, *_] = timeline.windows
            launched = [self.rows[i].start for i in timeline.launch_id.tolist() if i != ABSENT]
            on_host = set(range(min([window.start_ns, *launched]), window.end_ns))
            within = set(range(window.start_ns, window.end_ns))
            return range(len(timeline.event_id)), on_host, within
        steps = [timeline.steps[i] for i in steady.indices]
        chosen = [m for m, i in enumerate(timeline.step_index.tolist()) if i in steady.indices]
        annotations = [self.rows[step.event_id] for step in steps]
        return (
            chosen,
            {t for row in annotations for t in range(row.start, row.end)},
            {t for step in steps for t in range(step.start_ns, step.end_ns)},
        )

    def _count(self):
        chosen, on_host, within = self._scope()
        launch_ids, event_ids = self.timeline.launch_id, self.timeline.event_id
        seen = set()
        for m in chosen:
            launch, activity = int(launch_ids[m]), self.rows[int(event_ids[m])]
            origin = self.origin_of.get(int(event_ids[m]), launch)
            launched_in, came_from = self._names_at(launch), self._names_at(origin)
            for account, name, of in zip(self._accounts(), launched_in, came_from, strict=True):
                account.gpu_ns[of] += activity.end - activity.start
                account.launches[name] += launch != ABSENT and launch not in seen
            seen.add(launch)
        devices = set(self.timeline.device_number.tolist())
        active = [self.rows[int(i)] for i in event_ids]
        for t in sorted(on_host | within):
            thread = self._thread_at(t)
            names = NO_HOST, Phase.UNKNOWN, (NO_HOST, None), (NO_HOST, None)
            if thread is not None:
                names = self._names(thread, t, t + 1)
            busy = {row.device for row in active if row.start <= t < row.end}
            for account, name in zip(self._accounts(), names, strict=True):
                account.host_ns[name] += t in on_host
                account.idle_ns[name] += len(devices - busy) * (t in within)
                if self.clock is not None and t in on_host:
                    account.unprofiled_ns[name] += self._unprofiled_ns(t)
        for i in (*self.operators.ids, *self.modules.ids):
            row = self.rows[i]
            if row.start in on_host and row.thread == self._thread_at(row.start):
                if row.category == Category.OPERATOR:
                    self.by_operator.calls[row.name] += 1
                else:
                    self.by_module.calls[self._module(i)] += 1

    def _names_at(self, call):
        """What a call was made in."""
        if call == ABSENT:
            return NO_HOST, Phase.UNKNOWN, (NO_HOST, None), (NO_HOST, None)
        row = self.rows[call]
        return self._names(row.thread, row.start, row.end)

    def _accounts(self):
        return self.by_operator, self.by_phase, self.by_line, self.by_module

    def _names(self, thread, start, end):
        """What a thread was in from one moment to another."""
        around = self.operators.innermost(thread, start, end)
        return (
            NOTHING if around is None else self.rows[around].name,
            self._phase(self.regions.innermost(thread, start, end), thread, start),
            self.lines.at(thread, start),
            self._module(self.modules.innermost(thread, start, end)),
        )

    def _unprofiled_ns(self, moment):
        """How long the nanosecond is from a moment on without the profiler."""
        recorded_ns, unprofiled_ns = self.clock.recorded_ns, self.clock.unprofiled_ns
        return int(np.diff(np.interp([moment, moment + 1], recorded_ns, unprofiled_ns))[0])
