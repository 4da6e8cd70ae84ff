"""Turn decoded events into the columns of a `Trace`.

They may be of today's categories or the old capitalised ones, of CUDA or ROCm, complete or
begin/end pairs, with numbers or words as process ids.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from tracelab.errors import UnreadableInputError
from tracelab.intervals import Int64Array
from tracelab.model.trace import (
    ABSENT,
    GPU_ACTIVITIES,
    HOST_CALLS,
    Category,
    SparseColumn,
    Thread,
    Trace,
    count_losses,
)
from tracelab.read.events import Arguments, Event, Number, natural_number
from tracelab.read.metadata import rank_of
from tracelab.read.streams import Source

_CATEGORIES: Mapping[str, Category] = {
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "memset": Category.MEMSET,
    "cuda_runtime": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,
    "runtime": Category.RUNTIME,
    "cuda_driver": Category.DRIVER,
    "hip_driver": Category.DRIVER,
    "driver": Category.DRIVER,
    "cpu_op": Category.OPERATOR,
    "operator": Category.OPERATOR,
    "python_function": Category.PYTHON,
    "user_annotation": Category.ANNOTATION,
    "gpu_user_annotation": Category.GPU_ANNOTATION,
    "cuda_sync": Category.SYNC,
    "cuda_event": Category.CUDA_EVENT,
    "overhead": Category.OVERHEAD,
    "trace": Category.OVERHEAD,
}


def _is_one_of(*categories: Category) -> NDArray[np.bool_]:
    """bool[len(Category)], to be indexed by a column of categories."""
    return np.isin(np.arange(len(Category)), categories)


_IN_LANE = _is_one_of(*GPU_ACTIVITIES)
_OF_SYNCS = _is_one_of(Category.SYNC, Category.CUDA_EVENT)
_ON_DEVICE = _IN_LANE | _OF_SYNCS
_WITH_ARGUMENTS = _ON_DEVICE | _is_one_of(*HOST_CALLS)

# Column, the categories that have it, whether it is in "args", and its key there. A column's
# later keys stand in for an earlier one that is absent.
_SPARSE = (
    ("correlation", _WITH_ARGUMENTS, True, "correlation"),
    ("stream_number", _ON_DEVICE, True, "stream"),
    ("device_number", _ON_DEVICE, True, "device"),
    (
        "device_number",
        _IN_LANE,
        True,
        "inDevice",
    ),  # a peer copy has no "device": this one's engine copies
    # Old files tell where a GPU activity ran only by the row that they draw it in.
    ("stream_number", _IN_LANE, False, "tid"),
    ("device_number", _IN_LANE, False, "pid"),
    ("wait_stream_number", _OF_SYNCS, True, "wait_on_stream"),
    ("wait_correlation", _OF_SYNCS, True, "wait_on_cuda_event_record_corr_id"),
    ("cuda_event_number", _OF_SYNCS, True, "wait_on_cuda_event_id"),
    ("cuda_event_number", _OF_SYNCS, True, "event_id"),
)

# The phases of the trace event format; only X, B and E can be work.
_KNOWN_PHASES = frozenset("XBEbneSTpFstfiIMNODPCRrVvc(){}=")
_UNUSED_PHASES = _KNOWN_PHASES - frozenset("BEM")  # X is used, but needs no second look

# A float64 of microseconds with three decimals still tells nanoseconds apart below this value;
# above it the digits of the text must be read.
_EXACT_BELOW_US = 2.0**43
_NO_ARGUMENTS = Arguments()
# 142 years: any two such times, and a duration more, are less than int64 nanoseconds apart.
_LAST_US = 2**52
# A duration of a hundred days and more is a wrapped counter, not work.
_LONGEST_US = 2**43


class InexactTimesError(UnreadableInputError):
    """Times came as floats that are too coarse for nanoseconds."""


class _Table(dict[Any, int]):
    """Numbers keys by the text that stands for them; every key is looked at once."""

    def __init__(self, text: Callable[[Any], Hashable]) -> None:
        super().__init__()
        self._text = text
        self.rows: dict[Any, int] = {}

    def __missing__(self, key: Any) -> int:
        number = self[key] = self.rows.setdefault(self._text(key), len(self.rows))
        return number

    def numbers(self, keys: Collection[Hashable]) -> NDArray[np.int32]:
        """The number of each key."""
        return np.fromiter(map(self.__getitem__, keys), dtype=np.int32, count=len(keys))


class _Categories(dict[str, int]):
    """What the profilers' versions call the categories; every text is looked at once."""

    def __missing__(self, text: str) -> int:
        code = self[text] = _CATEGORIES.get(text.lower(), Category.OTHER)
        return code


