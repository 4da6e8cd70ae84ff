"""Time of the GPU activities of each name, per step that launched them and per steady step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field

import numpy as np

from tracelab.base.arrays import OneLine, dataclass
from tracelab.measures.measure import Measure, constrained
from tracelab.measures.ranking import MAX_ROWS, OTHERS, per_step, ranked, share_of, summed
from tracelab.measures.what_ran import WhatRan
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, is_recognised, work_of
from tracelab.model.phases import Phase
from tracelab.model.trace import Category

# A kernel that no rule recognizes is worth a question from this share of the GPU's busy time on.
_WORTH_ASKING = 0.01


@dataclass(frozen=True, slots=True, repr=False)
class NameTimes(OneLine):
    """The GPU activities of one name, on all devices of a file.

    Attributes:
        steps_ns, step_counts: what each step launched, in the order of the steps.
        total_ns, count: in the whole trace.

    Example row: ``NameTimes(name="gemm", steps_ns=(400, 380), step_counts=(2, 2), total_ns=790,
    count=5)``: each of two steps launched it twice, and it ran once more outside them.
    """

    name: str
    steps_ns: tuple[int, ...]
    step_counts: tuple[int, ...]
    total_ns: int
    count: int


def kernel_times(graph: Graph) -> tuple[NameTimes, ...]:
    """The time of every name among the GPU activities, per step that launched them.

    Activities that no step launched count in the whole trace only. There is no slow reference
    model: ``tests/unit/measures/test_kernel_times.py`` has traces made by hand.

    Args:
        graph: the file's dependencies.
    """
    timeline = graph.host.timeline
    length_ns = timeline.end_ns - timeline.start_ns
    names, name_position = np.unique(
        timeline.trace.name_index[timeline.event_id], return_inverse=True
    )
    # A cell for each name and step; the first column holds what no step launched.
    shape = len(names), len(timeline.steps) + 1
    cell = name_position * shape[1] + (timeline.step_index + 1)
    # Sums below 2**53 are exact.
    totals_ns = np.bincount(cell, weights=length_ns, minlength=math.prod(shape)).astype(np.int64)
    counts = np.bincount(cell, minlength=math.prod(shape))
    return tuple(
        NameTimes(
            name=timeline.trace.strings[name_index],
            steps_ns=tuple(name_ns[1:].tolist()),
            step_counts=tuple(name_counts[1:].tolist()),
            total_ns=int(name_ns.sum()),
            count=int(name_counts.sum()),
        )
        for name_index, name_ns, name_counts in zip(
            names.tolist(), totals_ns.reshape(shape), counts.reshape(shape), strict=True
        )
    )


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """All activities of one name.

    Example row: ``KernelTotal(name="my_kernel", count=5, total_ns=790)``.
    """

    name: str
    count: int
    total_ns: int


def unrecognised_kernels(graph: Graph) -> tuple[KernelTotal, ...]:
    """Long kernels that no rule recognizes, which count as compute; the longest first.

    There is no slow reference model: ``tests/unit/measures/test_kernel_times.py`` has traces made
    by hand.

    Args:
        graph: the file's dependencies.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    is_kernel = trace.category[timeline.event_id] == Category.KERNEL
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & is_kernel)
    names, name_position = np.unique(trace.name_index[timeline.event_id[rows]], return_inverse=True)
    length_ns = timeline.end_ns - timeline.start_ns
    totals_ns = np.bincount(name_position, weights=length_ns[rows], minlength=len(names))
    counts = np.bincount(name_position, minlength=len(names))
    least_ns = _WORTH_ASKING * float(length_ns.sum())
    kernels = [
        KernelTotal(trace.strings[name_index], count, int(total_ns))
        for name_index, count, total_ns in zip(
            names.tolist(), counts.tolist(), totals_ns.tolist(), strict=True
        )
        if total_ns >= least_ns and not is_recognised(trace.strings[name_index])
    ]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.total_ns, kernel.name)))


_KINDS = [kind.name.lower() for kind in Kind]
_PHASES = [phase.name.lower() for phase in Phase]


@dataclass(frozen=True, slots=True, repr=False)
class KernelSums(OneLine):
    """The exact figures of a row over all its steps: they add up to those of the file.

    Attributes:
        steps: how many steps were added up; None for the whole trace.
        count: activities.
        total_ns: their lengths added up, ns.

    Example: ``KernelSums(steps=5, count=200, total_ns=8_200_000)``.
    """

    steps: int | None
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class KernelMetrics(OneLine):
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

    Example row: ``KernelMetrics(rank=0, step=None, name="gemm", kind="compute", phase="forward",
    names=1, count=40.0, total_ns=1_640_000, mean_ns=41_000, share=0.61, sums=KernelSums(5, 200,
    8_200_000))``.
    """

    rank: int
    step: int | None
    name: str
    kind: str | None = field(metadata=constrained(enum=[*_KINDS, None]))
    phase: str | None = field(metadata=constrained(enum=[*_PHASES, None]))
    names: int
    count: float
    total_ns: int
    mean_ns: int
    share: float = field(metadata=constrained(minimum=0, maximum=1))
    sums: KernelSums

    @property
    def work(self) -> str:
        """Kind of compute that it is for, in words: "matrix products"."""
        return work_of(self.name)


def kernels(graph: Graph, what_ran: WhatRan) -> Iterator[KernelMetrics]:
    """The GPU activities by name, the longest total first.

    The slow reference model is ``tests/reference/host_work.py``.

    Args:
        graph: the file's dependencies.
        what_ran: in its steady steps.
    """
    strings, steps = graph.host.timeline.trace.strings, what_ran.steps
    keys, index = np.unique(what_ran.kernel * len(Kind) + what_ran.kind, return_inverse=True)
    counts = np.bincount(index, minlength=len(keys))
    cell, cells = index * len(Phase) + what_ran.came_from.phase, len(keys) * len(Phase)
    by_phase_ns = summed(cell, what_ran.length_ns, cells).reshape(len(keys), len(Phase))
    totals_ns = by_phase_ns.sum(axis=1)
    names = [strings[key] for key in (keys // len(Kind)).tolist()]
    kept, rest = ranked(totals_ns, names, MAX_ROWS)

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
        )

    for i in kept:
        phase = Phase(int(by_phase_ns[i].argmax())).name.lower()
        yield row(names[i], _KINDS[int(keys[i] % len(Kind))], phase, [i])
    if rest:
        yield row(OTHERS, None, None, rest)


MEASURE = Measure("kernels", KernelMetrics, kernels)
