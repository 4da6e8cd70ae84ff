"""Call sites and kernels in words."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tracelab.base.arrays import IntArray
from tracelab.base.names import short_kernel_name, threads_of
from tracelab.model.cuda_graphs import Origins
from tracelab.model.frames import called_name, parse_frame
from tracelab.model.program.call_sites import CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, COLLECTIVE_OPERATOR

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_CALLS: Mapping[str, str] = {
    **{f"__{name}__": f"`{sign}`" for name, sign in _WORDS["signs"].items()},
    **{f"__r{name}__": f"`{sign}`" for name, sign in _WORDS["signs"].items()},
    **{f"__i{name}__": f"`{sign}=`" for name, sign in _WORDS["signs"].items()},
    **_WORDS["calls"],
}
_FUNCTIONS: Mapping[str, str] = _WORDS["functions"]
_OF_OBJECTS = frozenset({"__call__", "__enter__", "__exit__", "__init__", "__new__"})


def call_text(name: str) -> str:
    """The called name, in words where the source has none."""
    return _CALLS.get(name.rpartition(".")[2], f"`{name}`")


def function_text(name: str) -> str:
    """The name of a function, in words where it has none in the source."""
    return _FUNCTIONS.get(name, name)


def describe(call_site: CallSite, fallback: str) -> str:
    """A call site in words: what was called, in which function, in which line.

    `fallback` is what was called, where the call site does not say; it may be "".
    """
    operator = None if call_site.operator == COLLECTIVE_OPERATOR else call_site.operator
    name = call_site.call or operator or fallback
    if not name:
        return ""
    line = f":{call_site.line}" if call_site.line is not None else ""
    function = f"{function_text(call_site.function or '')} ({call_site.file}{line})"
    by = "" if call_site.waited_in is None else f", in {threads_of(call_site.waited_in)}"
    if call_site.file is None:
        return f"{call_text(name)}{by}"
    if parse_frame(name) is not None:
        return f"{function}{by}"  # what was called is that function itself
    return f"{call_text(name)} in {function}{by}"


def called(call_site: CallSite, fallback: str = "") -> str:
    """The name that a call site calls; "" without one that a program writes.

    `fallback` is what was called, where the call site does not say: a call or a frame.
    """
    operator = None if call_site.operator == COLLECTIVE_OPERATOR else call_site.operator
    own = called_name(fallback)
    name = call_site.call or operator or own
    is_own = name == own != fallback
    if not name or (is_own and name.startswith(("__", "<"))):
        return ""
    if name in _OF_OBJECTS and call_site.function:
        name, is_own = call_site.function, True  # the program's function, which makes the call
    is_function = (is_own or name == call_site.call) and re.fullmatch("[a-z_][a-z0-9_]*", name)
    text = call_text(name)
    return f"`{name}()`" if is_function and text == f"`{name}`" else text


def capitalize_start(text: str) -> str:
    """A phrase as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def origin_texts(
    timeline: Timeline, origins: Origins, rows: IntArray, lines: SourceLines
) -> tuple[str, ...]:
    """Describe where activities were captured into CUDA graphs; "" where that is not known."""
    event_id = origins.event_id[rows]
    known_id = np.unique(event_id[event_id != ABSENT])
    site_of = dict(zip(known_id.tolist(), call_sites(timeline, known_id, lines), strict=True))
    return tuple(
        describe_origin(
            site_of.get(event), "" if annotation == ABSENT else origins.annotations[annotation]
        )
        for event, annotation in zip(
            event_id.tolist(), origins.annotation_index[rows].tolist(), strict=True
        )
    )


def describe_origin(call_site: CallSite | None, annotation: str) -> str:
    """Describe where a node of a CUDA graph was captured; "" if that is not known.

    The annotation is the program's name of the region; "" without any.
    """
    place = ""
    if call_site is not None:
        # Where only the function is known, that stands for what it called.
        frame = "" if call_site.file is None else f"{call_site.file}(1): {call_site.function}"
        place = describe(call_site, frame)
    at = f" at {place}" if place else ""
    within = f' in "{annotation}" (annotation)' if annotation else ""
    return f"captured{at}{',' if at and within else ''}{within}" if at or within else ""


def kernel_text(name: str) -> str:
    """The own name of a GPU activity, as a sentence has it."""
    return f"`{short_kernel_name(name).rpartition('::')[2]}`"
