"""Work of the steady steps: by kernel, by operator, by phase, by line and by module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Int64Array, IntArray, Record
from tracelab.measures.measure import (
    MAX_ROWS,
    OTHERS,
    Figure,
    Measure,
    constrained,
    per_step,
    ranked,
    share_of,
    summed,
)
from tracelab.measures.what_ran import (
    NO_HOST,
    NO_NAME,
    OUTSIDE_FUNCTIONS,
    WAITED,
    LineName,
    WhatRan,
)
from tracelab.model.cuda_graphs import Basis
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, is_recognised, work_of
from tracelab.model.lookup import groups_of
from tracelab.model.phases import OUTSIDE_MODULES, ModuleName, Phase
from tracelab.model.trace import ABSENT, Category

OUTSIDE_OPERATORS = "outside any operator"
NOT_IN_FILE = "the file does not say"
FOR_THREADS = "waiting for other threads"
INFERRED = "inferred: before each backward pass"
_BASIS_NAMES = [basis.name.lower() for basis in Basis]
_KIND_NAMES = [kind.name.lower() for kind in Kind]
_ADDED = {"added": True}
_AMOUNT = constrained(minimum=0)
_PHASE_NAMES = [phase.name.lower() for phase in Phase]
# A kernel that no rule recognizes is worth a question from this share of the GPU's busy time on.
_MIN_UNRECOGNISED_SHARE = 0.01


class NameTimes(Record):
    """The GPU activities of one name, on all devices of a file, by step and in the whole trace."""

    name: str
    steps_ns: tuple[int, ...]
    step_counts: tuple[int, ...]
    total_ns: int
    count: int


def kernel_times(graph: Graph) -> tuple[NameTimes, ...]:
    """The time of every name among the GPU activities, per step that launched them.

    Activities that no step launched count in the whole trace only.
    """
    timeline = graph.host.timeline
    length_ns = timeline.end_ns - timeline.start_ns
    step, steps = timeline.step_index + 1, len(timeline.steps) + 1  # 0: of no step
    return tuple(
        NameTimes(
            name=timeline.trace.strings[name_index],
            steps_ns=tuple(summed(step[rows], length_ns[rows], steps)[1:].tolist()),
            step_counts=tuple(np.bincount(step[rows], minlength=steps)[1:].tolist()),
            total_ns=int(length_ns[rows].sum()),
            count=len(rows),
        )
        for name_index, rows in groups_of(timeline.trace.name_index[timeline.event_id])
    )


class KernelTotal(Record):
    """All activities of one name."""

    name: str
    count: int
    total_ns: int


def unrecognised_kernels(graph: Graph) -> tuple[KernelTotal, ...]:
    """Long kernels that no rule recognizes, which count as compute; the longest first."""
    timeline = graph.host.timeline
    trace = timeline.trace
    is_kernel = trace.category[timeline.event_id] == Category.KERNEL
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & is_kernel)
    length_ns = timeline.end_ns - timeline.start_ns
    kernels = [
        KernelTotal(trace.strings[name_index], len(index), int(length_ns[rows[index]].sum()))
        for name_index, index in groups_of(trace.name_index[timeline.event_id[rows]])
    ]
    least_ns = _MIN_UNRECOGNISED_SHARE * float(length_ns.sum())
    asked = [x for x in kernels if x.total_ns >= least_ns and not is_recognised(x.name)]
    return tuple(sorted(asked, key=lambda kernel: (-kernel.total_ns, kernel.name)))


class Rates(Record, kw_only=True):
    """Work of GPU activities for the time that they took; None where the file does not say.

    Attributes:
        flops: additions and multiplications of its products, per step, rounded: of those whose
            shapes the file has. Causal attention counts in whole.
        flop_rate: the same per second, in the time of these products.
        peak_share: that rate as a share of the most that the GPU can do in their number formats; of
            causal attention it may be above 1.
        byte_rate: bytes per second: of copies, memsets, and the factors and results of products.
        occupancy: how many of a multiprocessor's warps kernels occupied, as a share, as far as the
            profiler estimates it; the mean by their time.
    """

    flops: Annotated[int | None, _ADDED, _AMOUNT] = None
    flop_rate: Annotated[float | None, _ADDED, _AMOUNT] = None
    peak_share: Annotated[float | None, _ADDED, _AMOUNT] = None
    byte_rate: Annotated[float | None, _ADDED, _AMOUNT] = None
    occupancy: Annotated[float | None, _ADDED, _AMOUNT] = None


class _RateSums:
    def __init__(self, what_ran: WhatRan, label: IntArray, count: int) -> None:
        products, length_ns = what_ran.products, what_ran.length_ns
        percent = what_ran.occupancy_percent
        occupied_ns = np.where(percent > 0, percent / 100 * length_ns, np.nan)
        self._steps = what_ran.steps
        # Of each quantity its sum, and the time of the activities of which it is known.
        self._sums: list[NDArray[Any]] = []
        for values in (products.flops, products.peak_ns, products.moved_bytes, occupied_ns):
            is_known = ~np.isnan(values)
            self._sums += (
                np.bincount(label[is_known], weights[is_known], minlength=count)
                for weights in (values, length_ns)
            )

    def rates(self, chosen: list[int]) -> dict[str, Any]:
        flops, flops_ns, peak_ns, peaked_ns, moved, moved_ns, occupied_ns, kernels_ns = (
            float(column[chosen].sum()) for column in self._sums
        )
        return {
            "flops": per_step(round(flops), self._steps) if flops_ns else None,
            "flop_rate": 1e9 * flops / flops_ns if flops_ns else None,
            "peak_share": peak_ns / peaked_ns if peaked_ns else None,
            "byte_rate": 1e9 * moved / moved_ns if moved_ns else None,
            "occupancy": occupied_ns / kernels_ns if kernels_ns else None,
        }


class KernelSums(Record):
    """The exact figures of a row over all its steps: they add up to those of the file.

    Attributes:
        steps: how many steps were added up; None for the whole trace.
        count: activities.
        total_ns: their lengths added up, ns.
    """

    steps: int | None
    count: int
    total_ns: int


class KernelMetrics(Rates):
    """The GPU activities of one name, on all devices of a file, per steady step.

    Of a file without steady steps the figures are of the whole trace.

    Attributes:
        step: None, or the step that was requested alone.
        name: the activity's; "others" in the last row where there are more names than rows.
        kind: "compute", "comm", "copy" or "memset"; None for others.
        phase: the phase that launched most of their time; None for others.
        names: how many names the row is about.
        count: activities per step.
        total_ns: their lengths added up, per step, ns, rounded.
        mean_ns: the mean length of one, ns, rounded.
        share: of the time of all activities; shares add up to 1.
        sums: over all these steps, not rounded.
    """

    rank: int
    step: int | None
    name: str
    kind: Annotated[str, constrained(enum=[*_KIND_NAMES])] | None
    phase: Annotated[str, constrained(enum=[*_PHASE_NAMES])] | None
    names: int
    count: float
    total_ns: int
    mean_ns: int
    share: Annotated[float, constrained(minimum=0, maximum=1)]
    sums: KernelSums

    @property
    def work(self) -> str:
        """Kind of compute that it is for, in words: "matrix products"."""
        return work_of(self.name)


def kernels(what_ran: WhatRan) -> Iterator[KernelMetrics]:
    """The GPU activities by name, the longest total first."""
    strings, steps = what_ran.strings, what_ran.steps
    keys, index = np.unique(what_ran.kernel * len(Kind) + what_ran.kind, return_inverse=True)
    counts = np.bincount(index, minlength=len(keys))
    cell, cells = index * len(Phase) + what_ran.came_from.phase, len(keys) * len(Phase)
    by_phase_ns = summed(cell, what_ran.length_ns, cells).reshape(len(keys), len(Phase))
    totals_ns = by_phase_ns.sum(axis=1)
    names = [strings[key] for key in (keys // len(Kind)).tolist()]
    kept, rest = ranked(totals_ns, names, MAX_ROWS)
    sums = _RateSums(what_ran, index, len(keys))

    def row(name: str, kind: str | None, phase: str | None, chosen: list[int]) -> KernelMetrics:
        count, total_ns = int(counts[chosen].sum()), int(totals_ns[chosen].sum())
        return KernelMetrics(
            rank=0,
            step=what_ran.step,
            name=name,
            kind=kind,
            phase=phase,
            names=len(chosen),
            count=count / (steps or 1),
            total_ns=per_step(total_ns, steps),
            mean_ns=per_step(total_ns, count),
            share=share_of(total_ns, int(totals_ns.sum())),
            sums=KernelSums(steps, count, total_ns),
            **sums.rates(chosen),
        )

    for i in kept:
        phase = Phase(int(by_phase_ns[i].argmax())).name.lower()
        yield row(names[i], _KIND_NAMES[int(keys[i] % len(Kind))], phase, [i])
    if rest:
        yield row(OTHERS, None, None, rest)


class WorkSums(Record):
    """The exact figures of a row over all its steps: they add up to those of the file.

    Attributes:
        steps: how many steps were added up; None for the whole trace.
        calls, launches: as in the row.
        host_ns, gpu_ns, idle_ns: as in the row, ns.
    """

    steps: int | None
    calls: int | None
    launches: int
    host_ns: int
    gpu_ns: int
    idle_ns: int


class WorkMetrics(Rates):
    """An operator, a phase, a line of the program or a module, per steady step.

    Of a file without steady steps the figures are of the whole trace. At each moment of a step one
    thread of the host counts, one of autograd's while it works, else the main thread, and on it
    the innermost operator, line or module: times are those of the operator itself, without the
    operators that it calls. So the host times of all rows of a table add up to the length of the
    steps' annotations, the GPU times to that of all activities which the steps launched, and the
    idle times to the idle of all devices in the steps' windows. Where the host runs ahead of the
    GPU, it is already in a later step while a device is idle.

    Attributes:
        step: None, or the step that was requested alone.
        name: the operator's, the phase's or the module's, or the function that a line is in;
            "outside any operator" and the like; "the file does not say"; "others" in the last row
            where there are more names than rows.
        where: of an operator the phase in which it took most of its time; of a phase how it is
            known, where the file does not name it; of a line the file and the line, the file alone
            where the line is not known; of a module those that it was called in.
        names: how many names the row is about.
        calls: of an operator or a module how often it began, per step; None for phases and lines.
        launches: calls that launched GPU activities, per step.
        host_ns: time of the host in it, ns, per step, rounded.
        gpu_ns: time of the activities that it launched, or that were captured in it into a CUDA
            graph, added up, ns, per step, rounded.
        idle_ns: time in which the devices were idle while the host was in it, added up, ns, per
            step, rounded.
        host_share, gpu_share: of the time of all rows; each adds up to 1.
        sums: over all these steps, not rounded.
        host_unprofiled_ns: time of the host in it without the profiler, ns, per step, rounded: the
            rows of a table add up to what the host takes for a step in the calibrated replay. None
            where the replay is not calibrated, and of one step alone.

        replayed_ns: of `gpu_ns`, the time of nodes of CUDA graphs that were captured in it. Their
            launches count where the graph is replayed.
        replay_basis: how that is known, "annotation" or "capture" (see
            `tracelab.model.cuda_graphs.Basis`); of several the least sure one. None
            without any.
    """

    rank: int
    step: int | None
    name: str
    where: str | None
    names: int
    calls: float | None
    launches: float
    host_ns: int
    gpu_ns: int
    idle_ns: int
    host_share: Annotated[float, constrained(minimum=0, maximum=1)]
    gpu_share: Annotated[float, constrained(minimum=0, maximum=1)]
    sums: WorkSums
    host_unprofiled_ns: Annotated[int | None, _ADDED] = None
    replayed_ns: Annotated[int, _ADDED] = 0
    replay_basis: Annotated[Annotated[str, constrained(enum=[*_BASIS_NAMES])] | None, _ADDED] = None


def operators(what_ran: WhatRan) -> Iterator[WorkMetrics]:
    """The operators, that with the most time of the host or a GPU first."""
    strings, sums = what_ran.strings, _Sums(what_ran, "operator")
    by_phase_ns = np.zeros((len(sums.labels), len(Phase)), dtype=np.int64)
    np.add.at(by_phase_ns, (sums.of_origin, what_ran.came_from.phase), what_ran.length_ns)
    np.add.at(by_phase_ns, (sums.on_host, what_ran.host.phase), what_ran.host_ns)

    def named(label: int, of_phases_ns: Int64Array) -> tuple[str, str | None]:
        where = Phase(int(of_phases_ns.argmax())).name.lower() if of_phases_ns.any() else None
        return _unnamed(label, OUTSIDE_OPERATORS) or strings[label], where

    names = list(map(named, sums.labels, by_phase_ns))
    return sums.sort_by_size(names, what_ran.calls["operator"])


def phases(what_ran: WhatRan) -> Iterator[WorkMetrics]:
    """The phases that there were, in the order of a step."""
    sums = _Sums(what_ran, "phase")
    for i, phase in enumerate(map(Phase, sums.labels)):
        if any(column[i] for column in sums.columns):
            inferred = phase == Phase.FORWARD and what_ran.is_forward_inferred
            yield sums.row(phase.name.lower(), INFERRED if inferred else None, [i], None)


def lines(what_ran: WhatRan) -> Iterator[WorkMetrics]:
    """The lines of the program, by size; empty if the file has no Python functions."""
    return _named_rows(what_ran, "line", what_ran.lines, OUTSIDE_FUNCTIONS, None)


def modules(what_ran: WhatRan) -> Iterator[WorkMetrics]:
    """The modules of the model, by size; empty if the file does not have their calls."""
    calls = what_ran.calls["module"]
    return _named_rows(what_ran, "module", what_ran.modules, OUTSIDE_MODULES, calls)


def _named_rows(
    what_ran: WhatRan,
    column: str,
    named: Sequence[LineName | ModuleName],
    outside: str,
    calls: Mapping[int, int] | None,
) -> Iterator[WorkMetrics]:
    if named:
        sums = _Sums(what_ran, column)
        names = [(_unnamed(x, outside), None) if x < 0 else named[x] for x in sums.labels]
        yield from sums.sort_by_size(names, calls)


def _unnamed(label: int, outside: str) -> str:
    return {NO_NAME: outside, NO_HOST: NOT_IN_FILE, WAITED: FOR_THREADS}.get(label, "")


class _Sums:
    """The figures of each label of a column of `Labels`.

    `of_launch`, `of_origin` and `on_host` index the label of each activity's launch and origin, and
    of each row of the host's time.
    """

    def __init__(self, what_ran: WhatRan, column: str) -> None:
        columns = [
            getattr(labels, column).astype(np.int64)
            for labels in (what_ran.launched_in, what_ran.came_from, what_ran.host)
        ]
        begun = np.array([*what_ran.calls.get(column, ())], dtype=np.int64)
        labels, index = np.unique(np.concatenate((*columns, begun)), return_inverse=True)
        self.labels: list[int] = labels.tolist()
        self.of_launch, self.of_origin, self.on_host, _ = np.split(
            index, np.cumsum([len(of_column) for of_column in columns])
        )
        count = len(labels)
        basis, length_ns = what_ran.basis[column], what_ran.length_ns
        self._launches = np.bincount(self.of_launch[what_ran.is_first], minlength=count)
        self._gpu_ns = summed(self.of_origin, length_ns, count)
        self._replayed_ns = summed(self.of_origin, np.where(basis == ABSENT, 0, length_ns), count)
        self._basis = np.full(count, ABSENT, dtype=np.int8)
        np.maximum.at(self._basis, self.of_origin, basis)
        self._host_ns = summed(self.on_host, what_ran.host_ns, count)
        self._idle_ns = summed(self.on_host, what_ran.idle_ns, count)
        self._unprofiled_ns = summed(self.on_host, what_ran.host_unprofiled_ns, count)
        self.columns = (self._launches, self._host_ns, self._gpu_ns, self._idle_ns)
        self._rates = _RateSums(what_ran, self.of_origin, count)
        self._what_ran = what_ran

    def sort_by_size(
        self, names: Sequence[tuple[str, str | None]], calls: Mapping[int, int] | None
    ) -> Iterator[WorkMetrics]:
        """The rows of the labels, that with the most time of the host or a GPU first."""
        texts = [" ".join(filter(None, name)) for name in names]
        kept, rest = ranked(np.maximum(self._host_ns, self._gpu_ns), texts, MAX_ROWS)
        for i in kept:
            yield self.row(*names[i], [i], calls)
        if rest:
            yield self.row(OTHERS, None, rest, calls)

    def row(
        self, name: str, where: str | None, chosen: list[int], calls: Mapping[int, int] | None
    ) -> WorkMetrics:
        what_ran, steps = self._what_ran, self._what_ran.steps
        launches, host_ns, gpu_ns, idle_ns = (int(column[chosen].sum()) for column in self.columns)
        basis = int(self._basis[chosen].max())
        count = None if calls is None else sum(calls.get(self.labels[i], 0) for i in chosen)
        unprofiled_ns = per_step(int(self._unprofiled_ns[chosen].sum()), what_ran.unprofiled_steps)
        return WorkMetrics(
            rank=0,
            step=what_ran.step,
            name=name,
            where=where,
            names=len(chosen),
            calls=None if count is None else count / (steps or 1),
            launches=launches / (steps or 1),
            host_ns=per_step(host_ns, steps),
            gpu_ns=per_step(gpu_ns, steps),
            idle_ns=per_step(idle_ns, steps),
            host_share=share_of(host_ns, int(self._host_ns.sum())),
            gpu_share=share_of(gpu_ns, int(self._gpu_ns.sum())),
            sums=WorkSums(steps, count, launches, host_ns, gpu_ns, idle_ns),
            host_unprofiled_ns=None if what_ran.unprofiled_steps is None else unprofiled_ns,
            replayed_ns=per_step(int(self._replayed_ns[chosen].sum()), steps),
            replay_basis=None if basis == ABSENT else _BASIS_NAMES[basis],
            **self._rates.rates(chosen),
        )


_GPU_SHARE = "of GPU\ntime"
_KERNEL_FIGURES = (
    Figure("count", "count", "per step"),
    Figure("total_ns", "time"),
    Figure("mean_ns", "mean"),
    Figure("share", _GPU_SHARE),
)
_WORK_FIGURES = (
    Figure("launches", "launches", "per step"),
    Figure("host_ns", "CPU"),
    Figure("host_unprofiled_ns", "without\nprofiler"),
    Figure("gpu_ns", "GPU"),
    Figure("idle_ns", "idle"),
)
_SHARES = (Figure("host_share", "of CPU\ntime"), Figure("gpu_share", _GPU_SHARE))

RATES = (
    Figure("flop_rate", "FLOP/s", "rate"),
    Figure("peak_share", "of peak"),
    Figure("byte_rate", "bytes/s", "rate"),
    Figure("occupancy", "occupancy", "share"),
)

KERNELS = Measure("kernels", KernelMetrics, kernels, _KERNEL_FIGURES)
OPERATORS = Measure("operators", WorkMetrics, operators, _WORK_FIGURES)
PHASES = Measure("phases", WorkMetrics, phases, (*_WORK_FIGURES, *_SHARES))
LINES = Measure("lines", WorkMetrics, lines, _WORK_FIGURES)
MODULES = Measure("modules", WorkMetrics, modules, _WORK_FIGURES)
