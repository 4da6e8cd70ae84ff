"""Every measure that has a table in the report, in the order of the JSON."""

from __future__ import annotations

from tracelab.base.arrays import Registry
from tracelab.measures import (
    blocking_calls,
    critical_path,
    graph_idle,
    idle_culprits,
    memory,
    overlap,
    starts,
    window_times,
    work,
)
from tracelab.measures.measure import Measure

MEASURES = Registry[Measure](
    (
        window_times.WINDOWS,
        overlap.MEASURE,
        blocking_calls.MEASURE,
        idle_culprits.MEASURE,
        graph_idle.MEASURE,
        critical_path.MEASURE,
        starts.MEASURE,
        starts.TYPICAL,
        window_times.STEADY,
        window_times.SERVED_STEPS,
        memory.MEASURE,
        work.KERNELS,
        work.OPERATORS,
        work.PHASES,
        work.LINES,
        work.MODULES,
    )
)
