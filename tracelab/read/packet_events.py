"""The packets of a Perfetto trace as events, as PyTorch's collector writes them into its JSON.

PyTorch's own CUPTI collector (`torch.profiler.CuspyConfig`) can write Perfetto's format instead of
JSON: calls and operators as slices of tracks, GPU activities as render stages. Here each becomes
the fields of the JSON's event, so that nothing after the reader knows of two formats. It was read
in PyTorch's sources: `torch/csrc/profiler/cuspy/cuspy_pftrace.cpp` and
`torch/profiler/_cuspy/trace.py`.
"""

from __future__ import annotations

import io
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np

from tracelab.base.arrays import OneLine
from tracelab.base.errors import MissingSupportError, UnreadableInputError
from tracelab.base.intervals import Int64Array
from tracelab.read.packet_slices import Slice, SliceJoiner
from tracelab.read.packets import PacketReader, begins_with_packets
from tracelab.read.streams import Source, open_source

Fields = dict[str, Any]  # of an event, by their keys in the JSON
_Element = TypeVar("_Element")

# The categories of the stages of GPU work, by the names of the stages.
_STAGES: Mapping[str, str] = MappingProxyType(
    {
        "Kernel": "kernel",
        "Memcpy": "gpu_memcpy",
        "Memset": "gpu_memset",
        "Annotation": "gpu_user_annotation",
        "EventRecord": "graph_event_node",
        "HostNode": "graph_host_node",
    }
)
# Only PyTorch writes slices of these.
_OF_PYTORCH = frozenset(("cpu_op", "cuda_runtime", "python_function", "user_annotation"))
# What the collector calls the arguments of GPU work here, and in the JSON.
_JSON_KEYS: Mapping[str, str] = MappingProxyType(
    {"device id": "device", "context id": "context", "stream id": "stream"}
)
_NUMBERS = frozenset(
    (
        *_JSON_KEYS,
        "correlation",
        "priority",
        "queued",
        "channel",
        "channel_type",
        "graph id",
        "graph node id",
        "bytes",
        "value",
        "memory kind",
    )
)
_OF_PROCESS = frozenset(("arch", "process_id", "process_name"))  # the same for every activity
# Arguments that are left out where they are 0, by stage.
_LEFT_OUT_ZEROS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"Memcpy": ("bytes",), "Memset": ("bytes", "value", "memory kind")}
)
_LANE = re.compile(r"\[(\d{1,18})\] (.*)", re.DOTALL)  # a row of GPU work: "[0007] stream 7"
_DIGITS = re.compile(r"\d{1,19}")
_MINUS_ONE = 0x7FFFFFFF  # in 31 bits
_SYNC_KIND = "cuda_sync_kind"
_OVERHEAD = "Overhead"  # the name of the track of what the profiler cost
# Below this a float of microseconds tells nanoseconds apart.
_EXACT_BELOW_NS = 2**43 * 1000
_NEW_FIELDS = ("launch", "event_wait_ids")  # of GPU work, in the newest definitions
_BOOT_TIME = 6  # the clock of packets that name none
_AT_ONCE = 1 << 12
# Kinds of packets that say nothing of what ran when, or are used with others.
_UNUSED_KINDS = frozenset(
    (
        "chrome_metadata",
        "clock_snapshot",
        "cpu_info",
        "extension_descriptor",
        "gpu_counter_event",
        "gpu_info",
        "process_descriptor",
        "process_stats",
        "process_tree",
        "service_event",
        "synchronization_marker",
        "system_info",
        "thread_descriptor",
        "trace_attributes",
        "trace_config",
        "trace_provenance",
        "trace_stats",
        "trace_uuid",
        "trigger",
    )
)


