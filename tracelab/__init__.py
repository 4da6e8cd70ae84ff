"""Tell why the GPUs of a PyTorch program are not busy, from its profiler trace.

>>> import tracelab
>>> report = tracelab.analyze("traces/events_item.pt.trace.json.gz")
>>> report.windows[0].devices[0].idle_ns
600184
>>> finding = report.findings[0]
>>> finding.rule, finding.where.function, finding.where.file, finding.where.line
('TL101', 'read_a_value', 'workloads/events.py', 65)

`whatif` predicts what a step takes with a change. `draw` makes a picture of a trace, `write_page` a
page; `compare` holds two of them against each other. A loop of this program is recorded with
`capture`, or a function that is its step with `profile_step`; `trace_handler` is for a program that
has a `torch.profiler` of its own. These three need torch.

From a file to its numbers, step by step: `read_trace` gives a `Trace`, `build_timeline` orders its
GPU activities, `observe_host` finds what the host did, `build_graph` what depends on what. The
measures (`bubbles`, `overlaps`, `exposed`, ...) are functions of the graph. `analyze` does it all
and gives a `Report`. `analyze_source` gives an `Analysis` of one file, whose properties are
computed when they are used; `STAGES` are their names, in order.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tracelab.base import printing
from tracelab.base.version import __version__

if TYPE_CHECKING:
    from tracelab.analysis.analysis import (
        STAGES as STAGES,
        Analysis as Analysis,
        analyze_source as analyze_source,
    )
    from tracelab.analysis.reports import analyze as analyze, whatif as whatif
    from tracelab.base.errors import (
        MissingSupportError as MissingSupportError,
        TracelabError as TracelabError,
        UnreadableInputError as UnreadableInputError,
        UsageError as UsageError,
    )
    from tracelab.base.options import Options as Options
    from tracelab.comparison.compare import compare as compare
    from tracelab.comparison.diff import Diff as Diff
    from tracelab.findings.candidates import Candidate as Candidate
    from tracelab.findings.context import Context as Context
    from tracelab.findings.finding import Finding as Finding, Where as Where
    from tracelab.findings.registry import RULES as RULES
    from tracelab.findings.remedies import REMEDIES as REMEDIES
    from tracelab.findings.remedy import Instead as Instead, Remedy as Remedy
    from tracelab.findings.rule import Rule as Rule
    from tracelab.measures.blocking_calls import (
        BlockingCallCosts as BlockingCallCosts,
        BlockingCallMetrics as BlockingCallMetrics,
        blocking_calls as blocking_calls,
    )
    from tracelab.measures.critical_path import (
        CriticalPath as CriticalPath,
        CriticalPathMetrics as CriticalPathMetrics,
        PathKind as PathKind,
        critical_paths as critical_paths,
    )
    from tracelab.measures.exposed import Exposed as Exposed, exposed as exposed
    from tracelab.measures.idle_causes import Bubbles as Bubbles, Cause as Cause, bubbles as bubbles
    from tracelab.measures.idle_culprits import (
        CulpritMetrics as CulpritMetrics,
        idle_culprits as idle_culprits,
    )
    from tracelab.measures.measure import Measure as Measure
    from tracelab.measures.measured import Measured as Measured
    from tracelab.measures.overlap import (
        OverlapMetrics as OverlapMetrics,
        device_times as device_times,
        overlaps as overlaps,
    )
    from tracelab.measures.overlap_blockers import OverlapBlocker as OverlapBlocker
    from tracelab.measures.registry import MEASURES as MEASURES
    from tracelab.measures.serialized_streams import (
        SerializedStreams as SerializedStreams,
        serialized_streams as serialized_streams,
    )
    from tracelab.measures.starts import (
        LatencyMetrics as LatencyMetrics,
        StartMetrics as StartMetrics,
        starts as starts,
    )
    from tracelab.measures.window_times import (
        DeviceMetrics as DeviceMetrics,
        WindowMetrics as WindowMetrics,
    )
    from tracelab.measures.work import NameTimes as NameTimes, kernel_times as kernel_times
    from tracelab.model.activities import Stream as Stream
    from tracelab.model.binding import Binding as Binding
    from tracelab.model.constraints import Constraint as Constraint, Reason as Reason
    from tracelab.model.graph import (
        EdgeKind as EdgeKind,
        Graph as Graph,
        build_graph as build_graph,
        window_graph as window_graph,
    )
    from tracelab.model.host import Host as Host, observe_host as observe_host
    from tracelab.model.kernel_kinds import Kind as Kind
    from tracelab.model.steps import Step as Step, Window as Window
    from tracelab.model.timeline import Timeline as Timeline, build_timeline as build_timeline
    from tracelab.model.trace import Category as Category, Trace as Trace
    from tracelab.outputs.page import write_page as write_page
    from tracelab.outputs.perfetto import write_perfetto as write_perfetto
    from tracelab.outputs.picture import draw as draw, draw_whatif as draw_whatif
    from tracelab.read.reader import read_arguments as read_arguments, read_trace as read_trace
    from tracelab.read.sources import find_sources as find_sources
    from tracelab.read.streams import Source as Source
    from tracelab.record.capture import capture as capture, profile_step as profile_step
    from tracelab.record.trace_handler import trace_handler as trace_handler
    from tracelab.render.picture.save import Picture as Picture
    from tracelab.render.registry import (
        RENDERERS as RENDERERS,
        Renderer as Renderer,
        render_as as render_as,
    )
    from tracelab.report.json_schema import json_schema as json_schema
    from tracelab.report.load import load_report as load_report
    from tracelab.report.schema import (
        Report as Report,
        TraceInfo as TraceInfo,
        WhatIf as WhatIf,
    )
    from tracelab.report.views import (
        RankView as RankView,
        View as View,
        ranks_of as ranks_of,
        views_of as views_of,
    )
    from tracelab.simulate.predict import Prediction as Prediction

_PRINTED_WIDTH = 100  # columns

# The public names of each module, which is imported when one of them is first used: so
# `import tracelab` is instant.
_PUBLIC = {
    "analysis.analysis": "STAGES Analysis analyze_source",
    "analysis.reports": "analyze whatif",
    "base.options": "Options",
    "comparison.compare": "compare",
    "comparison.diff": "Diff",
    "outputs.picture": "draw draw_whatif",
    "render.picture.save": "Picture",
    "render.registry": "RENDERERS Renderer render_as",
    "outputs.page": "write_page",
    "outputs.perfetto": "write_perfetto",
    "record.capture": "capture profile_step",
    "record.trace_handler": "trace_handler",
    "report.schema": "Report TraceInfo WhatIf",
    "simulate.predict": "Prediction",
    "report.load": "load_report",
    "report.views": "RankView View ranks_of views_of",
    "report.json_schema": "json_schema",
    "measures.window_times": "DeviceMetrics WindowMetrics",
    "measures.overlap": "OverlapMetrics device_times overlaps",
    "measures.blocking_calls": "BlockingCallCosts BlockingCallMetrics blocking_calls",
    "measures.idle_culprits": "CulpritMetrics idle_culprits",
    "measures.critical_path": "CriticalPath CriticalPathMetrics critical_paths PathKind",
    "measures.starts": "StartMetrics starts LatencyMetrics",
    "findings.finding": "Finding Where",
    "findings.rule": "Rule",
    "findings.candidates": "Candidate",
    "findings.context": "Context",
    "findings.registry": "RULES",
    "findings.remedy": "Instead Remedy",
    "findings.remedies": "REMEDIES",
    "read.reader": "read_arguments read_trace",
    "read.sources": "find_sources",
    "read.streams": "Source",
    "model.trace": "Category Trace",
    "model.activities": "Stream",
    "model.timeline": "Timeline build_timeline",
    "model.steps": "Step Window",
    "model.kernel_kinds": "Kind",
    "model.host": "Host observe_host",
    "model.binding": "Binding",
    "model.constraints": "Constraint Reason",
    "model.graph": "EdgeKind Graph build_graph window_graph",
    "measures.measure": "Measure",
    "measures.measured": "Measured",
    "measures.registry": "MEASURES",
    "measures.idle_causes": "Bubbles Cause bubbles",
    "measures.exposed": "Exposed exposed",
    "measures.serialized_streams": "SerializedStreams serialized_streams",
    "measures.work": "NameTimes kernel_times",
    "measures.overlap_blockers": "OverlapBlocker",
    "base.errors": "MissingSupportError TracelabError UnreadableInputError UsageError",
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 (a table of texts)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tracelab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tracelab.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _text_of(result: Any) -> str:
    """A result as the terminal shows it."""
    from tracelab.render.registry import render_as

    return str(render_as(result, "text", width=_PRINTED_WIDTH, color=False))


printing.text_of = _text_of

if "IPython" in sys.modules:
    from tracelab.render.registry import show_reports

    show_reports()