class _Growing:
    """Columns to which pieces are appended, so that no moment needs them twice."""

    def __init__(self) -> None:
        self._bytes: defaultdict[str, bytearray] = defaultdict(bytearray)
        self._types: dict[str, np.dtype[Any]] = {}

    def append(self, piece: Mapping[str, NDArray[Any]]) -> None:
        """Append a piece of each column."""
        for name, column in piece.items():
            self._types[name] = column.dtype
            self._bytes[name] += column.data

    def append_absent(self) -> None:
        """Append a row of nothing but `ABSENT`."""
        for name, type_ in self._types.items():
            self._bytes[name] += np.array(ABSENT, type_).tobytes()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns; nothing can be appended as long as one of them lives."""
        return {
            name: np.frombuffer(self._bytes[name], type_) for name, type_ in self._types.items()
        }


class Columns:
    """Collects pieces of events into columns."""

    def __init__(self) -> None:
        self._names = _Table(str)
        self._threads = _Table(_thread_key)
        self._categories = _Categories()
        self._thread_names: dict[tuple[str, str], str] = {}
        self._losses: Counter[str] = Counter()
        self._dense = _Growing()
        self._sparse = _Growing()
        self._begin_end: list[tuple[int, Event]] = []
        self._objects = 0

    def add(self, events: list[Event]) -> None:
        """Take one piece of the file's array of events."""
        phases = [event.ph for event in events]
        rows = [row for row, phase in enumerate(phases) if phase == "X"]
        if not _UNUSED_PHASES.issuperset(phases):
            self._read_others(events)
        self._add_complete([events[row] for row in rows], np.array(rows) + self._objects)
        self._objects += len(events)

    def add_all(self, others: Columns) -> None:
        """Take the columns of what follows in the file."""
        dense = others._dense.arrays()
        for name, table, rows in (
            ("name_index", self._names, others._names.rows),
            ("thread_index", self._threads, others._threads.rows),
        ):
            dense[name] = table.numbers(rows)[dense[name]]
        dense["file_index"] = dense["file_index"] + np.int32(self._objects)
        self._dense.append(dense)
        self._sparse.append(others._sparse.arrays())
        self._thread_names |= others._thread_names
        self._losses += others._losses
        self._begin_end += [(self._objects + place, event) for place, event in others._begin_end]
        self._objects += others._objects

    def finish(
        self, source: Source, metadata: Mapping[str, Any], losses: Mapping[str, int]
    ) -> Trace:
        """The trace of all the pieces."""
        self._add_pairs()
        self._sparse.append_absent()
        dense: dict[str, Any] = self._dense.arrays()
        if not len(dense["start_ns"]):
            lost = count_losses(self._losses + Counter(losses))
            raise UnreadableInputError(f"{source.path}: the trace holds no complete event{lost}")
        has_arguments = dense.pop("has_arguments")
        row = np.cumsum(has_arguments, dtype=np.int32) - np.int32(1)
        row[~has_arguments] = np.count_nonzero(has_arguments)
        if np.any(np.diff(dense["file_index"]) < 0):  # begin and end events were joined last
            order = np.argsort(dense["file_index"], kind="stable")
            dense, row = {key: column[order] for key, column in dense.items()}, row[order]
        origin_ns = int(dense["start_ns"].min())
        dense["start_ns"] -= origin_ns
        sparse: dict[str, Any] = {
            key: SparseColumn(row, values) for key, values in self._sparse.arrays().items()
        }
        rank, rank_source = rank_of(metadata, source)
        return Trace(
            path=source.path,
            rank=rank,
            rank_source=rank_source,
            origin_ns=origin_ns,
            **dense,
            **sparse,
            strings=tuple(self._names.rows),
            threads=tuple(
                Thread(process, thread, self._thread_names.get((process, thread), ""))
                for process, thread in self._threads.rows
            ),
            metadata=MappingProxyType(dict(metadata)),
            objects=self._objects,
            losses=MappingProxyType(dict(self._losses + Counter(losses))),
        )

    def _add_complete(self, events: list[Event], position: Int64Array) -> None:
        starts, durations = [event.ts for event in events], [event.dur for event in events]
        names = [event.name for event in events]
        start_ns, start_known = _nanoseconds(starts)
        duration_ns, duration_known = _nanoseconds(durations)
        if not (start_known.all() and duration_known.all() and all(names)):
            values = zip(starts, durations, names, strict=True)
            kept = [row for row, needed in enumerate(values) if None not in needed]
            if len(kept) < len(events):
                self._losses["incomplete_events"] += len(events) - len(kept)
                self._add_complete([events[row] for row in kept], position[kept])
                return
        categories = [event.cat for event in events]
        category = np.fromiter(map(self._categories.__getitem__, categories), np.int8, len(events))
        having = np.flatnonzero(_WITH_ARGUMENTS[category])
        sparse = _arguments([events[row] for row in having.tolist()], category[having])
        absurd = ~start_known | ~duration_known | (duration_ns >= _LONGEST_US * 1000)
        nowhere = np.zeros(len(events), dtype=np.bool_)
        nowhere[having] = (sparse["device_number"] == ABSENT) | (sparse["stream_number"] == ABSENT)
        kept_rows = np.ones(len(events), dtype=np.bool_)
        for loss, faulty in (  # an event is counted under the first of its faults
            ("absurd_times", absurd),
            ("negative_durations", duration_ns < 0),
            ("activities_without_lane", nowhere & _IN_LANE[category]),
        ):
            self._losses[loss] += int((kept_rows & faulty).sum())
            kept_rows &= ~faulty
        dense: dict[str, NDArray[Any]] = {
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "category": category,
            "name_index": self._names.numbers(names),
            "thread_index": self._threads.numbers([(event.pid, event.tid) for event in events]),
            "file_index": position.astype(np.int32),
            "has_arguments": _WITH_ARGUMENTS[category],
        }
        if not kept_rows.all():
            dense = {key: column[kept_rows] for key, column in dense.items()}
            sparse = {key: column[kept_rows[having]] for key, column in sparse.items()}
        self._dense.append(dense)
        self._sparse.append(sparse)

    def _read_others(self, events: list[Event]) -> None:
        for position, event in enumerate(events, self._objects):
            if event.ph == "M":
                if event.name == "thread_name":
                    name = event.args.name if event.args else None
                    self._thread_names[_thread_key((event.pid, event.tid))] = str(name or "")
            elif event.ph in ("B", "E"):
                self._begin_end.append((position, event))
            elif event.ph not in _KNOWN_PHASES:
                self._losses["unknown_phases"] += 1

    def _add_pairs(self) -> None:
        """Join begin and end events: per thread, an end closes the latest open begin."""
        times, known = _nanoseconds([event.ts for _, event in self._begin_end])
        order = [i for i in np.argsort(times, kind="stable").tolist() if known[i]]
        unmatched = len(times) - len(order)
        open_events: dict[tuple[str, str], list[int]] = defaultdict(list)
        complete: list[Event] = []
        positions: list[int] = []
        for i in order:
            _, event = self._begin_end[i]
            waiting = open_events[_thread_key((event.pid, event.tid))]
            if event.ph == "B":
                waiting.append(i)
            elif waiting:
                j = waiting.pop()
                position, begin = self._begin_end[j]
                begin.dur = str(Decimal(int(times[i] - times[j])).scaleb(-3))
                begin.args = _merged(begin.args, event.args)
                complete.append(begin)
                positions.append(position)
            else:
                unmatched += 1
        unmatched += sum(map(len, open_events.values()))
        self._losses["unmatched_begin_end"] += unmatched
        if complete:
            self._add_complete(complete, np.array(positions))


