"""Traces of Perfetto as PyTorch's own CUPTI collector writes them: the same as its JSON."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from google.protobuf.runtime_version import VersionError
from hypothesis import given, strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.build import collector_packets, cupti_collector
from tests.build.collector_packets import STAGES, as_field, perfetto_trace
from tests.build.cupti_collector import Collector, Row, Window, stream_order
from tests.build.files import read
from tests.build.read_scene import ARRAYS
from tests.bundled_traces import FOLDER
from tests.examples import examples
from tracelab.base.errors import MissingSupportError, UnreadableInputError
from tracelab.model.trace import Category, Trace
from tracelab.read import packet_events
from tracelab.read.cache import load_trace
from tracelab.read.json.columns import Columns
from tracelab.read.parallel import read_trace_in_chunks
from tracelab.read.reader import read_arguments, read_trace
from tracelab.read.streams import Source

BASE_NS = 1_763_880_000_000_000_000
US = 1_000


def window(
    rows: Iterable[Row] = (), links: Iterable[tuple[int, int]] = (), lane_names=None
) -> Window:
    """A recording of these rows of CUPTI, and a host that ran one operator."""
    by_category: dict[str, list[Row]] = {}
    for row in rows:
        by_category.setdefault(row.category, []).append(row)
    return Window(
        header={},
        base_ns=BASE_NS,
        host_events=[
            {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "python"}},
            {"ph": "M", "name": "thread_name", "pid": 100, "tid": 100, "args": {"name": "main"}},
            operator("aten::mm", 1_000, 9_000),
        ],
        rows=by_category,
        links=list(links),
        lane_names=lane_names or {},
    )


def operator(name: str, start_ns: int, end_ns: int, **args: Any) -> dict[str, Any]:
    times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 100, "tid": 100, **times, "args": args}


def call(name: str, start_ns: int, end_ns: int, correlation: int, thread: int = 100) -> Row:
    args = {"cbid": 211, "correlation": correlation}
    return Row("cuda_runtime", name, 100, thread, start_ns, end_ns, args)


def activity(
    category: str,
    name: str,
    start_ns: int,
    end_ns: int,
    *,
    stream: int = 7,
    device: int = 0,
    lane: int | None = None,
    **args: Any,
) -> Row:
    where = {"device": device, "context": 1, "stream": stream, "correlation": 17} | args
    if lane is not None:
        where |= {"stream": lane, "original_stream": stream}
    return Row(category, name, device, stream if lane is None else lane, start_ns, end_ns, where)


def written(folder: Path, content: bytes, name: str = "step.pftrace") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def read_window(folder: Path, recorded: Window) -> Trace:
    return read_trace(written(folder, perfetto_trace(recorded)))


def events_of(trace: Trace) -> list[tuple[Any, ...]]:
    """Category, name, start in ns since the base, length in ns, device, stream and correlation."""
    columns = zip(
        trace.category.tolist(),
        trace.name_index.tolist(),
        (trace.start_ns + trace.origin_ns).tolist(),
        trace.duration_ns.tolist(),
        trace.device_number[:].tolist(),
        trace.stream_number[:].tolist(),
        trace.correlation[:].tolist(),
        strict=True,
    )
    return [
        (Category(category).name, trace.strings[name], *rest) for category, name, *rest in columns
    ]


# --- worked out by hand ---------------------------------------------------------------------


def test_every_kind_of_row(tmp_path):
    """GIVEN one row of each kind
    THEN each is what the collector's JSON makes of it; of a copy nobody knows the direction."""
    trace = read_window(
        tmp_path,
        window(
            [
                call("cudaLaunchKernel", 2_000, 3_001, 17),
                Row("cuda_driver", "cuLaunchKernelEx", 100, 101, 3_500, 3_600, {"correlation": 18}),
                Row("overhead", "Instrumentation", -1, 0, 4_000, 4_100, {}),
                Row(
                    "cuda_sync",
                    "Stream Wait Event",
                    0,
                    13,
                    5_000,
                    5_001,
                    {
                        "cuda_sync_kind": "Stream Wait Event",
                        "stream": 13,
                        "correlation": 19,
                        "device": 0,
                        "context": 1,
                        "wait_on_stream": -1,
                        "wait_on_cuda_event_id": 4,
                        "wait_on_cuda_event_record_corr_id": 16,
                    },
                ),
                activity("kernel", "gemm<float>", 6_000, 8_250),
                activity("gpu_memcpy", "Memcpy", 9_000, 9_500, stream=13, bytes=4096),
                activity("gpu_memset", "Memset", 9_600, 9_601, **{"memory kind": 3, "bytes": 8}),
                activity("gpu_user_annotation", "step", 5_999, 9_602),
                activity("graph_event_node", "EventRecord", 9_700, 9_700),
                activity("graph_host_node", "HostNode", 9_800, 9_900, **{"host fn": "callback"}),
            ]
        ),
    )
    assert events_of(trace) == [
        ("OPERATOR", "aten::mm", 1_000, 8_000, -1, -1, -1),
        ("RUNTIME", "cudaLaunchKernel", 2_000, 1_001, -1, -1, 17),
        ("DRIVER", "cuLaunchKernelEx", 3_500, 100, -1, -1, 18),
        ("OVERHEAD", "Instrumentation", 4_000, 100, -1, -1, -1),
        ("SYNC", "Stream Wait Event", 5_000, 1, 0, 13, 19),
        ("KERNEL", "gemm<float>", 6_000, 2_250, 0, 7, 17),
        ("MEMCPY", "Memcpy", 9_000, 500, 0, 13, 17),
        ("MEMSET", "Memset (Device)", 9_600, 1, 0, 7, 17),
        ("GPU_ANNOTATION", "step", 5_999, 3_603, -1, -1, -1),
        ("GRAPH_EVENT_NODE", "EventRecord", 9_700, 0, 0, 7, 17),
        ("GRAPH_HOST_NODE", "HostNode: callback", 9_800, 100, 0, 7, 17),
    ]
    assert dict(trace.losses) == {"copies_without_direction": 1}
    assert trace.loss_names == {"copies_without_direction": {"Memcpy": 1}}
    assert (trace.wait_correlation[4], trace.cuda_event_number[4]) == (16, 4)
    assert trace.copied_bytes[6] == 4096
    assert trace.info.clock_base_ns == BASE_NS
    assert trace.metadata == {"baseTimeNanoseconds": BASE_NS}


