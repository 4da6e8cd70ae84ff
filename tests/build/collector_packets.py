"""The Perfetto traces of PyTorch's own CUPTI collector: made, not captured.

Packets and their order follow pytorch's `torch/csrc/profiler/cuspy/cuspy_pftrace.cpp` at commit
6cf678575a971183af6b1a358523b56f0e78927d and `_window_to_pftrace`, `_build_render_stages` and
`_nest_track_slices` of `torch/profiler/_cuspy/trace.py` at commit
966f54357ea8280c6821673ec306e16e18bbc0b5. No file of it has been captured yet. Counters, and the
arguments that a capture of Kineto lacks (see `tests.build.cupti_collector`), are left out.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.build.cupti_collector import Event, Row, Window

# Stages of GPU work by category: number, name, category of Perfetto.
STAGES = {
    "kernel": (1, "Kernel", 2),
    "gpu_memcpy": (2, "Memcpy", 0),
    "gpu_memset": (3, "Memset", 0),
    "gpu_user_annotation": (4, "Annotation", 0),
    "graph_event_node": (5, "EventRecord", 0),
    "graph_host_node": (6, "HostNode", 0),
}
_FIRST_LANE = 100
# What has an id of its own, and a number only where it is not 0.
_EXTRA = (
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
# What the file has elsewhere, or not at all.
_NOT_SPREAD = frozenset(
    (
        *_EXTRA,
        "device",
        "context",
        "stream",
        "original_stream",
        "grid",
        "block",
        "registers per thread",
        "shared memory",
        "copy kind",
        "src kind",
        "dst kind",
        "flags",
        "cuda event",
        "host process",
        "host thread",
        "External id",
    )
)
_PID_BITS = 0x7FFFFFFF
_CLEARED, _NEEDED = 1, 2  # of `TracePacket.SequenceFlags`
_COMPUTE_KERNELS, _GPU_CORRELATION = 1000, 3000  # fields that the classes do not have


@dataclass(frozen=True)
class Slice:
    """One slice of a track, as the collector gives it to the encoder.

    Example: ``Slice("cudaLaunchKernel", "cuda_runtime", 3, 1_000, 5_000, {"correlation": 17})``.
    """

    name: str
    category: str
    track: int
    start_ns: int
    end_ns: int
    args: Mapping[str, Any]


def perfetto_trace(window: Window) -> bytes:
    """The file, unpacked."""
    return b"".join(as_field(packet) for packet in packets(window))


def write(window: Window, path: Path) -> Path:
    """Write the file; it is packed, whatever it is called."""
    path.write_bytes(gzip.compress(perfetto_trace(window), 1))
    return path


def as_field(packet: Any) -> bytes:
    """A packet as a field of the file."""
    trace: bytes = protos.Trace(packet=[packet]).SerializeToString()
    return trace


def as_in_packets(window: Window) -> Window:
    """What of a recording is in the Perfetto trace.

    It has no kinds of copies, no overlap in a row, and nothing beside its events but their base.

    Written as JSON it has the same report.
    """
    rows = {category: list(of_category) for category, of_category in window.rows.items()}
    places = [
        (category, index)
        for category in STAGES
        if category != "gpu_user_annotation"
        for index in range(len(rows.get(category, ())))
    ]
    lanes: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for category, index in sorted(places, key=lambda place: rows[place[0]][place[1]].start_ns):
        row = rows[category][index]
        lanes[row.process, row.thread].append((category, index))
    for lane in lanes.values():
        for (category, index), (next_category, next_index) in pairwise(lane):
            row, following = rows[category][index], rows[next_category][next_index]
            rows[category][index] = replace(row, end_ns=min(row.end_ns, following.start_ns))
    rows["gpu_memcpy"] = [_without_kinds(row) for row in rows.get("gpu_memcpy", ())]
    rows["cuda_sync"] = _nested(rows.get("cuda_sync", []))
    return replace(window, rows=rows, header={"baseTimeNanoseconds": window.base_ns})


def in_order_of_packets(trace: Event) -> Event:
    """The collector's JSON with its complete events in the order in which the packets have them."""
    order = ("", "cuda_runtime", "cuda_driver", "overhead", "cuda_sync", *STAGES, "Trace")
    number = {category: i for i, category in enumerate(order)}

    def place(event: Event) -> tuple[bool, int, bool]:
        category, name = event.get("cat", ""), event["name"]
        waits = name in ("Event Sync", "Stream Wait Event")
        return event["ph"] == "X", number.get(category, 0), category == "cuda_sync" and waits

    return {**trace, "traceEvents": sorted(trace["traceEvents"], key=place)}


