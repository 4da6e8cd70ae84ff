"""How long the GPU activities of each name took, per step that launched them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tracelab.base.arrays import OneLine
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, is_recognised
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
