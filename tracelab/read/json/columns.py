"""Turn decoded events, in any of the layouts there have been, into the columns of a `Trace`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int32Array, Int64Array
from tracelab.base.errors import UnreadableInputError
from tracelab.model.kernel_kinds import copy_direction
from tracelab.model.losses import count_losses
from tracelab.model.trace import ABSENT, Category, SparseColumn, Thread, Trace
from tracelab.read.json.events import WORDS
from tracelab.read.json.fields import (
    HAS_ARGUMENTS,
    IS_GPU_ACTIVITY,
    MOMENTS,
    OPERATORS_WITH_ARGUMENTS,
    TABLES,
    ArgumentTable,
    Event,
    KeyTable,
    MomentTable,
    Table,
    merged_arguments,
    row_column,
    sparse_columns,
)
from tracelab.read.json.metadata import (
    Platform,
    name_cells,
    platform_of,
    read_file_info,
    used_devices,
)
from tracelab.read.json.numbers import MAX_DURATION_NS, nanoseconds
from tracelab.read.streams import Source

_CATEGORIES = {word: Category[name] for name, words in WORDS.categories.items() for word in words}
_ARROW_CATEGORY = "ac2g"
_OUR_CATEGORIES = "tracelab."  # of the tracks that `write_perfetto` adds to a trace
# CUPTI's kinds of waits, as the names of its rows.
_KINDS_OF_WAITS = frozenset(("Context Sync", "Event Sync", "Stream Sync", "Stream Wait Event"))

# In the names of copies and memsets; what is "Unknown" to a profiler is so to a reader, too.
_MEMORY = re.compile(r"Memcpy \w+ \((.+) -> (.+)\)|(Memset) \((.+)\)", re.DOTALL)
_KINDS_OF_MEMORY = {"Host", *WORDS.memories.values()} - {"Unknown"}

# Of the trace event format; only X, B and E can be work.
_KNOWN_PHASES = frozenset("XBEbneSTpFstfiIMNODPCRrVvc(){}=")
_UNUSED_PHASES = _KNOWN_PHASES - frozenset("BEM")  # X is used, but needs no second look

_FLOW_PHASES = frozenset("sf")
_MOMENT_PHASES = frozenset("iI")

_NUMBER_LIMIT = 2**31
_MAX_NAME_LETTERS = 2**16
# Every sum of durations fits into int64.
_MAX_TOTAL_DURATION_NS = 2**62


class _Categories(dict[str, int]):
    def __missing__(self, text: str) -> int:
        category = self[text] = _CATEGORIES.get(text.lower(), Category.OTHER)
        return category


class Columns:
    """Collects pieces of a file's array of events into the columns of a `Trace`."""

    def __init__(self) -> None:
        self._names, self._threads = KeyTable(_name), KeyTable(_thread_key)
        self._categories = _Categories()
        self._thread_names: dict[tuple[str, str], str] = {}
        self._process_names: set[str] = set()
        self._losses: Counter[str] = Counter()
        self._unknown_categories: Counter[str] = Counter()
        # By category, device or ABSENT, and row.
        self._unknown_ns: Counter[tuple[str, int, tuple[str, str]]] = Counter()
        self._dense = Table(name_index=self._names, thread_index=self._threads)
        self._sparse = Table()
        self._tables = {name: ArgumentTable(of) for name, of in TABLES.items()}
        self._moments = {name: MomentTable(of, self._threads) for name, of in MOMENTS.items()}
        self._begin_end: list[tuple[int, Event]] = []  # with their indices in the file
        self._arrows = Table()  # from launches to the GPU: a row per begin, and one per end
        self._event_count = 0

    def add(self, events: list[Event]) -> None:
        """Take one piece of the file's array of events; an InexactTimesError for coarse floats."""
        phases = [event.ph for event in events]
        if phases.count("X") == len(events):
            complete, place = events, np.arange(len(events))
        else:
            flows = [events[i] for i, phase in enumerate(phases) if phase in _FLOW_PHASES]
            self._add_arrows([x for x in flows if x.cat == _ARROW_CATEGORY and type(x.id) is int])
            moments = [events[i] for i, phase in enumerate(phases) if phase in _MOMENT_PHASES]
            for table in self._moments.values():
                table.add(moments)
            if not _UNUSED_PHASES.issuperset(phases):
                self._add_other_phases(events)
            places = [i for i, phase in enumerate(phases) if phase == "X"]
            complete, place = [events[i] for i in places], np.array(places, dtype=np.intp)
        self._add_complete(complete, place + self._event_count)
        self._event_count += len(events)

    def add_all(self, following: Columns) -> None:
        """Take the columns of what follows in the file."""
        self._dense.extend(following._dense, file_index=self._event_count)
        rows = {row_column(name): len(table) for name, table in self._tables.items()}
        self._sparse.extend(following._sparse, **rows)
        for name, table in self._tables.items():
            table.extend(following._tables[name])
        for name, moments in self._moments.items():
            moments.extend(following._moments[name])
        self._arrows.extend(following._arrows)
        self._thread_names |= following._thread_names
        self._process_names |= following._process_names
        self._categories.update(following._categories)
        self._losses += following._losses
        self._unknown_categories += following._unknown_categories
        self._unknown_ns.update(following._unknown_ns)
        self._begin_end += [(self._event_count + i, event) for i, event in following._begin_end]
        self._event_count += following._event_count

    def finish(
        self, source: Source, metadata: Mapping[str, Any], losses: Mapping[str, int]
    ) -> Trace:
        """The trace of all the pieces; an UnreadableInputError if there is no complete event."""
        self._add_pairs()
        self._sparse.append_absent()
        dense, value_index = self._sort_columns()
        if not len(value_index):
            raise UnreadableInputError(
                f"{source.path}: the trace holds no complete event"
                f"{count_losses(self._losses + Counter(losses))}"
            )
        platform = platform_of(map(str.lower, self._categories), self._process_names)
        if platform is not None:
            self._correct_categories(dense, platform)
        sparse_values = self._sparse.arrays()
        self._losses["arrows_without_end"] = self._count_arrows(
            dense["start_ns"], value_index < len(sparse_values["correlation"]) - 1
        )
        loss_names = self._count_unknown(dense, platform)
        unknown_gpu_ns = self._unknown_gpu_ns(
            dense["category"], dense["thread_index"], sparse_values["device_number"][value_index]
        )
        origin_ns = int(dense["start_ns"].min())
        dense["start_ns"] -= origin_ns
        self._losses["endless_functions"] = _set_endless_apart(dense)
        sparse: dict[str, Any] = {
            name: SparseColumn(value_index, values) for name, values in sparse_values.items()
        }
        return Trace(
            path=source.path,
            origin_ns=origin_ns,
            **dense,
            **sparse,
            **{name: table.finish() for name, table in self._tables.items()},
            **{name: table.finish(origin_ns) for name, table in self._moments.items()},
            strings=name_cells(self._names.rows, metadata),
            threads=tuple(
                Thread(process, thread, self._thread_names.get((process, thread), ""))
                for process, thread in self._threads.rows
            ),
            metadata=MappingProxyType(dict(metadata)),
            objects=self._event_count,
            losses=MappingProxyType(dict(self._losses + Counter(losses))),
            loss_names=loss_names,
            unknown_gpu_ns=unknown_gpu_ns,
            info=read_file_info(
                metadata,
                source,
                platform.name if platform else "",
                used_devices(dense["category"], sparse["device_number"]),
            ),
        )

    def _add_arrows(self, ends: list[Event]) -> None:
        time_ns, is_time = nanoseconds([event.ts for event in ends])
        is_begin = np.array([event.ph == "s" for event in ends], dtype=np.bool_)
        number = np.array([event.id % _NUMBER_LIMIT for event in ends], dtype=np.int32)
        begins, ends_ = is_time & is_begin, is_time & ~is_begin
        self._arrows.append(
            {"begin_number": number[begins], "end_number": number[ends_], "end_ns": time_ns[ends_]}
        )

    def _count_arrows(self, start_ns: Int64Array, has_arguments: BoolArray) -> int:
        """Count the arrows that end where no event begins; the profiler draws each to one."""
        # It also marks calls that launched nothing as ends, of no arrow.
        arrows = self._arrows.arrays()
        self._arrows = Table()  # all that follows needs this memory
        if not arrows:
            return 0
        is_arrow = _are_among(arrows["end_number"], np.unique(arrows["begin_number"]))
        end_ns = arrows["end_ns"][is_arrow]
        time_ns = np.unique(end_ns)
        is_there = np.zeros(len(time_ns), dtype=np.bool_)
        for begin_ns in (start_ns[has_arguments], start_ns):
            if len(time_ns) and not is_there.all():
                found = _are_among(begin_ns, time_ns)
                is_there[np.searchsorted(time_ns, begin_ns[found])] = True
        return int((~is_there[np.searchsorted(time_ns, end_ns)]).sum())

    def _count_event(self, event: Event, duration_ns: int) -> None:
        category = _name(event.cat)
        self._unknown_categories[category] += 1
        row = _thread_key((event.pid, event.tid))
        device = ABSENT
        if event.args is not None and _is_number(event.args.stream):
            device = event.args.device if _is_number(event.args.device) else ABSENT
        self._unknown_ns[category, device, row] += duration_ns

    def _unknown_gpu_ns(
        self, category: NDArray[Any], thread_index: NDArray[Any], device_number: NDArray[Any]
    ) -> Mapping[str, Mapping[int, int]]:
        if self._unknown_ns.total() >= _MAX_TOTAL_DURATION_NS:
            return MappingProxyType({})
        activity = np.flatnonzero(IS_GPU_ACTIVITY[category])
        of_row = dict(
            zip(thread_index[activity].tolist(), device_number[activity].tolist(), strict=True)
        )
        device_of = {key: of_row.get(i, ABSENT) for key, i in self._threads.rows.items()}
        gpu_ns: dict[str, dict[int, int]] = {}
        for (name, device, row), length_ns in self._unknown_ns.items():
            number = device if device != ABSENT else device_of.get(row, ABSENT)
            if number != ABSENT:
                of_name = gpu_ns.setdefault(name, {})
                of_name[number] = of_name.get(number, 0) + length_ns
        return MappingProxyType({name: MappingProxyType(x) for name, x in gpu_ns.items()})

    def _count_unknown(
        self, dense: Mapping[str, NDArray[Any]], platform: Platform | None
    ) -> Mapping[str, Mapping[str, int]]:
        strings = list(self._names.rows)

        def counts(category: Category, is_unknown: Callable[[str], bool]) -> dict[str, int]:
            index, count = np.unique(
                dense["name_index"][dense["category"] == category], return_counts=True
            )
            named = zip(map(strings.__getitem__, index.tolist()), count.tolist(), strict=True)
            return {name: times for name, times in named if is_unknown(name)}

        losses = {
            "unknown_categories": dict(self._unknown_categories),
            "copies_without_direction": counts(
                Category.MEMCPY, lambda name: copy_direction(name) == ""
            ),
            # Other devices than those of CUDA and ROCm have memory of other kinds.
            "unknown_memories": {
                name: times
                for category in (Category.MEMCPY, Category.MEMSET)
                if platform is None
                for name, times in counts(category, _is_of_unknown_memory).items()
            },
            "unknown_waits": counts(Category.SYNC, lambda name: name not in _KINDS_OF_WAITS),
        }
        for loss, names in losses.items():
            self._losses[loss] += sum(names.values())
        return MappingProxyType(
            {loss: MappingProxyType(names) for loss, names in losses.items() if names}
        )

    def _sort_columns(self) -> tuple[dict[str, Any], Int32Array]:
        """The dense columns in the file's order, and each event's index into the sparse ones."""
        # Of events so long that sums of durations would overflow none is left.
        dense: dict[str, Any] = self._dense.arrays()
        has_arguments = dense.pop("has_arguments")
        value_index = np.cumsum(has_arguments, dtype=np.int32) - np.int32(1)
        value_index[~has_arguments] = np.count_nonzero(has_arguments)
        if np.any(np.diff(dense["file_index"]) < 0):  # begin and end events were joined last
            order = np.argsort(dense["file_index"], kind="stable")
            dense = {name: column[order] for name, column in dense.items()}
            value_index = value_index[order]
        is_bounded = _is_bounded(dense["duration_ns"])
        if not is_bounded.all():
            self._losses["absurd_times"] += int((~is_bounded).sum())
            dense = {name: column[is_bounded] for name, column in dense.items()}
            value_index = value_index[is_bounded]
        return dense, value_index

    def _correct_categories(self, columns: Mapping[str, NDArray[Any]], platform: Platform) -> None:
        category, is_kernel = columns["category"], columns["category"] == Category.KERNEL
        for pattern, name_of_category in platform.not_kernels:
            such = [i for name, i in self._names.rows.items() if re.match(pattern, name)]
            category[is_kernel & np.isin(columns["name_index"], such)] = Category[name_of_category]

    def _add_complete(self, events: list[Event], file_index: Int64Array) -> None:
        starts, durations = [event.ts for event in events], [event.dur for event in events]
        names = [event.name for event in events]
        start_ns, has_start = nanoseconds(starts)
        duration_ns, has_duration = nanoseconds(durations)
        if not (has_start.all() and has_duration.all() and all(names)):
            needed = zip(starts, durations, names, strict=True)
            whole = [i for i, values in enumerate(needed) if None not in values]
            if len(whole) < len(events):
                self._losses["incomplete_events"] += len(events) - len(whole)
                self._add_complete([events[i] for i in whole], file_index[whole])
                return
        categories = [event.cat for event in events]
        category = np.fromiter(map(self._categories.__getitem__, categories), np.int8, len(events))
        name_index = self._names.indices(names)
        has_arguments = HAS_ARGUMENTS[category]
        known = [self._names.rows.get(name, ABSENT) for name in OPERATORS_WITH_ARGUMENTS]
        has_arguments |= np.isin(name_index, known)
        with_arguments = np.flatnonzero(has_arguments)
        chosen = [events[i] for i in with_arguments.tolist()]
        sparse = sparse_columns(chosen, category[with_arguments])
        for table, rows in self._tables.items():
            sparse[row_column(table)] = rows.add(chosen, category[with_arguments])
        dense: dict[str, NDArray[Any]] = {
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "category": category,
            "name_index": name_index,
            "thread_index": self._threads.indices([(event.pid, event.tid) for event in events]),
            "file_index": file_index.astype(np.int32),
            "has_arguments": has_arguments,
        }
        is_sound = self._is_sound(dense, sparse, has_start & has_duration)
        for i in np.flatnonzero(is_sound & (category == Category.OTHER)).tolist():
            text = categories[i].lower()
            if text not in _CATEGORIES and not text.startswith(_OUR_CATEGORIES):
                self._count_event(events[i], int(duration_ns[i]))
        if not is_sound.all():
            dense = {name: column[is_sound] for name, column in dense.items()}
            sparse = {name: column[is_sound[with_arguments]] for name, column in sparse.items()}
        self._dense.append(dense)
        self._sparse.append(sparse)

    def _is_sound(
        self,
        dense: Mapping[str, NDArray[Any]],
        sparse: Mapping[str, NDArray[Any]],
        has_times: BoolArray,
    ) -> BoolArray:
        """[n], events without a fault; each other one is counted under its first fault."""
        duration_ns, category = dense["duration_ns"], dense["category"]
        lacks_lane = np.zeros(len(category), dtype=np.bool_)
        lacks_lane[dense["has_arguments"]] = (sparse["device_number"] == ABSENT) | (
            sparse["stream_number"] == ABSENT
        )
        is_lost = {
            "absurd_times": ~has_times | (duration_ns >= MAX_DURATION_NS),
            "negative_durations": duration_ns < 0,
            "activities_without_lane": lacks_lane & IS_GPU_ACTIVITY[category],
        }
        is_sound = np.ones(len(category), dtype=np.bool_)
        for loss, has_fault in is_lost.items():
            self._losses[loss] += int((is_sound & has_fault).sum())
            is_sound &= ~has_fault
        return is_sound

    def _add_other_phases(self, events: list[Event]) -> None:
        for file_index, event in enumerate(events, self._event_count):
            if event.ph == "M":
                name = str((event.args and event.args.name) or "")
                if event.name == "thread_name":
                    self._thread_names[_thread_key((event.pid, event.tid))] = name
                elif event.name == "process_name":
                    self._process_names.add(name)
            elif event.ph in ("B", "E"):
                self._begin_end.append((file_index, event))
            elif event.ph not in _KNOWN_PHASES:
                self._losses["unknown_phases"] += 1

    def _add_pairs(self) -> None:
        """Join begin and end events: per thread, an end closes the latest open begin."""
        time_ns, is_time = nanoseconds([event.ts for _, event in self._begin_end])
        in_time_order = [i for i in np.argsort(time_ns, kind="stable").tolist() if is_time[i]]
        unmatched = len(time_ns) - len(in_time_order)
        open_begins: dict[tuple[str, str], list[int]] = defaultdict(list)
        complete: list[Event] = []
        file_indices: list[int] = []
        for i in in_time_order:
            _, event = self._begin_end[i]
            open_in_thread = open_begins[_thread_key((event.pid, event.tid))]
            if event.ph == "B":
                open_in_thread.append(i)
            elif open_in_thread:
                j = open_in_thread.pop()
                file_index, begin = self._begin_end[j]
                duration_us = str(Decimal(int(time_ns[i] - time_ns[j])).scaleb(-3))
                arguments = merged_arguments(begin.args, event.args)
                complete.append(replace(begin, dur=duration_us, args=arguments))
                file_indices.append(file_index)
            else:
                unmatched += 1
        unmatched += sum(map(len, open_begins.values()))
        self._losses["unmatched_begin_end"] += unmatched
        if complete:
            self._add_complete(complete, np.array(file_indices))


