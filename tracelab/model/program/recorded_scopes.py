"""Source files as a recording stores them: names of calls and their lines, and lines as text."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

from tracelab.model.program.source_scopes import Resume, Scope, Spot

# Kineto writes every backslash as a slash: what JSON escapes would end the text, or change it.
_PLAIN = "".join(c for c in map(chr, range(32, 127)) if c not in '%"\\')


def text_as_stored(text: str) -> str:
    """A line of source without anything that JSON escapes.

    >>> text_as_stored('print("100 %")')
    'print(%22100 %25%22)'
    """
    return quote(text, safe=_PLAIN)


def text_from_stored(stored: str) -> str:
    """The line of source that `text_as_stored` made this of."""
    return unquote(stored)


def scopes_as_lists(scopes: tuple[Scope, ...]) -> list[Any]:
    """Scopes as nested lists, for JSON; those without a call are left out.

    Per scope: its name, its first lines, its spots (name, line, end line, end column, path, whether
    it is a call), its resumes (line, end, path, floor), what can be reached from which line, and
    whether it skips.
    """
    return [
        [
            scope.name,
            sorted(scope.first_lines),
            [[x.name, x.line, *x.end, x.path, x.is_call] for x in scope.spots],
            [[x.line, x.end, x.path, x.floor] for x in scope.resumes],
            list(scope.reachable_from.items()),
            scope.skips,
        ]
        for scope in scopes
        if scope.spots
    ]


def scopes_from_lists(lists: object) -> tuple[Scope, ...]:
    """The scopes that `scopes_as_lists` made lists of; none where something else did."""
    try:
        return tuple(_scope(*each) for each in lists)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return ()


def _scope(
    name: str, first_lines: Any, spots: Any, resumes: Any, reachable: Any, skips: bool
) -> Scope:
    return Scope(
        name=name,
        first_lines=frozenset(map(_number, first_lines)),
        spots=tuple(
            Spot(
                called,
                None if line is None else _number(line),
                (end_line, end_column),
                _path(path),
                is_call,
            )
            for called, line, end_line, end_column, path, is_call in spots
        ),
        resumes=tuple(
            Resume(line, _position(end), _path(path), _position(floor))
            for line, end, path, floor in resumes
        ),
        reachable_from=MappingProxyType({line: _position(floor) for line, floor in reachable}),
        skips=skips,
    )


def _number(line: Any) -> int:
    if not isinstance(line, int):
        raise TypeError(f"{line!r} is no line")
    return line


def _path(path: Any) -> tuple[tuple[str, int], ...]:
    return tuple((kind, number) for kind, number in path)


def _position(position: Any) -> tuple[int, int]:
    line, column = position
    return line, column