def _thread_key(numbers: tuple[Any, Any]) -> tuple[str, str]:
    """Process and thread as text, because files use numbers and words, even for the same one."""
    process, thread = ("" if number is None else str(number) for number in numbers)
    return process, thread


def _merged(begin: Arguments | None, end: Arguments | None) -> Arguments | None:
    """The arguments of a begin event with those that its end event has beside or instead."""
    if begin is None or end is None:
        return begin or end
    pairs = zip(astuple(begin), astuple(end), strict=True)
    return Arguments(*[old if new == ABSENT else new for old, new in pairs])


def _arguments(events: list[Event], category: NDArray[np.int8]) -> dict[str, NDArray[Any]]:
    """The columns that come from the arguments of GPU activities, calls and syncs."""
    arguments = [event.args or _NO_ARGUMENTS for event in events]
    columns = {field[0]: np.full(len(events), ABSENT, dtype=np.int64) for field in _SPARSE}
    for column, having, in_arguments, key in _SPARSE:
        values = columns[column]
        rows = np.flatnonzero(having[category] & (values == ABSENT))
        if not len(rows):
            continue
        chosen: list[Any] = arguments if in_arguments else events
        values[rows] = _integers(list(map(attrgetter(key), map(chosen.__getitem__, rows.tolist()))))
    columns["device_number"][columns["device_number"] >= 2**31] = ABSENT
    return {**columns, "device_number": columns["device_number"].astype(np.int32)}


