"""How long the GPU activities of each name took, per steady step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tracelab.base.arrays import OneLine
from tracelab.measures.measure import Measure, constrained
from tracelab.measures.ranking import MOST_ROWS, OTHERS, per_step, ranked, share_of, summed
from tracelab.measures.what_ran import WhatRan
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, work_of
from tracelab.model.phases import Phase

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
        step: None, or the step that was asked for alone.
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
    kept, rest = ranked(totals_ns, names, MOST_ROWS)

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
