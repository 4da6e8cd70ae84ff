"""Write a drawn timeline to a file, or show it in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.system.files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
REFUSAL = "{}: a timeline is written as .png, .svg or .pdf"


class Picture(Record, eq=False):
    """A drawn timeline, which shows itself in a notebook."""

    figure: Figure

    def save(self, path: str | Path) -> None:
        """Write it; the ending of the name says in which format."""
        suffix = Path(path).suffix.lower()
        if suffix not in FORMATS:
            raise UsageError(REFUSAL.format(path))
        write_file(path, _content(self.figure, suffix))

    def png(self) -> bytes:
        """The content of a PNG file."""
        return _content(self.figure, ".png")

    def svg(self) -> bytes:
        """The content of an SVG file."""
        return _content(self.figure, ".svg")

    def pdf(self) -> bytes:
        """The content of a PDF file."""
        return _content(self.figure, ".pdf")

    def _repr_png_(self) -> bytes:
        return self.png()


def _content(figure: Figure, suffix: str) -> bytes:
    """Return the content of a file of this format; the same picture is always the same file."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    content = BytesIO()
    with fixed_style():
        figure.savefig(content, format=suffix[1:], metadata=undated)
    return content.getvalue()


@contextmanager
def fixed_style() -> Iterator[None]:
    """Matplotlib's own defaults, whatever the user's are, and what a timeline needs."""
    import matplotlib as mpl

    defaults = {k: v for k, v in mpl.rcParamsDefault.items() if not k.startswith("backend")}
    with mpl.rc_context(
        {
            **defaults,
            "hatch.linewidth": 0.8,
            # Letters stay letters: they can be searched and copied. Type 42 is TrueType.
            "svg.fonttype": "none",
            "svg.hashsalt": "tracelab",
            "pdf.fonttype": 42,
        }
    ):
        yield
