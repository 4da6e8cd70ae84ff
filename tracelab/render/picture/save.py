"""Write a timeline to a file, or show it in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.render.palette import LIGHT, Theme
from tracelab.system.files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A power of two keeps whole pixels whole in floats.
DPI = 128
FORMATS = (".png", ".svg", ".pdf")
REFUSAL = "{}: a timeline is written as .png, .svg or .pdf"


class Look(Record):
    """Size, px, and colors of a picture; by default as high as its rows."""

    width_px: int = 1600
    height_px: int | None = None
    theme: Theme = LIGHT


DEFAULT_LOOK = Look()


class Tip(NamedTuple):
    """A text in a picture, px from the upper left corner."""

    left_px: float
    top_px: float
    width_px: float
    height_px: float
    text: str


class Picture(Record, eq=False):
    """A drawn timeline, shown in notebooks."""

    figure: Figure
    _tips: Callable[[], Iterable[Tip]]  # of an SVG file

    def save(self, path: str | Path) -> None:
        """Write it as the name's ending says."""
        suffix = Path(path).suffix.lower()
        if suffix not in FORMATS:
            raise UsageError(REFUSAL.format(path))
        write_file(path, self.svg() if suffix == ".svg" else _content(self.figure, suffix))

    def png(self) -> bytes:
        """The picture as PNG."""
        return _content(self.figure, ".png")

    def svg(self) -> bytes:
        """The picture as SVG."""
        drawn, end, _ = _content(self.figure, ".svg").rpartition(b"</svg>")
        return drawn + _svg_of_tips(self._tips()) + end + b"\n"

    def pdf(self) -> bytes:
        """The picture as PDF."""
        return _content(self.figure, ".pdf")

    def _repr_png_(self) -> bytes:
        return self.png()


def _svg_of_tips(tips: Iterable[Tip]) -> bytes:
    group = Element("g", {"id": "tips", "fill-opacity": "0"})
    names = ("x", "y", "width", "height")
    for *pixels, text in tips:
        values = [f"{pixel * 72 / DPI:.2f}" for pixel in pixels]
        place = SubElement(group, "rect", dict(zip(names, values, strict=True)))
        SubElement(place, "title").text = text
    return tostring(group)


def _content(figure: Figure, suffix: str) -> bytes:
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    content = BytesIO()
    with fixed_style():
        figure.savefig(content, format=suffix[1:], metadata=undated)
    return content.getvalue()


@contextmanager
def fixed_style() -> Iterator[None]:
    """Set matplotlib's defaults and a timeline's."""
    import matplotlib as mpl

    defaults = {k: v for k, v in mpl.rcParamsDefault.items() if not k.startswith("backend")}
    with mpl.rc_context(
        {
            **defaults,
            "hatch.linewidth": 0.8,
            # Letters stay letters, for search and copies. Type 42 is TrueType.
            "svg.fonttype": "none",
            "svg.hashsalt": "tracelab",
            "pdf.fonttype": 42,
        }
    ):
        yield
