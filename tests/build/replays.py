"""For tests of programs that replay CUDA graphs: a small machine that runs what a test writes.

The host does one thing after another, a stream does what it was given in order, and a blocking call
returns once its stream has ended. So a defect and its fix are two short programs, and what the fix
saves is known to the nanosecond. Times that a program gives are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from tests.build.files import (
    H2D,
    US,
    Event,
    call,
    copy,
    kernel,
    operator,
    python,
    step,
    sync_row,
)

STEPS = 6
# Of an H200, without the profiler: a call, from its return to the start, between two nodes.
GRAPH_CALL_US, GRAPH_START_US, NODE_GAP_US = 10, 6, 1
CALL_US, START_US = 5, 2  # of what is launched by itself
GAP_US, BEFORE_COPY_US, BEHIND_COPY_US = 2, 3, 7  # in a stream
OPERATOR_US = 4  # of the host, before and behind its call
COPY_US, WAKE_UP_US = 2, 5
WAIT_US = 8  # from the end of what a stream waits for to its next start, less the gap
D2H = "Memcpy DtoH (Device -> Pageable)"
D2H_PINNED = "Memcpy DtoH (Device -> Pinned)"
STREAM, SIDE = 7, 20

Program = Callable[["Machine"], object]
Maker = Callable[..., Event]


class Record(NamedTuple):
    """An event that was recorded: the correlation of its call, and when the GPU reaches it."""

    correlation: int
    reached: float


class Machine:
    """Runs a program, and has the events that a profiler writes of it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0.0
        self.ends: dict[int, float] = {}  # when each stream has done all that it was given
        self.records: list[Record] = []
        self._last: dict[int, Maker] = {}
        self._correlations = count(1)

    @contextmanager
    def function(self, name: str) -> Iterator[None]:
        """A Python function, named like ``serve.py(3): decode``, around what is done in it."""
        begun = self.now
        yield
        self.events.append(python(name, begun * US, self.now * US))

    def works(self, lasts: float, name: str) -> None:
        """A Python function that launches nothing."""
        with self.function(name):
            self.now += lasts

    def replays(self, nodes: Sequence[float], *, stream: int = STREAM, node_us: float = 0) -> None:
        """A graph whose kernels take so long and follow one another.

        Args:
            nodes: what each kernel takes.
            stream: which one they run in.
            node_us: what the call takes for each of them, as with a profiler.
        """
        with self.function("torch/cuda/graphs.py(88): replay"):
            self.now += 1
            correlation = self._calls("cudaGraphLaunch", GRAPH_CALL_US + node_us * len(nodes))
        starts = self._may_start(kernel, GRAPH_START_US, stream)
        for number, lasts in enumerate(nodes):
            self._runs(kernel, starts, lasts, stream, correlation, f"node_{number}")
            starts = self.ends[stream] + NODE_GAP_US

    def launches(self, kernels: Sequence[float], *, name: str = "aten::add") -> None:
        """Kernels one by one, each by an operator."""
        for lasts in kernels:
            begun = self.now
            self.now += OPERATOR_US
            correlation = self._calls("cudaLaunchKernel", CALL_US)
            starts = self._may_start(kernel, START_US, STREAM)
            self._runs(kernel, starts, lasts, STREAM, correlation, name.removeprefix("aten::"))
            self.now += OPERATOR_US
            self.events.append(operator(name, begun * US, self.now * US))

    def reads(self) -> None:
        """``Tensor.item``: a copy to the host, and the wait for it."""
        with self.function("<built-in method item of Tensor object at 0x7f>"):
            begun = self.now
            self.now += OPERATOR_US
            correlation = self._calls("cudaMemcpyAsync", CALL_US)
            starts = self._may_start(copy, START_US, STREAM)
            self._runs(copy, starts, COPY_US, STREAM, correlation, D2H)
            self._waits("cudaStreamSynchronize", "Stream Sync", self.ends[STREAM], stream=STREAM)
            self.now += OPERATOR_US
            self.events.append(operator("aten::item", begun * US, self.now * US))

    def synchronizes(self) -> None:
        """``torch.cuda.synchronize``."""
        with self.function("torch/cuda/__init__.py(1100): synchronize"):
            self._waits("cudaDeviceSynchronize", "Context Sync", max(self.ends.values()))

    def copies_out(self) -> None:
        """``buffer.copy_(x, non_blocking=True)`` into pinned memory, and ``event.record()``."""
        correlation = self._calls("cudaMemcpyAsync", CALL_US)
        starts = self._may_start(copy, START_US, STREAM)
        self._runs(copy, starts, COPY_US, STREAM, correlation, D2H_PINNED)
        self.records.append(Record(self._calls("cudaEventRecord", 1), self.ends[STREAM]))

    def waits_for_event(self, behind: int = 0) -> None:
        """``event.synchronize()`` of the last event, or of one that was recorded before."""
        if len(self.records) > behind:
            record = self.records[-1 - behind]
            with self.function("torch/cuda/streams.py(226): synchronize"):
                self._waits(
                    "cudaEventSynchronize",
                    "Event Sync",
                    record.reached,
                    wait_stream=STREAM,
                    wait_correlation=record.correlation,
                )

    def copies_in(self, lasts: float, *, stream: int = STREAM) -> None:
        """A batch from pinned memory."""
        correlation = self._calls("cudaMemcpyAsync", CALL_US)
        starts = self._may_start(copy, START_US, stream)
        self._runs(copy, starts, lasts, stream, correlation, H2D)

    def makes_wait(self, stream: int, awaited: int) -> None:
        """``stream.wait_stream(awaited)``."""
        recorded = self._calls("cudaEventRecord", 1)
        waits = self._calls("cudaStreamWaitEvent", 1)
        waited_for = {"wait_stream": awaited, "wait_correlation": recorded}
        at = self.now * US
        self.events.append(
            sync_row("Stream Wait Event", at, at, stream=stream, correlation=waits, **waited_for)
        )
        ends = [self.ends.get(stream, 0), self.ends.get(awaited, 0) + WAIT_US]
        self.ends[stream] = max(ends)

    def _calls(self, name: str, lasts: float) -> int:
        """A call of the runtime; returns its correlation."""
        begun, correlation = self.now, next(self._correlations)
        self.now += lasts
        self.events.append(call(name, begun * US, self.now * US, correlation=correlation))
        return correlation

    def _waits(self, name: str, kind: str, ends: float, **stream: int) -> None:
        begun = self.now
        correlation = self._calls(name, max(begun, ends) + WAKE_UP_US - begun)
        self.events.append(
            sync_row(kind, begun * US, self.now * US, correlation=correlation, **stream)
        )

    def _may_start(self, make: Maker, start_us: float, stream: int) -> float:
        """When a launch that returns now reaches its stream, and that has done all before."""
        was_copy = self._last.get(stream) is copy
        gap_us = BEFORE_COPY_US if make is copy else BEHIND_COPY_US if was_copy else GAP_US
        return max(self.now + start_us, self.ends.get(stream, 0) + gap_us)

    def _runs(
        self,
        make: Maker,
        starts: float,
        lasts: float,
        stream: int,
        correlation: int,
        name: str,
    ) -> None:
        self.ends[stream], self._last[stream] = starts + lasts, make
        times = (starts * US, self.ends[stream] * US)
        self.events.append(make(*times, name, stream=stream, correlation=correlation))


