"""Files that paths stand for: a file, a folder, a URL, an archive, a file of several ranks.

Traces of an archive or a merged file become files in a temporary folder while this process lives.
SGLang's ``merge_profiles`` writes the rank before each process id (``"[TP00-DP01] 1234"``),
TraceLens's fusion into the arguments of each event (``"rank": 3``).
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from glob import glob, has_magic
from itertools import count
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeGuard

import orjson

from tracelab.base.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.base.names import rank_in
from tracelab.base.safe_text import brief
from tracelab.read.json.array import ArrayReader
from tracelab.read.json.events import decode_texts, is_text_of_event, mapping
from tracelab.read.json.numbers import natural_number
from tracelab.read.streams import (
    MAX_RATIO,
    READ_ERRORS,
    Source,
    is_url,
    open_source,
    shown_path,
    unreadable,
)
from tracelab.system.files import hidden_path

_TRACE_NAMES = ("trace.json", "trace.json.gz", ".pftrace", ".pftrace.gz")
# A trace shows within it that it is one, and a merged file names a rank.
_HEAD_BYTES = 65_536
_TRACE_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')


Given = str | PathLike[str] | bytes | IO[Any] | Source
Inputs = Given | Iterable[Given]


def find_inputs(
    given: object, name: str, max_unpacked_bytes: int | None = None
) -> tuple[list[str], tuple[Source, ...]]:
    """The files that an argument of this name stands for, and what each of its parts is called.

    A UsageError if it is something else, or nothing; errors as of `find_sources`.
    """
    several = given if is_several(given) else [given]
    inputs = [source_of(one, name, number) for number, one in enumerate(several, 1)]
    if not inputs:
        raise UsageError(f"`{name}`: no file, folder or URL was given")
    labels = [x.path if isinstance(x, Source) else shown_path(x) for x in inputs]
    return labels, find_sources(inputs, max_unpacked_bytes)


def is_several(given: object) -> TypeGuard[Iterable[Any]]:
    """True if an argument is several files, and not one of `Given` or anything else."""
    is_one = isinstance(given, str | PathLike | bytes | Source) or hasattr(given, "read")
    return isinstance(given, Iterable) and not is_one


def source_of(given: object, name: str, number: int = 1) -> str | Source:
    """One file as its path; bytes or an open file as a source with a copy of what is in them.

    `name` and `number` call what has no name. A UsageError for something else, or a closed file.
    """
    if isinstance(given, str | PathLike):
        return os.fspath(given)
    if isinstance(given, Source):
        return given
    read = (lambda: given) if isinstance(given, bytes) else getattr(given, "read", None)
    if read is None:
        raise UsageError(
            f"`{name}` takes a file, a folder, a URL, bytes or an open file, or several of them, "
            f"not {brief(given)}"
        )
    label = getattr(given, "name", None)
    path = label if isinstance(label, str) else f"{name} {number}"
    try:
        content = read()
    except ValueError as error:  # it is closed, or was opened to write
        raise UsageError(f"`{name}`: {path} cannot be read: {error}") from None
    copy = new_copy()
    copy.write_bytes(content.encode() if isinstance(content, str) else content)
    return replace(named_source(path), copy=str(copy))


def find_sources(
    paths: Iterable[str | Source], max_unpacked_bytes: int | None = None
) -> tuple[Source, ...]:
    """The files that these paths stand for, folders opened, in a stable order, each once.

    A pattern such as ``traces/*rank*.json.gz`` stands for the files that match it, a folder for its
    ``*trace.json[.gz]`` and ``*.pftrace[.gz]`` files at any depth and other ``*.json[.gz]`` files
    that begin like a trace; without any of the first, for all its ``*.json[.gz]`` files. An archive
    (tar, zip) or a file with the merged ranks of a job stands for its traces. A copy of a file in
    the same folder is left out: the same file compressed, or SGLang's merged file.

    Args:
        paths: files, folders and URLs.
        max_unpacked_bytes: as of `Options`.

    Raises:
        UnreadableInputError: a path does not exist, a folder cannot be listed or holds no trace.
    """
    sources: dict[str, Source] = {}
    for path in paths:
        for source in _sources_of(path, max_unpacked_bytes):
            place = source.copy or source.path
            file = place if is_url(source.path) else os.path.realpath(source.path)
            if file not in sources or not sources[file].named:
                sources[file] = source
    return tuple(sources.values())


def one_source(path: Given, name: str = "source", max_unpacked_bytes: int | None = None) -> Source:
    """The one file that an argument of this name stands for; a UsageError if it is several."""
    if isinstance(path, Source):
        return path
    [label], sources = find_inputs(path, name, max_unpacked_bytes)
    if len(sources) > 1:
        raise UsageError(f"{label}: holds {len(sources)} traces; name one")
    return sources[0]


def size_of(source: Source) -> int:
    """The bytes of a file on disk, packed or not; 0 where that is not known."""
    try:
        return 0 if is_url(source.path) else Path(source.path).stat().st_size
    except OSError:
        return 0


def _sources_of(path: str | Source, max_unpacked_bytes: int | None) -> list[Source]:
    if isinstance(path, Source):
        return parts_of(path) or [path]
    source = replace(named_source(path), max_unpacked_bytes=max_unpacked_bytes)
    if is_url(path):
        return [source]
    try:
        if path and Path(path).is_dir():  # an empty path would be the current folder
            return [
                replace(source, path=str(file), rank=rank_in(file.name), named=False)
                for file in _files_of(Path(path))
            ]
        if path and Path(path).is_fifo():
            source = replace(source, copy=_copy_of_pipe(path))
        if path and Path(path).exists():
            return parts_of(source) or [source]
    except OSError as error:
        raise unreadable(path, error) from None
    if has_magic(path):
        # It may be absolute, which `Path.glob` refuses.
        matches = sorted(map(Path, glob(path, recursive=True)), key=_natural_order)  # noqa: PTH207
        if matches:
            return [x for match in matches for x in _sources_of(str(match), max_unpacked_bytes)]
        raise UnreadableInputError(f"{path}: no such file or folder, and none matches")
    raise UnreadableInputError(f"{path or repr(path)}: no such file or folder")


def _files_of(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:  # a folder that cannot be listed may hold a rank
        raise unreadable(str(error.filename), error)

    paths = [
        Path(parent, name) for parent, _, names in os.walk(folder, onerror=refuse) for name in names
    ]
    paths = [path for path in paths if path.is_file() or not path.exists()]  # no pipe, no device
    files = sorted((path for path in paths if path.name.endswith(_NAMES)), key=_natural_order)
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
    """A key that sorts "rank2" before "rank10"; numbers and other text alternate."""
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
    """True if a file may be a trace; an unreadable one may be, so that its reader says why."""
    try:
        with open_source(Source(str(file), None, named=False)) as stream:
            head = stream.read(_HEAD_BYTES)
    except (TracelabError, *READ_ERRORS):
        return True
    is_list = head.lstrip().startswith(b"[") and b'"ph"' in head
    return is_list or any(key in head for key in _TRACE_KEYS)


def _copy_of_pipe(path: str) -> str:
    """A file with all that comes out of a pipe, as long as this process lives."""
    copy = new_copy()
    with open(path, "rb") as pipe, open(copy, "wb") as file:
        shutil.copyfileobj(pipe, file)
    return str(copy)


def named_source(path: str) -> Source:
    """The file of a path or a URL that a user names."""
    shown = shown_path(path)
    without_query = shown.partition("?")[0] if is_url(path) else path
    rank = rank_in(re.split(r"[/\\]", without_query)[-1])
    return Source(shown, rank, named=True, copy=None if shown == path else path)


_NAMES = (".json", ".json.gz", ".pftrace", ".pftrace.gz")
_EVENTS = "traceEvents"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_ZIP_MAGIC = b"PK\x03\x04"
_MAX_OPEN_FILES, _MAX_MEMBERS = 512, 4096
# What a tar says of a member; tarfile holds it in memory.
_MAX_TAR_HEADER_BYTES = 1 << 20
_BLOCK = 1 << 20
_OF_SGLANG = re.compile(rb'("pid"\s*:\s*)"\[((?:[TDPE]P\d+-?)+)\] ([^"]*)"')
_OF_TRACELENS = re.compile(rb'"rank"\s*:\s*(\d{1,9})\b')
_FUSED = re.compile(rb'"(?:pid|correlation|External id|id)_raw"\s*:')

# Of the text of an event: its rank as the file calls it, and the text without it.
_RankOf = Callable[[bytes], tuple[str, bytes] | None]


def parts_of(source: Source) -> list[Source]:
    """The traces in a local file that holds several; none where it is one trace, or anything else.

    An UnreadableInputError for an archive that is damaged, without a trace, or unpacks to too much.
    """
    head = b""
    with suppress(TracelabError, *READ_ERRORS):  # its reader says what is wrong
        if not is_url(source.path):
            with open_source(source) as stream:
                head = stream.read(_HEAD_BYTES)
    if head.startswith(_ZIP_MAGIC):
        return _members(source, _zip_members(source))
    if head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        return _members(source, _tar_members(source))
    if _OF_SGLANG.search(head):
        return _ranks(source, _rank_of_sglang)
    if _FUSED.search(head) and _OF_TRACELENS.search(head):
        return _ranks(source, _rank_of_tracelens)
    return []


def new_copy() -> Path:
    """A place for a file that lives as long as this process."""
    return Path(_folder().name, str(next(_numbers_of_copies)))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    name = hidden_path(Path(tempfile.gettempdir())).name
    return tempfile.TemporaryDirectory(prefix=name, ignore_cleanup_errors=True)


_numbers_of_copies = count()


def _members(source: Source, members: Iterator[tuple[str, IO[bytes]]]) -> list[Source]:
    packed_bytes = Path(source.copy or source.path).stat().st_size
    unpacked_bytes, parts = 0, []
    try:
        for name, content in members:
            if not name.endswith(_NAMES):
                continue
            copy = new_copy()
            with open(copy, "wb") as target:
                while block := content.read(_BLOCK):
                    unpacked_bytes += len(block)
                    source.require_few(unpacked_bytes, packed_bytes, MAX_RATIO)
                    target.write(block)
            path, rank = f"{source.path}/{name}", rank_in(Path(name).name)
            parts.append(replace(source, path=path, rank=rank, named=False, copy=str(copy)))
            if len(parts) > _MAX_MEMBERS:
                raise UnreadableInputError(
                    f"{source.path}: the archive holds more than {_MAX_MEMBERS:,} .json files"
                )
    except (tarfile.TarError, zipfile.BadZipFile, NotImplementedError, *READ_ERRORS) as error:
        raise UnreadableInputError(f"{source.path}: the archive is damaged: {error}") from None
    if not parts:
        raise UnreadableInputError(f"{source.path}: the archive holds no .json file")
    return sorted(parts, key=lambda part: (part.rank is None, part.rank or 0, part.path))


class _Headers(io.BufferedIOBase):
    """A stream of a tar that refuses long headers: `left_bytes` may precede the next member."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self.left_bytes = _MAX_TAR_HEADER_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        read = self._stream.read(size)
        self.left_bytes -= len(read)
        if self.left_bytes < 0:
            raise tarfile.ReadError("a member's header is too long")
        return read


def _tar_members(source: Source) -> Iterator[tuple[str, IO[bytes]]]:
    with open_source(source) as stream:
        headers = _Headers(stream)
        with tarfile.open(fileobj=headers, mode="r|") as archive:
            for member in archive:
                is_file = member.isreg() and not member.issparse()
                headers.left_bytes = _MAX_TAR_HEADER_BYTES + is_file * member.size
                if is_file and (content := archive.extractfile(member)):
                    yield member.name, content


def _zip_members(source: Source) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(source.copy or source.path) as archive:
        for member in archive.infolist():
            if member.flag_bits & 1:
                raise UnreadableInputError(f"{source.path}: {member.filename} is encrypted")
            with archive.open(member) as content:
                yield member.filename, content


def _ranks(source: Source, rank_of: _RankOf) -> list[Source]:
    """A source of each rank of a merged file; none where it is of one."""
    copies: dict[str, Path] = {}
    with ExitStack() as stack, open_source(source) as stream:
        files: dict[str, IO[bytes]] = {}
        reader = ArrayReader(stream, source.path, _EVENTS, decode_texts, is_text_of_event)
        for texts in reader:
            of_rank: dict[str, list[bytes]] = {}
            for label, text in filter(None, map(rank_of, texts)):
                of_rank.setdefault(label, []).append(text)
            for label, some in of_rank.items():
                if label not in files:
                    if len(files) == _MAX_OPEN_FILES:
                        return []
                    copies[label] = new_copy()
                    packed = gzip.GzipFile(copies[label], "wb", compresslevel=1)
                    files[label] = stack.enter_context(io.BufferedWriter(packed, _BLOCK))
                    files[label].write(b'{"%b": [\n' % _EVENTS.encode())
                else:
                    files[label].write(b",\n")
                files[label].write(b",\n".join(some))
        ranks = _numbers(list(copies))
        # Where something was lost, no part ends: each says that it is not whole.
        is_whole = not (+reader.losses).keys() - {"repairs"}
        for label, file in files.items() if is_whole else ():
            about = orjson.dumps(_select_rank(reader.metadata, ranks[label], len(ranks)))
            file.write(b"\n],\n" + about[1:])
    if len(copies) < 2:  # one rank is the file itself
        return []
    return [
        replace(source, path=f"{source.path}/{label}", rank=rank, copy=str(copies[label]))
        for label, rank in sorted(ranks.items(), key=lambda item: item[1])
    ]


def _rank_of_sglang(text: bytes) -> tuple[str, bytes] | None:
    # The label before the process id, and the text with the process id alone.
    found = _OF_SGLANG.search(text)
    if found is None:
        return None
    key, label, process = found.groups()
    number = process if re.fullmatch(rb"0|[1-9][0-9]*", process) else b'"%b"' % process
    return label.decode(), b"".join((text[: found.start()], key, number, text[found.end() :]))


def _rank_of_tracelens(text: bytes) -> tuple[str, bytes] | None:
    # The last argument "rank": the fusion adds it to those of the profiler.
    found = _OF_TRACELENS.findall(text)
    return (f"rank{int(found[-1])}", text) if found else None


def _numbers(labels: list[str]) -> dict[str, int]:
    """The rank in the whole job of each label: its only number that differs, else its place."""
    found = {label: re.search(r"(?:TP|rank)(\d+)", label) for label in labels}
    numbers = {label: int(match[1]) for label, match in found.items() if match}
    if len(set(numbers.values())) == len(labels):
        return numbers
    return {label: place for place, label in enumerate(sorted(labels))}


def _select_rank(metadata: dict[str, Any], rank: int, count: int) -> dict[str, Any]:
    job = mapping(metadata.get("distributedInfo"))
    world_size = max(natural_number(job.get("world_size")), count)
    return {**metadata, "distributedInfo": {**job, "rank": rank, "world_size": world_size}}
