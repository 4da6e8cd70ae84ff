"""Call sites and kernels in words."""

from __future__ import annotations

from functools import lru_cache

from tracelab.model.call_sites import CallSite
from tracelab.model.frames import parse_frame
from tracelab.model.kernel_kinds import qualified_name
from tracelab.model.trace import COLLECTIVE_OPERATOR

NO_RECORD = (
    "The file does not say what the work beside it waited for. Where it has no event records, "
    "record them: `tracelab run` and `tracelab.capture` do."
)


def describe(call_site: CallSite, fallback: str) -> str:
    """A call site in words: what was called, in which function, in which line.

    Args:
        call_site: where it is.
        fallback: what was called, where the call site does not say; may be "".

    >>> describe(CallSite(call="item", function="train", file="train.py", line=40), "")
    '`item` in train (train.py:40)'
    >>> describe(CallSite(), "cudaMalloc")
    '`cudaMalloc`'
    >>> describe(CallSite(function="train", file="train.py"), "train.py(3): train")
    'train (train.py)'
    """
    operator = None if call_site.operator == COLLECTIVE_OPERATOR else call_site.operator
    name = call_site.call or operator or fallback
    if not name:
        return ""
    line = f":{call_site.line}" if call_site.line is not None else ""
    function = f"{call_site.function} ({call_site.file}{line})"
    if call_site.file is not None and parse_frame(name) is not None:
        return function  # what was called is that function itself
    return f"`{name}`" if call_site.file is None else f"`{name}` in {function}"


@lru_cache(maxsize=10_000)
def short_kernel_name(name: str) -> str:
    """The name of a GPU activity without return type, template arguments and arguments.

    >>> short_kernel_name("void at::native::copy_kernel<4, float>(int, float)")
    'at::native::copy_kernel'
    """
    if name.startswith(("Memcpy", "Memset", "Copy")):
        return name
    return qualified_name(name.replace("(anonymous namespace)::", "")) or name
