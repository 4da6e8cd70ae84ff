"""Where the host runs code that `torch.compile` made."""

from __future__ import annotations

import re

from tracelab.model.lookup import match_names
from tracelab.model.nesting import Nesting
from tracelab.model.trace import Category, Trace

_COMPILED = re.compile(r"^(?:## Call CompiledFxGraph|Torch-Compiled Region)")


def compiled_regions(trace: Trace) -> Nesting:
    """The regions of every thread in which it ran such code, as trees."""
    event_id = trace.of_category(Category.OPERATOR, Category.ANNOTATION)
    return Nesting(trace, event_id[match_names(trace, event_id, _COMPILED.match)])
