"""Files of PyTorch's own writers of traces, from CUPTI records that are made by hand.

``python -m tests.build.torch_writers FOLDER``, with torch 2.15 and the package cupti-python, writes
one program's trace in every layout; no GPU is needed. The program runs, and its CPU is profiled.
What a GPU would have done is made: two streams, a copy that a stream waits for, a collective, a
replay of a CUDA graph whose nodes depend on each other, a read that blocks.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

COMPUTE, COPIES, BRANCH, NCCL = 7, 13, 21, 33  # streams
LANE = 60  # that the program chose for a node, as `mark_stream` does
DEVICE, CONTEXT = 0, 1
GRAPH = 5
STEPS = 2
_US = 1_000
_SYNC = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}
_ABSENT = 0xFFFFFFFF
_FIRST_REGION = 1_000_000  # external ids of regions, above those of operators
_COLLECTIVE = {
    "Collective name": "allreduce",
    "In msg nelems": 1024,
    "Out msg nelems": 1024,
    "Group size": 2,
    "dtype": "Float",
    "In split size": "[]",
    "Out split size": "[]",
    "Global rank start": 0,
    "Global rank stride": 1,
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1]",
    "Rank": 0,
    "Seq": 1,
    "Comms Id": 7,
}
# What the program said of a node, as `torch.cuda.graph_annotations` keeps it.
ANNOTATIONS = {GRAPH << 32 | 2: [{"name": "branch", "heads": 8, "stream": LANE}]}


@dataclass
class Activity:
    """A row of the GPU or of CUDA's interface, before any writer has words for it.

    Example: ``Activity("kernel", 1_000, 5_000, 12, stream=7, name="relu")``.
    """

    kind: str
    start_ns: int
    end_ns: int
    correlation: int
    name: str = ""
    stream: int = 0
    node: int = 0  # of a CUDA graph
    external_id: int = 0  # of the operator of a call
    region: str = ""  # of the program, around a call
    values: dict[str, Any] = field(default_factory=dict)


def program() -> Any:
    """Profile a small program on the CPU, with stacks."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    weight, batch = torch.ones(16, 16), torch.ones(16, 16)

    def train_step() -> None:
        moved = torch.empty_like(batch).copy_(batch)
        with record_function("forward"):
            product = torch.relu(moved @ weight)
        with record_function("all_reduce"):
            product = product.mul(weight)
        with record_function("replay"):
            product = product.add(weight)
        with record_function("read"):
            time.sleep(0.001)

    train_step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as prof:
        for number in range(STEPS):
            with record_function(f"ProfilerStep#{number}"):
                train_step()
    return prof


