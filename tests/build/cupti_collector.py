"""Bundled captures in the layout of PyTorch's own CUPTI collector: made, not captured.

The collector (`torch/profiler/_cuspy`) takes Kineto's file of the host and adds the rows of CUPTI
to it. What it writes, and in which order, follows its `trace.py` at pytorch's commit
966f54357ea8280c6821673ec306e16e18bbc0b5 (`_trace_window_entries`,
`merge_trace_window_into_chrome_trace`). No file of it has been captured yet.

A capture of Kineto cannot give all of it: the arguments `priority`, `channel`, `channel_type`,
`flags` and `value` are left out, and a call that Kineto does not know keeps the name INVALID.
Kineto leaves out the waits of streams without any activity; those of NCCL are given back, which
waits for an event and records it again on the stream that waited. Graphs get numbers of nodes by
the order on their streams.
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]

LINK_BASE = 1 << 40  # flow ids of dependencies between nodes begin here
GRAPH_NUMBER = 3  # of every graph: the first that a program instantiates is no better known

_COPY_KINDS = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_UNNAMED_COPY_KINDS = ("HtoH",)  # the collector writes their numbers
_MEMORY_KINDS = (
    "Unknown",
    "Pageable",
    "Pinned",
    "Device",
    "Array",
    "Managed",
    "Device Static",
    "Managed Static",
)
_COPY = re.compile(r"Memcpy (?P<kind>\w+) \((?P<source>[\w ]+) -> (?P<target>[\w ]+)\)")
_MEMSET = re.compile(r"Memset \((?P<kind>[\w ]+)\)")
_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
_EVENT_NODE, _HOST_NODE = "graph_event_node", "graph_host_node"
_ON_GPU = (*_ACTIVITIES, _EVENT_NODE, _HOST_NODE)
_CALLS = ("cuda_runtime", "cuda_driver")
_OF_CUPTI = frozenset(
    (*_ACTIVITIES, *_CALLS, "cuda_sync", "cuda_event", "overhead", "gpu_user_annotation", "ac2g")
)
_WAITS_FOR_EVENT = ("Event Sync", "Stream Wait Event")

_LANE = ("device", "context", "stream", "correlation")
_ARGUMENTS = {
    "kernel": (*_LANE, "grid", "block", "registers per thread", "shared memory", "queued"),
    "gpu_memcpy": (*_LANE, "bytes"),
    "gpu_memset": (*_LANE, "bytes"),
    "cuda_runtime": ("cbid", "correlation"),
    "cuda_driver": ("cbid", "correlation"),
    "cuda_sync": ("cuda_sync_kind", "stream", "correlation", "device", "context"),
    "overhead": (),
    "gpu_user_annotation": ("External id",),
}
# What `CuspyConfig(annotate_collectives=True)` spreads over a collective's kernels.
_OF_COLLECTIVE = (
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "Group size",
    "dtype",
    "In split size",
    "Out split size",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Global rank start",
    "Global rank stride",
    "Src Rank",
    "Dst Rank",
    "Seq",
)

_UNRECORDED_CALLS = frozenset(
    (
        "cudaGetDevice",
        "cudaSetDevice",
        "cudaGetLastError",
        "cudaEventCreate",
        "cudaEventCreateWithFlags",
        "cudaEventDestroy",
    )
)
_RECORDED_DRIVER_CALLS = frozenset(
    (
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuMemCreate",
        "cuMemMap",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
    )
)
_CALLS_WITH_FLOW = re.compile(
    r"cudaLaunch(?:Cooperative)?Kernel(?:ExC|MultiDevice)?|cudaGraphLaunch|cudaStreamSynchronize"
    r"|cudaDeviceSynchronize|cudaStreamWaitEvent|cudaMem(?:cpy|set)\w*|cuLaunchKernel(?:Ex)?"
)
_NAME_OF_LANE = re.compile(r"stream -?\d+ |Device \d+")
_MARKS_OF_RECORDING = ("Iteration Start: PyTorch Profiler", "Record Window End")


@dataclass(frozen=True)
class Row:
    """One row of CUPTI, as the collector gives it to whatever writes its files.

    Example: ``Row("gpu_memcpy", "Memcpy", 0, 7, 1_000, 5_000, {"device": 0, "stream": 7, ...})``.

    Attributes:
        category: as in the file.
        name: as in the file.
        process, thread: of an activity the device and the lane that it is drawn in.
        start_ns, end_ns: since `Window.base_ns`.
        args: as in the file.
    """

    category: str
    name: str
    process: int
    thread: int
    start_ns: int
    end_ns: int
    args: Mapping[str, Any]

    @property
    def cuda_stream(self) -> int:
        """The CUDA stream of an activity, whatever lane it is drawn in."""
        return int(self.args.get("original_stream", self.args["stream"]))


@dataclass(frozen=True)
class Window:
    """What the collector has when the recording is over, before it is written to a file.

    Attributes:
        header: what Kineto says beside the events.
        base_ns: the moment from which all times of the file count.
        host_events: Kineto's events of the host, of the phases M, X, i, s and f.
        rows: all rows of CUPTI by category; of one category in the order of the capture.
        links: dependencies within one replay of a graph: the places of the predecessor and of the
            successor among `activities`.
        lane_names: by device and lane.
    """

    header: Mapping[str, Any]
    base_ns: int
    host_events: Sequence[Event]
    rows: Mapping[str, Sequence[Row]]
    links: Sequence[tuple[int, int]] = ()
    lane_names: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def activities(self) -> list[Row]:
        """What ran on the GPU, and the other nodes of graphs, in the order of the file."""
        return [row for category in _ON_GPU for row in self.rows.get(category, ())]


@dataclass(frozen=True)
class Collector:
    """How the collector was configured, and what the program's graphs say.

    Attributes:
        sync_rows: `enable_cuda_sync_events`; off by default in PyTorch.
        collectives: `annotate_collectives`.
        node_ids: whether activities of graphs have the numbers of their graph and node.
        links: `enable_graph_dependencies`: gives the predecessors of each node by the rows of a
            replay, as places among them; `stream_order` does. None for not enabled.
        annotations: what nodes were annotated with, by the node's number: an object, a list or a
            text.
        lanes: the logical lane of what a graph ran on a CUDA stream, and its name, by the stream.
        event_nodes: `enable_event_node_ids`: a node in each replay that records an event, after
            its first activity.
        host_nodes: a callback of the host in each replay, after its last activity.
    """

    sync_rows: bool = True
    collectives: bool = True
    node_ids: bool = True
    links: Callable[[Sequence[Row]], Iterable[tuple[int, int]]] | None = None
    annotations: Mapping[int, Any] = field(default_factory=dict)
    lanes: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    event_nodes: bool = False
    host_nodes: bool = False


DEFAULT = Collector()


def stream_order(replay: Sequence[Row]) -> list[tuple[int, int]]:
    """Each activity of a replay after the one before it on its stream: places in the replay."""
    links, last_of = [], {}
    for place in sorted(range(len(replay)), key=lambda i: (replay[i].start_ns, i)):
        stream = replay[place].process, replay[place].cuda_stream
        if stream in last_of:
            links.append((last_of[stream], place))
        last_of[stream] = place
    return links


def load(path: Path) -> Event:
    """A capture; numbers with a point are decimals, so that no time is rounded."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        capture: Event = json.loads(file.read(), parse_float=Decimal)
    return capture


