"""Calls and lines of the program's own source files, as a recording stores them."""

from __future__ import annotations

import json
import linecache
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tracelab.model.program.source_lines import quoted
from tracelab.model.program.source_scopes import Scope, find_scopes, scopes_as_lists, text_as_stored

_INSTALLED = frozenset(("site-packages", "dist-packages"))
_NO_ESCAPES = frozenset('"\\')  # Kineto writes a backslash as a slash, which breaks its JSON
# A second of parsing.
_MAX_BYTES = 2_000_000
# JSON of the scopes, and of the texts.
_MAX_LETTERS = 1_000_000


class ProgramSource(NamedTuple):
    """The part of the program's source that a recording stores, each as JSON by file.

    Attributes:
        scopes: as of `scopes_as_lists`.
        texts: line number, in digits, to text, of lines that call something.
        cells: cell of a notebook, such as In[3], by profiler name.
    """

    scopes: str
    texts: str
    cells: str


def describe_source(folders: Iterable[str]) -> ProgramSource:
    """The scopes of the modules that the program has imported by now, and the lines that call.

    Files are named from their folder on, as by the profiler; at most a megabyte, cells and the
    script first.
    """
    files: dict[str, list[Any]] = {}
    texts: dict[str, dict[str, str]] = {}
    left_to_read, left_to_store, left_to_quote = _MAX_BYTES, _MAX_LETTERS, _MAX_LETTERS
    cells = _cells()
    for path, name in (*cells.items(), *_own_files(folders)):
        linecache.checkcache(path)
        rows = linecache.getlines(path)  # none if it is gone by now
        size = sum(map(len, rows))
        if size > left_to_read or not _NO_ESCAPES.isdisjoint(name):
            continue
        left_to_read -= size
        scopes = find_scopes("".join(rows))
        lists = scopes_as_lists(scopes)
        length = len(json.dumps(lists))
        if not lists or length > left_to_store:
            continue
        left_to_store -= length
        files[name] = lists
        calling = _calling_rows(rows, scopes)
        length = len(json.dumps(calling))
        if length <= left_to_quote:
            left_to_quote -= length
            texts[name] = calling
    return ProgramSource(*(json.dumps(x, ensure_ascii=False) for x in (files, texts, cells)))


def _calling_rows(rows: Sequence[str], scopes: Iterable[Scope]) -> dict[str, str]:
    calling = sorted({spot.line for x in scopes for spot in x.spots if spot.line is not None})
    return {str(line): text_as_stored(quoted(rows[line - 1])) for line in calling}


def _cells() -> dict[str, str]:
    """The cells of a notebook that ran, the last first: names in the profiler to numbers."""
    ipython = sys.modules.get("IPython")
    compiled = getattr(ipython.get_ipython(), "compile", None) if ipython else None
    cell_of = getattr(compiled, "format_code_name", lambda _: None)  # since IPython 8
    named = {name: cell_of(name) for name in reversed([*linecache.cache])}
    return {name: cell[1] for name, cell in named.items() if cell is not None}


def _own_files(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    innermost_first = sorted(map(Path, folders), key=lambda folder: -len(folder.parts))
    modules = dict(sys.modules)
    for module_name in ("__main__", *reversed(modules)):  # what was imported last is the user's
        path = _file_of(modules.get(module_name))
        of_tracelab = (module_name + ".").startswith("tracelab.")
        if path is None or (of_tracelab and ".workloads." not in module_name):
            continue
        folder = next((x for x in innermost_first if path.is_relative_to(x)), None)
        if folder is not None and not _is_library(path):
            yield str(path), path.relative_to(folder).as_posix()


def _is_library(path: Path) -> bool:
    library = Path(sysconfig.get_paths()["stdlib"]).resolve()
    return not _INSTALLED.isdisjoint(path.parts) or path.is_relative_to(library)


def _file_of(module: object) -> Path | None:
    # Not by its attribute: a module may import, or fail, when an attribute is read.
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    try:
        path = Path(file).resolve()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a loop of links, an invalid name
        return None