class Recording:
    """What a GPU would have recorded of the program, made beside the rows of its CPU.

    Args:
        cpu: the events of Kineto's file.
        base_ns: what their times count from.
    """

    def __init__(self, cpu: Sequence[Mapping[str, Any]], base_ns: int) -> None:
        self.rows: list[Activity] = []
        self._cpu, self._base_ns = cpu, base_ns
        self._correlations = itertools.count(101)
        self._events = itertools.count(1)
        names = ("aten::copy_", "aten::mm", "aten::relu", "aten::mul", "aten::add", "read")
        for step, operators in enumerate(zip(*map(self._named, names), strict=True)):
            self._add_step(step, *operators)
        self._add_end(operators[-1])

    def _named(self, name: str) -> list[Mapping[str, Any]]:
        found = [x for x in self._cpu if x["name"] == name and x["ph"] == "X"]
        return sorted(found, key=lambda x: x["ts"])

    def _add_step(self, step: int, *operators: Mapping[str, Any]) -> None:
        copy, product, relu, scale, replay, read = operators
        direction = {"copy_kind": 1, "src_kind": 2, "dst_kind": 3, "bytes": 65_536}
        call = self._call(copy, "cudaMemcpyAsync")
        copied_ns = self._run("gpu_memcpy", COPIES, call, 40, values=direction)
        self._wait(product, COMPUTE, COPIES, copied_ns)
        call = self._call(product, "cudaLaunchKernel", "forward")
        self._run("kernel", COMPUTE, call, 25, copied_ns, name="sm90_gemm_f32_16x16")
        call = self._call(relu, "cudaLaunchKernel", "forward")
        relu_ns = self._run("kernel", COMPUTE, call, 8, name="_ZN2at6native15relu_kernel_f32Ev")
        self._wait(scale, NCCL, COMPUTE, relu_ns)
        call = self._call(scale, "cudaLaunchKernelExC", "all_reduce")
        message = {"collective": _COLLECTIVE | {"Seq": 1 + step}}
        reduced_ns = self._run("kernel", NCCL, call, 30, relu_ns, name=_NCCL_KERNEL, values=message)
        self._wait(replay, COMPUTE, NCCL, reduced_ns)
        self._replay(self._call(replay, "cudaGraphLaunch", "replay"), reduced_ns)
        direction = {"copy_kind": 2, "src_kind": 3, "dst_kind": 1, "bytes": 4}
        read_ns = self._run(
            "gpu_memcpy", COMPUTE, self._call(read, "cudaMemcpyAsync"), 2, values=direction
        )
        call = self._call(read, "cudaStreamSynchronize")
        call.end_ns = read_ns + 3 * _US
        self._sync("Stream Sync", call, COMPUTE, call.start_ns + 100, read_ns + 2 * _US)

    def _add_end(self, operator: Mapping[str, Any]) -> None:
        call = self._call(operator, "cudaDeviceSynchronize")
        self._sync("Context Sync", call, -1, call.start_ns + 100, call.end_ns - 100)
        for kind, values in (
            ("overhead", {"code": 1 << 16}),
            ("environment", {"kind": 3, "data": 250_000 | 700_000 << 32}),
        ):
            self.rows.append(Activity(kind, call.start_ns, call.start_ns + 50, 0, values=values))

    def _call(self, operator: Mapping[str, Any], name: str, region: str = "") -> Activity:
        """Call CUDA within an operator, after the calls before it."""
        begin_ns = self._base_ns + round(operator["ts"] * _US)
        calls = [row.end_ns for row in self.rows if row.kind == "cuda_runtime"]
        start_ns = max(begin_ns + 300, *(end_ns + 50 for end_ns in calls[-1:]), 0)
        row = Activity("cuda_runtime", start_ns, start_ns + 400, next(self._correlations), name)
        row.external_id, row.region = operator["args"]["External id"], region
        self.rows.append(row)
        return row

    def _run(
        self, kind: str, stream: int, call: Activity, length_us: int, after_ns: int = 0, **more: Any
    ) -> int:
        """Run what a call launched, after what is on its stream; return when it ends."""
        ends = [row.end_ns for row in self.rows if row.stream == stream and row.kind in _ON_GPU]
        start_ns = 2_000 + max(call.end_ns, after_ns, *ends)
        end_ns = start_ns + length_us * _US
        self.rows.append(Activity(kind, start_ns, end_ns, call.correlation, stream=stream, **more))
        return end_ns

    def _wait(self, operator: Mapping[str, Any], stream: int, source: int, done_ns: int) -> None:
        """Let a stream wait for an event of another one."""
        number = next(self._events)
        event = {"event": number, "sync": 1000 + number}
        record = self._call(operator, "cudaEventRecord").correlation
        self.rows.append(
            Activity("cuda_event", done_ns, done_ns, record, stream=source, values=event)
        )
        call = self._call(operator, "cudaStreamWaitEvent")
        self._sync("Stream Wait Event", call, stream, call.start_ns + 100, call.end_ns, event)

    def _sync(
        self,
        name: str,
        call: Activity,
        stream: int,
        start_ns: int,
        end_ns: int,
        values: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        row = Activity("cuda_sync", start_ns, end_ns, call.correlation, name, stream)
        self.rows.append(replace(row, values=dict(values)))

    def _replay(self, call: Activity, after_ns: int) -> None:
        """Replay a graph: a fork into another stream, an event and a host function."""
        number = next(self._events)
        event = {"event": number, "sync": 1000 + number}
        start_ns = max(call.end_ns, after_ns) + 2_000
        for node, (kind, begin_us, length_us, stream, name, values) in enumerate(
            (
                ("gpu_memset", 0, 2, COMPUTE, "", {"bytes": 256, "memory_kind": 3}),
                ("kernel", 4, 12, COMPUTE, "softmax_forward", {}),
                ("kernel", 4, 20, BRANCH, "layer_norm_forward", {}),
                ("graph_event_node", 25, 0, BRANCH, "", event),
                ("kernel", 28, 9, COMPUTE, "softmax_backward", {}),
                ("graph_host_node", 38, 5, COMPUTE, "", {}),
            )
        ):
            begin_ns = start_ns + begin_us * _US
            end_ns = begin_ns + length_us * _US
            row = Activity(kind, begin_ns, end_ns, call.correlation, name, stream, values=values)
            self.rows.append(replace(row, node=_node(node)))


# The nodes that each node of the graph waits for.
DEPENDENCIES = {1: [0], 2: [0], 3: [2], 4: [1, 3], 5: [4]}
REGIONS = ("forward", "all_reduce", "replay")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "graph_event_node", "graph_host_node")
_NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _node(number: int) -> int:
    return GRAPH << 32 | number