class _Interned:
    """Texts that packets of one sequence name by number, by kind."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.categories: dict[int, str] = {}
        self.stages: dict[int, str] = {}  # and rows
        self.annotation_names: dict[int, str] = {}
        self.annotation_values: dict[int, str] = {}

    def add(self, data: Any) -> None:
        """Take more of them."""
        for texts, entries in (
            (self.names, data.event_names),
            (self.categories, data.event_categories),
            (self.stages, data.gpu_specifications),
            (self.annotation_names, data.debug_annotation_names),
        ):
            texts.update((entry.iid, _text(entry.name)) for entry in entries)
        self.annotation_values.update(
            (entry.iid, _text(entry.str)) for entry in data.debug_annotation_string_values
        )


_NO_TEXTS = _Interned()  # of any sequence that brings none


class _Tracks:
    """The processes and threads of tracks, as the JSON has them."""

    def __init__(self) -> None:
        self.process_names: dict[int, str] = {}  # by uuid
        self._processes: dict[int, int | str] = {}  # by uuid
        self._threads: dict[int, tuple[int | str, int | str]] = {}  # by uuid
        self._uuids: dict[tuple[int | str, int | str], int] = {}

    def add(self, track: Any) -> Fields:
        """Take a track; gives the event that names it."""
        uuid, parent = track.uuid, track.parent_uuid
        process: int | str
        thread: int | str
        if track.HasField("process"):
            process, thread = _signed(track.process.pid), 0
            name = self.process_names[uuid] = _text(track.process.process_name)
            self._processes[uuid] = process
            return _named("process_name", process, thread, name)
        if track.HasField("thread"):
            process, thread = _signed(track.thread.pid), _signed(track.thread.tid)
            name = _text(track.thread.thread_name)
        else:
            process, thread, name = self._processes.get(parent, ""), uuid, _text(track.name)
        self.process_names[uuid] = self.process_names.get(parent, "")
        if self._uuids.setdefault((process, thread), uuid) != uuid:
            thread = f"{thread} ({uuid})"  # the file has only the lower 31 bits of the number
        self._threads[uuid] = (process, thread)
        return _named("thread_name", process, thread, name)

    def thread(self, uuid: int) -> tuple[int | str, int | str]:
        """The process and thread of a track."""
        return self._threads.get(uuid, ("", uuid))


class _NodeLinks:
    """Which stages of GPU work wait for which, by the ids that the file gives them."""

    def __init__(self) -> None:
        self._event, self._index = array("Q"), array("q")
        self._waiting, self._awaited = array("Q"), array("Q")
        self._pairs: list[Int64Array] = []
        self._unresolved = 0

    def add(self, event: int, index: int, awaited: Iterable[int]) -> None:
        """Take a stage that is the element with this index, and the ids of what it waits for."""
        self._event.append(event)
        self._index.append(index)
        for other in awaited:
            self._waiting.append(event)
            self._awaited.append(other)

    def close(self) -> None:
        """Ids that come now are others: another trace follows in the same file."""
        if self._waiting:
            events = np.array(self._event, dtype=np.uint64)
            order = np.argsort(events, kind="stable")
            events, index = events[order], np.array(self._index, dtype=np.int64)[order]
            ids = np.array([self._awaited, self._waiting], dtype=np.uint64)
            place = np.minimum(np.searchsorted(events, ids), len(events) - 1)
            is_known = (events[place] == ids).all(axis=0)
            self._pairs.append(index[place[:, is_known]])
            self._unresolved += int((~is_known).sum())
        for column in (self._event, self._index, self._waiting, self._awaited):
            del column[:]

    def pairs(self) -> tuple[Int64Array, int]:
        """int64[2, l], the indices of the elements that come first and of those that wait for them.

        Returns:
            these, and of how many others the file lacks one.
        """
        self.close()
        none = np.zeros((2, 0), dtype=np.int64)
        return np.concatenate([none, *self._pairs], axis=1), self._unresolved


class PacketEvents(Generic[_Element]):
    """Iterate over the events of a Perfetto trace, in pieces.

    Args:
        stream: the decompressed bytes.
        path: what errors call the stream.
        build: what is made of the fields of each event.
        used: the keys of the arguments of slices that it uses; None for all.

    Attributes:
        metadata: what the JSON has beside its events.
        losses: counts by the names in `tracelab.model.losses.LOSSES`.
        unknown: kinds of packets that are not read, and how many there were of each.
        links: of nodes of graphs, which waited for which.

    All of them are complete when the iteration is.

    Raises:
        MissingSupportError: what describes the packets is not installed.
    """

    def __init__(
        self,
        stream: io.BufferedIOBase,
        path: str,
        build: Callable[[Fields], _Element],
        used: Collection[str] | None,
    ) -> None:
        self.metadata: dict[str, Any] = {}
        self.losses: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.links = _NodeLinks()
        self._reader = PacketReader(stream)
        self._path = path
        self._build = build
        self._used = None if used is None else frozenset((*used, _SYNC_KIND))
        self._protos, self._parse_error = load_protos(path)
        self._interned: dict[int, _Interned] = {}  # by sequence that has some
        self._tracks = _Tracks()
        self._slices = SliceJoiner()
        self._lanes: set[tuple[Any, Any]] = set()
        self._base_ns: int | None = None
        self._is_of_pytorch = False
        self._elements: list[_Element] = []
        self._given = 0

    def __iter__(self) -> Iterator[list[_Element]]:
        """Yield lists of elements.

        Raises:
            UnreadableInputError: it is a trace of something else.
        """
        end = self._protos.TrackEvent.TYPE_SLICE_END
        for packet in self._packets():
            if packet is None:
                self._slices.damaged()
                continue
            kind = packet.WhichOneof("data")
            if kind == "track_event" and packet.track_event.type == end:
                self._slices.end(packet.track_event.track_uuid, packet.timestamp)
                continue
            if self._slices.has_ends:
                yield from self._give_slices(self._slices.whole())
            self._take(packet, kind)
            if len(self._elements) >= _AT_ONCE:
                yield from self._give()
        yield from self._give_slices(self._slices.finish())
        yield from self._give()
        self.losses["unmatched_begin_end"] += self._slices.unmatched
        self.losses += self._reader.losses
        if self._base_ns is not None:
            self.metadata["baseTimeNanoseconds"] = self._base_ns
        if not self._is_of_pytorch:
            raise UnreadableInputError(
                f"{self._path}: this Perfetto trace holds no GPU work with a CUDA stream and none "
                "of PyTorch's operators, so it is not a trace of PyTorch's profiler"
            )

    def _packets(self) -> Iterator[Any]:
        """The packets of the file; None for one that cannot be parsed."""
        parse = self._protos.Trace.FromString
        for block in self._reader:
            try:
                packets = parse(block.data).packet
            except self._parse_error:
                yield from map(self._packet, block.packets())
            else:
                yield from packets

    def _packet(self, data: bytes) -> Any:
        try:
            [packet] = self._protos.Trace.FromString(data).packet
        except self._parse_error:
            self.losses["unparsable_events"] += 1
            return None
        return packet

    def _take(self, packet: Any, kind: str | None) -> None:
        """Take a packet of any kind but the end of a slice."""
        interned = self._interned_of(packet)
        if packet.timestamp_clock_id not in (0, _BOOT_TIME):
            self.unknown[f"{kind} with clock {packet.timestamp_clock_id}"] += 1
        elif kind == "track_event":
            if packet.track_event.type == self._protos.TrackEvent.TYPE_SLICE_BEGIN:
                self._begin(packet, interned)
        elif kind == "gpu_render_stage_event":
            self._add_stage(packet, interned)
        elif kind == "track_descriptor":
            self._add(self._tracks.add(packet.track_descriptor))
        elif kind == "clock_snapshot" and self._base_ns is None:
            self._base_ns = packet.timestamp
        elif kind not in _UNUSED_KINDS and not packet.HasField("interned_data"):
            self.unknown[f"packet {kind or 'of an unknown kind'}"] += 1

    def _give_slices(self, pieces: Iterable[list[Slice]]) -> Iterator[list[_Element]]:
        """What is built by now and of these slices, as soon as it is enough at once."""
        for slices in pieces:
            self._elements += map(self._build, map(self._fields_of_slice, slices))
            if len(self._elements) >= _AT_ONCE:
                yield from self._give()

    def _give(self) -> Iterator[list[_Element]]:
        """What is built by now."""
        if self._elements:
            given, self._elements = self._elements, []
            self._given += len(given)
            yield given

    def _add(self, fields: Fields) -> None:
        self._elements.append(self._build(fields))

    def _interned_of(self, packet: Any) -> _Interned:
        """The texts that a packet may name, with those that it brings."""
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & 1:  # they begin anew
            self._interned.pop(sequence, None)
            self.links.close()
        if not packet.HasField("interned_data"):
            return self._interned.get(sequence, _NO_TEXTS)
        if sequence not in self._interned:
            self._interned[sequence] = _Interned()
            self.links.close()
        interned = self._interned[sequence]
        interned.add(packet.interned_data)
        return interned

    def _begin(self, packet: Any, interned: _Interned) -> None:
        """Take the begin of a slice."""
        event = packet.track_event
        arguments: dict[str, Any] = {}
        for annotation in event.debug_annotations:
            name = _text(annotation.name) or interned.annotation_names.get(annotation.name_iid)
            if name is not None and (self._used is None or name in self._used):
                arguments[name] = _value(annotation, interned)
        category = _first(event.category_iids, interned.categories, event.categories)
        self._is_of_pytorch = self._is_of_pytorch or category in _OF_PYTORCH
        name = interned.names.get(event.name_iid) if event.name_iid else _text(event.name)
        self._slices.begin(event.track_uuid, packet.timestamp, name, category, arguments or None)

    def _fields_of_slice(self, slice: Slice) -> Fields:
        arguments = slice.arguments or {}
        category = slice.category
        if not category:
            if _SYNC_KIND in arguments:
                category = "cuda_sync"
            elif self._tracks.process_names.get(slice.track) == _OVERHEAD:
                category = "overhead"
            else:
                category = "slice without a category"
        process, thread = self._tracks.thread(slice.track)
        return self._complete(
            category, slice.name, process, thread, slice.start_ns, slice.end_ns, arguments
        )

    def _add_stage(self, packet: Any, interned: _Interned) -> None:
        """Take a stage of GPU work."""
        event = packet.gpu_render_stage_event
        stage = interned.stages.get(event.stage_iid, f"render stage {event.stage_iid}")
        arguments = _extra_data(event.extra_data)
        self._is_of_pytorch = self._is_of_pytorch or "stream" in arguments
        device = arguments.setdefault("device", event.gpu_id)
        stream = arguments.get("stream")
        lane = self._lane(device, interned.stages.get(event.hw_queue_iid, ""), stream)
        if stream is not None and lane != stream:
            arguments |= {"stream": lane, "original_stream": stream}
        arguments.setdefault("correlation", 0)
        for key in _LEFT_OUT_ZEROS.get(stage, ()):
            arguments.setdefault(key, 0)
        if "graph id" in arguments:
            arguments.setdefault("graph node id", 0)
        if event.HasField("launch"):
            arguments |= {
                "grid": _dimensions(event.launch.grid_size),
                "block": _dimensions(event.launch.workgroup_size),
            }
        name = interned.names.get(event.name_iid) if event.name_iid else stage
        if stage == "HostNode" and "host fn" in arguments:
            name = f"HostNode: {arguments['host fn']}"
        if event.event_wait_ids or "graph node id" in arguments:
            index = self._given + len(self._elements)
            self.links.add(event.event_id, index, event.event_wait_ids)
        start_ns = packet.timestamp
        category = _STAGES.get(stage, f"render stage {stage}")
        fields = self._complete(
            category, name, device, lane, start_ns, start_ns + event.duration, arguments
        )
        self._add(fields)

    def _lane(self, device: Any, row: str, stream: Any) -> Any:
        """The number of the row in which GPU work is drawn; a row that is new is named."""
        is_lane = _LANE.fullmatch(row)
        lane = int(is_lane[1]) if is_lane else stream
        if (device, lane) not in self._lanes:
            self._lanes.add((device, lane))
            self._add(_named("thread_name", device, lane, is_lane[2] if is_lane else row))
        return lane

    def _complete(
        self,
        category: str | None,
        name: str | None,
        process: Any,
        thread: Any,
        start_ns: int,
        end_ns: int,
        arguments: dict[str, Any],
    ) -> Fields:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": process,
            "tid": thread,
            "ts": _microseconds(start_ns - (self._base_ns or 0)),
            "dur": _microseconds(end_ns - start_ns),
            "args": arguments,
        }


@dataclass(frozen=True, slots=True, repr=False)
class PacketFile(OneLine):
    """What has to be known of a Perfetto trace to add packets to it.

    Example: ``PacketFile(end=4_812, base_ns=1_763_880_000_000_000_000, losses={})``.

    Attributes:
        end: where its last packet that is whole ends, in its unpacked bytes.
        base_ns: what its own times count from, where `Trace.origin_ns` counts from another moment.
        losses: what cannot be read, by the names in `tracelab.model.losses.LOSSES`.
    """

    end: int
    base_ns: int
    losses: Mapping[str, int]


def locate_packets(source: Source) -> PacketFile | None:
    """What has to be known of a Perfetto trace to add packets to it; None for any other file.

    Raises:
        UnreadableInputError: it cannot be read.
        MissingSupportError: what describes its packets is not installed.

    >>> locate_packets(Source("traces/events_item.pt.trace.json.gz", None, named=True)) is None
    True
    """
    with open_source(source) as stream:
        if not begins_with_packets(stream):
            return None
        protos, parse_error = load_protos(source.path)
        reader = PacketReader(stream)
        base_ns: int | None = None
        for block in reader:
            with suppress(parse_error):
                if base_ns is None:
                    packets = protos.Trace.FromString(block.data).packet
                    moments = (x.timestamp for x in packets if x.HasField("clock_snapshot"))
                    base_ns = next(moments, None)
    return PacketFile(reader.end, base_ns or 0, MappingProxyType(dict(+reader.losses)))


def load_protos(path: str) -> tuple[Any, type[Exception]]:
    """The classes of packets, and what they raise for what is none.

    Raises:
        MissingSupportError: they are not installed, or in versions that do not fit.
    """
    unfit = MissingSupportError(
        f"{path}: reading a Perfetto trace needs the packages perfetto 0.56 or newer and a "
        "protobuf that fits it: pip install -U 'tracelab[perfetto]'"
    )
    try:
        from google.protobuf.message import DecodeError
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ModuleNotFoundError:
        raise MissingSupportError(
            f"{path}: reading a Perfetto trace needs its protobuf definitions: "
            "pip install 'tracelab[perfetto]'"
        ) from None
    except _errors_of_versions():
        raise unfit from None
    fields = perfetto_trace_pb2.GpuRenderStageEvent.DESCRIPTOR.fields_by_name
    if not all(name in fields for name in _NEW_FIELDS):
        raise unfit
    return perfetto_trace_pb2, DecodeError


def _errors_of_versions() -> tuple[type[Exception], ...]:
    """What classes raise that were made for another version of protobuf; older ones lack theirs."""
    try:
        from google.protobuf.runtime_version import VersionError
    except ImportError:
        return (ImportError,)
    return (ImportError, VersionError)


def _named(what: str, process: Any, thread: Any, name: str) -> Fields:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _signed(number: int) -> int:
    """A number of a process or thread, of which the file has only the lower 31 bits.

    >>> _signed(4211), _signed(0x7FFFFFFF)
    (4211, -1)
    """
    return -1 if number == _MINUS_ONE else number


def _microseconds(time_ns: int) -> float | str:
    """A time as the JSON has it, or as text where no float can tell nanoseconds apart.

    >>> _microseconds(1_250), _microseconds(1_740_461_679_470_630_547_000)
    (1.25, '1740461679470630547.000')
    """
    if -_EXACT_BELOW_NS < time_ns < _EXACT_BELOW_NS:
        return time_ns / 1000
    return str(Decimal(time_ns).scaleb(-3))


def _text(value: str | bytes) -> str:
    """A text of the file; it comes as bytes where it is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _first(numbers: Any, texts: Mapping[int, str], inline: Any) -> str | None:
    """The first of the categories of a slice."""
    if numbers:
        return texts.get(numbers[0], f"category_iids {numbers[0]}")
    return _text(inline[0]) if inline else None


def _extra_data(pairs: Any) -> dict[str, Any]:
    """The arguments of GPU work, all of which the file has as text."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, value = _text(pair.name), _text(pair.value)
        if key in _OF_PROCESS:
            continue
        if key in _NUMBERS and _DIGITS.fullmatch(value):
            arguments[_JSON_KEYS.get(key, key)] = int(value)
        else:
            arguments[_JSON_KEYS.get(key, key)] = value
    return arguments


def _dimensions(size: Any) -> list[int]:
    return [size.x, size.y, size.z]


def _value(annotation: Any, interned: _Interned) -> Any:
    """What an annotation says; the parser has refused what nests too deep."""
    kind = annotation.WhichOneof("value")
    if kind == "string_value_iid":
        return interned.annotation_values.get(annotation.string_value_iid)
    if kind == "string_value":
        return _text(annotation.string_value)
    if kind in ("int_value", "uint_value", "double_value", "bool_value", "pointer_value"):
        return getattr(annotation, kind)
    if annotation.dict_entries:
        return {_text(x.name): _value(x, interned) for x in annotation.dict_entries}
    return [_value(x, interned) for x in annotation.array_values]
