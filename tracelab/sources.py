"""Where traces come from: a file, a folder of them, or a URL; plain or gzip."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tracelab.errors import MissingSupportError, TracelabError, UnreadableInputError

_TRACE_NAMES = (".pt.trace.json", ".pt.trace.json.gz")
_JSON_NAMES = (".json", ".json.gz")
_RANK = re.compile(r"(?<![a-z])rank[-_= ]?(\d+)", re.IGNORECASE)
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read.

    Attributes:
        path: a local path or a URL that fsspec knows.
        rank: the rank that the file's name gives ("rank3", "rank-3"), else None.
        named: the user named this very file, rather than a folder that holds it.
    """

    path: str
    rank: int | None
    named: bool


def find_sources(paths: Iterable[str]) -> tuple[Source, ...]:
    """The files that these paths stand for, folders opened, in a stable order, each once.

    A folder stands for its ``*.pt.trace.json[.gz]`` files at any depth or, without any, for all
    its ``*.json[.gz]`` files.

    Raises:
        UnreadableInputError: a path does not exist, a folder cannot be listed or holds no
            candidate.
    """
    found: dict[str, Source] = {}
    for path in paths:
        for source in _sources_of(path):
            file = path if _is_url(path) else os.path.realpath(source.path)
            if file not in found or not found[file].named:
                found[file] = source
    return tuple(found.values())


@contextmanager
def open_source(source: Source) -> Iterator[io.BufferedIOBase]:
    """A stream of the file's decompressed bytes; gzip is known by its content, not its name.

    Raises:
        UnreadableInputError: the file cannot be opened.
        MissingSupportError: the URL needs a package that is not installed.
    """
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(io.BufferedReader(_open_raw(source.path)))
            packed = stream.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        except TracelabError:
            raise
        except ImportError as error:
            raise MissingSupportError(f"{source.path}: {error}") from None
        except Exception as error:  # each of fsspec's file systems has errors of its own
            raise _unreadable(source.path, error) from None
        yield opened.enter_context(gzip.GzipFile(fileobj=stream)) if packed else stream


def _sources_of(path: str) -> list[Source]:
    if _is_url(path):
        return [_source(path, named=True)]
    try:
        if path and Path(path).is_dir():  # an empty path would be the current folder
            return [_source(str(file), named=False) for file in _files_of(Path(path))]
        if path and Path(path).exists():
            return [_source(path, named=True)]
    except OSError as error:
        raise _unreadable(path, error) from None
    raise UnreadableInputError(f"{path or repr(path)}: no such file or folder")


def _files_of(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:  # a part that cannot be listed may hold a rank
        raise _unreadable(str(error.filename), error)

    files = sorted(
        Path(parent, name) for parent, _, names in os.walk(folder, onerror=refuse) for name in names
    )
    for endings in (_TRACE_NAMES, _JSON_NAMES):
        if chosen := [file for file in files if file.name.endswith(endings)]:
            return chosen
    raise UnreadableInputError(f"{folder}: the folder holds no .json or .json.gz file")


def _source(path: str, *, named: bool) -> Source:
    file = path.partition("?")[0] if _is_url(path) else path
    ranks = _RANK.findall(re.split(r"[/\\]", file)[-1])
    return Source(path, int(ranks[-1]) if ranks else None, named)


def _is_url(path: str) -> bool:
    return "://" in path


def _open_raw(path: str) -> io.RawIOBase:
    if not _is_url(path):
        return open(path, "rb", buffering=0)
    try:
        import fsspec
    except ImportError:
        raise MissingSupportError(
            f"{path}: reading a URL needs fsspec: pip install 'tracelab[remote]'"
        ) from None
    return cast(io.RawIOBase, fsspec.open(path, "rb").open())


def _unreadable(path: str, error: Exception) -> UnreadableInputError:
    if isinstance(error, FileNotFoundError):
        reason = "no such file"  # fsspec puts the path where the reason should be
    else:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = str(said).splitlines()[0].lower()
    return UnreadableInputError(f"{path}: {reason}")