# Cuspy: the records as CUPTI delivers them, and then all of its own code.


def records_of(rows: Sequence[Activity]) -> dict[Any, dict[int, Any]]:
    """The rows as columns of CUPTI's records: by kind, and by the number of a field."""
    import numpy as np
    from cupti.cupti import ActivityKind as Kind
    from torch.profiler._cuspy import records
    from torch.profiler._cuspy.observers import profiler as observer

    fields = {
        **observer.PROFILER_FIELDS,
        **observer.SYNC_FIELDS,
        **observer.EVENT_FIELDS,
        **observer.ENVIRONMENT_FIELDS,
    }
    kinds = {
        "kernel": (Kind.CONCURRENT_KERNEL, records.Kernel),
        "gpu_memcpy": (Kind.MEMCPY, records.Memcpy),
        "gpu_memset": (Kind.MEMSET, records.Memset),
        "graph_host_node": (Kind.GRAPH_HOST_NODE, records.GraphHostNode),
        "cuda_runtime": (Kind.RUNTIME, records.Api),
        "cuda_sync": (Kind.SYNCHRONIZATION, records.Sync),
        "cuda_event": (Kind.CUDA_EVENT, records.CudaEvent),
        "graph_event_node": (Kind.CUDA_EVENT, records.CudaEvent),
        "overhead": (Kind.OVERHEAD, records.Overhead),
        "environment": (Kind.ENVIRONMENT, records.Environment),
    }
    delivered: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        delivered[kinds[row.kind]].append(_record(row))
        if row.kind == "cuda_runtime" and row.external_id:
            delivered[Kind.EXTERNAL_CORRELATION, records.ExternalCorrelation].append(
                {"EXTERNAL_ID": row.external_id, "CORRELATION_ID": row.correlation}
            )
    return {
        kind: {
            int(getattr(catalog, name)): np.array([record.get(name, 0) for record in listed])
            for name in vars(catalog)
            if not name.startswith("_") and getattr(catalog, name) in fields[kind]
        }
        for (kind, catalog), listed in delivered.items()
    }


def _record(row: Activity) -> dict[str, Any]:
    from torch.profiler._cuspy.trace import Runtime_api_trace_cbid

    values = row.values
    record = {
        "START": row.start_ns,
        "END": row.end_ns,
        "DEVICE_ID": DEVICE,
        "CONTEXT_ID": CONTEXT,
        "STREAM_ID": row.stream if row.stream >= 0 else _ABSENT,
        "CORRELATION_ID": row.correlation,
        "GRAPH_NODE_ID": row.node,
        "GRAPH_ID": row.node >> 32,
        "NAME": row.name,
        "PROCESS_ID": os.getpid(),
        "THREAD_ID": threading.get_ident() & 0xFFFFFFFF,
        "CHANNEL_ID": 2,
        "CHANNEL_TYPE": 1,
        "BYTES": values.get("bytes", 0),
        "COPY_KIND": values.get("copy_kind", 0),
        "SRC_KIND": values.get("src_kind", 0),
        "DST_KIND": values.get("dst_kind", 0),
        "MEMORY_KIND": values.get("memory_kind", 0),
        "TYPE": _SYNC.get(row.name, 0),
        "CUDA_EVENT_ID": values.get("event", 0),
        "CUDA_EVENT_SYNC_ID": values.get("sync", 0),
        "EVENT_ID": values.get("event", 0),
        "DEVICE_TIMESTAMP": row.start_ns,
        "OVERHEAD_KIND": values.get("code", 0),
        "TIMESTAMP": row.start_ns,
        "ENVIRONMENT_KIND": values.get("kind", 0),
        "ENVIRONMENT_KIND_DATA": values.get("data", 0),
        "QUEUED": row.start_ns - 500,
        "REGISTERS_PER_THREAD": 32,
        "DYNAMIC_SHARED_MEMORY": 4_096,
    }
    record |= {f"GRID_{axis}": size for axis, size in zip("XYZ", (264, 1, 1), strict=True)}
    record |= {f"BLOCK_{axis}": size for axis, size in zip("XYZ", (128, 1, 1), strict=True)}
    if row.kind == "cuda_runtime":
        named = Runtime_api_trace_cbid.__members__.items()
        record["CBID"] = min(int(x) for name, x in named if name.split("_v")[0] == row.name)
    return record


