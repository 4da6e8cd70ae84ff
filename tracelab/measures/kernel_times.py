"""How long the GPU activities of each name took, per step that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelab.model.timeline import Timeline


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


def kernel_times(timeline: Timeline) -> tuple[NameTimes, ...]:
    """The time of every name among the GPU activities, per step that launched them.

    Activities that no step launched count in the whole trace only.
    """
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
