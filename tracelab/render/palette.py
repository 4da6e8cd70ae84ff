"""Words and colors of the kinds of spans, in pictures and pages.

Hues are Okabe and Ito's, for color-blind readers, in steps of lightness, for gray copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tracelab.base.arrays import Record
from tracelab.report.glossary import CAUSES


class SpanKind(Record):
    """Style of a kind of spans.

    Attributes:
        color, dark: on white, and on the page's dark ground; "" if only pictures show the kind.
        like: the kind with its colors on the page, or "".
        word: its name in legends; "" if that is the glossary's, or its key.
        hatch, hatch_ink: matplotlib's pattern and its color.
        is_striped: True if the page hatches it.
    """

    color: str
    dark: str = ""
    like: str = ""
    word: str = ""
    hatch: str = ""
    hatch_ink: str = "none"
    is_striped: bool = False


class Theme(Record):
    """Colors of a picture around its spans."""

    paper: str
    ground: str
    grid: str
    text: str
    gray: str
    line: str
    accent: str

    def color_of(self, kind: str) -> str:
        """Return the color of a kind."""
        style = KINDS[kind]
        if self is LIGHT:
            return style.color
        alike = (kind.dark for kind in KINDS.values() if kind.dark and kind.color == style.color)
        return style.dark or next(alike, self.adapt(style.color))

    def adapt(self, color: str) -> str:
        """Adapt a color: pale on white is dim on dark paper."""
        if self is LIGHT or color == "none":
            return color
        return (
            _mix(color, self.paper, 0.65)
            if _luminance(color) > _MIN_PALE_LUMINANCE
            else _mix(color, _WHITE, 0.2)
        )


_WHITE, _BLACK = "#FFFFFF", "#202124"
# Equal contrast to black and white letters.
_MIDDLE_LUMINANCE = 0.2
_MIN_PALE_LUMINANCE = 0.45
LIGHT = Theme(_WHITE, "#F5F6F8", "#E4E6E9", _BLACK, "#5F6368", "#3C4043", "#C24A00")
DARK = Theme("#15181C", "#1F2328", "#343A42", "#E8EAED", "#9AA0A6", "#BDC1C6", "#E8702A")


def ink_on(color: str) -> str:
    """Return the color of letters on a color."""
    return _BLACK if _luminance(color) > _MIDDLE_LUMINANCE else _WHITE


def _channels(color: str) -> list[int]:
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def _mix(color: str, other: str, share: float) -> str:
    pairs = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)


def _luminance(color: str) -> float:
    red, green, blue = (float((x / 255) ** 2.2) for x in _channels(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# As in a picture's legend.
KINDS: Mapping[str, SpanKind] = {
    "compute": SpanKind("#0072B2", "#3b93d0"),
    "data": SpanKind("#A8447F", like="input", word="data loading"),
    "forward": SpanKind("#0072B2", like="edge"),
    "backward": SpanKind("#56B4E9", like="edge"),
    "optimizer": SpanKind("#A99BD8", like="edge"),
    "annotation": SpanKind("#D9C9A8", like="edge"),
    "module": SpanKind("#C4C9CF", like="edge"),
    "operator": SpanKind("#C4C9CF", like="edge"),
    "other_compute": SpanKind("#0B3C5D"),
    "comm": SpanKind("#E69F00", "#e69f00", word="communication"),
    "copy": SpanKind("#009E73", "#1fae86", hatch="\\\\\\", hatch_ink="#4DBB9D"),
    "memset": SpanKind("#5B2A4A", like="copy"),
    "exposed_comm": SpanKind("#E69F00", like="comm", word="exposed communication"),
    "exposed_copy": SpanKind("#009E73", like="copy"),
    "step": SpanKind("#DDE3E9", like="edge"),
    "step_left_out": SpanKind(
        "#F3F5F7", like="edge", word="step that is not steady", is_striped=True
    ),
    "blocking": SpanKind("#C24A00", like="host_blocked", word="blocking call", is_striped=True),
    "harmless": SpanKind("#F6CDB0", word="blocking call, hardly any idle time"),
    "launch_call": SpanKind("#8FA3B5", like="launch"),
    "counter": SpanKind("#8FA3B5", like="launch", word="number over time"),
    "host_step": SpanKind("#DDE3E9", word="step on the CPU"),
    "wait": SpanKind(
        "#F6CDB0",
        like="host_blocked",
        word="wait for other ranks",
        hatch="/////",
        hatch_ink="#D55E00",
        is_striped=True,
    ),
    "transfer": SpanKind("#E69F00", like="comm"),
    "idle": SpanKind("#EFF0F2", word="idle (no stream busy)", hatch="////", hatch_ink="#CDD2D7"),
    # Causes of idle time, and parts of the critical path.
    "host_blocked": SpanKind("#C24A00", "#e8702a", is_striped=True),
    "input": SpanKind("#A8447F", "#d98bb6"),
    "host_busy": SpanKind("#E6D93A", "#f0e442"),
    "dependency": SpanKind("#56B4E9", "#7cc4ee"),
    "launch": SpanKind("#8FA3B5", "#5b7289"),
    "graph": SpanKind("#7461B0", like="dependency"),
    "edge": SpanKind("#C4C9CF", "#4d545c"),
    "profiler": SpanKind("#96714F", like="edge"),
    "unknown": SpanKind("#6B7280", like="edge"),
    "queue": SpanKind("#A99BD8", like="launch"),
    "host": SpanKind("#E6D93A", like="host_busy"),
    "sync": SpanKind("#C24A00", like="host_blocked", word="blocking call", is_striped=True),
}


def kind_word(kind: str) -> str:
    """Return the name of a kind in a picture's legend."""
    return KINDS[kind].word or CAUSES.names.get(kind) or kind.replace("_", " ")


def page_kinds() -> dict[str, SpanKind]:
    """Return the kinds and colors of the page."""
    return {
        key: replace(kind, color=KINDS[kind.like].color, dark=KINDS[kind.like].dark)
        if kind.like
        else kind
        for key, kind in KINDS.items()
        if kind.dark or kind.like
    }