def test_calls_that_touch_keep_their_lengths(tmp_path):
    """GIVEN three calls of a thread, each beginning when the one before ends
    THEN each is as long as it was, though all begins come before all ends in the file."""
    calls = [call(f"call{i}", 1_000 * i, 1_000 * (i + 1), i) for i in range(1, 4)]
    trace = read_window(tmp_path, window(calls))
    assert [event[1:4] for event in events_of(trace)[1:]] == [
        (f"call{i}", 1_000 * i, 1_000) for i in range(1, 4)
    ]


def test_threads_and_rows_have_their_names(tmp_path):
    rows = [
        call("cudaLaunchKernel", 2_000, 3_000, 17),
        activity("kernel", "gemm", 4_000, 5_000, lane=1007),
        activity("kernel", "gemm", 4_000, 5_000, stream=13),
    ]
    trace = read_window(tmp_path, window(rows, lane_names={(0, 1007): "expert 3"}))
    threads = {(x.process, x.thread): x.name for x in trace.threads}
    assert threads == {
        ("100", "100"): "main",
        ("0", "1007"): "expert 3",
        ("0", "13"): "stream 13",
    }


def test_a_row_of_a_graph_runs_on_its_cuda_stream(tmp_path):
    trace = read_window(tmp_path, window([activity("kernel", "gemm", 0, 5, stream=7, lane=1007)]))
    kernel_id = int(trace.of_category(Category.KERNEL)[0])
    assert trace.stream_number[kernel_id] == 7


