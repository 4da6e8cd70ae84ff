"""What pages of the site are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The text of each page by its path, without the ending. One whose name begins with ``_`` is a part
# of a page that is written by hand.
Pages = dict[str, str]


def table(left: str, right: str, rows: Iterable[str]) -> str:
    """A table of two columns."""
    return "\n".join([f"| {left} | {right} |", "|---|---|", *rows, ""])


def tree(names: Iterable[str]) -> str:
    """Pages in the side bar."""
    listed = "\n".join(f"/{name}" for name in names)
    return f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def slug(title: str) -> str:
    """The anchor of a heading; also the name of a file.

    >>> slug("TL101: a blocking call")
    'tl101-a-blocking-call'
    """
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
