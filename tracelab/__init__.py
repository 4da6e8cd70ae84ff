"""Tell why the GPUs of a PyTorch program are not busy, from its profiler trace.

>>> import tracelab
>>> report = tracelab.analyze("step.pt.trace.json.gz")
>>> report.windows[0].devices[0].idle_ns
>>> tracelab.draw("step.pt.trace.json.gz", "timeline.png")

A loop of this program is recorded with `capture`, or a function that is its step with
`profile_step`; these two need torch.

From a file to its numbers, step by step: `read_trace` gives a `Trace`, `build_timeline` orders its
GPU activities, `observe_host` finds what the host did, `build_graph` what depends on what; the
measures are functions of these. `analyze` does it all and gives a `Report`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tracelab.version import __version__

if TYPE_CHECKING:
    from tracelab.analysis import Analysis, analyze, analyze_source
    from tracelab.drawing import draw
    from tracelab.errors import TracelabError
    from tracelab.model.graph import Graph, build_graph
    from tracelab.model.host import Host, observe_host
    from tracelab.model.networkx_view import window_graph
    from tracelab.model.timeline import Timeline, build_timeline
    from tracelab.model.trace import Trace
    from tracelab.options import Options
    from tracelab.read.reader import read_arguments, read_trace
    from tracelab.read.sources import find_sources
    from tracelab.read.streams import Source
    from tracelab.record.capture import capture, profile_step
    from tracelab.render.text.report import render_text
    from tracelab.report.load import load_report
    from tracelab.report.schema import Report

# The module of each public name; imported when first used, so that `import tracelab` is instant.
_MODULES = {
    "Analysis": "analysis",
    "Graph": "model.graph",
    "Host": "model.host",
    "Options": "options",
    "Report": "report.schema",
    "Source": "read.streams",
    "Timeline": "model.timeline",
    "Trace": "model.trace",
    "TracelabError": "errors",
    "analyze": "analysis",
    "analyze_source": "analysis",
    "build_graph": "model.graph",
    "build_timeline": "model.timeline",
    "capture": "record.capture",
    "draw": "drawing",
    "find_sources": "read.sources",
    "load_report": "report.load",
    "render_text": "render.text.report",
    "observe_host": "model.host",
    "profile_step": "record.capture",
    "read_arguments": "read.reader",
    "read_trace": "read.reader",
    "window_graph": "model.networkx_view",
}

__all__ = [
    "Analysis",
    "Graph",
    "Host",
    "Options",
    "Report",
    "Source",
    "Timeline",
    "Trace",
    "TracelabError",
    "__version__",
    "analyze",
    "analyze_source",
    "build_graph",
    "build_timeline",
    "capture",
    "draw",
    "find_sources",
    "load_report",
    "observe_host",
    "profile_step",
    "read_arguments",
    "read_trace",
    "render_text",
    "window_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tracelab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tracelab.{_MODULES[name]}"), name)


if "IPython" in sys.modules:
    from tracelab.render.notebook import show_reports

    show_reports()
