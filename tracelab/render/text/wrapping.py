"""Text in lines of a given width: sentences wrapped, names shortened, paragraphs cut."""

from __future__ import annotations

import re
from itertools import accumulate

from rich.cells import cell_len, chop_cells

from tracelab.render.words import ELLIPSIS

# What must not be torn apart at the end of a line: a number and its unit, a thing and its number.
_WORD = re.compile(r"\(?(?:GPU|[Ss]teps?|[Rr]ank) \S+|\S*\d (?:ns|µs|ms|s|%)(?!\w)\S*|\S+")


def wrap(text: str, room: int) -> list[str]:
    """A sentence in lines of at most `room` cells; a number stays with its unit."""
    lines = [""]
    for word in _WORD.findall(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= room:
            lines[-1] = longer
        else:
            lines += chop_cells(word, room)
    return [line for line in lines if line]


def paragraph(text: str, room: int, most_lines: int) -> list[str]:
    """Wrap a sentence into at most `most_lines`, the last with an ellipsis where it goes on.

    >>> paragraph("the host waits for the GPU", room=10, most_lines=2)
    ['the host', 'waits for…']
    """
    lines = wrap(text, room)
    if len(lines) <= most_lines:
        return lines
    last = lines[most_lines - 1]
    kept = last if cell_len(last) < room else _beginning(last, room - 1)
    return [*lines[: most_lines - 1], kept + ELLIPSIS]


def shorten_middle(text: str, room: int) -> str:
    """The text, or its beginning and its end around an ellipsis, in at most `room` cells."""
    if cell_len(text) <= room:
        return text
    tail = max(room - 1, 0) // 2
    head = max(room - 1 - tail, 0)
    return _beginning(text, head) + ELLIPSIS + _beginning(text[::-1], tail)[::-1]


def shorten_names(text: str, most: int) -> str:
    """The text with names of kernels shortened, so that there is room for the rest.

    >>> shorten_names("ncclDevKernel_AllReduce_Sum_f32_RING_LL waits", 20)
    'ncclDevKer…2_RING_LL waits'
    """
    return " ".join(word if "/" in word else shorten_middle(word, most) for word in text.split(" "))


def _beginning(text: str, room: int) -> str:
    widths = accumulate(cell_len(letter) for letter in text)
    return text[: sum(width <= room for width in widths)]