def _are_among(values: NDArray[Any], ordered: NDArray[Any]) -> BoolArray:
    # `np.isin` would sort copies of both.
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    position = np.searchsorted(ordered[:-1], values)
    are_among: BoolArray = ordered[position] == values
    return are_among


def _set_endless_apart(dense: Mapping[str, NDArray[Any]]) -> int:
    # Code of `torch.compile` leaves built-in functions unseen by the profiler's tracer, which ends
    # them with whatever returns later: a call of 1 ms reads 100 ms, around all after it.
    functions = np.flatnonzero(dense["category"] == Category.PYTHON)
    start_ns = dense["start_ns"][functions]
    end_ns = start_ns + dense["duration_ns"][functions]
    endless = functions[find_endless(start_ns, end_ns, dense["thread_index"][functions])]
    dense["category"][endless] = Category.OTHER
    return len(endless)


def find_endless(start_ns: Int64Array, end_ns: Int64Array, thread_index: Int32Array) -> IndexArray:
    """The functions that outlast the one in which they began, ascending: [k]."""
    order = np.lexsort((-end_ns, start_ns, thread_index))
    left = order
    while True:
        outlasts, around = _outlasting(start_ns[left], end_ns[left], thread_index[left])
        if not outlasts.any():
            return np.setdiff1d(order, left)
        left = np.delete(left, _keep_outermost(np.flatnonzero(outlasts), outlasts, around))


