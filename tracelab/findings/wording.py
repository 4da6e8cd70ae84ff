"""Places and kernels in words."""

from __future__ import annotations

from functools import lru_cache

from tracelab.model.call_sites import CallSite
from tracelab.model.kernel_kinds import qualified_name

_COMM_MARKER = "record_param_comms"  # stands around every collective, and is none


def describe(place: CallSite, otherwise: str) -> str:
    """A place in words: what was called, in which function, in which line."""
    operator = None if place.operator == _COMM_MARKER else place.operator
    name = place.call or operator or otherwise
    if not name:
        return ""
    called = f"`{name}`"
    if place.file is None:
        return called
    line = f":{place.line}" if place.line is not None else ""
    return f"{called} in {place.function} ({place.file}{line})"


@lru_cache(maxsize=10_000)
def short_name(name: str) -> str:
    """A kernel's name without return type, template arguments and arguments."""
    if name.startswith(("Memcpy", "Memset", "Copy")):
        return name
    return qualified_name(name.replace("(anonymous namespace)::", "")) or name