def collect(capture: Mapping[str, Any], collector: Collector = DEFAULT) -> Window:
    """What the collector would have had of the program of a Kineto capture.

    Args:
        capture: Kineto's file with CUDA activity, of today's categories.
        collector: how it was configured.
    """
    base_ns = int(capture.get("baseTimeNanoseconds", 0))
    events = capture["traceEvents"]
    if not base_ns:  # of a Kineto that knew no base: microseconds since 1970
        base_ns = 1000 * int(min(event["ts"] for event in events if event["ph"] == "X"))
        events = [
            event | {"ts": event["ts"] - base_ns // 1000} if event.get("ts") else event
            for event in events
        ]
    rows: dict[str, list[Row]] = defaultdict(list)
    names_record = _record_names(events)
    for event in [*events, *_waits_of_idle_streams(events)]:
        category = event.get("cat", "")
        if event["ph"] == "X" and category in _ARGUMENTS and _is_recorded(event, collector):
            rows[category].append(_row(event, names_record, collector))
    window = Window(
        header={key: value for key, value in capture.items() if key != "traceEvents"}
        | {"baseTimeNanoseconds": base_ns},
        base_ns=base_ns,
        host_events=_host_events(events),
        rows=rows,
    )
    return _with_graphs(window, collector)


def chrome(window: Window) -> Event:
    """The file of Chrome's JSON that the collector writes, as an object."""
    activities, followers = window.activities, {target for _, target in window.links}
    position = {id(row): i for i, row in enumerate(activities)}
    added: list[Event] = []
    for category in _ON_GPU:
        rows = window.rows.get(category, ())
        added += map(_complete_event, rows)
        added += [
            _flow("f", row.args["correlation"], row.process, row.thread, row.start_ns)
            for row in rows
            if row.args["correlation"] and position[id(row)] not in followers
        ]
    for number, (source, target) in enumerate(window.links, LINK_BASE):
        before, after = activities[source], activities[target]
        added.append(_flow("s", number, before.process, before.thread, before.end_ns))
        added.append(_flow("f", number, after.process, after.thread, after.start_ns))
    for category in _CALLS:
        for row in window.rows.get(category, ()):
            added.append(_complete_event(row))
            if row.args["correlation"] and _CALLS_WITH_FLOW.fullmatch(row.name):
                number = row.args["correlation"]
                added.append(_flow("s", number, row.process, row.thread, row.start_ns))
    for category in ("overhead", "cuda_sync"):
        added += map(_complete_event, window.rows.get(category, ()))
    lanes = {(row.process, row.thread) for row in activities}
    annotations = window.rows.get("gpu_user_annotation", ())
    # Where all activities of a stream were moved to other lanes, nothing is left to annotate.
    added += [_complete_event(row) for row in annotations if (row.process, row.thread) in lanes]
    events = [*_metadata(window), *window.host_events, *added]
    return {**window.header, "traceEvents": [*events, *_marks_of_recording(events)]}


def rewritten(capture: Mapping[str, Any] | Path, collector: Collector = DEFAULT) -> Event:
    """A Kineto capture as the collector would have written it: an object to dump as JSON."""
    return chrome(collect(load(capture) if isinstance(capture, Path) else capture, collector))


def write(trace: Mapping[str, Any], path: Path, *, indent: int | None = None) -> Path:
    """Write such an object to a file, compressed if its name ends with ".gz".

    Args:
        trace: the object.
        path: the file.
        indent: None as PyTorch writes it, without a space; a number as people reformat files.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(trace, separators=separators, indent=indent, default=float).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


# Kineto's events to rows of CUPTI.


def _host_events(events: Sequence[Event]) -> list[Event]:
    """The events that Kineto writes without CUDA activity, too."""
    lanes = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and _NAME_OF_LANE.fullmatch(event["args"]["name"])
    }
    return [
        event
        for event in events
        if event.get("cat") not in _OF_CUPTI
        and not (event["ph"] == "M" and (event["pid"], event["tid"]) in lanes)
        and not (event.get("cat") == "Trace" or event.get("name") in _MARKS_OF_RECORDING)
    ]


def _is_recorded(event: Event, collector: Collector) -> bool:
    category, name = event["cat"], event["name"]
    if category == "cuda_runtime":
        return name not in _UNRECORDED_CALLS
    if category == "cuda_driver":
        return name in _RECORDED_DRIVER_CALLS
    return collector.sync_rows or category != "cuda_sync"


def _row(event: Event, names_record: Callable[[Event], int], collector: Collector) -> Row:
    category, name, given = event["cat"], event["name"], event.get("args", {})
    if "inDevice" in given:  # a peer copy: CUPTI's record of it names this device
        given = given | {"device": given["inDevice"], "context": given["inContext"]}
    keys = _ARGUMENTS[category] + (_OF_COLLECTIVE if collector.collectives else ())
    args = {key: given[key] for key in keys if key in given}
    if category == "gpu_memcpy":
        name = "Memcpy"
        args |= _copy_arguments(event["name"])
    elif category == "gpu_memset":
        name = "Memset"
        kind = _MEMSET.fullmatch(event["name"])
        args["memory kind"] = _MEMORY_KINDS.index(kind["kind"]) if kind else 0
    elif name in _WAITS_FOR_EVENT:
        args |= {
            "wait_on_stream": -1,
            "wait_on_cuda_event_id": given.get("wait_on_cuda_event_id", 0),
            "wait_on_cuda_event_record_corr_id": names_record(event),
        }
    thread = abs(args["stream"]) if category == "cuda_sync" else event["tid"]
    start_ns = int(1000 * event["ts"])
    return Row(
        category,
        name,
        event["pid"],
        thread,
        start_ns,
        start_ns + int(1000 * event["dur"]),
        args,
    )


def _copy_arguments(name: str) -> Event:
    """What a copy's name says as Kineto writes it.

    >>> _copy_arguments("Memcpy HtoD (Pageable -> Device)")
    {'copy kind': 'HtoD', 'src kind': 'pageable', 'dst kind': 'device'}
    """
    of_copy = _COPY.fullmatch(name)
    if not of_copy:
        return {"copy kind": 0, "src kind": "unknown", "dst kind": "unknown"}
    kind = of_copy["kind"]
    return {
        "copy kind": _COPY_KINDS.index(kind) + 1 if kind in _UNNAMED_COPY_KINDS else kind,
        "src kind": of_copy["source"].lower().replace(" ", "_"),
        "dst kind": of_copy["target"].lower().replace(" ", "_"),
    }


def _record_names(events: Sequence[Event]) -> Callable[[Event], int]:
    """What names the record of a wait: its correlation, -1 where the capture does not tell.

    The collector joins waits and records by an id that CUPTI gives to each record. Kineto's join
    stops at the context: there, the record is the last one of the same event before the wait.
    """
    recorded: dict[int, list[int]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cuda_event":
            recorded[event["args"]["event_id"]].append(event["args"]["correlation"])
    for correlations in recorded.values():
        correlations.sort()

    def correlation_of(wait: Event) -> int:
        args = wait["args"]
        correlation = args.get("wait_on_cuda_event_record_corr_id", -1)
        if correlation >= 0 or wait["name"] == "Event Sync":
            return int(correlation)
        of_event = recorded.get(args.get("wait_on_cuda_event_id"), [])
        before = bisect_left(of_event, args["correlation"])
        return of_event[before - 1] if before else -1

    return correlation_of


def _waits_of_idle_streams(events: Sequence[Event]) -> list[Event]:
    """The rows of waits of streams without any activity, as far as the capture tells them.

    A call that makes a stream wait, right after its thread recorded an event, waits for that event.
    The stream is the one without activities on which the event is recorded, too.
    """
    complete = [event for event in events if event["ph"] == "X"]
    busy = {
        (_device(event), event["args"]["stream"])
        for event in complete
        if event["cat"] in _ACTIVITIES
    }
    records = {x["args"]["correlation"]: x for x in complete if x["cat"] == "cuda_event"}
    has_row = {x["args"]["correlation"] for x in complete if x["cat"] == "cuda_sync"}
    idle_streams: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for record in records.values():
        stream = _device(record), record["args"]["stream"]
        idle_streams[record["args"]["event_id"]] |= {stream} - busy
    rows = []
    last_of: dict[int, Event] = {}
    calls = [event for event in complete if event["cat"] == "cuda_runtime"]
    for call in sorted(calls, key=lambda event: event["ts"]):
        record = records.get(last_of.get(call["tid"], call)["args"]["correlation"])
        last_of[call["tid"]] = call
        if call["name"] != "cudaStreamWaitEvent" or call["args"]["correlation"] in has_row:
            continue
        streams = idle_streams.get(record["args"]["event_id"], set()) if record else set()
        if record and len(streams) == 1:
            rows.append(_wait_row(call, record, *min(streams)))
    return rows


def _wait_row(call: Event, record: Event, device: int, stream: int) -> Event:
    """Kineto's row of a wait."""
    return call | {
        "cat": "cuda_sync",
        "name": "Stream Wait Event",
        "pid": device,
        "args": {
            "cuda_sync_kind": "Stream Wait Event",
            "stream": stream,
            "correlation": call["args"]["correlation"],
            "device": device,
            "context": record["args"]["context"],
            "wait_on_cuda_event_id": record["args"]["event_id"],
            "wait_on_cuda_event_record_corr_id": record["args"]["correlation"],
        },
    }


def _device(event: Event) -> int:
    args = event["args"]
    return int(args["device"] if "device" in args else args["inDevice"])


# Graphs.


def _with_graphs(window: Window, collector: Collector) -> Window:
    """The window with what the collector knows of nodes of graphs."""
    launches = {
        row.args["correlation"]
        for row in window.rows.get("cuda_runtime", ())
        if row.name == "cudaGraphLaunch"
    }
    replays: dict[int, list[Row]] = defaultdict(list)
    for row in window.activities:
        if row.args["correlation"] in launches:
            replays[row.args["correlation"]].append(row)
    changed: dict[int, Row] = {}  # by the id of the row that each one replaces
    others: dict[str, list[Row]] = defaultdict(list)
    linked: list[tuple[Row, Row]] = []
    for replay in replays.values():
        nodes = _nodes(replay, collector)
        changed |= {id(row): node for row, node in zip(replay, nodes, strict=True)}
        links = collector.links(replay) if collector.links else ()
        linked += [(nodes[source], nodes[target]) for source, target in links]
        if collector.event_nodes:
            others[_EVENT_NODE].append(_event_node(nodes))
        if collector.host_nodes:
            others[_HOST_NODE].append(_host_node(nodes))
    rows = {
        category: [changed.get(id(row), row) for row in of_category]
        for category, of_category in window.rows.items()
    }
    window = replace(window, rows=rows | others)
    place = {id(row): i for i, row in enumerate(window.activities)}
    devices = {row.process for row in changed.values()}
    return replace(
        window,
        links=[(place[id(source)], place[id(target)]) for source, target in linked],
        lane_names={
            (device, lane): name for device in devices for lane, name in collector.lanes.values()
        },
    )


def _nodes(replay: Sequence[Row], collector: Collector) -> list[Row]:
    """The activities of a replay with what the collector knows of their nodes."""
    nodes = []
    in_order = sorted(replay, key=lambda row: (row.process, row.cuda_stream, row.start_ns))
    number_of = {id(row): number for number, row in enumerate(in_order)}
    for row in replay:
        args = dict(row.args)
        if collector.node_ids:
            args |= {"graph id": GRAPH_NUMBER, "graph node id": number_of[id(row)]}
        args |= _annotation(collector.annotations.get(number_of[id(row)]))
        stream = args["stream"]
        thread, _ = collector.lanes.get(stream, (stream, ""))
        if thread != stream:
            args |= {"stream": thread, "original_stream": stream}
        nodes.append(replace(row, args=args, thread=thread))
    return nodes


def _annotation(annotation: Any) -> Event:
    """The arguments that an annotation of a node becomes: an object is spread over them."""
    if annotation is None:
        return {}
    if isinstance(annotation, dict):
        return {str(key): value for key, value in annotation.items()}
    return {"annotation": json.dumps(annotation) if isinstance(annotation, list) else annotation}


def _event_node(nodes: Sequence[Row]) -> Row:
    first = min(nodes, key=lambda row: row.end_ns)
    args = _other_node(first, len(nodes)) | {"cuda event": hex(0x7F00_0000_1000)}
    return replace(
        first, category=_EVENT_NODE, name="EventRecord", start_ns=first.end_ns, args=args
    )


def _host_node(nodes: Sequence[Row]) -> Row:
    last = max(nodes, key=lambda row: row.end_ns)
    args = _other_node(last, len(nodes) + 1) | {
        "host process": 100,
        "host thread": 100,
        "host fn": "callback",
        "host fn addr": hex(0x7F00_0000_2000),
    }
    return replace(
        last,
        category=_HOST_NODE,
        name="HostNode: callback",
        start_ns=last.end_ns,
        end_ns=last.end_ns + 1_000,
        args=args,
    )


def _other_node(beside: Row, number: int) -> Event:
    """The arguments of a node that is no activity, on the stream of one that is."""
    keys = (*_LANE, "original_stream", "graph id")
    return {key: beside.args[key] for key in keys if key in beside.args} | {"graph node id": number}


# Rows to events of Chrome's JSON.


def _complete_event(row: Row) -> Event:
    return {
        "ph": "X",
        "cat": row.category,
        "name": row.name,
        "pid": row.process,
        "tid": row.thread,
        "ts": row.start_ns / 1000,
        "dur": (row.end_ns - row.start_ns) / 1000,
        "args": dict(row.args),
    }


def _flow(phase: str, number: int, process: int, thread: int, time_ns: int) -> Event:
    flow: Event = {"ph": phase, "id": number, "pid": process, "tid": thread, "ts": time_ns / 1000}
    flow |= {"cat": "ac2g", "name": "ac2g"}
    return flow | ({"bp": "e"} if phase == "f" else {})


def _metadata(window: Window) -> Iterator[Event]:
    """The names of devices, processes, threads and lanes."""
    devices = sorted({row.process for row in window.activities})
    calls = [row for category in _CALLS for row in window.rows.get(category, ())]
    lanes = {(row.process, row.cuda_stream) for row in window.activities}
    lanes |= {(row.process, row.args["stream"]) for row in window.rows.get("cuda_sync", ())}
    for process in (*devices, *sorted({row.process for row in calls})):
        is_device = process in devices
        yield _named("process_name", process, 0, "name", "python")
        yield _named(
            "process_labels", process, 0, "labels", f"GPU {process}" if is_device else "CPU"
        )
    for process, thread in sorted({(row.process, row.thread) for row in calls}):
        yield _named("thread_name", process, thread, "name", f"thread {thread}")
    for device, lane in sorted(lanes | set(window.lane_names)):
        name = window.lane_names.get((device, lane), f"stream {lane} ")
        yield _named("thread_name", device, abs(lane), "name", name)


def _named(what: str, process: int, thread: int, key: str, value: str) -> Event:
    return {
        "ph": "M",
        "name": what,
        "ts": 0.0,
        "pid": process,
        "tid": thread,
        "args": {key: value},
    }


def _marks_of_recording(events: Sequence[Event]) -> list[Event]:
    """From when to when the recording lasted."""
    complete = [event for event in events if event["ph"] == "X"]
    start = float(min(event["ts"] for event in complete))
    end = float(max(event["ts"] + event["dur"] for event in complete))
    profiler = "PyTorch Profiler"
    return [
        {
            "ph": "X",
            "cat": "Trace",
            "name": f"{profiler} (0)",
            "pid": "Spans",
            "tid": profiler,
            "ts": start,
            "dur": end - start,
            "args": {"Op count": 0},
        },
        {
            "ph": "i",
            "s": "g",
            "name": f"Iteration Start: {profiler}",
            "pid": "Traces",
            "tid": f"Trace {profiler}",
            "ts": start,
        },
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": end + 0.001},
    ]
