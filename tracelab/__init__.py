"""Tell why the GPUs of a PyTorch program are not busy, from its profiler trace.

>>> import tracelab
>>> report = tracelab.analyze("traces/events_item.pt.trace.json.gz")
>>> report.windows[0].devices[0].idle_ns
600184
>>> finding = report.findings[0]
>>> finding.rule, finding.where.function, finding.where.file, finding.where.line
('TL101', 'read_a_value', 'workloads/events.py', 65)

`whatif` predicts what a step takes with a change. `draw` makes a picture of a trace, `write_page` a
page; `compare` holds two of them against each other, `load_report` reads a saved `Report`. A loop
of this program is recorded with `capture`, or a function that is its step with `profile_step`;
`trace_handler` is for a program that has a `torch.profiler` of its own. These three need torch.

All else is imported from where it is defined. The options of a measurement are in
`tracelab.base.options`, what a report is made of is kept by `tracelab.analysis.analysis`. A table
of your own is a `tracelab.measures.measure` beside those of `tracelab.measures.registry`, a rule a
`tracelab.findings.rule` beside those of `tracelab.findings.registry`; an edit that is a function
changes a `tracelab.simulate.program`. The events of a file are read by `tracelab.read.reader`, the
graph of a step is made by `tracelab.model.graph`; `tracelab.render.registry` writes any result as
text, JSON or Markdown, and `tracelab.base.errors` has what is raised.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracelab.base import __version__, printing

if TYPE_CHECKING:
    from tracelab.analysis.reports import analyze as analyze, whatif as whatif
    from tracelab.comparison.compare import compare as compare
    from tracelab.outputs.page import write_page as write_page
    from tracelab.outputs.picture import draw as draw
    from tracelab.record.capture import capture as capture, profile_step as profile_step
    from tracelab.record.trace_handler import trace_handler as trace_handler
    from tracelab.report.load import load_report as load_report
    from tracelab.report.schema import Report as Report

_PRINTED_WIDTH = 100  # columns

# The module of each name in front, which is imported when the name is first used: so
# `import tracelab` is instant.
_MODULES = {
    "Report": "report.schema",
    "analyze": "analysis.reports",
    "capture": "record.capture",
    "compare": "comparison.compare",
    "draw": "outputs.picture",
    "load_report": "report.load",
    "profile_step": "record.capture",
    "trace_handler": "record.trace_handler",
    "whatif": "analysis.reports",
    "write_page": "outputs.page",
}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 (keys of a table of texts)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tracelab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tracelab.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _render(result: Any, form: str) -> str:
    """A result as a terminal shows it, or a notebook; or its page."""
    if form == "page":
        from tracelab.outputs.page import page_of

        return page_of(result)
    from tracelab.render.registry import render_as

    look: dict[str, Any] = {"width": _PRINTED_WIDTH, "color": False} if form == "text" else {}
    return str(render_as(result, form, **look))


printing.render = _render