def run(program: Program, *, steps: int = STEPS) -> list[Event]:
    """The events of a program whose steps are all alike, in `decode` of serve.py."""
    machine = Machine()
    for number in range(steps):
        begun = machine.now
        machine.now += 1
        with machine.function("serve.py(3): decode"):
            program(machine)
        machine.now += 1
        machine.events.append(step(number, begun * US, machine.now * US))
    return machine.events


def step_us(program: Program) -> float:
    """What a step of a program takes once its steps are alike: the mean of twenty late ones."""
    machine, ends = Machine(), []
    for _ in range(40):
        machine.now += 1
        program(machine)
        machine.now += 1
        ends.append(max(machine.now, *machine.ends.values()))
    return (ends[-1] - ends[19]) / 20


# --- programs: what each is about, and the one that mends it ---

LONG = [5] * 20  # of a graph that takes 119 us


def late(machine: Machine) -> None:
    """DEFECT: the host works for 180 us before it launches a graph of 119."""
    machine.works(100, "serve.py(20): sample")
    machine.works(80, "serve.py(30): schedule")
    machine.replays(LONG)


def ahead(machine: Machine) -> None:
    """The same graph, and host work that it outlasts."""
    machine.replays(LONG)
    machine.works(60, "serve.py(30): schedule")


