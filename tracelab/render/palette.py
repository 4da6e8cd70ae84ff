"""Kinds of spans in lanes: the words and colors by which pictures and pages show them.

Hues are Okabe and Ito's, which color-blind readers can tell apart, in steps of lightness, so that a
grayscale copy can be read as well. What blocks is hatched on the page, which has nine colors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tracelab.base.arrays import Record
from tracelab.report.glossary import CAUSES

_BLACK = "#202124"


class SpanKind(Record):
    """Style of a kind of spans.

    Attributes:
        color: on white.
        dark: on the page's dark ground; "" if only pictures show the kind, or it is like another.
        like: the kind whose colors the page gives it; "" for its own.
        word: its name in legends; "" if that is the glossary's, or its key.
        ink: the color of a name written on it in a picture.
        hatch: matplotlib's pattern; "" for none.
        hatch_ink: the color of that pattern.
        is_striped: True if the page hatches it.
    """

    color: str
    dark: str = ""
    like: str = ""
    word: str = ""
    ink: str = "white"
    hatch: str = ""
    hatch_ink: str = "none"
    is_striped: bool = False


# In the order of a picture's legend.
KINDS: Mapping[str, SpanKind] = MappingProxyType(
    {
        "compute": SpanKind("#0072B2", "#3b93d0"),
        "data": SpanKind("#A8447F", like="input", word="data loading"),
        "forward": SpanKind("#0072B2", like="edge"),
        "backward": SpanKind("#56B4E9", like="edge", ink=_BLACK),
        "optimizer": SpanKind("#A99BD8", like="edge", ink=_BLACK),
        "annotation": SpanKind("#C4C9CF", like="edge", ink=_BLACK),
        "other_compute": SpanKind("#0B3C5D"),
        "comm": SpanKind("#E69F00", "#e69f00", word="communication", ink=_BLACK),
        "copy": SpanKind("#009E73", "#1fae86", hatch="\\\\\\", hatch_ink="#4DBB9D"),
        "memset": SpanKind("#5B2A4A", like="copy"),
        "exposed_comm": SpanKind("#E69F00", like="comm", word="exposed communication"),
        "exposed_copy": SpanKind("#009E73", like="copy"),
        "step": SpanKind("#DDE3E9", like="edge"),
        "step_left_out": SpanKind(
            "#F3F5F7", like="edge", word="step that is not steady", is_striped=True
        ),
        "blocking": SpanKind("#C24A00", like="host_blocked", word="blocking call", is_striped=True),
        "harmless": SpanKind("#F6CDB0", word="blocking call, no GPU idle", ink=_BLACK),
        "launch_call": SpanKind("#8FA3B5", like="launch"),
        "counter": SpanKind("#8FA3B5", like="launch", word="number over time"),
        "host_step": SpanKind("#DDE3E9", word="step on the CPU"),
        "wait": SpanKind(
            "#F6CDB0",
            like="host_blocked",
            word="wait for other ranks",
            ink=_BLACK,
            hatch="/////",
            hatch_ink="#D55E00",
            is_striped=True,
        ),
        "transfer": SpanKind("#E69F00", like="comm", ink=_BLACK),
        "idle": SpanKind(
            "#EFF0F2", word="idle (no stream busy)", hatch="////", hatch_ink="#CDD2D7"
        ),
        # Causes of idle time, and parts of the critical path.
        "host_blocked": SpanKind("#C24A00", "#e8702a", is_striped=True),
        "input": SpanKind("#A8447F", "#d98bb6"),
        "host_busy": SpanKind("#E6D93A", "#f0e442", ink=_BLACK),
        "dependency": SpanKind("#56B4E9", "#7cc4ee"),
        "launch": SpanKind("#8FA3B5", "#5b7289"),
        "graph": SpanKind("#7461B0", like="dependency"),
        "edge": SpanKind("#C4C9CF", "#4d545c"),
        "profiler": SpanKind("#96714F", like="edge"),
        "unknown": SpanKind("#6B7280", like="edge"),
        "queue": SpanKind("#A99BD8", like="launch"),
        "host": SpanKind("#E6D93A", like="host_busy", ink=_BLACK),
        "sync": SpanKind("#C24A00", like="host_blocked", word="blocking call", is_striped=True),
    }
)


def kind_word(kind: str) -> str:
    """Return the name of a kind in a picture's legend."""
    return KINDS[kind].word or CAUSES.names.get(kind) or kind.replace("_", " ")


def page_kinds() -> dict[str, SpanKind]:
    """Return the kinds that the page shows by key, each with the page's colors for it."""
    return {
        key: replace(kind, color=KINDS[kind.like].color, dark=KINDS[kind.like].dark)
        if kind.like
        else kind
        for key, kind in KINDS.items()
        if kind.dark or kind.like
    }
