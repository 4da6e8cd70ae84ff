"""Files of parts: each node of a job reduces its own traces, and one of them merges what they give.

A file is packed msgpack, of which only the types below are read: nothing in it is executed. The
differences of an array lie in it byte by byte, those of low value first, because most are zero.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from tracelab.analysis.reports import FileResult, drop_program, merge_results
from tracelab.base.arrays import Record
from tracelab.base.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.base.options import Options
from tracelab.base.version import __version__
from tracelab.job.part import RankPart
from tracelab.job.replay import MAX_RANKS
from tracelab.read.streams import READ_ERRORS, Source, open_source
from tracelab.report.load import parse_report
from tracelab.report.schema import Report

_SCHEMA = "tracelab.parts/1"
# What a report says depends on these; the other options are those of one machine.
_OPTIONS = ("all_pairs", "comm_pattern", "job", "prices", "step", "step_on")
_ERRORS = {error.exit_code: error for error in TracelabError.__subclasses__()}


class _Head(Record):
    schema: str
    version: str


class _Result(Record):
    """A `FileResult`; its report is JSON, its error the exit code, the sentence and the option."""

    source: Source
    report: bytes | None
    error: tuple[int, str, str | None] | None
    part: RankPart | None


class _Parts(Record):
    schema: str
    version: str
    paths: tuple[str, ...]
    options: dict[str, Any]
    results: tuple[_Result, ...]


def pack_parts(results: Sequence[FileResult], paths: Sequence[str], options: Options) -> bytes:
    """Pack the results of one node's files, for a job that is merged later.

    Args:
        results: of each file, analyzed as one of several.
        paths: where the files were looked for.
        options: of the analysis.
    """
    chosen = {name: getattr(options, name) for name in _OPTIONS}
    packed = tuple(map(_packed, results))
    return pack(_Parts(_SCHEMA, __version__, tuple(paths), chosen, packed))


def pack(value: Any) -> bytes:
    """Pack a result, or several."""
    return gzip.compress(msgspec.msgpack.encode(value, enc_hook=_array_packer()), mtime=0)


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
        parts = _read(path)
        for name, value in parts.options.items():
            other = options.setdefault(name, value)
            if value != other:
                raise UsageError(f"`{name}` is {other!r} in {paths[0]}, {value!r} in {path}")
        of_file = [_unpacked(one, path) for one in parts.results]
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
        result.part,
    )


def _unpacked(result: _Result, path: str) -> FileResult:
    code, sentence, option = result.error or (0, "", None)
    error = _ERRORS.get(code, TracelabError)(sentence, option=option) if code else None
    report = None if result.report is None else parse_report(result.report, path)
    return FileResult(result.source, report, error, part=result.part)


def _read(path: str) -> _Parts:
    try:
        with open_source(Source(path, None, named=True)) as stream:
            content = stream.read()
        head = msgspec.msgpack.decode(content, type=_Head)
        if head.version != __version__:
            raise UnreadableInputError(
                f"{path}: these parts are of tracelab {head.version}, and this is {__version__}: "
                "make them again"
            )
        return msgspec.msgpack.decode(content, type=_Parts, dec_hook=_array_unpacker())
    except (*READ_ERRORS, msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise UnreadableInputError(
            f"{path}: is damaged, or holds no parts of a job: {error}"
        ) from None


def _array_packer() -> Callable[[Any], Any]:
    """Return a function that packs arrays; one that comes again becomes its number."""
    numbers: dict[int, int] = {}

    def pack(array: NDArray[Any]) -> bytes | int:
        if id(array) in numbers:
            return numbers[id(array)]
        numbers[id(array)] = len(numbers)
        difference = np.diff(array.astype("<i8"), prepend=0)
        return difference.view(np.uint8).reshape(-1, 8).T.tobytes()

    return pack


def _array_unpacker() -> Callable[[Any, Any], Any]:
    arrays: list[NDArray[Any]] = []

    def unpack(kind: Any, content: Any) -> NDArray[Any]:
        if isinstance(content, int):
            return arrays[content]
        [dtype] = get_args(get_args(kind)[1])
        by_byte = np.frombuffer(content, np.uint8).reshape(8, -1)
        difference = np.ascontiguousarray(by_byte.T).view("<i8").reshape(-1)
        arrays.append(difference.cumsum().astype(dtype))
        return arrays[-1]

    return unpack