def read_each_step(machine: Machine) -> None:
    """DEFECT: the host reads what a graph computed, and works, before it launches the next."""
    machine.replays(LONG)
    machine.reads()
    machine.works(60, "serve.py(20): sample")


def copied_and_awaited(machine: Machine) -> None:
    """DEFECT: the result is copied into pinned memory, and the host waits for the copy at once."""
    machine.replays(LONG)
    machine.copies_out()
    machine.waits_for_event()
    machine.works(60, "serve.py(20): sample")


def copied_and_synchronized(machine: Machine) -> None:
    """DEFECT: the same with a wait for the device."""
    machine.replays(LONG)
    machine.copies_out()
    machine.synchronizes()
    machine.works(60, "serve.py(20): sample")


def awaited_behind(machine: Machine) -> None:
    """The result of the replay before is waited for, while the next one runs."""
    machine.replays(LONG)
    machine.copies_out()
    machine.waits_for_event(behind=1)
    machine.works(60, "serve.py(20): sample")


def awaited_behind_too_slowly(machine: Machine) -> None:
    """DEFECT: the same, where the host works for longer than the graph runs."""
    machine.replays(LONG)
    machine.copies_out()
    machine.waits_for_event(behind=1)
    machine.works(180, "serve.py(20): sample")


def synchronized(machine: Machine) -> None:
    """DEFECT: the host waits for each of three graphs."""
    for _ in range(3):
        machine.replays([10] * 5)
        machine.synchronizes()


def in_a_row(machine: Machine) -> None:
    """Three graphs, and nothing in between."""
    for _ in range(3):
        machine.replays([10] * 5)


def small_graphs(machine: Machine) -> None:
    """DEFECT: eight graphs that are over before the next is launched."""
    for _ in range(8):
        machine.replays([2] * 3)


def one_graph(machine: Machine) -> None:
    """The same kernels in one graph."""
    machine.replays([2] * 24)


def piecewise(machine: Machine) -> None:
    """DEFECT: four graphs with three kernels behind each that are launched one by one."""
    for _ in range(4):
        machine.replays([3] * 6)
        machine.launches([4] * 3, name="aten::attention")


def whole(machine: Machine) -> None:
    """The same kernels in one graph."""
    machine.replays(([3] * 6 + [4] * 3) * 4)


def copied_first(machine: Machine) -> None:
    """DEFECT: the batch of each graph is copied in the stream of the graphs."""
    machine.copies_in(60)
    machine.replays(LONG)


def copied_late(machine: Machine) -> None:
    """DEFECT: the batch is copied in a stream of its own, which waits for the graph before."""
    machine.makes_wait(SIDE, STREAM)
    machine.copies_in(60, stream=SIDE)
    machine.makes_wait(STREAM, SIDE)
    machine.replays(LONG)


def copied_ahead(machine: Machine) -> None:
    """The batch is copied in a stream of its own, while the graph before still runs."""
    machine.copies_in(60, stream=SIDE)
    machine.makes_wait(STREAM, SIDE)
    machine.replays(LONG)