def packets(window: Window) -> Iterator[Any]:
    """The packets of the file."""
    window = as_in_packets(window)
    tracks = _Tracks(window)
    groups = [list(group) for group in _groups(window, tracks)]
    stages = list(_stages(window))
    names = _numbered(
        [slice.name for group in groups for slice in group]
        + [row.name for row in stages if STAGES[row.category][1] in ("Kernel", "Annotation")]
    )
    categories = _numbered(slice.category for group in groups for slice in group if slice.category)
    base_ns = window.base_ns
    snapshot = protos.TracePacket(timestamp=base_ns, trusted_packet_sequence_id=1)
    for clock in (6, 1):  # since boot, and of the world
        snapshot.clock_snapshot.clocks.add(clock_id=clock, timestamp=base_ns)
    yield snapshot
    yield from tracks.packets
    yield _interned(window, stages, names, categories)
    event_ids = _event_ids_by_correlation(window, stages)
    for group in groups:
        for slice in group:
            yield _begin(slice, base_ns, names, categories, event_ids)
        for slice in group:
            packet = protos.TracePacket(
                timestamp=base_ns + slice.end_ns, trusted_packet_sequence_id=1
            )
            packet.track_event.type = protos.TrackEvent.TYPE_SLICE_END
            packet.track_event.track_uuid = slice.track
            yield packet
    yield from _stage_packets(window, stages, names)


def _without_kinds(row: Row) -> Row:
    kinds = ("copy kind", "src kind", "dst kind")
    return replace(row, args={key: x for key, x in row.args.items() if key not in kinds})


def _nested(rows: Sequence[Row]) -> list[Row]:
    """Rows of waits, of which none overlaps another of its stream without being in it."""
    result = list(rows)
    of_lane: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        of_lane[row.process, row.thread].append(index)
    for indices in of_lane.values():
        open_indices: list[int] = []
        for index in sorted(indices, key=lambda i: (rows[i].start_ns, -rows[i].end_ns)):
            row = rows[index]
            while open_indices and result[open_indices[-1]].end_ns < row.end_ns:
                outer = open_indices.pop()
                end_ns = min(result[outer].end_ns, row.start_ns)
                result[outer] = replace(result[outer], end_ns=end_ns)
            open_indices.append(index)
    return result


class _Tracks:
    """The tracks of processes and threads, in the order in which slices need them."""

    def __init__(self, window: Window) -> None:
        self.packets: list[Any] = []
        self._uuids: dict[tuple[Any, ...], int] = {}
        self._numbers: dict[str, int] = {}
        self._names = {
            (event["name"], event["pid"], event["tid"]): event["args"]["name"]
            for event in window.host_events
            if event["ph"] == "M" and event["name"] in ("process_name", "thread_name")
        }

    def uuid(self, process: Any, thread: Any, process_name: str = "", name: str = "") -> int:
        """The track of a thread."""
        if (process,) not in self._uuids:
            self._uuids[process,] = len(self._uuids) + 1
            packet = protos.TracePacket()
            packet.track_descriptor.uuid = self._uuids[process,]
            packet.track_descriptor.process.pid = self._number(process)
            known = self._names.get(("process_name", process, 0))
            packet.track_descriptor.process.process_name = known or process_name or str(process)
            self.packets.append(packet)
        if (process, thread) not in self._uuids:
            self._uuids[process, thread] = len(self._uuids) + 1
            packet = protos.TracePacket()
            packet.track_descriptor.uuid = self._uuids[process, thread]
            packet.track_descriptor.parent_uuid = self._uuids[process,]
            packet.track_descriptor.thread.pid = self._number(process)
            packet.track_descriptor.thread.tid = self._number(thread)
            known = self._names.get(("thread_name", process, thread))
            packet.track_descriptor.thread.thread_name = known or name or str(thread)
            self.packets.append(packet)
        return self._uuids[process, thread]

    def _number(self, process: Any) -> int:
        if isinstance(process, int):
            return process & _PID_BITS
        return self._numbers.setdefault(process, len(self._numbers) + 1)