def _keep_outermost(index: IndexArray, outlasts: BoolArray, around: IndexArray) -> IndexArray:
    """Select the functions that began in none that outlasts; others are judged without these."""
    is_inner, outer = np.zeros(len(index), dtype=np.bool_), around[index]
    open_ = np.arange(len(index))
    while len(open_):
        is_inner[open_] = outlasts[outer[open_]]
        outer[open_] = around[outer[open_]]
        open_ = open_[~is_inner[open_] & (outer[open_] >= 0)]
    return index[~is_inner]


def _outlasting(
    start_ns: Int64Array, end_ns: Int64Array, thread_index: Int32Array
) -> tuple[BoolArray, IndexArray]:
    """The functions that outlast the one that ran when they began, and that one.

    In the order of threads, starts, longest first.
    """
    around = np.arange(-1, len(start_ns) - 1)
    open_ = np.flatnonzero(around >= 0)
    while len(open_):
        before = around[open_]
        is_other = thread_index[before] != thread_index[open_]
        around[open_[is_other]] = -1
        open_ = open_[~is_other]
        # What lies between a function and the one around it had ended when this one began.
        open_ = open_[end_ns[around[open_]] <= start_ns[open_]]
        around[open_] = around[around[open_]]
        open_ = open_[around[open_] >= 0]
    outlasts = (around >= 0) & (end_ns > end_ns[around])
    return outlasts, around


def _name(text: str) -> str:
    return text[:_MAX_NAME_LETTERS]


def _is_number(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _NUMBER_LIMIT


def _is_of_unknown_memory(name: str) -> bool:
    match = _MEMORY.fullmatch(name)
    if match is None:
        return False
    source, target, is_memset, filled = match.groups()
    if is_memset:
        return filled not in _KINDS_OF_MEMORY | {"Unknown"}
    return not _KINDS_OF_MEMORY.issuperset((source, target))


def _is_bounded(duration_ns: Int64Array) -> BoolArray:
    if duration_ns.sum(dtype=np.float64) < _MAX_TOTAL_DURATION_NS:
        return np.ones(len(duration_ns), dtype=np.bool_)
    bounded: BoolArray = duration_ns <= _MAX_TOTAL_DURATION_NS // len(duration_ns)
    return bounded


def _thread_key(numbers: tuple[Any, Any]) -> tuple[str, str]:
    """Process and thread as text, because files use numbers and words, even for the same one."""
    process, thread = ("" if number is None else str(number) for number in numbers)
    return process, thread
