"""Turn a Chrome trace of `torch.profiler` into a `Trace`; the only file that knows a JSON key.

It reads Kineto's layouts of all ages: today's categories and the old capitalised ones, CUDA and
ROCm, an object with "traceEvents" or a bare list, complete events and begin/end pairs, numbers or
words as process ids.
"""

from __future__ import annotations

import gc
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tracelab.errors import UnreadableInputError
from tracelab.intervals import Int64Array
from tracelab.jsonstream import ArrayReader
from tracelab.sources import Source, open_source
from tracelab.trace import (
    ABSENT,
    GPU_ACTIVITIES,
    HOST_CALLS,
    Category,
    Thread,
    Trace,
    count_losses,
)

_EVENTS = "traceEvents"

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
_WITH_CORRELATION = _ON_DEVICE | _is_one_of(*HOST_CALLS)

# Column, the categories that have it, whether it is in "args", and its key there. A column's
# later keys stand in for an earlier one that is absent.
_ARGUMENTS = (
    ("correlation", _WITH_CORRELATION, True, "correlation"),
    ("stream", _ON_DEVICE, True, "stream"),
    ("device", _ON_DEVICE, True, "device"),
    ("device", _IN_LANE, True, "inDevice"),  # a peer copy has no "device": this one's engine copies
    # Old files tell where a GPU activity ran only by the row that they draw it in.
    ("stream", _IN_LANE, False, "tid"),
    ("device", _IN_LANE, False, "pid"),
    ("wait_stream", _OF_SYNCS, True, "wait_on_stream"),
    ("wait_correlation", _OF_SYNCS, True, "wait_on_cuda_event_record_corr_id"),
    ("event", _OF_SYNCS, True, "wait_on_cuda_event_id"),
    ("event", _OF_SYNCS, True, "event_id"),
)

# The phases of the trace event format; only X, B and E can be work.
_KNOWN_PHASES = frozenset("XBEbneSTpFstfiIMNODPCRrVvc(){}=")

# A float64 of microseconds with three decimals still tells nanoseconds apart below this value;
# above it the digits of the text must be read.
_EXACT_BELOW_US = 2.0**43
_TIME_FIELD = re.compile(rb'("(?:ts|dur)"\s*:\s*)(-?\d[0-9.eE+-]*)')
_LAST_NUMBER = re.compile(r"(?<!\d)-?\d{1,19}$")
# 142 years: any two such times, and a duration more, are less than int64 nanoseconds apart.
_LAST_US = 2**52
# A duration of a hundred days and more is a wrapped counter, not work.
_LONGEST_US = 2**43


def read_trace(source: Source) -> Trace:
    """Read one file.

    Raises:
        UnreadableInputError: it cannot be opened, is no trace, or holds no complete event.
        MissingSupportError: its URL needs a package that is not installed.
    """
    columns = _Columns()
    with open_source(source) as stream, _collector_paused():
        reader = ArrayReader(stream, source.path, _EVENTS, _decode, _is_event)
        for events in reader:
            columns.add(events)
    return columns.finish(source, reader.metadata, reader.losses)


