"""Short names of files, for tables and sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

_ENDING = re.compile(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$")
_SEPARATOR = re.compile(r"[/\\]")


def without_ending(name: str) -> str:
    """Remove the endings of traces from a file's name.

    >>> without_ending("step.pt.trace.json.gz")
    'step'
    """
    return _ENDING.sub("", name)


def short_names(paths: Sequence[str]) -> tuple[str, ...]:
    """The shortest ends of these paths that tell them apart; their kind only where that is needed.

    >>> short_names(["run/a_rank0.pt.trace.json.gz", "run/a_rank1.pt.trace.json.gz"])
    ('a_rank0', 'a_rank1')
    >>> short_names(["it_10/rank0.json", "it_20/rank0.json", "it_20/rank1.json"])
    ('it_10/rank0', 'it_20/rank0', 'rank1')
    >>> short_names(["a.json", "a.json.gz"])
    ('a.json', 'a.json.gz')
    """
    shortened = tuple(map(without_ending, paths))
    is_enough = len(set(shortened)) == len(set(paths))
    return shortest_ends(shortened if is_enough else paths)


def shortest_ends(paths: Sequence[str]) -> tuple[str, ...]:
    """The shortest ends of these paths that tell them apart.

    >>> shortest_ends(["src/train.py", "a/model.py", "b/model.py"])
    ('train.py', 'a/model.py', 'b/model.py')
    """
    parts = [_SEPARATOR.split(path) for path in paths]
    lengths = range(1, max(map(len, parts), default=0) + 1)
    files = {length: Counter(tuple(part[-length:]) for part in parts) for length in lengths}
    return tuple(
        next(
            ("/".join(end) for end in _ends(part) if files[len(end)][end] == 1),
            "/".join(part),
        )
        for part in parts
    )


def _ends(parts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The ends of a path, the shortest first."""
    return (tuple(parts[-length:]) for length in range(1, len(parts) + 1))
