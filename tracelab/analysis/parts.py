"""Files of parts: each node of a job reduces its own traces, and one of them merges what they give.

A file is packed msgpack, nothing of which is executed. Arrays are differences, byte by byte;
moments of a rank are stored once, arrays of them as their numbers.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from tracelab.analysis.reports import FileResult, drop_program, merge_results
from tracelab.base import __version__
from tracelab.base.arrays import Record
from tracelab.base.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.base.options import Options
from tracelab.job.part import RankPart
from tracelab.job.replay import MAX_RANKS
from tracelab.read.streams import READ_ERRORS, Source, open_source
from tracelab.report.load import parse_report
from tracelab.report.schema import Report

_SCHEMA = "tracelab.parts/1"
_MOMENTS = ("starts", "ends", "start_ns", "end_ns", "since_ns", "launched_ns", "moment_ns")
_Moments = NDArray[np.int64]
_ERRORS = {error.exit_code: error for error in TracelabError.__subclasses__()}


class _Head(Record):
    schema: str
    version: str


class _Result(Record):
    """A packed `FileResult`: its report is JSON, its error exit code, sentence and option."""

    source: Source
    report: bytes | None
    error: tuple[int, str, str | None] | None
    part: bytes | None


class _Options(Record):
    """The options that a report depends on; all others are those of one machine."""

    all_pairs: bool
    comm_pattern: tuple[str, ...]
    job: bool
    prices: bool
    step: int | None
    step_on: str


class _Parts(Record):
    schema: str
    version: str
    paths: tuple[str, ...]
    options: _Options
    results: tuple[_Result, ...]


def pack_parts(results: Sequence[FileResult], paths: Sequence[str], options: Options) -> bytes:
    """Pack the results of one node's files, analyzed as several, for a job that is merged later."""
    chosen = msgspec.convert(options, _Options, from_attributes=True)
    parts = _Parts(_SCHEMA, __version__, tuple(paths), chosen, tuple(map(_packed, results)))
    return lzma.compress(msgspec.msgpack.encode(parts))


def pack_part(part: RankPart) -> bytes:
    """Pack the part of one rank; `lzma` packs it further, of several ranks together."""
    arrays = list(_moments_of(part))
    moments = np.unique(np.concatenate(arrays))
    pack = _array_packer(moments, frozenset(map(id, arrays)))
    return msgspec.msgpack.encode((moments, part), enc_hook=pack)


def unpack_part(content: bytes) -> RankPart:
    """Return the part that `pack_part` packed."""
    packed: Any = tuple[_Moments, RankPart]
    part: RankPart = msgspec.msgpack.decode(content, type=packed, dec_hook=_array_unpacker())[1]
    return part


def merge_parts(paths: Sequence[str]) -> tuple[Report, list[FileResult], Options]:
    """Merge files of parts: the report of all files, their results, and the options.

    Raises:
        UnreadableInputError: one is missing, damaged, or of another version.
        UsageError: they were made with different options, or two of them have the same rank.
    """
    results: list[FileResult] = []
    names: list[str] = []
    options: dict[str, Any] = {}
    file_of: dict[int, str] = {}
    for path in paths:
        parts, of_file = _read(path)
        for name, value in msgspec.structs.asdict(parts.options).items():
            other = options.setdefault(name, value)
            if value != other:
                raise UsageError(f"`{name}` is {other!r} in {paths[0]}, {value!r} in {path}")
        traces = [x.report.traces[0] for x in of_file if x.report is not None]
        for rank in {x.rank for x in traces if x.rank_source != "position"}:
            if rank in file_of:
                raise UsageError(f"rank {rank} is in {file_of[rank]} and in {path}")
            file_of[rank] = path
        results += of_file
        names += parts.paths
    asked = Options(**options)
    return merge_results(results, names, asked), results, asked


def _packed(result: FileResult) -> _Result:
    report, error = result.report, result.error
    if report is not None and (report.traces[0].world_size or 0) > MAX_RANKS:
        result = drop_program(result)
    return _Result(
        Source(result.source.path, result.source.rank, result.source.named),
        None if report is None else report.to_json(),
        None if error is None else (error.exit_code, str(error), error.option),
        None if result.part is None else pack_part(result.part),
    )


def _unpacked(result: _Result, path: str) -> FileResult:
    code, sentence, option = result.error or (0, "", None)
    error = _ERRORS.get(code, TracelabError)(sentence, option=option) if code else None
    report = None if result.report is None else parse_report(result.report, path)
    part = None if result.part is None else unpack_part(result.part)
    return FileResult(result.source, report, error, part=part)


def _read(path: str) -> tuple[_Parts, list[FileResult]]:
    try:
        with open_source(Source(path, None, named=True)) as stream:
            content = stream.read()
        head = msgspec.msgpack.decode(content, type=_Head)
        if head.version != __version__:
            raise UnreadableInputError(
                f"{path}: these parts are of tracelab {head.version}, and this is {__version__}: "
                "make them again"
            )
        parts = msgspec.msgpack.decode(content, type=_Parts)
        return parts, [_unpacked(one, path) for one in parts.results]
    except (*READ_ERRORS, msgspec.DecodeError, UnicodeDecodeError, IndexError):
        raise UnreadableInputError(
            f"{path}: is damaged, or no file of parts that tracelab wrote"
        ) from None


def _moments_of(value: Any) -> Iterator[_Moments]:
    if isinstance(value, Record):
        for name in value.__struct_fields__:
            field = getattr(value, name)
            if name.endswith(_MOMENTS) and isinstance(field, np.ndarray):
                yield field
            else:
                yield from _moments_of(field)
    elif isinstance(value, tuple | Mapping):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _moments_of(one)


def _array_packer(moments: _Moments, ids: Set[int]) -> Callable[[Any], Any]:
    """Return a function that packs arrays; one that comes again becomes its number.

    An array in `ids` becomes a list of its numbers among the moments.
    """
    numbers: dict[int, int] = {}

    def pack(array: NDArray[Any]) -> bytes | int | list[bytes]:
        if id(array) in numbers:
            return numbers[id(array)]
        numbers[id(array)] = len(numbers)
        if id(array) in ids:
            return [_differences(np.searchsorted(moments, array))]
        return _differences(array)

    return pack


def _differences(array: NDArray[Any]) -> bytes:
    """Pack differences: how many bytes each takes, and these; the lowest bit is the sign."""
    difference = np.diff(array.astype("<i8"), prepend=0)
    by_value = (difference << 1 ^ difference >> 63).view(np.uint8).reshape(-1, 8).T
    size = 1 + int(np.flatnonzero(by_value.any(axis=1)).max(initial=0))
    return bytes([size]) + by_value[:size].tobytes()


def _array_unpacker() -> Callable[[Any, Any], Any]:
    arrays: list[NDArray[Any]] = []

    def unpack(kind: Any, content: Any) -> NDArray[Any]:
        if isinstance(content, int):
            return arrays[content]
        [dtype] = get_args(get_args(kind)[1])
        array = arrays[0][_summed(content[0])] if isinstance(content, list) else _summed(content)
        arrays.append(array.astype(dtype))
        return arrays[-1]

    return unpack


def _summed(content: bytes) -> NDArray[np.int64]:
    by_value = np.frombuffer(content, np.uint8, offset=1).reshape(content[0], -1)
    difference = np.zeros((by_value.shape[1], 8), np.uint8)
    difference[:, : content[0]] = by_value.T
    packed = difference.view("<u8").reshape(-1)
    return np.cumsum((packed >> 1 ^ -(packed & 1)).view("<i8"))
