"""Tell why the GPUs of a PyTorch program are not busy, from its profiler trace.

>>> import tracelab
>>> report = tracelab.analyze("step.pt.trace.json.gz")
>>> report.windows[0].devices[0].idle_ns

From a file to its numbers, step by step: `read_trace` gives a `Trace`, `build_timeline` orders its
GPU activities, `observe_host` finds what the host did, `build_graph` what depends on what; the
measures are functions of these. `analyze` does it all and gives a `Report`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelab.analysis import Analysis, Options, analyze, analyze_source
    from tracelab.chrome import read_arguments, read_trace
    from tracelab.errors import TracelabError
    from tracelab.graph import Graph, build_graph, window_graph
    from tracelab.host import Host, observe_host
    from tracelab.report import Report, load_report
    from tracelab.sources import Source, find_sources
    from tracelab.timeline import Timeline, build_timeline
    from tracelab.trace import Trace

__version__ = "0.1.0"

# The module of each public name; imported when first used, so that `import tracelab` is instant.
_MODULES = {
    "Analysis": "analysis",
    "Graph": "graph",
    "Host": "host",
    "Options": "analysis",
    "Report": "report",
    "Source": "sources",
    "Timeline": "timeline",
    "Trace": "trace",
    "TracelabError": "errors",
    "analyze": "analysis",
    "analyze_source": "analysis",
    "build_graph": "graph",
    "build_timeline": "timeline",
    "find_sources": "sources",
    "load_report": "report",
    "observe_host": "host",
    "read_arguments": "chrome",
    "read_trace": "chrome",
    "window_graph": "graph",
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
    "analyze",
    "analyze_source",
    "build_graph",
    "build_timeline",
    "find_sources",
    "load_report",
    "observe_host",
    "read_arguments",
    "read_trace",
    "window_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tracelab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tracelab.{_MODULES[name]}"), name)
