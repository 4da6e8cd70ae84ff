"""The sections of the text report that speak of one window, in their order."""

from __future__ import annotations

from tracelab.render.text.sections import Section
from tracelab.render.text.tables import other_tables
from tracelab.render.text.window_blocking_calls import blocking_calls
from tracelab.render.text.window_critical_path import critical_path
from tracelab.render.text.window_graph_idle import graph_idle
from tracelab.render.text.window_idle import culprits, idle
from tracelab.render.text.window_kernels import what_ran
from tracelab.render.text.window_overlap import overlap
from tracelab.render.text.window_starts import latencies, starts
from tracelab.render.text.window_times import streams, times
from tracelab.report.views import View


def window_sections(view: View, top: int) -> list[Section]:
    """What the report says of a window, from how busy it was to its critical path.

    Args:
        view: the window.
        top: how many kernels, lines, modules and operators to show.
    """
    return [
        *times(view),
        *idle(view),
        *culprits(view),
        *graph_idle(view),
        *(section for _, sections in what_ran(view, top) for section in sections),
        *streams(view),
        overlap(view),
        blocking_calls(view),
        *critical_path(view),
        *starts(view),
        *latencies(view),
        *other_tables(view),
    ]
