"""Which files paths stand for: a file, a folder of them, or a URL."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from os import PathLike
from pathlib import Path

from tracelab.base.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.base.rank_names import rank_in
from tracelab.read.parts import JSON_NAMES, new_copy, parts_of
from tracelab.read.streams import READ_ERRORS, Source, is_url, open_source, read_pipe, unreadable

_TRACE_NAMES = ("trace.json", "trace.json.gz")
_HEAD = 65_536  # bytes: a trace shows by then that it is one
_TRACE_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')


def find_sources(paths: Iterable[str]) -> tuple[Source, ...]:
    """The files that these paths stand for, folders opened, in a stable order, each once.

    A folder stands for its ``*trace.json[.gz]`` files at any depth and for other ``*.json[.gz]``
    files that begin like a trace; without any of the first, for all its ``*.json[.gz]`` files. An
    archive (tar, zip) stands for the traces in it, and a file into which the ranks of a job were
    merged for each of them. A copy of a file in the same folder is left out: the same file
    compressed, or SGLang's merged file.

    Raises:
        UnreadableInputError: a path does not exist, a folder cannot be listed or holds no
            candidate.

    >>> [source.rank for source in find_sources(["traces/fsdp_item_rank1.pt.trace.json.gz"])]
    [1]
    """
    sources: dict[str, Source] = {}
    for path in paths:
        for source in _sources_of(path):
            file = path if is_url(path) else os.path.realpath(source.path)
            if file not in sources or not sources[file].named:
                sources[file] = source
    return tuple(sources.values())


def one_source(path: str | os.PathLike[str] | Source) -> Source:
    """The one file that a path stands for; a source stands for itself.

    Raises:
        UsageError: the path is a folder of several traces, or a file of several.
        UnreadableInputError: the path does not exist, or is a folder without a trace.
    """
    if isinstance(path, Source):
        return path
    sources = find_sources([os.fspath(path)])
    if len(sources) > 1:
        raise UsageError(f"{os.fspath(path)}: holds {len(sources)} traces; name one")
    return sources[0]


def size_of(source: Source) -> int:
    """The bytes of a file on disk, packed or not; 0 where that is not known."""
    try:
        return 0 if is_url(source.path) else Path(source.path).stat().st_size
    except OSError:
        return 0


def _sources_of(path: str) -> list[Source]:
    if is_url(path):
        return [_source(path, named=True)]
    try:
        if path and Path(path).is_dir():  # an empty path would be the current folder
            return [_source(str(file), named=False) for file in _files_of(Path(path))]
        if path and Path(path).is_fifo():
            source = replace(_source(path, named=True), copy=_copy_of_pipe(path))
            return parts_of(source) or [source]
        if path and Path(path).exists():
            source = _source(path, named=True)
            return parts_of(source) or [source]
    except OSError as error:
        raise unreadable(path, error) from None
    raise UnreadableInputError(f"{path or repr(path)}: no such file or folder")


def _files_of(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:  # a folder that cannot be listed may hold a rank
        raise unreadable(str(error.filename), error)

    paths = [
        Path(parent, name) for parent, _, names in os.walk(folder, onerror=refuse) for name in names
    ]
    paths = [path for path in paths if path.is_file() or not path.exists()]  # no pipe, no device
    files = sorted((path for path in paths if path.name.endswith(JSON_NAMES)), key=_natural_order)
    if not files:
        raise UnreadableInputError(f"{folder}: the folder holds no .json file, packed or not")
    siblings: defaultdict[Path, set[str]] = defaultdict(set)
    for file in files:
        siblings[file.parent].add(file.name)
    files = [file for file in files if not _is_copy(file, siblings[file.parent])]
    if not any(file.name.endswith(_TRACE_NAMES) for file in files):
        return files
    return [
        file for file in files if file.name.endswith(_TRACE_NAMES) or _begins_like_a_trace(file)
    ]


def _natural_order(path: Path) -> list[list[str | int]]:
    """A key that sorts "rank2" before "rank10"; numbers and other text alternate.

    >>> _natural_order(Path("rank10.json"))
    [['rank', 10, '.json']]
    """
    return [
        [int(text) if i % 2 else text for i, text in enumerate(re.split(r"([0-9]+)", part))]
        for part in path.parts
    ]


def _is_copy(file: Path, siblings: Set[str]) -> bool:
    """True if other files of its folder, by these names, hold all that a file holds."""
    if file.suffix == ".gz" and file.stem in siblings:
        return _is_packed_from(file.with_suffix(""), file)
    merged = re.fullmatch(r"merged-(.+)\.trace\.json\.gz", file.name)
    return merged is not None and any(f"{merged[1]}-TP-" in name for name in siblings)


def _is_packed_from(plain: Path, packed: Path) -> bool:
    """True if a gzip file unpacks to as many bytes as the plain one has; its end says so."""
    try:
        with open(packed, "rb") as stream:
            stream.seek(-4, os.SEEK_END)
            return int.from_bytes(stream.read(), "little") == plain.stat().st_size % 2**32
    except OSError:  # both stay, and their reader says what is wrong
        return False


def _begins_like_a_trace(file: Path) -> bool:
    """Whether a file may be a trace; an unreadable one may be, so that its reader says why."""
    try:
        with open_source(Source(str(file), None, named=False)) as stream:
            head = stream.read(_HEAD)
    except (TracelabError, *READ_ERRORS):
        return True
    is_list = head.lstrip().startswith(b"[") and b'"ph"' in head
    return is_list or any(key in head for key in _TRACE_KEYS)


def _copy_of_pipe(path: str) -> str:
    """A file with all that comes out of a pipe, as long as this process lives.

    Raises:
        UnreadableInputError: nobody writes into it.
        OSError: it cannot be read, or not be copied.
    """
    copy = new_copy()
    with open(copy, "wb") as file:
        file.writelines(read_pipe(path))
    return str(copy)


def _source(path: str, *, named: bool) -> Source:
    without_query = path.partition("?")[0] if is_url(path) else path
    return Source(path, rank_in(re.split(r"[/\\]", without_query)[-1]), named)


def path_names(paths: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    """One path or several, as a list of texts.

    >>> path_names("step.json"), path_names(["a.json", "b.json"])
    (['step.json'], ['a.json', 'b.json'])
    """
    return [str(paths)] if isinstance(paths, str | PathLike) else [str(path) for path in paths]