def test_nodes_of_graphs_and_what_they_wait_for(tmp_path):
    """GIVEN three nodes of a replay, the second after the first, the third after both
    THEN each is known by its numbers and its annotation, and so is what it waited for, exactly,
    though an event node without a length ends where the first kernel does."""
    graph = {"graph id": 3}
    rows = [
        activity("kernel", "first", 0, 100, **graph, **{"graph node id": 1, "str": "forward"}),
        activity("kernel", "second", 100, 200, stream=13, **graph, **{"graph node id": 2}),
        activity("gpu_memset", "Memset", 300, 310, **graph, **{"graph node id": 4}),
        activity("graph_event_node", "EventRecord", 100, 100, **graph, **{"graph node id": 5}),
    ]
    links = [(0, 1), (0, 2), (1, 2), (3, 1)]
    trace = read_window(tmp_path, window(rows, links))
    nodes = trace.graph_nodes
    names = [trace.strings[i] for i in trace.name_index]
    assert [
        (names[before], names[after])
        for before, after in zip(nodes.predecessor_id, nodes.successor_id, strict=True)
    ] == [
        ("first", "second"),
        ("EventRecord", "second"),
        ("first", "Memset (Unknown)"),
        ("second", "Memset (Unknown)"),
    ]
    assert nodes.node_number[:-1].tolist() == [1, 2, 4, 5]
    assert nodes.graph_number[:-1].tolist() == [3] * 4
    assert nodes.annotations == ("forward",)
    assert nodes.annotation_index[:-1].tolist() == [0, -1, -1, -1]
    assert not trace.losses


def test_a_collective_says_what_it_moves(tmp_path):
    message = {
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "dtype": "Float",
        "Process Group Name": "0",
        "Group size": 8,
        "Seq": 5,
    }
    kernel = activity("kernel", "ncclDevKernel_AllReduce", 0, 100, **message)
    recorded = window([kernel])
    recorded.host_events.append(operator("record_param_comms", 0, 100, **message))
    trace = read_window(tmp_path, recorded)
    assert trace.messages.names == ("allreduce",)
    assert trace.messages.in_bytes[:-1].tolist() == [4096, 4096]
    assert trace.messages.sequence[:-1].tolist() == [5, 5]


def test_threads_whose_lower_bits_are_equal_stay_apart(tmp_path):
    """GIVEN two threads with numbers beyond 31 bits, of which the file has only the lower ones
    THEN they are two threads."""
    threads = [0x7F00_0000_1000, 0x7E00_0000_1000]
    calls = [call("cudaLaunchKernel", 0, 5, i, thread) for i, thread in enumerate(threads)]
    trace = read_window(tmp_path, window(calls))
    assert len({trace.thread_index[i] for i in trace.of_category(Category.RUNTIME)}) == 2


def test_times_are_exact_at_any_base(tmp_path):
    """GIVEN a file without the snapshot of its clock: its times are those since 1970
    THEN no nanosecond is lost."""
    recorded = window([activity("kernel", "gemm", 1, 8)])
    content = perfetto_trace(recorded)
    snapshot = as_field(next(collector_packets.packets(recorded)))
    trace = read_trace(written(tmp_path, content.removeprefix(snapshot)))
    assert events_of(trace)[-1][2:4] == (BASE_NS + 1, 7)
    assert trace.info.clock_base_ns == 0


# --- as the JSON ----------------------------------------------------------------------------

