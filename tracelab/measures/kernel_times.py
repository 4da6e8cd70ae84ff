"""How long the GPU activities of each name took, per step that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, is_recognised
from tracelab.model.trace import Category

# A kernel that no rule knows is worth a question from this share of the GPU's busy time on.
_WORTH_ASKING = 0.01


@dataclass(frozen=True, slots=True)
class NameTimes:
    """The GPU activities of one name, on all devices of a file.

    Attributes:
        steps_ns, step_counts: what each step launched, in the order of the steps.
        total_ns, count: in the whole trace.
    """

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
    names, name = np.unique(timeline.trace.name_index[timeline.event_id], return_inverse=True)
    length = timeline.end_ns - timeline.start_ns
    columns = len(timeline.steps) + 1
    # Row by name; the first column holds what no step launched. Sums below 2**53 are exact.
    cell = name * columns + (timeline.step_index + 1)
    cells = len(names) * columns
    times = np.bincount(cell, weights=length, minlength=cells).astype(np.int64)
    counts = np.bincount(cell, minlength=cells)
    return tuple(
        NameTimes(
            name=timeline.trace.strings[text],
            steps_ns=tuple(row_ns[1:].tolist()),
            step_counts=tuple(row[1:].tolist()),
            total_ns=int(row_ns.sum()),
            count=int(row.sum()),
        )
        for text, row_ns, row in zip(
            names.tolist(), times.reshape(-1, columns), counts.reshape(-1, columns), strict=True
        )
    )


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """All activities of one name."""

    name: str
    count: int
    total_ns: int


def unrecognised_kernels(graph: Graph) -> tuple[KernelTotal, ...]:
    """Long kernels that no rule knows, which count as compute; the longest first."""
    timeline = graph.host.timeline
    trace = timeline.trace
    is_kernel = trace.category[timeline.event_id] == Category.KERNEL
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & is_kernel)
    names, inverse = np.unique(trace.name_index[timeline.event_id[rows]], return_inverse=True)
    length_ns = timeline.end_ns - timeline.start_ns
    totals = np.bincount(inverse, weights=length_ns[rows], minlength=len(names)).astype(np.int64)
    counts = np.bincount(inverse, minlength=len(names))
    least_ns = _WORTH_ASKING * float(length_ns.sum())
    kernels = [
        KernelTotal(trace.strings[name_index], int(counts[i]), int(totals[i]))
        for i, name_index in enumerate(names.tolist())
        if totals[i] >= least_ns and not is_recognised(trace.strings[name_index])
    ]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.total_ns, kernel.name)))