def _integers(values: list[Any]) -> Int64Array:
    """int64[n]: each value by `_integer`."""
    integers = _numbers(values)
    if integers is not None and integers.dtype == np.int64:
        natural: Int64Array = np.maximum(integers, ABSENT)
        return natural
    return np.array([natural_number(value) for value in values], dtype=np.int64)


def _nanoseconds(values: list[Number]) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Microseconds as decoded or as text: int64[n] ns, and bool[n], whether the value is a time.

    Raises:
        InexactTimesError: a float is too large to tell nanoseconds apart.
    """
    us = _numbers(values)
    if us is not None and us.dtype == np.int64:
        known = (us >= -_LAST_US) & (us <= _LAST_US)
        return np.where(known, us, 0) * 1000, known
    if us is not None and np.all(np.abs(us) < _EXACT_BELOW_US):
        whole = np.floor(us)
        fraction = np.rint((us - whole) * 1000)
        return whole.astype(np.int64) * 1000 + fraction.astype(np.int64), np.ones(len(us), np.bool_)
    if any(type(value) is float and abs(value) >= _EXACT_BELOW_US for value in values):
        raise InexactTimesError("its times are written so that nanoseconds are lost")
    exact = [_exact_nanoseconds(value) for value in values]
    known = np.array([value is not None for value in exact], dtype=np.bool_)
    return np.array([value or 0 for value in exact], dtype=np.int64), known


def _numbers(values: list[Any]) -> NDArray[Any] | None:
    """int64[n] or float64[n]; None if a value is no number, or is too large for either.

    numpy itself would make an array as wide as the longest text.
    """
    for letter in "qd":
        try:
            return np.asarray(array(letter, values))
        except (TypeError, OverflowError):
            continue
    return None


def _exact_nanoseconds(value: Any) -> int | None:
    """One time in microseconds, by its digits; None where it is no time."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        us = Decimal(value) if isinstance(value, int) else Decimal(str(value))
        if not -_LAST_US <= us <= _LAST_US:
            return None
        return int((us * 1000).to_integral_value())
    except InvalidOperation:
        return None
