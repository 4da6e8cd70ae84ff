"""The figures of a text, so that a test can assert them and leave the words to a snapshot."""

from __future__ import annotations

import re
from typing import Any

_FIGURE = re.compile(
    r"(?<![\w.:`/(])[<+-]?\d[\d,]*(?:\.\d+)?(?: ?(?:%|[mnµ]?s\b|[KMG]i?B\b))?(?![\w`])"
)


def figures(said: Any) -> list[str]:
    """The figures in a text, or in the texts of tuples and lists, in order, with their units.

    >>> figures("GPU 0 was busy 75.0 % of 20.00 ms (train.py:84)")
    ['0', '75.0 %', '20.00 ms']
    >>> figures([("stream", "30", "<0.1 %"), ("launch", "1,024", "-5 µs")])
    ['30', '<0.1 %', '1,024', '-5 µs']
    """
    if isinstance(said, str):
        return _FIGURE.findall(said)
    return [figure for one in said for figure in figures(one)]
