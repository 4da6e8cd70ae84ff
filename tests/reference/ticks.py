"""An independent account of a timeline: slow, tick by tick, from the definitions.

It works on the rows of `tests.build.rows`, knows nothing of numpy or intervals, and shares
no code with what it checks but the names of kinds, causes and reasons. A tick is `TICK`
nanoseconds, so that a few dozen ticks reach past the thresholds of the measures; `scaled` turns
rows in ticks into rows in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    WATCHDOG,
    Row,
    annotation,
    call,
    kernel,
    launch,
    python,
    sync_row,
)
from tracelab.measures.idle_causes import Cause
from tracelab.model.binding import Reason
from tracelab.model.blocking_calls import Blocking
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category

TICK = 10_000
FAR = 9 * 10**18 - 10**9
_ORDER = ("start", "stream", "end")
LONGEST_FREE_CALL = 10  # ticks: 100 us

PROFILER = "torch/profiler/profiler.py(884): step"
LONGEST_STEP_CALL = 50  # ticks: 500 us
JOIN = "threading.py(1087): join"  # it only waits for another thread
INPUT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
BLOCKING = {
    "cudaDeviceSynchronize": Blocking.DEVICE,
    "cudaStreamSynchronize": Blocking.STREAM,
    "cudaEventSynchronize": Blocking.EVENT,
    "cudaMemcpy": Blocking.COPY,
    "cudaFree": Blocking.ALLOCATION,
}


def scaled(rows):
    """Rows in ticks as rows in nanoseconds."""
    return [replace(row, start=row.start * TICK, end=row.end * TICK) for row in rows]


def work(start, end, launched, correlation, *, maker=kernel, thread=MAIN, **more):
    """An activity and the call that launched it, one tick long."""
    return [
        maker(start, end, correlation=correlation, **more),
        launch(launched, launched + 1, correlation, thread=thread),
    ]


def wait(at, correlation, *, stream, of, recorded):
    """A stream of device 0 that waits for what another had been given when an event was recorded.

    It takes two correlations, its own and the next.
    """
    return [
        call("cudaEventRecord", recorded, recorded, correlation=correlation),
        call("cudaStreamWaitEvent", at, at, correlation=correlation + 1),
        sync_row(
            "Stream Wait Event",
            at,
            at,
            correlation=correlation + 1,
            device=0,
            stream=stream,
            wait_stream=of,
            wait_correlation=correlation,
        ),
    ]


def far_away(rows):
    """Rows in nanoseconds, at the latest times that a trace may have."""
    return [replace(row, start=row.start + FAR, end=row.end + FAR) for row in rows]


@st.composite
def beside_allocations(draw, rows):
    """Rows of a strategy, some of whose launches take long, and allocations of any thread."""
    chosen = draw(rows)
    row_index = st.sampled_from(range(len(chosen)))
    for i in draw(st.lists(row_index, max_size=6, unique=True)):
        if chosen[i].category in HOST_CALLS:
            chosen[i] = replace(chosen[i], end=chosen[i].end + draw(st.integers(8, 30)))
    for _ in range(draw(st.integers(1, 4))):
        start, thread = draw(st.integers(0, 60)), draw(st.sampled_from([MAIN, AUTOGRAD]))
        chosen.append(call("cudaFree", start, start + draw(st.integers(0, 30)), thread=thread))
    return chosen


@st.composite
def beside_the_profiler_and_waits(draw, rows):
    """Rows of a strategy, and times in the profiler or in a wait for another thread.

    The profiler shows with a Python frame, or between two steps.
    """
    chosen = draw(rows)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, 60))
        end = start + draw(st.integers(0, 20))
        thread = draw(st.sampled_from([MAIN, AUTOGRAD]))
        if draw(st.booleans()):
            chosen.append(python(JOIN, start, end, thread=thread))
        elif draw(st.booleans()):
            chosen.append(python(PROFILER, start, end, thread=thread))
        else:
            before, after = draw(st.integers(0, start)), end + draw(st.integers(0, 30))
            chosen.append(annotation("ProfilerStep#30", before, start, thread=thread))
            chosen.append(annotation("ProfilerStep#31", end, after, thread=thread))
    return chosen


@dataclass(frozen=True)
class Span:
    step: int | None
    start: int
    end: int


def _is_activity(row):
    """Whether a row tells what a thread did, rather than only what somebody called it."""
    return row.category != Category.ANNOTATION or _is_input(row)


def _is_input(row: Row) -> bool:
    return row.name == INPUT


class Account:
    """What the definitions say of some rows."""

    def __init__(self, rows):
        self.rows = rows
        self.activities = [i for i, row in enumerate(rows) if row.category in GPU_ACTIVITIES]
        self.calls = [i for i, row in enumerate(rows) if row.category in HOST_CALLS]
        self.devices = sorted({rows[i].device for i in self.activities})
        self.launch = {i: self._launch(i) for i in self.activities}
        self.step_events = self._step_annotations()
        self.windows, self.step_of = self._steps()
        self.blocking = self._blocking_calls()
        self.stalled = self._stalled_calls()

    def kind(self, i):
        row = self.rows[i]
        if row.category == Category.MEMCPY:
            return Kind.COPY
        if row.category == Category.MEMSET:
            return Kind.MEMSET
        return Kind.COMM if row.name.startswith("nccl") else Kind.COMPUTE

    def busy(self, chosen):
        """The ticks in which any of these activities ran."""
        return {t for i in chosen for t in range(self.rows[i].start, self.rows[i].end)}

    def of(self, device, kind=None):
        return [
            i
            for i in self.activities
            if self.rows[i].device == device and (kind is None or self.kind(i) == kind)
        ]

    def exposed(self, device):
        """The ticks in which communication, and in which copies, ran exposed."""
        compute, comm, copies = (
            self.busy(self.of(device, kind)) for kind in (Kind.COMPUTE, Kind.COMM, Kind.COPY)
        )
        return {Kind.COMM: comm - compute, Kind.COPY: copies - compute - comm}

    def _launch(self, i):
        """The outermost host call with the activity's correlation."""
        correlation = self.rows[i].correlation
        calls = [j for j in self.calls if self.rows[j].correlation == correlation != ABSENT]
        return min(calls, key=lambda j: (self.rows[j].start, -self.rows[j].end, j), default=None)

    def _step_annotations(self):
        """The outermost annotations of steps: one that lies inside another is a part of it."""
        rows = self.rows
        of_steps = [i for i, row in enumerate(rows) if row.name.startswith("ProfilerStep#")]
        of_steps.sort(key=lambda i: (rows[i].start, -rows[i].end))
        return [
            i
            for place, i in enumerate(of_steps)
            if not any(
                rows[i].start < rows[j].end and rows[i].end <= rows[j].end for j in of_steps[:place]
            )
        ]

    def _steps(self):
        """The whole trace and each step's window; which step launched each activity."""
        rows, step_of = self.rows, {}
        windows = [
            Span(
                None,
                min(rows[i].start for i in self.activities),
                max(rows[i].end for i in self.activities),
            )
        ]
        previous_end = -1
        for event in self.step_events:
            host = rows[event]
            launched = [
                i
                for i in self.activities
                if i not in step_of
                and self.launch[i] is not None
                and host.start <= rows[self.launch[i]].start < host.end
            ]
            step_of.update(dict.fromkeys(launched, event))
            start = max(previous_end, host.start)
            previous_end = max([start, host.end, *(rows[i].end for i in launched)])
            windows.append(Span(int(host.name.partition("#")[2]), start, previous_end))
        return windows, step_of

    # The host.

    def _blocking_calls(self):
        """The blocking calls by start, then the longest first: event id to kind."""
        rows, kinds = self.rows, {}
        pageable = {
            self.launch[i]
            for i in self.activities
            if "Pageable" in rows[i].name and self.launch[i] is not None
        }
        for i in sorted(self.calls, key=lambda i: (rows[i].start, -rows[i].end, i)):
            row = rows[i]
            kind = BLOCKING.get(row.name)
            if i in pageable and row.name == "cudaMemcpyAsync":
                kind = Blocking.COPY
            inside_another = any(
                rows[j].thread == row.thread and row.end <= rows[j].end and row.start < rows[j].end
                for j in kinds
            )
            of_program = row.thread != WATCHDOG and not self._in_profiler({row.thread}, row.start)
            if kind is not None and of_program and not inside_another:
                kinds[i] = kind
        of_devices = [i for i, kind in kinds.items() if kind == Blocking.DEVICE]
        if of_devices and self._is_the_profilers(of_devices[-1]):
            del kinds[of_devices[-1]]
        return kinds

    def _is_the_profilers(self, i):
        start = self.rows[i].start
        return all(
            self.rows[j].start < start for j in self.launch.values() if j is not None
        ) and not any(
            self.rows[event].start <= start < self.rows[event].end for event in self.step_events
        )

    def _stalled_calls(self):
        """The calls that another thread's allocation stalled: (since, allocation, call), sorted."""
        rows, order, stalled = self.rows, list(self.blocking), []
        allocations = [i for i, kind in self.blocking.items() if kind == Blocking.ALLOCATION]
        for i in self.calls:
            call = rows[i]
            if i in self.blocking or call.thread == WATCHDOG or self._is_part_of_a_call(i):
                continue
            stalling = [
                j
                for j in allocations
                if rows[j].thread != call.thread
                and rows[j].start < rows[j].end
                and call.start < rows[j].end <= call.end
            ]
            covered = {t for j in stalling for t in range(rows[j].start, rows[j].end)}
            length = call.end - call.start
            inside = covered & set(range(call.start, call.end))
            if length > LONGEST_FREE_CALL and len(inside) >= length / 2:
                stalled += [(max(rows[j].start, call.start), order.index(j), i) for j in stalling]
        return [(since, order[j], i) for since, j, i in sorted(stalled)]

    def _is_part_of_a_call(self, i):
        """Whether a call runs inside another one of its thread."""
        rows = self.rows

        def order(j):
            return rows[j].start, -rows[j].end, j

        return any(
            rows[j].thread == rows[i].thread
            and order(j) < order(i)
            and rows[i].start < rows[j].end
            and rows[i].end <= rows[j].end
            for j in self.calls
        )

    def launched_at(self, i):
        """When a launch call got to launch: at its start, or at its end if it was stalled."""
        return self.rows[i].end if i in {call for *_, call in self.stalled} else self.rows[i].start

    def _is_recorded(self, threads, t, chosen=lambda _: True):
        """Whether any of these threads was recorded in something at a tick."""
        recorded = (*HOST_CALLS, Category.OPERATOR, Category.PYTHON, Category.ANNOTATION)
        return any(
            row.category in recorded and row.thread in threads and row.start <= t < row.end
            for row in self.rows
            if chosen(row)
        )

    def _is_at_work(self, thread, t):
        """Whether a thread did anything but wait for another one."""
        return self._is_recorded({thread}, t, _is_activity) and not self._is_recorded(
            {thread}, t, lambda row: row.name == JOIN
        )

    def _in_profiler(self, threads, t):
        """Whether any of these threads was in the profiler at a tick."""
        return any(
            row.name == PROFILER and row.thread in threads and row.start <= t < row.end
            for row in self.rows
        ) or any(self._in_step_call(thread, t) for thread in threads)

    def _in_step_call(self, thread, t):
        """Whether a thread without stacks was between two steps, and nothing else began there."""
        of_thread = [row for row in self.rows if row.thread == thread]
        if any(row.category == Category.PYTHON for row in of_thread):
            return False
        steps = [row for row in of_thread if row.name.startswith("ProfilerStep#")]
        start = max((row.end for row in steps if row.start <= t), default=None)
        end = min((row.start for row in steps if row.start > t), default=None)
        if start is None or end is None or not start <= t or end - start > LONGEST_STEP_CALL:
            return False
        begins = (*HOST_CALLS, Category.OPERATOR, Category.ANNOTATION)
        return not any(row.category in begins and start <= row.start < end for row in of_thread)

    def _blocked(self, threads, t):
        return any(
            self.rows[i].thread in threads and self.rows[i].start <= t < self.rows[i].end
            for i in self.blocking
        ) or any(
            self.rows[i].thread in threads and since <= t < self.rows[i].end
            for since, _, i in self.stalled
        )

    # Idle time.

    def gaps(self, device):
        """Each bubble between a device's first and last work: start, end, the activity after it."""
        filled = [i for i in self.of(device) if self.rows[i].end > self.rows[i].start]
        busy = self.busy(filled)
        starts = sorted(t for t in busy if t - 1 not in busy)
        ends = sorted(t + 1 for t in busy if t + 1 not in busy)
        for start, end in zip(ends[:-1], starts[1:], strict=True):
            next_ = [i for i in filled if self.rows[i].start == end]
            yield start, end, min(next_, key=lambda i: (self.rows[i].stream, self.rows[i].end, i))

    def causes(self, device, awaited, reasons):
        """Tick to (cause, reason) for all idle of a device, from the first window to the last.

        What activities waited for comes from the graph (`tests.reference.binding` checks that):
        event id to the end of the activity that it waited for, and to why that is not known.
        """
        causes = {}
        beginning = self._beginning(device)
        for start, end, after in (*self.gaps(device), *beginning):
            for t in range(start, end):
                ends = awaited.get(after, start)
                causes[t] = self._cause(start, end, after, ends, reasons[after], t)
        for start, end, _ in beginning:  # the recording began: what is not known is its edge
            for t in range(start, end):
                if causes[t][0] == Cause.UNKNOWN:
                    causes[t] = Cause.EDGE, Reason.NONE
        busy = self.busy(self.of(device))
        ends = max(window.end for window in self.windows)
        for t in range(min(window.start for window in self.windows), ends):
            if t not in busy:
                causes.setdefault(t, (Cause.EDGE, Reason.NONE))
        return causes

    def _beginning(self, device):
        """The bubble before a device's first work, in the step that launched it; at most one."""
        filled = [i for i in self.of(device) if self.rows[i].end > self.rows[i].start]
        if not filled:
            return []
        first = min(filled, key=lambda i: [getattr(self.rows[i], x) for x in _ORDER] + [i])
        starts = [
            window.start
            for event, window in zip(self.step_events, self.windows[1:], strict=True)
            if event == self.step_of.get(first)
        ]
        return [(start, self.rows[first].start, first) for start in starts]

    def _cause(self, start, end, after, awaited, reason, t):
        launched_by = self.launch[after]
        if launched_by is None:
            return Cause.UNKNOWN, Reason.LAUNCH_NOT_IN_FILE
        call = self.rows[launched_by]
        if self._is_inside_replay(start, launched_by):
            return Cause.GRAPH, Reason.NONE
        launched = self.launched_at(launched_by)
        if t < launched:
            return self._before_launch(call.thread, t)
        if launched_by in self.blocking:
            return Cause.HOST_BLOCKED, Reason.NONE
        if t < max(start, launched, min(awaited, end)):
            return Cause.DEPENDENCY, Reason.NONE
        return (Cause.UNKNOWN if reason else Cause.LAUNCH), reason

    def _is_inside_replay(self, start, launched_by):
        """Whether a bubble begins after the first node of the graph that its end is a node of."""
        nodes = [self.rows[i].start for i, j in self.launch.items() if j == launched_by]
        return self.rows[launched_by].name == "cudaGraphLaunch" and min(nodes) <= start

    @property
    def launching(self):
        """The threads that launched an activity: nobody waits for the others."""
        return {self.rows[i].thread for i in self.launch.values() if i is not None}

    def _before_launch(self, thread, t):
        """Before the launch: what its thread did, or else what the others did."""
        launching_thread = {thread} - {WATCHDOG}
        others = {MAIN, AUTOGRAD} & self.launching
        for threads in (launching_thread, others - launching_thread):
            if self._in_profiler(threads, t):
                return Cause.PROFILER, Reason.NONE
            if self._blocked(threads, t):
                return Cause.HOST_BLOCKED, Reason.NONE
            if self._is_recorded(threads, t, _is_input):
                return Cause.INPUT, Reason.NONE
            if any(self._is_at_work(thread, t) for thread in threads):
                return Cause.HOST_BUSY, Reason.NONE
        if self._is_recorded(launching_thread | others, t):
            return Cause.HOST_BUSY, Reason.NONE
        return Cause.UNKNOWN, Reason.HOST_NOT_RECORDED

    def costs(self):
        """Blocking call to the idle that it caused, in ticks, over all devices.

        That is while it blocked, and after it for as many ticks as it blocked beside other work:
        the last of those is paid for first, and none twice.
        """
        cost = dict.fromkeys(self.blocking, 0)
        for device in self.devices:
            held_up = list(self._held_up_before_gaps(device))
            idle = {t for start, end, by in held_up for t in by if start <= t < end}
            for start, end, by in held_up:
                owed = [by[t] for t in sorted(by) if t < start and t not in idle]
                for t in range(start, end):
                    if t in by:
                        cost[by[t]] += 1
                    elif owed:
                        cost[owed.pop()] += 1
        return cost

    def _held_up_before_gaps(self, device):
        """Each bubble that the host ended: start, end, and which call held the launch up when."""
        launches = [
            self.launched_at(self.launch[i]) for i in self.of(device) if self.launch[i] is not None
        ]
        for start, end, after in self.gaps(device):
            next_launch = self.launch[after]
            if next_launch is not None and not self._is_inside_replay(start, next_launch):
                yield start, end, self._held_up(end, next_launch, launches)

    def _held_up(self, end, next_launch, launches):
        """Tick to the call by which a launch was held up then, of several by the first.

        It is since the launch before, and until it is made; a blocking copy's until it starts.
        """
        by, rows, launched = {}, self.rows, self.launched_at(next_launch)
        before = max((moment for moment in launches if moment < launched), default=0)
        thread, order = rows[next_launch].thread, list(self.blocking)
        # Since when, until when and in which thread a host stall was, and through which call.
        stalls = [(rows[i].start, rows[i].end, rows[i].thread, i) for i in self.blocking]
        stalls += [(since, rows[i].end, rows[i].thread, j) for since, j, i in self.stalled]
        times = [
            (max(since, before), order.index(i), end if i == next_launch else min(until, launched))
            for since, until, stalled, i in stalls
            if i == next_launch or self._waits_for(thread, stalled, since)
        ]
        for since, index, until in sorted(times):
            for t in range(since, until):
                by.setdefault(t, order[index])
        return by

    def _waits_for(self, thread, stalled, since):
        """Whether a thread that launches waits for another one's stall, or makes it itself."""
        return thread == stalled or (
            stalled in self.launching
            and (thread == WATCHDOG or not self._is_recorded({thread}, since, _is_activity))
        )