def _groups(window: Window, tracks: _Tracks) -> Iterator[Iterable[Slice]]:
    """The slices of the host, of calls, of what the profiler cost, and of waits."""
    yield [
        Slice(
            event["name"],
            event.get("cat", ""),
            tracks.uuid(event["pid"], event["tid"]),
            start_ns := round(event["ts"] * 1000),
            start_ns + round(event["dur"] * 1000),
            event.get("args", {}),
        )
        for event in window.host_events
        if event["ph"] == "X"
    ]
    for category in ("cuda_runtime", "cuda_driver"):
        yield [
            _slice(row, category, tracks.uuid(row.process, row.thread), row.args)
            for row in window.rows.get(category, ())
        ]
    yield [
        _slice(row, "", tracks.uuid(-1, 0, "Overhead", "Overhead"), {})
        for row in window.rows.get("overhead", ())
    ]
    waits = window.rows.get("cuda_sync", ())
    for has_event in (False, True):
        yield [
            _slice(row, "", tracks.uuid(row.process, stream, f"GPU {row.process}", lane), row.args)
            for row in waits
            if ("wait_on_stream" in row.args) == has_event
            for stream in [row.args["stream"]]
            for lane in [f"stream {stream}"]
        ]


def _slice(row: Row, category: str, track: int, args: Mapping[str, Any]) -> Slice:
    return Slice(row.name, category, track, row.start_ns, row.end_ns, args)


def _stages(window: Window) -> Iterator[Row]:
    lanes = {(row.process, row.thread) for row in window.activities}
    for category in STAGES:
        for row in window.rows.get(category, ()):
            if category != "gpu_user_annotation" or (row.process, row.thread) in lanes:
                yield row


def _numbered(texts: Iterable[str]) -> dict[str, int]:
    return {text: i for i, text in enumerate(dict.fromkeys(texts), 1)}


def _lanes(stages: Sequence[Row]) -> dict[tuple[int, int], int]:
    lanes = sorted({(row.process, row.thread) for row in stages})
    return {lane: i for i, lane in enumerate(lanes, _FIRST_LANE)}


def _interned(
    window: Window, stages: Sequence[Row], names: Mapping[str, int], categories: Mapping[str, int]
) -> Any:
    packet = protos.TracePacket(trusted_packet_sequence_id=1, sequence_flags=_CLEARED)
    data = packet.interned_data
    for name, number in names.items():
        data.event_names.add(iid=number, name=name)
    for name, number in categories.items():
        data.event_categories.add(iid=number, name=name)
    for number, name, category in STAGES.values():
        data.gpu_specifications.add(iid=number, name=name, category=category)
    lanes = _lanes(stages)
    width = max((len(str(lane)) for _, lane in lanes), default=1)
    for (device, lane), number in lanes.items():
        name = window.lane_names.get((device, lane), f"stream {lane}")
        data.gpu_specifications.add(iid=number, name=f"[{lane:0{width}}] {name}", category=0)
    data.graphics_contexts.add(iid=1, pid=1)
    kernels = protos.InternedComputeKernel(iid=1, demangled_name="gemm").SerializeToString()
    data.MergeFromString(_field(_COMPUTE_KERNELS, kernels))
    return packet


def _event_ids_by_correlation(window: Window, stages: Sequence[Row]) -> dict[int, list[int]]:
    event_ids: dict[int, list[int]] = defaultdict(list)
    followers = {event_id for _, event_id in _links(window, stages)}
    for event_id, row in enumerate(stages, 1):
        if event_id not in followers:
            event_ids[row.args.get("correlation", 0)].append(event_id)
    return event_ids


