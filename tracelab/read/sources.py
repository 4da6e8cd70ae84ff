"""Where traces come from: a file, a folder of them, or a URL; plain or gzip."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tracelab.errors import MissingSupportError, TracelabError, UnreadableInputError

fast_zlib: Any = zlib
with suppress(ImportError):
    from isal import isal_zlib as fast_zlib  # unpacks more than twice as fast

_TRACE_NAMES = ("trace.json", "trace.json.gz")
_JSON_NAMES = (".json", ".json.gz")
_HEAD = 65_536  # bytes: a trace shows by then that it is one
_TRACE_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
GZIP_MAGIC = b"\x1f\x8b"
_PACKED_BYTES = 128 * 1024  # of a gzip file, unpacked at once
READ_ERRORS = (
    EOFError,
    OSError,
    zlib.error,
    fast_zlib.error,
)  # of a stream that `open_source` gave

# "rank3", "global_rank-3". With its first group, a rank in a part of the job: "tp_rank1".
_RANK = re.compile(
    r"(?<![a-z])((?:local|node|group|shard|replicate|[tdpecsm]p|[dp]cp|e[td]p)[-_ ]?)?"
    r"rank[-_= ]?(\d+)",
    re.IGNORECASE,
)
# vLLM's "dp1_pp0_tp0_dcp0_ep2_rank0" counts the ranks of each data parallel replica from 0.
_LATER_REPLICA = re.compile(r"(?<![a-z])dp[-_]?0*[1-9]", re.IGNORECASE)
# SGLang's "ID-TP-3-DP-0-PP-0-EP-1-DECODE.trace.json.gz"; only dimensions of more than one are told.
_TENSOR_PARALLEL = re.compile(
    r"(?:^|-)TP-(\d+)((?:-[DPE]P-\d+)*)(?:-[A-Za-z]\w*)?(?:\.trace)?\.json"
)
_LATER_STAGE_OR_REPLICA = re.compile(r"-[DP]P-0*[1-9]")


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read.

    Attributes:
        path: a local path or a URL that fsspec knows.
        rank: the rank in the whole job that the file's name gives ("rank3", "TP-3"); None where it
            gives none, or only one in a part of the job.
        named: the user named this very file, rather than a folder that holds it.
    """

    path: str
    rank: int | None
    named: bool