class Cupti:
    """In the place of Cuspy's one connection to CUPTI; its times are UTC."""

    def __init__(self, rows: Sequence[Activity]) -> None:
        self._calls = {row.correlation: row for row in rows if row.kind == "cuda_runtime"}
        self._rows = rows
        self._ids = itertools.count(_FIRST_REGION)
        self._bounds_ns = iter((0, 1 << 62))  # of a window

    def register(self, *_: object) -> object:
        return self

    def unregister(self, _: object) -> None:
        """Nothing was subscribed to."""

    def now_record_ns(self) -> int:
        return next(self._bounds_ns)

    def convert_time(self, time_ns: Any) -> Any:
        return time_ns

    convert_time_array = convert_time

    def flush(self, **_: bool) -> None:
        """All records are delivered."""

    def push_external_correlation_id(self) -> int:
        return next(self._ids)

    def pop_external_correlation_id(self) -> None:
        """No id is left: records name theirs."""

    def external_id_chain(self, external_id: int) -> tuple[int, ...]:
        """The region around an operator, and the operator."""
        around = {
            x.region for x in self._calls.values() if x.external_id == external_id and x.region
        }
        return (*(_FIRST_REGION + REGIONS.index(region) for region in around), external_id)

    def take_external_metadata(self) -> dict[int, str]:
        return {
            self._calls[row.correlation].external_id: json.dumps(row.values["collective"])
            for row in self._rows
            if "collective" in row.values
        }


def write_cuspy(rows: Sequence[Activity], cpu: Path, target: Path, *, lanes: bool) -> None:
    """Let Cuspy write its JSON or, by the name of the file, its ``.pftrace``."""
    from torch.profiler._cuspy import core
    from torch.profiler._cuspy._event_nodes import _EventNodeRecorder
    from torch.profiler._cuspy._graph_deps import _GraphDependencyRecorder
    from torch.profiler._cuspy.observers.profiler import ProfilerObserver

    core.Cuspy = lambda: Cupti(rows)
    graph = _GraphDependencyRecorder()
    graph.deps.update({_node(x): [_node(y) for y in them] for x, them in DEPENDENCIES.items()})
    graph.host_fns[_node(5)] = ("log_step", 0x7F00_0000_1234)
    graph.event_record_events[_node(3)] = 0x5588_0000_4321
    _EventNodeRecorder().graph_event_nodes[GRAPH] = [_node(3)]
    observer = ProfilerObserver(
        enable_cuda_sync=True,
        enable_environment_counters=True,
        enable_graph_dependencies=True,
        enable_event_node_ids=True,
        defer_export=False,
    )
    observer._annotation_resolver = lambda node: ANNOTATIONS.get(node, [None])[0]
    if lanes:
        observer._lane_resolver = lambda node: (LANE, "branch") if node in ANNOTATIONS else None
    observer.open_window()
    for region in REGIONS:
        observer.push_annotation(region)
    observer._on_activities(records_of(rows))
    window = observer.close_window()
    observer.set_export(window, shutil.copy(cpu, f"{cpu}.copy"), target)
    observer.join()


# Kineto: what it has of the CPU, and activities with the arguments that it writes of the GPU.