def read_arguments(source: Source, positions: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The arguments of a few events, which are not kept when a trace is read.

    Args:
        source: the file that the trace came from.
        positions: values of `Trace.position`.

    Returns:
        the event's "args" object by position; empty where the event has none.

    Raises:
        UnreadableInputError: the file can no longer be read.
        MissingSupportError: its URL needs a package that is not installed.
    """
    wanted = set(positions)
    found: dict[int, dict[str, Any]] = {}
    with open_source(source) as stream, _collector_paused():
        first = 0
        for events in ArrayReader(stream, source.path, _EVENTS, orjson.loads, _is_event):
            for position in wanted.intersection(range(first, first + len(events))):
                found[position] = _mapping(_mapping(events[position - first]).get("args"))
            if len(found) == len(wanted):
                break
            first += len(events)
    return found


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection while millions of small objects come and go without a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _is_event(element: Any) -> bool:
    return isinstance(element, dict) and "ph" in element


def _decode(text: bytes) -> list[Any]:
    """Decode an array of events; times that a float cannot hold exactly come as their text."""
    events: list[Any] = orjson.loads(text)
    for event in events:
        if type(event) is dict:
            time = event.get("ts")
            if type(time) is float and not -_EXACT_BELOW_US < time < _EXACT_BELOW_US:
                return list(orjson.loads(_TIME_FIELD.sub(rb'\1"\2"', text)))
    return events


class _Table(dict[Any, int]):
    """Numbers keys by the text that stands for them; every key is looked at once."""

    def __init__(self, text: Callable[[Any], Hashable]) -> None:
        super().__init__()
        self._text = text
        self.rows: dict[Any, int] = {}

    def __missing__(self, key: Any) -> int:
        number = self[key] = self.rows.setdefault(self._text(key), len(self.rows))
        return number

    def numbers(self, keys: list[Any]) -> NDArray[np.int32]:
        """The number of each key."""
        try:
            return np.fromiter(map(self.__getitem__, keys), dtype=np.int32, count=len(keys))
        except TypeError:  # a key that cannot be one: a list, say
            return self.numbers([self._text(key) for key in keys])


class _Columns:
    """Collects pieces of events into columns."""

    def __init__(self) -> None:
        self._names = _Table(str)
        self._threads = _Table(_thread_key)
        self._categories: dict[Any, int] = {}
        self._thread_names: dict[tuple[str, str], str] = {}
        self._losses: Counter[str] = Counter()
        self._pieces: list[dict[str, NDArray[Any]]] = []
        self._begin_end: list[tuple[int, dict[str, Any]]] = []
        self._objects = 0

    def add(self, events: list[Any]) -> None:
        """Take one piece of the file's array of events."""
        complete: list[dict[str, Any]] = []
        positions: list[int] = []
        for position, event in enumerate(events, self._objects):
            phase = event.get("ph") if type(event) is dict else None
            if phase == "X":
                complete.append(event)
                positions.append(position)
            elif phase == "M":
                self._read_thread_name(event)
            elif phase in ("B", "E"):
                self._begin_end.append((position, event))
            elif type(phase) is not str or phase not in _KNOWN_PHASES:
                self._losses["unknown_phases"] += 1
        self._objects += len(events)
        self._add_complete(complete, positions)

    def finish(
        self, source: Source, metadata: Mapping[str, Any], losses: Mapping[str, int]
    ) -> Trace:
        """The trace of all the pieces."""
        self._add_pairs()
        if not any(len(piece["start_ns"]) for piece in self._pieces):
            lost = count_losses(self._losses + Counter(losses))
            raise UnreadableInputError(f"{source.path}: the trace holds no complete event{lost}")
        columns = {
            key: np.concatenate([piece[key] for piece in self._pieces]) for key in self._pieces[0]
        }
        order = np.argsort(columns["position"], kind="stable")
        columns = {key: column[order] for key, column in columns.items()}
        origin_ns = int(columns["start_ns"].min())
        columns["start_ns"] -= origin_ns
        rank, rank_source = _rank(metadata, source)
        return Trace(
            path=source.path,
            rank=rank,
            rank_source=rank_source,
            origin_ns=origin_ns,
            **columns,
            strings=tuple(self._names.rows),
            threads=tuple(
                Thread(process, thread, self._thread_names.get((process, thread), ""))
                for process, thread in self._threads.rows
            ),
            metadata=MappingProxyType(dict(metadata)),
            objects=self._objects,
            losses=MappingProxyType(dict(self._losses + Counter(losses))),
        )

    def _add_complete(self, events: list[dict[str, Any]], positions: list[int]) -> None:
        starts, durations, names = (
            [event.get(key) for event in events] for key in ("ts", "dur", "name")
        )
        if None in starts or None in durations or None in names:
            values = zip(starts, durations, names, strict=True)
            kept = [i for i, needed in enumerate(values) if None not in needed]
            self._losses["incomplete_events"] += len(events) - len(kept)
            self._add_complete([events[i] for i in kept], [positions[i] for i in kept])
            return
        start_ns, start_known = _nanoseconds(starts)
        duration_ns, duration_known = _nanoseconds(durations)
        category = np.array([self._category(event.get("cat")) for event in events], dtype=np.int8)
        piece: dict[str, NDArray[Any]] = {
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "category": category,
            "name": self._names.numbers(names),
            "thread": self._threads.numbers([(e.get("pid"), e.get("tid")) for e in events]),
            "position": np.array(positions, dtype=np.int64),
            **_argument_columns(events, category),
        }
        absurd = ~start_known | ~duration_known | (duration_ns >= _LONGEST_US * 1000)
        negative = duration_ns < 0
        nowhere = (piece["device"] == ABSENT) | (piece["stream"] == ABSENT)
        kept_rows = np.ones(len(events), dtype=np.bool_)
        for loss, faulty in (  # an event is counted under the first of its faults
            ("absurd_times", absurd),
            ("negative_durations", negative),
            ("activities_without_lane", nowhere & _IN_LANE[category]),
        ):
            self._losses[loss] += int((kept_rows & faulty).sum())
            kept_rows &= ~faulty
        self._pieces.append({key: column[kept_rows] for key, column in piece.items()})

    def _add_pairs(self) -> None:
        """Join begin and end events: per thread, an end closes the latest open begin."""
        times, known = _nanoseconds([event.get("ts") for _, event in self._begin_end])
        order = [i for i in np.argsort(times, kind="stable").tolist() if known[i]]
        unmatched = len(times) - len(order)
        open_events: dict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        complete: list[dict[str, Any]] = []
        positions: list[int] = []
        for i in order:
            _, event = self._begin_end[i]
            waiting = open_events[_thread_key((event.get("pid"), event.get("tid")))]
            if event["ph"] == "B":
                waiting.append((i, event))
            elif waiting:
                j, begin = waiting.pop()
                length = Decimal(int(times[i] - times[j])).scaleb(-3)
                arguments = {**_mapping(begin.get("args")), **_mapping(event.get("args"))}
                complete.append({**begin, "dur": str(length), "args": arguments})
                positions.append(self._begin_end[j][0])
            else:
                unmatched += 1
        unmatched += sum(map(len, open_events.values()))
        self._losses["unmatched_begin_end"] += unmatched
        if complete:
            self._add_complete(complete, positions)

    def _category(self, text: Any) -> int:
        code = self._categories.get(text) if type(text) is str else Category.OTHER
        if code is None:
            code = self._categories[text] = _CATEGORIES.get(text.lower(), Category.OTHER)
        return code

    def _read_thread_name(self, event: dict[str, Any]) -> None:
        if event.get("name") == "thread_name":
            key = _thread_key((event.get("pid"), event.get("tid")))
            self._thread_names[key] = str(_mapping(event.get("args")).get("name") or "")


def _thread_key(numbers: tuple[Any, Any]) -> tuple[str, str]:
    """Process and thread as text, because files use numbers and words, even for the same one."""
    process, thread = ("" if number is None else str(number) for number in numbers)
    return process, thread


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _argument_columns(
    events: list[dict[str, Any]], category: NDArray[np.int8]
) -> dict[str, NDArray[Any]]:
    """The columns that come from the arguments of GPU activities, calls and syncs."""
    columns = {field[0]: np.full(len(events), ABSENT, dtype=np.int64) for field in _ARGUMENTS}
    for column, having, in_args, key in _ARGUMENTS:
        values = columns[column]
        rows = np.flatnonzero(having[category] & (values == ABSENT))
        chosen = [events[i] for i in rows.tolist()]
        if in_args:
            chosen = [_mapping(event.get("args")) for event in chosen]
        values[rows] = _integers([fields.get(key) for fields in chosen])
    columns["device"][columns["device"] >= 2**31] = ABSENT
    return {**columns, "device": columns["device"].astype(np.int32)}


def _integers(values: list[Any]) -> Int64Array:
    """int64[n]: each value by `_integer`."""
    if set(map(type, values)) == {int}:
        integers = np.array(values)
        if integers.dtype == np.int64:
            natural: Int64Array = np.maximum(integers, ABSENT)
            return natural
    return np.array([_integer(value) for value in values], dtype=np.int64)


def _integer(value: Any) -> int:
    """A natural number that may be written as text ("7", "stream 7"); ABSENT for anything else."""
    if type(value) is not int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        else:
            digits = _LAST_NUMBER.search(value) if isinstance(value, str) else None
            value = int(digits[0]) if digits else ABSENT
    return value if ABSENT < value < 2**63 else ABSENT


def _nanoseconds(values: list[Any]) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Microseconds as decoded or as text: int64[n] ns, and bool[n], whether the value is a time."""
    if set(map(type, values)) <= {int, float}:
        us = np.array(values)
        if us.dtype == np.int64:
            known = (us >= -_LAST_US) & (us <= _LAST_US)
            return np.where(known, us, 0) * 1000, known
        if us.dtype == np.float64 and np.all(np.abs(us) < _EXACT_BELOW_US):
            whole = np.floor(us)
            fraction = np.rint((us - whole) * 1000)
            ns = whole.astype(np.int64) * 1000 + fraction.astype(np.int64)
            return ns, np.ones(len(values), dtype=np.bool_)
    exact = [_exact_nanoseconds(value) for value in values]
    known = np.array([value is not None for value in exact], dtype=np.bool_)
    return np.array([value or 0 for value in exact], dtype=np.int64), known


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


def _rank(metadata: Mapping[str, Any], source: Source) -> tuple[int | None, str]:
    """The rank, and what says so: the file, or its name.

    In a job of one every rank is 0; there a name says more, which may count jobs side by side.
    """
    job = _mapping(metadata.get("distributedInfo"))
    rank, alone = _integer(job.get("rank")), _integer(job.get("world_size")) == 1
    if source.rank is not None and (rank == ABSENT or alone):
        return source.rank, "filename"
    return (rank, "metadata") if rank != ABSENT else (None, "none")