def find_sources(paths: Iterable[str]) -> tuple[Source, ...]:
    """The files that these paths stand for, folders opened, in a stable order, each once.

    A folder stands for its ``*trace.json[.gz]`` files at any depth and for other ``*.json[.gz]``
    files that begin like a trace; without any of the first, for all its ``*.json[.gz]`` files. A
    copy of what lies beside it is left out: the same file compressed, or SGLang's merged file.

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


def size_of(source: Source) -> int:
    """The bytes of a file as it lies there, packed or not; 0 where that is not known."""
    try:
        return 0 if _is_url(source.path) else Path(source.path).stat().st_size
    except OSError:
        return 0


@contextmanager
def open_source(source: Source) -> Iterator[io.BufferedIOBase]:
    """A stream of the file's decompressed bytes; gzip is known by its content, not its name.

    Raises:
        UnreadableInputError: the file cannot be opened.
        MissingSupportError: the URL needs a package that is not installed.
    """
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(io.BufferedReader(_watch(_open_raw(source.path))))
            packed = stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
        except TracelabError:
            raise
        except ImportError as error:
            raise MissingSupportError(f"{source.path}: {error}") from None
        except Exception as error:  # each of fsspec's file systems has errors of its own
            raise _unreadable(source.path, error) from None
        yield opened.enter_context(io.BufferedReader(_Unpacked(stream))) if packed else stream


@contextmanager
def watched(tell: Callable[[int], object]) -> Iterator[None]:
    """Tell of each part that this thread reads of a file how many bytes, packed, it has."""
    token = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_watcher(count: int) -> None:
    """Tell that so many bytes of a file were read by something else than a stream of this file."""
    tell = _watcher.get()
    if tell is not None:
        tell(count)


_watcher: ContextVar[Callable[[int], object] | None] = ContextVar("watcher", default=None)


class _Watched(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, tell: Callable[[int], object]) -> None:
        self._raw = raw
        self._tell = tell

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._tell(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _watch(raw: io.RawIOBase) -> io.RawIOBase:
    tell = _watcher.get()
    return raw if tell is None else _Watched(raw, tell)


class _Unpacked(io.RawIOBase):
    """The bytes of a gzip file; of a damaged one, all those before the damage.

    The standard library's own reader cannot unpack by another package, and that package's reader
    gives nothing of a file that breaks off.
    """

    def __init__(self, packed: io.BufferedIOBase) -> None:
        self._packed = packed
        self._unread = b""
        self._member: Any = None  # what unpacks it: a file may be several, one after the other

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        unpacked = b""
        while not unpacked:
            data = self._unread or self._packed.read(_PACKED_BYTES)
            if self._member is None:
                if not data:
                    return 0
                self._unread = data.lstrip(b"\0")  # files are padded to whole blocks
                if self._unread:
                    self._member = fast_zlib.decompressobj(wbits=31)
                continue
            unpacked = self._member.decompress(data, len(buffer))
            if not data and not unpacked:
                raise EOFError("the compressed data breaks off")
            self._unread = self._member.unconsumed_tail
            if self._member.eof:
                self._unread, self._member = self._member.unused_data, None
        buffer[: len(unpacked)] = unpacked
        return len(unpacked)


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

    paths = [
        Path(parent, name) for parent, _, names in os.walk(folder, onerror=refuse) for name in names
    ]
    files = sorted((x for x in paths if x.name.endswith(_JSON_NAMES)), key=_natural_order)
    if not files:
        raise UnreadableInputError(f"{folder}: the folder holds no .json or .json.gz file")
    beside = defaultdict(set)
    for file in files:
        beside[file.parent].add(file.name)
    files = [file for file in files if not _is_copy(file, beside[file.parent])]
    if any(file.name.endswith(_TRACE_NAMES) for file in files):
        return [x for x in files if x.name.endswith(_TRACE_NAMES) or _begins_like_a_trace(x)]
    return files


def _natural_order(path: Path) -> list[list[str | int]]:
    """A key that sorts "rank2" before "rank10"; numbers and other text take turns."""
    return [
        [int(x) if i % 2 else x for i, x in enumerate(re.split(r"([0-9]+)", part))]
        for part in path.parts
    ]


def _is_copy(file: Path, beside: Set[str]) -> bool:
    """Whether all that a file holds is in files beside it, so that it would count twice."""
    if file.suffix == ".gz" and file.stem in beside:
        return _is_packed_from(file.with_suffix(""), file)
    merged = re.fullmatch(r"merged-(.+)\.trace\.json\.gz", file.name)
    return merged is not None and any(f"{merged[1]}-TP-" in name for name in beside)


def _is_packed_from(plain: Path, packed: Path) -> bool:
    """Whether a gzip file unpacks to as many bytes as the plain one has; its end tells that."""
    try:
        with open(packed, "rb") as stream:
            stream.seek(-4, os.SEEK_END)
            return int.from_bytes(stream.read(), "little") == plain.stat().st_size % 2**32
    except OSError:  # both stay, and their reader says what is wrong
        return False


def _begins_like_a_trace(file: Path) -> bool:
    """Whether a file may be a trace; what cannot be read may be, so that its reader says why."""
    try:
        with open_source(Source(str(file), None, named=False)) as stream:
            head = stream.read(_HEAD)
    except (TracelabError, *READ_ERRORS):
        return True
    is_list = head.lstrip().startswith(b"[") and b'"ph"' in head
    return is_list or any(key in head for key in _TRACE_KEYS)


def _source(path: str, *, named: bool) -> Source:
    file = path.partition("?")[0] if _is_url(path) else path
    return Source(path, _rank_in(re.split(r"[/\\]", file)[-1]), named)


def _rank_in(name: str) -> int | None:
    """The rank in the whole job, if a file's name leaves no doubt about it.

    A rank in a part of the job would pass for another file's; the trace itself tells most often.
    """
    ranks = [int(number) for dimension, number in _RANK.findall(name) if not dimension]
    if ranks:
        return None if _LATER_REPLICA.search(name) else ranks[-1]
    # Tensor parallel ranks are consecutive; how many make a stage or a replica is not told. A
    # group of expert parallel ranks lies within them.
    parallel = _TENSOR_PARALLEL.search(name)
    if parallel and not _LATER_STAGE_OR_REPLICA.search(parallel[2]):
        return int(parallel[1])
    return None


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
