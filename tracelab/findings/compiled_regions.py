"""Regions in which the host runs code that `torch.compile` made."""

from __future__ import annotations

import re

from tracelab.model.lookup import match_names
from tracelab.model.nesting import Nesting
from tracelab.model.trace import Category, Trace

_FUNCTION = re.compile(r"^Torch-Compiled Region")
_CODE = re.compile(rf"{_FUNCTION.pattern}|^## Call CompiledFxGraph")


def compiled_functions(trace: Trace) -> Nesting:
    """The regions of every thread in which it ran a compiled function, as trees."""
    return _regions(trace, _FUNCTION)


def compiled_regions(trace: Trace) -> Nesting:
    """The regions of every thread in which it ran such code, as trees.

    Beside those of functions, those of graphs: a file may have these alone.
    """
    return _regions(trace, _CODE)


def _regions(trace: Trace, name: re.Pattern[str]) -> Nesting:
    event_id = trace.of_category(Category.OPERATOR, Category.ANNOTATION)
    return Nesting(trace, event_id[match_names(trace, event_id, name.match)])
