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
    call,
    kernel,
    launch,
    sync_row,
)
from tracelab.measures.bubbles import Cause, Reason
from tracelab.model.blocking_calls import Blocking
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category

TICK = 10_000
FAR = 9 * 10**18 - 10**9
LONGEST_LAUNCH = 10  # ticks: 100 us
LONGEST_FREE_CALL = 10  # ticks: 100 us

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
    some = st.sampled_from(range(len(chosen)))
    for i in draw(st.lists(some, max_size=6, unique=True)):
        if chosen[i].category in HOST_CALLS:
            chosen[i] = replace(chosen[i], end=chosen[i].end + draw(st.integers(8, 30)))
    for _ in range(draw(st.integers(1, 4))):
        start, thread = draw(st.integers(0, 60)), draw(st.sampled_from([MAIN, AUTOGRAD]))
        chosen.append(call("cudaFree", start, start + draw(st.integers(0, 30)), thread=thread))
    return chosen


@dataclass(frozen=True)
class Span:
    step: int | None
    start: int
    end: int


def _is_doing(row):
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
        self.step_events = sorted(
            (i for i, row in enumerate(rows) if row.name.startswith("ProfilerStep#")),
            key=lambda i: rows[i].start,
        )
        self.windows, self.step_of = self._steps()
        self.blocking = self._blocking_calls()
        self.held = self._held_calls()

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
        """The ticks in which communication, and in which copies, ran and nothing hid them."""
        compute, comm, copies = (
            self.busy(self.of(device, kind)) for kind in (Kind.COMPUTE, Kind.COMM, Kind.COPY)
        )
        return {Kind.COMM: comm - compute, Kind.COPY: copies - compute - comm}

    def _launch(self, i):
        """The outermost host call with the activity's correlation."""
        wanted = self.rows[i].correlation
        found = [j for j in self.calls if self.rows[j].correlation == wanted != ABSENT]
        return min(found, key=lambda j: (self.rows[j].start, -self.rows[j].end, j), default=None)

    def _steps(self):
        """The whole trace and each step's window; which step launched each activity."""
        rows, of = self.rows, {}
        windows = [
            Span(
                None,
                min(rows[i].start for i in self.activities),
                max(rows[i].end for i in self.activities),
            )
        ]
        before = -1
        for event in self.step_events:
            host = rows[event]
            mine = [
                i
                for i in self.activities
                if i not in of
                and self.launch[i] is not None
                and host.start <= rows[self.launch[i]].start < host.end
            ]
            of.update(dict.fromkeys(mine, event))
            start = max(before, host.start)
            before = max([start, host.end, *(rows[i].end for i in mine)])
            windows.append(Span(int(host.name.partition("#")[2]), start, before))
        return windows, of

    # The host.

    def _blocking_calls(self):
        """The blocking calls by start, then the longest first: event id to kind."""
        rows, found = self.rows, {}
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
                for j in found
            )
            if kind is not None and row.thread != WATCHDOG and not inside_another:
                found[i] = kind
        devices = [i for i, kind in found.items() if kind == Blocking.DEVICE]
        if devices and self._is_the_profilers(devices[-1]):
            del found[devices[-1]]
        return found

    def _is_the_profilers(self, i):
        at = self.rows[i].start
        return all(
            self.rows[j].start < at for j in self.launch.values() if j is not None
        ) and not any(
            self.rows[event].start <= at < self.rows[event].end for event in self.step_events
        )

    def _held_calls(self):
        """Who got no further while another thread allocated: (since, allocation, call), sorted."""
        rows, order, found = self.rows, list(self.blocking), []
        allocations = [i for i, x in self.blocking.items() if x == Blocking.ALLOCATION]
        for i in self.calls:
            held = rows[i]
            if i in self.blocking or held.thread == WATCHDOG or self._is_part_of_a_call(i):
                continue
            holders = [
                j
                for j in allocations
                if rows[j].thread != held.thread
                and rows[j].start < rows[j].end
                and held.start < rows[j].end <= held.end
            ]
            covered = {t for j in holders for t in range(rows[j].start, rows[j].end)}
            length = held.end - held.start
            inside = covered & set(range(held.start, held.end))
            if length > LONGEST_FREE_CALL and len(inside) >= length / 2:
                found += [(max(rows[j].start, held.start), order.index(j), i) for j in holders]
        return [(since, order[j], i) for since, j, i in sorted(found)]

    def _is_part_of_a_call(self, i):
        """Whether a call runs inside another one of its thread."""
        rows = self.rows

        def place(j):
            return rows[j].start, -rows[j].end, j

        return any(
            rows[j].thread == rows[i].thread
            and place(j) < place(i)
            and rows[i].start < rows[j].end
            and rows[i].end <= rows[j].end
            for j in self.calls
        )

    def launched_at(self, i):
        """When a launch call got to launch: at its start, or held up at its end."""
        return self.rows[i].end if i in {x for *_, x in self.held} else self.rows[i].start

    def _told(self, threads, t, chosen=lambda _: True):
        """Whether any of these threads was recorded in something at a tick."""
        told = (*HOST_CALLS, Category.OPERATOR, Category.PYTHON, Category.ANNOTATION)
        return any(
            row.category in told and row.thread in threads and row.start <= t < row.end
            for row in self.rows
            if chosen(row)
        )

    def _blocked(self, threads, t):
        return any(
            self.rows[i].thread in threads and self.rows[i].start <= t < self.rows[i].end
            for i in self.blocking
        ) or any(
            self.rows[i].thread in threads and since <= t < self.rows[i].end
            for since, _, i in self.held
        )

    # Idle time.

    def gaps(self, device):
        """Each bubble between a device's first and last work: start, end, the activity after it."""
        work = [i for i in self.of(device) if self.rows[i].end > self.rows[i].start]
        busy = self.busy(work)
        starts = sorted(t for t in busy if t - 1 not in busy)
        ends = sorted(t + 1 for t in busy if t + 1 not in busy)
        for start, end in zip(ends[:-1], starts[1:], strict=True):
            then = [i for i in work if self.rows[i].start == end]
            yield start, end, min(then, key=lambda i: (self.rows[i].stream, self.rows[i].end, i))

    def causes(self, device, awaited, unknown):
        """Tick to (cause, reason) for all idle of a device in the whole trace.

        What streams waited for comes from the graph: event id to the end of the activity that it
        waited for, and the ids that waited for something that the file does not name.
        """
        whole, found = self.windows[0], {}
        for start, end, after in self.gaps(device):
            ends = None if after in unknown and len(self.devices) > 1 else awaited.get(after, start)
            for t in range(start, end):
                found[t] = self._cause(start, end, after, ends, t)
        busy = self.busy(self.of(device))
        for t in range(whole.start, whole.end):
            if t not in busy:
                found.setdefault(t, (Cause.EDGE, Reason.NONE))
        return found

    def _cause(self, start, end, after, awaited, t):
        launched_by = self.launch[after]
        if launched_by is None:
            return Cause.UNKNOWN, Reason.LAUNCH_NOT_IN_FILE
        call = self.rows[launched_by]
        replay = [self.rows[i].start for i, j in self.launch.items() if j == launched_by]
        if call.name == "cudaGraphLaunch" and min(replay) <= start:
            return Cause.GRAPH, Reason.NONE
        launched = self.launched_at(launched_by)
        if t < launched:
            return self._late(call.thread, t)
        if launched_by in self.blocking:
            return Cause.HOST_BLOCKED, Reason.NONE
        return self._launched(start, end, launched, call, awaited, t)

    def _launched(self, start, end, launched, call, awaited, t):
        """Why an activity had not started at a tick although it was launched."""
        if awaited is None:
            return Cause.UNKNOWN, Reason.WAIT_WITHOUT_RECORD
        ready = max(start, launched, min(awaited, end))
        if t < ready:
            return Cause.DEPENDENCY, Reason.NONE
        if end - max(ready, call.end) > LONGEST_LAUNCH:
            return Cause.UNKNOWN, Reason.NOTHING_IN_THE_WAY
        return Cause.LAUNCH, Reason.NONE

    @property
    def launching(self):
        """The threads that launched an activity: the others hold up nobody."""
        return {self.rows[i].thread for i in self.launch.values() if i is not None}

    def _late(self, thread, t):
        """Before the launch: what its thread did, or else what the others did."""
        own = {thread} - {WATCHDOG}
        others = {MAIN, AUTOGRAD} & self.launching
        for threads in (own, others - own):
            if self._blocked(threads, t):
                return Cause.HOST_BLOCKED, Reason.NONE
            if self._told(threads, t, _is_input):
                return Cause.INPUT, Reason.NONE
            if self._told(threads, t, _is_doing):
                return Cause.HOST_BUSY, Reason.NONE
        if self._told(own | others, t):
            return Cause.HOST_BUSY, Reason.NONE
        return Cause.UNKNOWN, Reason.HOST_NOT_RECORDED

    def prices(self):
        """Blocking call to the idle that it caused, in ticks, over all devices."""
        rows, price = self.rows, dict.fromkeys(self.blocking, 0)
        # Since when, until when and in which thread something stood still, and through which call.
        halts = [(rows[i].start, rows[i].end, rows[i].thread, i) for i in self.blocking]
        halts += [(since, rows[i].end, rows[i].thread, j) for since, j, i in self.held]
        halts.sort(key=lambda halt: halt[0])
        for device in self.devices:
            launches = [
                self.launched_at(self.launch[i])
                for i in self.of(device)
                if self.launch[i] is not None
            ]
            for start, end, after in self.gaps(device):
                if self.launch[after] is None:
                    continue
                owners = [x for x in halts if self._stands_before(x, self.launch[after], launches)]
                for t in range(start, end):
                    begun = [call for since, *_, call in owners if since <= t]
                    if begun:
                        price[begun[-1]] += 1
        return price

    def _stands_before(self, halt, next_launch, launches):
        """Whether a halt delayed a launch: nothing reached the device from the one to the other."""
        since, until, thread, call = halt
        then, launched = self.rows[next_launch], self.launched_at(next_launch)
        if call != next_launch and since >= launched:
            return False
        if any(until <= at < launched for at in launches):
            return False
        return thread == then.thread or (
            thread in self.launching
            and (then.thread == WATCHDOG or not self._told({then.thread}, since, _is_doing))
        )
