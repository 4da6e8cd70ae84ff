"""Every measure that has a table in the report, in the order of the JSON."""

from __future__ import annotations

from tracelab.measures import (
    blocking_calls,
    critical_path,
    graph_idle,
    host_work,
    idle_culprits,
    kernel_times,
    overlap,
    starts,
    steady,
    window_times,
)
from tracelab.measures.measure import Measure

MEASURES: tuple[Measure, ...] = (
    window_times.MEASURE,
    overlap.MEASURE,
    blocking_calls.MEASURE,
    idle_culprits.MEASURE,
    graph_idle.MEASURE,
    critical_path.MEASURE,
    starts.MEASURE,
    starts.TYPICAL,
    steady.MEASURE,
    kernel_times.MEASURE,
    host_work.OPERATORS,
    host_work.PHASES,
    host_work.LINES,
    host_work.MODULES,
)