def write_kineto(rows: Sequence[Activity], prof: Any, target: Path, *, lanes: str) -> None:
    """Let Kineto's Python writer write its JSON."""
    from torch.profiler import _chrome_trace_export

    results = prof.profiler.kineto_results
    sources = {row.values["event"]: row for row in rows if row.kind == "cuda_event"}
    calls = {row.correlation: row for row in rows if row.kind == "cuda_runtime"}
    made = [
        _KinetoActivity(row, calls[row.correlation], sources) for row in rows if row.kind in _KINETO
    ]
    _chrome_trace_export.export_chrome_trace(
        SimpleNamespace(trace_activities=lambda: [*results.trace_activities(), *made]),
        str(target),
        annotations=ANNOTATIONS,
        graph_lanes=lanes,
    )


_KINETO = (*_ON_GPU[:3], "cuda_runtime", "cuda_sync", "cuda_event")
_COPY_NAMES = {1: "Memcpy HtoD (Pinned -> Device)", 2: "Memcpy DtoH (Device -> Pageable)"}


class _KinetoActivity:
    """A row as Kineto gives it to its Python writer."""

    def __init__(self, row: Activity, call: Activity, sources: Mapping[int, Activity]) -> None:
        self._row, self._call, self._sources = row, call, sources
        self._is_call = row.kind == "cuda_runtime"

    def device_id(self) -> int:
        return os.getpid() if self._is_call else DEVICE

    def resource_id(self) -> int:
        return threading.get_native_id() if self._is_call else self._row.stream

    def timestamp(self) -> int:
        return self._row.start_ns

    def duration(self) -> int:
        return self._row.end_ns - self._row.start_ns

    def type(self) -> str:
        return self._row.kind

    def name(self) -> str:
        import torch

        row = self._row
        if row.kind == "gpu_memcpy":
            return _COPY_NAMES[row.values["copy_kind"]]
        names = {"gpu_memset": "Memset (Device)", "cuda_event": "cudaEvent"}
        return names.get(row.kind) or torch._C._demangle(row.name)

    def correlation_id(self) -> int:
        return self._row.correlation

    def linked_correlation_id(self) -> int:
        return self._call.external_id

    def linked_activity(self) -> None:
        """No operator: the kernel of a collective has the arguments itself."""

    def flow_id(self) -> int:
        return self._row.correlation if self.flow_start() or self._row.kind in _ON_GPU else 0

    def flow_type(self) -> int:
        return 2

    def flow_start(self) -> bool:
        return self._is_call and "Event" not in self._row.name

    def metadata_json(self) -> str:
        row, values = self._row, self._row.values
        if self._is_call:
            return _fragment({"cbid": _record(row)["CBID"], "correlation": row.correlation})
        written = {
            "stream": row.stream,
            "correlation": row.correlation,
            "device": DEVICE,
            "context": CONTEXT,
        }
        if row.kind == "cuda_event":
            written["event_id"] = values["event"]
        elif row.kind == "cuda_sync":
            written["cuda_sync_kind"] = row.name
            if "event" in values:
                source = self._sources[values["event"]]
                written["wait_on_stream"] = source.stream
                written["wait_on_cuda_event_record_corr_id"] = source.correlation
                written["wait_on_cuda_event_id"] = values["event"]
        elif row.kind == "kernel":
            written |= {"queued": 0, "registers per thread": 32, "shared memory": 4_096}
            written |= {"grid": [264, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 25}
            written |= {"blocks per SM": 2.0, "warps per SM": 8.0}
            written |= values.get("collective", {})
        else:
            written |= {"bytes": values["bytes"], "memory bandwidth (GB/s)": 1.5}
        if row.node:
            written |= {"graph id": row.node >> 32, "graph node id": row.node}
        return _fragment(written)


def _fragment(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments)[1:-1]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    prof = program()
    with tempfile.TemporaryDirectory() as temporary:
        cpu = Path(temporary) / "cpu.json"
        prof.profiler.export_chrome_trace(str(cpu), {})
        recorded = json.loads(cpu.read_text())
        rows = Recording(recorded["traceEvents"], recorded["baseTimeNanoseconds"]).rows
        for name, lanes in (("cuspy", False), ("cuspy_lanes", True)):
            for ending in (".json.gz", ".pftrace.gz"):
                write_cuspy(rows, cpu, folder / f"{name}{ending}", lanes=lanes)
    for name, graph_lanes in (("kineto", "none"), ("kineto_lanes", "all")):
        write_kineto(rows, prof, folder / f"{name}.json.gz", lanes=graph_lanes)


if __name__ == "__main__":
    main()
