"""Text in a picture: which letters its font has, how wide a line is, what fits."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import TextToPath

from tracelab.render.picture.style import FONT
from tracelab.render.words import shorten

_MIN_LETTERS = 8


def printable(text: str) -> str:
    r"""The text with a question mark for every letter that the picture's font does not have.

    >>> printable("µs\x00")
    'µs?'
    """
    known = _letters()
    return "".join(c if c.isprintable() and ord(c) in known else "?" for c in text)


@lru_cache(maxsize=1)
def _letters() -> frozenset[int]:
    return frozenset(get_font(findfont(FONT)).get_charmap())


@lru_cache(maxsize=4096)
def text_width(text: str, size_px: int, weight: str = "normal") -> float:
    """Width of a line of text, pixels."""
    font = FontProperties(family=FONT, size=size_px, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def fit(text: str, room_px: float, size_px: int, weight: str = "normal") -> str:
    """The text, or its beginning, or nothing where not even a few letters fit.

    >>> fit("gemm", room_px=100, size_px=12), fit("reduce_kernel", room_px=20, size_px=12)
    ('gemm', '')
    """
    width = text_width(text, size_px, weight)
    if width <= room_px:
        return text
    for letters in range(int(len(text) * room_px / width), _MIN_LETTERS - 1, -1):
        if text_width(shorten(text, letters), size_px, weight) <= room_px:
            return shorten(text, letters)
    return ""
