"""Text in indented paragraphs, for the terminal."""

from __future__ import annotations

import textwrap

_INDENT = "  "
_LEAST, _MOST = 80, 100  # columns


def wrapped(text: str, width: int) -> str:
    """A paragraph, indented, in lines that fit.

    Args:
        text: one paragraph.
        width: of the terminal, in columns.
    """
    return textwrap.fill(
        text,
        min(max(width, _LEAST), _MOST),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
