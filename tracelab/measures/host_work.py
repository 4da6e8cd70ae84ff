"""What the host did in the steady steps, by operator and by phase, and what the GPUs did of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import OneLine
from tracelab.measures.measure import Measure, constrained
from tracelab.measures.ranking import MOST_ROWS, OTHERS, per_step, ranked, share_of, summed
from tracelab.measures.what_ran import NO_HOST, NO_OPERATOR, WhatRan
from tracelab.model.graph import Graph
from tracelab.model.phases import Phase

OUTSIDE_OPERATORS = "outside any operator"
NOT_IN_FILE = "the file does not say"
INFERRED = "inferred: before each backward pass"
_NO_NAMES = MappingProxyType({NO_OPERATOR: OUTSIDE_OPERATORS, NO_HOST: NOT_IN_FILE})


@dataclass(frozen=True, slots=True, repr=False)
class WorkSums(OneLine):
    """The exact figures of a row over all its steps: they add up to those of the file.

    Attributes:
        steps: how many steps were added up; None for the whole trace.
        calls, launches: as in the row.
        host_ns, gpu_ns, idle_ns: as in the row, ns.

    Example: ``WorkSums(steps=5, calls=100, launches=100, host_ns=4_100_000, gpu_ns=8_200_000,
    idle_ns=900_000)``.
    """

    steps: int | None
    calls: int | None
    launches: int
    host_ns: int
    gpu_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class WorkMetrics(OneLine):
    """An operator, or a phase, per steady step.

    Of a file without steady steps the figures are of the whole trace. At each moment of a step one
    thread of the host counts, one of autograd's while it works, else the main thread, and on it
    the innermost operator: times are those of the operator itself, without the operators that it
    calls. So the host times of all rows add up to the length of the steps' annotations, the GPU
    times to that of all activities which the steps launched, and the idle times to the idle of all
    devices in the steps' windows. Where the host runs ahead of the GPU, it is already in a later
    step while a device is idle.

    Attributes:
        step: None, or the step that was asked for alone.
        name: the operator's or the phase's; "outside any operator"; "the file does not say";
            "others" in the last row where there are more names than rows.
        where: of an operator the phase in which it took most of its time; of a phase how it is
            known, where the file does not name it.
        names: how many names the row is about.
        calls: of an operator how often it began, per step; None for phases.
        launches: calls that launched GPU activities, per step.
        host_ns: time of the host in it, ns, per step, rounded.
        gpu_ns: time of the activities that it launched, added up, ns, per step, rounded.
        idle_ns: time in which the devices were idle while the host was in it, added up, ns, per
            step, rounded.
        host_share, gpu_share: of the time of all rows; each adds up to 1.
        sums: over all these steps, not rounded.

    Example row: ``WorkMetrics(rank=0, step=None, name="aten::addmm", where="forward", names=1,
    calls=20.0, launches=20.0, host_ns=820_000, gpu_ns=1_640_000, idle_ns=180_000,
    host_share=0.31, gpu_share=0.61, sums=WorkSums(5, 100, 100, 4_100_000, 8_200_000, 900_000))``.
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
    host_share: float = field(metadata=constrained(minimum=0, maximum=1))
    gpu_share: float = field(metadata=constrained(minimum=0, maximum=1))
    sums: WorkSums


def operators(graph: Graph, what_ran: WhatRan) -> Iterator[WorkMetrics]:
    """The operators, that with the most time of the host or a GPU first.

    The slow reference model is ``tests/reference/host_work.py``.

    Args:
        graph: the file's dependencies.
        what_ran: in its steady steps.
    """
    strings = graph.host.timeline.trace.strings
    labels = np.unique(
        np.concatenate((what_ran.operator, what_ran.host_operator, what_ran.call_operator))
    )
    names = [_NO_NAMES.get(label) or strings[label] for label in labels.tolist()]
    of_launch = np.searchsorted(labels, what_ran.operator)
    on_host = np.searchsorted(labels, what_ran.host_operator)
    sums = _Sums(what_ran, of_launch, on_host, len(names))
    calls = np.zeros(len(names), dtype=np.int64)
    calls[np.searchsorted(labels, what_ran.call_operator)] = what_ran.call_count
    cells = len(names) * len(Phase)
    by_phase_ns = summed(of_launch * len(Phase) + what_ran.phase, what_ran.length_ns, cells)
    by_phase_ns += summed(on_host * len(Phase) + what_ran.host_phase, what_ran.host_ns, cells)
    by_phase_ns = by_phase_ns.reshape(len(names), len(Phase))
    kept, rest = ranked(np.maximum(sums.host_ns, sums.gpu_ns), names, MOST_ROWS)
    for i in kept:
        where = Phase(int(by_phase_ns[i].argmax())).name.lower() if by_phase_ns[i].any() else None
        yield sums.row(names[i], where, [i], int(calls[i]))
    if rest:
        yield sums.row(OTHERS, None, rest, int(calls[rest].sum()))


def phases(graph: Graph, what_ran: WhatRan) -> Iterator[WorkMetrics]:  # noqa: ARG001
    """The phases that there were, in the order of a step.

    The slow reference model is ``tests/reference/host_work.py``.

    Args:
        graph: the file's dependencies.
        what_ran: in its steady steps.
    """
    sums = _Sums(what_ran, what_ran.phase, what_ran.host_phase, len(Phase))
    for phase in Phase:
        if any(column[phase] for column in sums.columns):
            inferred = phase == Phase.FORWARD and what_ran.is_forward_inferred
            yield sums.row(phase.name.lower(), INFERRED if inferred else None, [phase], None)


class _Sums:
    """The figures of each label: int64[labels], each of them."""

    def __init__(
        self,
        what_ran: WhatRan,
        of_launch: NDArray[np.integer[Any]],
        on_host: NDArray[np.integer[Any]],
        count: int,
    ) -> None:
        self.launches = np.bincount(of_launch[what_ran.is_first], minlength=count)
        self.gpu_ns = summed(of_launch, what_ran.length_ns, count)
        self.host_ns = summed(on_host, what_ran.host_ns, count)
        self.idle_ns = summed(on_host, what_ran.idle_ns, count)
        self.columns = (self.launches, self.host_ns, self.gpu_ns, self.idle_ns)
        self._what_ran = what_ran

    def row(
        self, name: str, where: str | None, labels: list[int], calls: int | None
    ) -> WorkMetrics:
        """The row of some labels taken together."""
        step, steps = self._what_ran.step, self._what_ran.steps
        launches, host_ns, gpu_ns, idle_ns = (int(column[labels].sum()) for column in self.columns)
        return WorkMetrics(
            rank=0,
            step=step,
            name=name,
            where=where,
            names=len(labels),
            calls=None if calls is None else calls / (steps or 1),
            launches=launches / (steps or 1),
            host_ns=per_step(host_ns, steps),
            gpu_ns=per_step(gpu_ns, steps),
            idle_ns=per_step(idle_ns, steps),
            host_share=share_of(host_ns, int(self.host_ns.sum())),
            gpu_share=share_of(gpu_ns, int(self.gpu_ns.sum())),
            sums=WorkSums(steps, calls, launches, host_ns, gpu_ns, idle_ns),
        )


OPERATORS = Measure("operators", WorkMetrics, operators)
PHASES = Measure("phases", WorkMetrics, phases)
