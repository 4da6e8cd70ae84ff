"""Kinds of spans in lanes: the words and colors by which pictures and pages show them.

Hues are Okabe and Ito's, which color-blind readers can tell apart, in steps of lightness, so that a
grayscale copy can be read as well. What blocks is hatched on the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tracelab.base.arrays import Record

_BLACK = "#202124"


class SpanKind(Record):
    """Style of a kind of spans.

    Attributes:
        color: on white.
        dark: on the page's dark ground; "" if only pictures show the kind.
        word: its name in legends; "" if that is the glossary's, or its key.
        ink: the color of a name written on it in a picture.
        hatch: matplotlib's pattern; "" for none.
        hatch_ink: the color of that pattern.
        is_striped: True if the page hatches it.
    """

    color: str
    dark: str = ""
    word: str = ""
    ink: str = "white"
    hatch: str = ""
    hatch_ink: str = "none"
    is_striped: bool = False


# In the order of a picture's legend.
KINDS: Mapping[str, SpanKind] = MappingProxyType(
    {
        "compute": SpanKind("#0072B2", "#3b93d0"),
        "data": SpanKind("#CC79A7", "#d98bb6", "data loading", _BLACK),
        "forward": SpanKind("#0072B2", "#3b93d0"),
        "backward": SpanKind("#56B4E9", "#7cc4ee", ink=_BLACK),
        "optimizer": SpanKind("#A99BD8", "#8b7cc2", ink=_BLACK),
        "annotation": SpanKind("#C4C9CF", "#4d545c", ink=_BLACK),
        "other_compute": SpanKind("#0B3C5D"),
        "comm": SpanKind("#E69F00", "#e69f00", "communication", _BLACK),
        "copy": SpanKind("#009E73", "#1fae86", hatch="\\\\\\", hatch_ink="#4DBB9D"),
        "memset": SpanKind("#5B2A4A", "#a8668f"),
        "exposed_comm": SpanKind("#E69F00", "#e69f00", "exposed communication"),
        "exposed_copy": SpanKind("#009E73", "#1fae86"),
        "step": SpanKind("#DDE3E9", "#343c44"),
        "step_left_out": SpanKind("#F3F5F7", "#22272c", "step that is not steady"),
        "blocking": SpanKind("#C24A00", "#e8702a", "blocking call", is_striped=True),
        "launch_call": SpanKind("#8FA3B5", "#8296a8"),
        "counter": SpanKind("#8FA3B5", "#8296a8", "number over time"),
        "host_step": SpanKind("#DDE3E9", word="step on the CPU"),
        "wait": SpanKind(
            "#F6CDB0",
            "#6b4227",
            "wait for other ranks",
            _BLACK,
            "/////",
            "#D55E00",
            is_striped=True,
        ),
        "transfer": SpanKind("#E69F00", "#e69f00", ink=_BLACK),
        "idle": SpanKind(
            "#EFF0F2", word="idle (no stream busy)", hatch="////", hatch_ink="#CDD2D7"
        ),
        # Causes of idle time, and parts of the critical path.
        "host_blocked": SpanKind("#C24A00", "#e8702a", is_striped=True),
        "input": SpanKind("#CC79A7", "#d98bb6"),
        "host_busy": SpanKind("#B8A400", "#cdbb2e"),
        "dependency": SpanKind("#56B4E9", "#7cc4ee"),
        "launch": SpanKind("#8FA3B5", "#8296a8"),
        "graph": SpanKind("#7461B0", "#9c8ad6"),
        "edge": SpanKind("#C4C9CF", "#4d545c"),
        "profiler": SpanKind("#96714F", "#b08d6b"),
        "unknown": SpanKind("#6B7280", "#8a9099"),
        "queue": SpanKind("#A99BD8", "#8b7cc2"),
        "host": SpanKind("#B8A400", "#cdbb2e"),
        "sync": SpanKind("#C24A00", "#e8702a", "blocking call", is_striped=True),
    }
)


def kind_word(kind: str) -> str:
    """Return the name of a kind in a picture's legend."""
    return KINDS[kind].word or kind.replace("_", " ")