CAPTURES = {
    "prefetch_copy_stream_pageable": Collector(),
    "two_streams_small_graph": Collector(
        links=stream_order,
        event_nodes=True,
        host_nodes=True,
        annotations={0: {"str": "forward"}, 1: {"name": "B", "dtype": "bf16"}},
    ),
    "ddp_hook_side_stream_rank1": Collector(),
    "events_wait": Collector(),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_as_packets_is_the_trace_that_its_json_is(tmp_path, name):
    """GIVEN a bundled capture as the collector would have written it, in both of its formats
    THEN both are the same events, with the same names, times, lanes and nodes."""
    capture = cupti_collector.load(FOLDER / f"{name}.pt.trace.json.gz")
    recorded = cupti_collector.collect(capture, CAPTURES[name])
    packets = read(collector_packets.write(recorded, tmp_path / "a.pftrace"))
    as_json = cupti_collector.chrome(collector_packets.as_in_packets(recorded))
    in_order = collector_packets.in_order_of_packets(as_json)
    chrome = read(cupti_collector.write(in_order, tmp_path / "b.json"))
    assert len(packets) == len(chrome) - 1  # "PyTorch Profiler (0)", over all of the file
    for column in (*ARRAYS, "graph_node_row"):
        if column not in ("name_index", "thread_index", "file_index"):
            ours, theirs = (getattr(x, column)[:][: len(packets)] for x in (packets, chrome))
            assert ours.tolist() == theirs.tolist(), column
    names = [[x.strings[i] for i in x.name_index[: len(packets)]] for x in (packets, chrome)]
    assert names[0] == names[1]
    assert packets.origin_ns == chrome.origin_ns
    assert packets.info.clock_base_ns == chrome.info.clock_base_ns
    nodes = packets.graph_nodes, chrome.graph_nodes
    assert nodes[0].annotations == nodes[1].annotations
    assert len(nodes[0].predecessor_id) == len(nodes[1].predecessor_id)
    assert packets.loss_names == chrome.loss_names


@st.composite
def windows(draw):
    """Recordings of any activities, which may overlap, and of calls one after the other."""
    rows = []
    for kind, thread in draw(
        st.lists(
            st.sampled_from((("cuda_runtime", 100), ("cuda_runtime", 101), ("cuda_driver", 100)))
        )
    ):
        before = [row.end_ns for row in rows if (row.category, row.thread) == (kind, thread)]
        start = max(before, default=0) + draw(st.integers(0, 3))
        args = {"cbid": 211, "correlation": len(rows)}
        end = start + draw(st.integers(1, 5))
        rows.append(Row(kind, "cudaLaunchKernel", 100, thread, start, end, args))
    for start, length in draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)))):
        kind, name = draw(
            st.sampled_from(
                (("kernel", "gemm"), ("gpu_memcpy", "Memcpy"), ("gpu_memset", "Memset"))
            )
        )
        stream = draw(st.integers(1, 2))
        node = draw(st.sampled_from(({}, {"graph id": 3, "graph node id": len(rows)})))
        rows.append(activity(kind, name, start, start + length, stream=stream, **node))
    recorded = window(rows)
    nodes = [i for i, row in enumerate(recorded.activities) if "graph id" in row.args]
    pair = st.tuples(*[st.sampled_from(nodes)] * 2)
    links = draw(st.lists(pair, max_size=4, unique=True)) if nodes else []
    return replace(recorded, links=links)


@given(windows())
@examples(100)
def test_any_recording_comes_back(tmp_path_factory, recorded):
    """GIVEN any rows
    WHEN they are written as packets and read
    THEN every row is there with its exact times, and every dependency with both of its ends."""
    trace = read_window(tmp_path_factory.mktemp("packets"), recorded)
    in_file = collector_packets.as_in_packets(recorded)
    calls = [row for x in ("cuda_runtime", "cuda_driver") for row in in_file.rows.get(x, ())]
    activities = [row for x in STAGES for row in in_file.rows.get(x, ())]
    found = [(start, length, x) for _, _, start, length, _, _, x in events_of(trace)[1:]]
    expected = [
        (row.start_ns, row.end_ns - row.start_ns, row.args["correlation"])
        for row in (*calls, *activities)
    ]
    first = len(calls)
    assert sorted(found[:first]) == sorted(expected[:first])
    assert found[first:] == expected[first:]
    nodes = trace.graph_nodes
    links = zip(nodes.predecessor_id.tolist(), nodes.successor_id.tolist(), strict=True)
    assert sorted(links) == sorted((1 + first + x, 1 + first + y) for x, y in recorded.links)
    assert set(trace.losses) <= {"copies_without_direction"}


# --- other ways to read it ------------------------------------------------------------------

SCENE = [
    call("cudaLaunchKernel", 2_000, 3_000, 17),
    activity("kernel", "gemm", 6_000, 8_250, grid=[2, 1, 1], block=[64, 1, 1]),
]
SCENE[1].args["registers per thread"] = 32  # type: ignore[index]


def test_the_arguments_of_events(tmp_path):
    """GIVEN an operator with shapes, and a kernel
    THEN their arguments are those of the JSON, by the index of the event in the file."""
    recorded = window(SCENE)
    shapes = {"Input Dims": [[2, 3], []], "Sequence number": 5, "Concrete Inputs": ["", "True"]}
    recorded.host_events[-1]["args"] = shapes
    path = written(tmp_path, perfetto_trace(recorded))
    trace = read_trace(path)
    arguments = read_arguments(path, trace.file_index.tolist())
    by_event = [arguments[index] for index in trace.file_index.tolist()]
    assert by_event == [
        shapes,
        {"cbid": 211, "correlation": 17},
        {
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": 17,
            "grid": [2, 1, 1],
            "block": [64, 1, 1],
        },
    ]