def _links(window: Window, stages: Sequence[Row]) -> list[tuple[int, int]]:
    """The numbers of the stages, from 1, for each dependency between nodes."""
    number = {id(row): i for i, row in enumerate(stages, 1)}
    activities = window.activities
    return [(number[id(activities[x])], number[id(activities[y])]) for x, y in window.links]


def _begin(
    slice: Slice,
    base_ns: int,
    names: Mapping[str, int],
    categories: Mapping[str, int],
    event_ids: Mapping[int, Sequence[int]],
) -> Any:
    packet = protos.TracePacket(
        timestamp=base_ns + slice.start_ns, trusted_packet_sequence_id=1, sequence_flags=_NEEDED
    )
    event = packet.track_event
    event.type = protos.TrackEvent.TYPE_SLICE_BEGIN
    event.track_uuid = slice.track
    event.name_iid = names[slice.name]
    if slice.category:
        event.category_iids.append(categories[slice.category])
    if slice.category == "cuda_runtime":
        launched = event_ids.get(slice.args["correlation"], ())
        numbers = b"".join(b"\x08" + _varint(number) for number in launched)
        event.MergeFromString(_field(_GPU_CORRELATION, numbers))
    for key, value in slice.args.items():
        annotation = event.debug_annotations.add()
        annotation.name = key
        _set(annotation, value)
    return packet


def _set(annotation: Any, value: Any) -> None:
    """Put a value of JSON into an annotation."""
    if isinstance(value, dict):
        for key, item in value.items():
            entry = annotation.dict_entries.add()
            entry.name = key
            _set(entry, item)
    elif isinstance(value, list):
        for item in value:
            _set(annotation.array_values.add(), item)
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int):
        annotation.int_value = value
    elif isinstance(value, str):
        annotation.string_value = value
    elif value is None:
        annotation.string_value = "null"
    else:
        annotation.double_value = float(value)


def _stage_packets(
    window: Window, stages: Sequence[Row], names: Mapping[str, int]
) -> Iterator[Any]:
    lanes = _lanes(stages)
    awaited: dict[int, list[int]] = defaultdict(list)
    for source, target in _links(window, stages):
        awaited[target].append(source)
    for event_id, row in enumerate(stages, 1):
        packet = protos.TracePacket(
            timestamp=window.base_ns + row.start_ns,
            trusted_packet_sequence_id=1,
            sequence_flags=_NEEDED,
        )
        event = packet.gpu_render_stage_event
        event.event_id = event_id
        event.duration = row.end_ns - row.start_ns
        event.gpu_id = row.process
        event.hw_queue_iid = lanes[row.process, row.thread]
        event.stage_iid, stage, _ = STAGES[row.category]
        event.context = 1
        if stage in ("Kernel", "Annotation"):
            event.name_iid = names[row.name]
        event.event_wait_ids.extend(awaited[event_id])
        if "grid" in row.args:
            event.kernel_iid = 1
            for size, key in (
                (event.launch.grid_size, "grid"),
                (event.launch.workgroup_size, "block"),
            ):
                size.x, size.y, size.z = map(int, row.args[key])
            event.launch.args.add(name_iid=1, uint_value=int(row.args["registers per thread"]))
        for key, value in _extra_data(row):
            event.extra_data.add(name=key, value=value)
        yield packet


def _extra_data(row: Row) -> Iterator[tuple[str, str]]:
    is_annotation = row.category == "gpu_user_annotation"
    stream = row.thread if is_annotation else row.cuda_stream
    yield "device id", str(row.process)
    yield "context id", str(row.args.get("context", 0))
    yield "stream id", str(stream)
    for key in _EXTRA:
        if row.args.get(key):
            yield key, str(row.args[key])
    yield "arch", "sm_90"
    yield "process_id", "4211"
    yield "process_name", "python"
    for key, value in row.args.items():
        if key not in _NOT_SPREAD:
            yield key, str(value)


def _field(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)
