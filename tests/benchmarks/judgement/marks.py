"""Marked lines of the programs: where ``programs.toml`` says that a defect is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent / "programs"


def source_of(program: dict[str, Any]) -> Path:
    """The file of a program."""
    return PROGRAMS / f"{program['name']}.py"


def marked_lines(program: dict[str, Any]) -> set[int]:
    """The lines of a program's defect; none where it is a setting of the whole program."""
    source = source_of(program)
    lines: set[int] = set()
    for name, of_function in _functions(source):
        if name in program.get("functions", ()):
            lines |= of_function
    for number, line in enumerate(source.read_text().splitlines(), start=1):
        if any(place in line for place in program.get("places", ())):
            lines.add(number)
    return lines


def functions_with(lines: Set[int], source: Path) -> set[str]:
    """The names of the functions that have one of some lines."""
    return {name for name, of_function in _functions(source) if not lines.isdisjoint(of_function)}


def _functions(source: Path) -> Iterator[tuple[str, set[int]]]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node.name, {*range(node.lineno, (node.end_lineno or 0) + 1)}