def packed_twice(content: bytes) -> bytes:
    return gzip.compress(gzip.compress(content))


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, packed_twice], ids=["plain", "packed", "packed twice"]
)
@pytest.mark.parametrize("name", ["a.pftrace", "a.pftrace.gz", "a.json"])
def test_a_file_is_known_by_its_content(tmp_path, pack, name):
    assert len(read_trace(written(tmp_path, pack(perfetto_trace(window(SCENE))), name))) == 3


def test_it_is_not_cut_into_chunks(tmp_path, monkeypatch):
    """GIVEN an unpacked file of many of the chunks in which several processes read JSON
    THEN one process reads it."""
    monkeypatch.setattr("tracelab.read.parallel.CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr("tracelab.read.parallel.open_processes", None)
    recorded = window([activity("kernel", "},{" * 50, i, i + 1) for i in range(2000)])
    path = written(tmp_path, perfetto_trace(recorded))
    assert path.stat().st_size > 1 << 17
    assert len(read_trace_in_chunks(Source(str(path), None, True), 4)) == 2001


def test_the_cache_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tracelab.read.cache.SMALLEST_FILE_BYTES", 0)
    monkeypatch.setattr("tracelab.read.cache.folder", lambda: tmp_path / "cache")
    source = Source(str(written(tmp_path, perfetto_trace(window(SCENE)))), None, True)
    first = load_trace(source)
    monkeypatch.setattr("tracelab.read.cache.read_trace_in_chunks", None)
    assert events_of(load_trace(source)) == events_of(first)


def test_memory_does_not_grow_with_packets_that_are_done_with(tmp_path, monkeypatch):
    """GIVEN a file of many pieces
    THEN the columns get them one after the other."""
    pieces = []
    monkeypatch.setattr(packet_events, "_AT_ONCE", 100)
    add = Columns.add
    monkeypatch.setattr(Columns, "add", lambda self, x: (pieces.append(len(x)), add(self, x)))
    rows = [activity("kernel", "gemm", i, i + 1) for i in range(5_000)]
    assert len(read_window(tmp_path, window(rows))) == 5_001
    assert max(pieces) <= 101


def test_slices_in_order_of_time_come_in_large_pieces():
    """GIVEN 5,000 slices as a program writes them while it runs, each end after its begin
    THEN they are not given one by one."""
    slices = []
    for i in range(5_000):
        for kind, time_ns in (("BEGIN", 2 * i), ("END", 2 * i + 1)):
            packet = protos.TracePacket(timestamp=time_ns)
            packet.track_event.type = protos.TrackEvent.Type.Value(f"TYPE_SLICE_{kind}")
            packet.track_event.track_uuid = 7
            if kind == "BEGIN":
                packet.track_event.name = f"call{i}"
                packet.track_event.categories.append("cuda_runtime")
            slices.append(as_field(packet))
    stream = io.BytesIO(b"".join(slices))
    pieces = list(packet_events.PacketEvents(stream, "a.pftrace", dict, None))
    assert list(map(len, pieces)) == [4096, 904]
    names = [fields["name"] for piece in pieces for fields in piece]
    assert names == [f"call{i}" for i in range(5_000)]


@pytest.mark.parametrize("flags", [0, 1])
def test_memory_does_not_grow_with_sequences_without_names(flags):
    """GIVEN 20,000 packets, each of a sequence of its own
    THEN nothing is kept of them."""
    packets = (
        protos.TracePacket(trusted_packet_sequence_id=i, sequence_flags=flags)
        for i in range(2, 20_002)
    )
    content = perfetto_trace(window(SCENE)) + b"".join(map(as_field, packets))
    events = packet_events.PacketEvents(io.BytesIO(content), "a.pftrace", dict, None)
    tracemalloc.start()
    assert sum(field["ph"] == "X" for piece in events for field in piece) == 3
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


# --- damage, and what is not known ----------------------------------------------------------


def changed(recorded: Window, change: Callable[[Any], None]) -> bytes:
    """The file after a change of every packet."""
    content = []
    for packet in collector_packets.packets(recorded):
        change(packet)
        content.append(as_field(packet))
    return b"".join(content)


def test_names_that_are_missing(tmp_path):
    """GIVEN a file that lacks its table of names
    THEN rows without a name are counted, copies and the like have that of their stage."""

    def forget(packet):
        packet.interned_data.ClearField("event_names")

    rows = [*SCENE, activity("gpu_memset", "Memset", 9_000, 9_100, **{"memory kind": 3})]
    trace = read_trace(written(tmp_path, changed(window(rows), forget)))
    assert [event[1] for event in events_of(trace)] == ["Memset (Device)"]
    assert dict(trace.losses) == {"incomplete_events": 3}


def test_categories_that_are_missing_are_named(tmp_path):
    def forget(packet):
        packet.interned_data.ClearField("event_categories")

    trace = read_trace(written(tmp_path, changed(window(SCENE), forget)))
    assert trace.loss_names == {"unknown_categories": {"category_iids 1": 1, "category_iids 2": 1}}


def test_stages_and_categories_of_tomorrow_are_named(tmp_path):
    def rename(packet):
        for stage in packet.interned_data.gpu_specifications:
            stage.name = stage.name.replace("Memcpy", "Teleport")
        for category in packet.interned_data.event_categories:
            category.name = category.name.replace("cuda_runtime", "cuda_mind")

    rows = [*SCENE, activity("gpu_memcpy", "Memcpy", 9_000, 9_100)]
    trace = read_trace(written(tmp_path, changed(window(rows), rename)))
    assert trace.losses["unknown_categories"] == 2
    assert trace.loss_names == {"unknown_categories": {"cuda_mind": 1, "render stage Teleport": 1}}


def test_packets_of_other_kinds_are_named(tmp_path):
    other = protos.TracePacket(timestamp=BASE_NS)
    other.power_rails.SetInParent()
    unknown = b"\n\x05\xfa\xff\x7f\x01\x00"  # a field that no version has
    config = protos.TracePacket()
    config.trace_config.SetInParent()
    content = perfetto_trace(window(SCENE)) + as_field(other) + unknown + as_field(config)
    trace = read_trace(written(tmp_path, content))
    assert trace.loss_names == {
        "unknown_categories": {"packet power_rails": 1, "packet of an unknown kind": 1}
    }


def test_times_of_another_clock_are_not_mixed_with_these(tmp_path):
    def change(packet):
        if packet.HasField("gpu_render_stage_event"):
            packet.timestamp_clock_id = 64

    trace = read_trace(written(tmp_path, changed(window(SCENE), change)))
    assert trace.loss_names == {"unknown_categories": {"gpu_render_stage_event with clock 64": 1}}


def test_a_packet_that_cannot_be_parsed(tmp_path):
    """GIVEN five calls, of whose packets one is damaged inside
    THEN the four others are as they were."""
    calls = [call(f"call{i}", 100 * i, 100 * i + 50, i) for i in range(1, 6)]
    packets = [as_field(x) for x in collector_packets.packets(window(calls))]
    begins = [i for i, x in enumerate(packets) if b"cbid" in x]
    damaged = packets[begins[2]]
    packets[begins[2]] = damaged[:2] + b"\xff" * (len(damaged) - 2)
    trace = read_trace(written(tmp_path, b"".join(packets)))
    assert [event[1:4] for event in events_of(trace)[1:]] == [
        (f"call{i}", 100 * i, 50) for i in (1, 2, 4, 5)
    ]
    assert dict(trace.losses) == {"unparsable_events": 1, "unmatched_begin_end": 1}


def test_a_truncated_file_has_what_is_whole(tmp_path):
    """GIVEN a file that breaks off within the ends of its calls
    THEN the calls whose ends are there are read, and no activity that was after them."""
    calls = [call(f"call{i}", 100 * i, 100 * i + 50, i) for i in (3, 1, 2)]
    packets = [as_field(x) for x in collector_packets.packets(window([*calls, SCENE[1]]))]
    last_begin = max(i for i, x in enumerate(packets) if b"cbid" in x)
    content = b"".join(packets[: last_begin + 3]) + packets[last_begin + 3][:4]
    trace = read_trace(written(tmp_path, content))
    assert [event[1:4] for event in events_of(trace)[1:]] == [
        ("call3", 300, 50),
        ("call1", 100, 50),
    ]
    assert dict(trace.losses) == {"truncated": 1, "unmatched_begin_end": 1}


def test_a_file_that_breaks_off_before_any_end_is_of_pytorch(tmp_path):
    packets = list(collector_packets.packets(window(SCENE)))
    begin = next(i for i, x in enumerate(packets) if x.HasField("track_event"))
    content = b"".join(map(as_field, packets[: begin + 1]))
    path = written(tmp_path, content + as_field(packets[begin + 1])[:3])
    assert refusal(path).startswith(f"{path}: the trace holds no complete event (")


def test_texts_that_are_not_utf_8(tmp_path):
    content = perfetto_trace(window(SCENE)).replace(b"gemm", b"ge\xffm")
    trace = read_trace(written(tmp_path, content))
    assert events_of(trace)[-1][1] == "ge\N{REPLACEMENT CHARACTER}m"


def test_annotations_that_nest_too_deep_are_damage(tmp_path):
    event = protos.TracePacket(timestamp=BASE_NS)
    event.track_event.type = protos.TrackEvent.TYPE_SLICE_BEGIN
    annotation = event.track_event.debug_annotations.add()
    content = b"\x5a\x00"
    for _ in range(60):
        content = b"\x5a" + bytes([len(content)]) + content
    annotation.MergeFromString(content)
    deep = as_field(event)
    packets = [as_field(x) for x in collector_packets.packets(window(SCENE))]
    assert len(read_trace(written(tmp_path, b"".join([*packets, deep])))) == 3


def refusal(path: Path) -> str:
    with pytest.raises(UnreadableInputError) as caught:
        read_trace(path)
    return str(caught.value)


def test_a_trace_of_a_phone(tmp_path, snapshot):
    """GIVEN stages of GPU work as a phone's driver writes them, and its other packets
    THEN the sentence says what it is not."""
    names = protos.TracePacket(sequence_flags=1)
    names.interned_data.gpu_specifications.add(iid=1, name="Vertex")
    stage = protos.TracePacket(timestamp=5)
    stage.gpu_render_stage_event.duration = 7
    stage.gpu_render_stage_event.stage_iid = 1
    path = written(tmp_path, as_field(names) + as_field(stage))
    assert refusal(path) == snapshot


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_empty_file(tmp_path, pack):
    path = written(tmp_path, pack(b""))
    assert refusal(path) == f"{path}: the file is empty"


@given(st.binary(max_size=400), st.integers(0, 10_000))
@examples(100)
def test_no_damage_is_an_error_of_ours(tmp_path_factory, noise, place):
    """GIVEN a file with any bytes somewhere in it
    THEN it is read, or refused with a sentence."""
    content = perfetto_trace(window(SCENE))
    place %= len(content)
    path = tmp_path_factory.mktemp("noise") / "a.pftrace"
    path.write_bytes(content[:place] + noise + content[place + len(noise) :])
    with suppress(UnreadableInputError):
        read_trace(path)


def test_without_what_describes_the_packets(tmp_path, monkeypatch, snapshot):
    path = written(tmp_path, perfetto_trace(window(SCENE)))
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(MissingSupportError) as caught:
        read_trace(path)
    assert str(caught.value) == snapshot


class Definitions(ModuleType):
    """A package of definitions that fails in one way when something is taken from it."""

    def __init__(self, outcome: Any) -> None:
        super().__init__("perfetto.protos.perfetto.trace")
        self._outcome = outcome

    def __getattr__(self, name: str) -> Any:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def definitions_with(*fields: str) -> Any:
    stage = SimpleNamespace(DESCRIPTOR=SimpleNamespace(fields_by_name=dict.fromkeys(fields)))
    return SimpleNamespace(GpuRenderStageEvent=stage)


@pytest.mark.parametrize(
    "outcome",
    [
        VersionError("gencode 7.0 runtime 6.0"),
        ImportError("cannot import name 'runtime_version'"),
        definitions_with("event_id", "launch"),
        definitions_with("event_id", "event_wait_ids"),
    ],
    ids=["old protobuf", "older protobuf", "old perfetto", "another"],
)
def test_with_versions_that_do_not_fit(tmp_path, monkeypatch, outcome, snapshot):
    path = written(tmp_path, perfetto_trace(window(SCENE)))
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", Definitions(outcome))
    with pytest.raises(MissingSupportError) as caught:
        read_trace(path)
    assert str(caught.value) == snapshot


def test_json_is_read_without_it():
    trace = "traces/events_item.pt.trace.json.gz"
    code = f"import sys, tracelab; tracelab.analyze({trace!r}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"perfetto", "google.protobuf"} & set(done.stdout.split())
