"""An independent account of what ran: slow, nanosecond by nanosecond, from the definitions.

It works on the rows of `tests.build.rows`, and takes from the timeline only which call launched
what, and the steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.build.rows import THREADS, Row
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
NOTHING, NO_HOST = "outside any operator", "the file does not say"


@dataclass
class Account:
    """What each operator, and each phase, did: counters by its name."""

    calls: Counter = field(default_factory=Counter)
    launches: Counter = field(default_factory=Counter)
    host_ns: Counter = field(default_factory=Counter)
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


class HostWork:
    """The operators' and the phases' account of the steady steps of some rows."""

    def __init__(self, rows: list[Row], timeline) -> None:
        self.rows, self.timeline = rows, timeline
        steps = {step.event_id for step in timeline.steps}
        of = range(len(rows))
        self.operators = _Entries(rows, [i for i in of if rows[i].category == Category.OPERATOR])
        self.regions = _Entries(
            rows,
            [
                i
                for i in of
                if rows[i].name in PHASES
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
        self.by_operator, self.by_phase = Account(), Account()
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
        phase = PHASES[self.rows[region].name]
        if phase == Phase.FORWARD:
            if self.rows[region].thread in self.autograd:
                return Phase.BACKWARD
            outer = self.regions.parent(region)
            while outer is not None:
                if PHASES[self.rows[outer].name] == Phase.BACKWARD:
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
            operator, phase = NO_HOST, Phase.UNKNOWN
            if launch != ABSENT:
                call = self.rows[launch]
                around = self.operators.innermost(call.thread, call.start, call.end)
                operator = NOTHING if around is None else self.rows[around].name
                region = self.regions.innermost(call.thread, call.start, call.end)
                phase = self._phase(region, call.thread, call.start)
            for account, name in ((self.by_operator, operator), (self.by_phase, phase)):
                account.gpu_ns[name] += activity.end - activity.start
                account.launches[name] += launch != ABSENT and launch not in seen
            seen.add(launch)
        devices = set(self.timeline.device_number.tolist())
        active = [self.rows[int(i)] for i in event_ids]
        for t in sorted(on_host | within):
            thread = self._thread_at(t)
            operator, phase = NO_HOST, Phase.UNKNOWN
            if thread is not None:
                at = self.operators.at(thread, t)
                operator = NOTHING if at is None else self.rows[at].name
                phase = self._phase(self.regions.at(thread, t), thread, t)
            busy = {row.device for row in active if row.start <= t < row.end}
            for account, name in ((self.by_operator, operator), (self.by_phase, phase)):
                account.host_ns[name] += t in on_host
                account.idle_ns[name] += len(devices - busy) * (t in within)
        for i in self.operators.ids:
            row = self.rows[i]
            if row.start in on_host and row.thread == self._thread_at(row.start):
                self.by_operator.calls[row.name] += 1
