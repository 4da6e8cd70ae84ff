"""For tests that begin with a trace: hand-made columns, past the reader, in nanoseconds.

Every maker here gives one row: ``trace(kernel(10, 20, correlation=1), launch(2, 4, 1))``. Times
are a start and an end, so that the arithmetic of a test reads off the page. The event id of a row
is its place among the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tracelab.base.options import PROFILER_STEP
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import Host, observe_host
from tracelab.model.timeline import Timeline, build_timeline
from tracelab.model.trace import (
    ABSENT,
    COLLECTIVE_OPERATOR,
    Category,
    FileInfo,
    GraphNodes,
    GroupText,
    Messages,
    OperatorInputs,
    Thread,
    Trace,
)

US = 1_000
MAIN, AUTOGRAD, WATCHDOG = 0, 1, 2
THREADS = ("thread 1 (python)", "thread 2 (pt_autograd_0)", "thread 3 (pt_nccl_watchdg)")
H2D, D2H, D2D = (
    "Memcpy HtoD (Pinned -> Device)",
    "Memcpy DtoH (Device -> Pinned)",
    "Memcpy DtoD (Device -> Device)",
)
PAGEABLE_H2D = "Memcpy HtoD (Pageable -> Device)"


@dataclass(frozen=True)
class Message:
    """What the arguments of a communication operation say."""

    name: str = ""
    group: str = ""
    ranks: str = ""
    size: int = ABSENT
    first_rank: int = ABSENT
    rank_stride: int = ABSENT
    sequence: int = ABSENT
    peer: int = ABSENT
    in_bytes: int = ABSENT
    out_bytes: int = ABSENT


@dataclass(frozen=True)
class Node:
    """A node of a CUDA graph that ran."""

    annotation: str = ""


@dataclass(frozen=True)
class Row:
    name: str
    category: Category
    start: int
    end: int
    thread: int = MAIN
    device: int = ABSENT
    stream: int = ABSENT
    correlation: int = ABSENT
    wait_stream: int = ABSENT
    wait_correlation: int = ABSENT
    event: int = ABSENT
    copied_bytes: int = ABSENT
    message: Message | None = None
    node: Node | None = None
    inputs: str = ""  # of an operator that multiplies, as of `OperatorInputs.texts`
    occupancy: int = ABSENT


def kernel(
    start,
    end,
    name="gemm",
    *,
    device=0,
    stream=7,
    correlation=ABSENT,
    message=None,
    node=None,
    occupancy=ABSENT,
):
    """A kernel; with a collective's name it is communication."""
    return Row(
        name,
        Category.KERNEL,
        start,
        end,
        device=device,
        stream=stream,
        correlation=correlation,
        message=message,
        node=node,
        occupancy=occupancy,
    )


def comm(start, end, *, message_bytes=ABSENT, process_group="", **lane):
    message = Message(in_bytes=message_bytes, group=process_group)
    return kernel(start, end, "ncclDevKernel_AllReduce", message=message, **lane)


def copy(
    start,
    end,
    name=H2D,
    *,
    copied_bytes=ABSENT,
    device=0,
    stream=7,
    correlation=ABSENT,
    node=None,
):
    return Row(
        name,
        Category.MEMCPY,
        start,
        end,
        device=device,
        stream=stream,
        correlation=correlation,
        copied_bytes=copied_bytes,
        node=node,
    )


def host_node(start, end, name="HostNode", *, device=0, stream=7, correlation=ABSENT, node=None):
    """A host function that ran as a node of a graph, in the row of a stream."""
    return Row(
        name,
        Category.GRAPH_HOST_NODE,
        start,
        end,
        device=device,
        stream=stream,
        correlation=correlation,
        node=node,
    )


def event_node(start, *, device=0, stream=7, correlation=ABSENT, node=None):
    """An event that a node of a graph recorded."""
    return Row(
        "EventRecord",
        Category.GRAPH_EVENT_NODE,
        start,
        start,
        device=device,
        stream=stream,
        correlation=correlation,
        node=node,
    )


def memset(start, end, *, device=0, stream=7, correlation=ABSENT):
    return Row(
        "Memset (Device)",
        Category.MEMSET,
        start,
        end,
        device=device,
        stream=stream,
        correlation=correlation,
    )


def call(name, start, end, *, correlation=ABSENT, thread=MAIN, category=Category.RUNTIME):
    """A call of the CUDA runtime."""
    return Row(name, category, start, end, thread=thread, correlation=correlation)


def launch(start, end, correlation, *, name="cudaLaunchKernel", thread=MAIN):
    return call(name, start, end, correlation=correlation, thread=thread)


def operator(name, start, end, *, thread=MAIN, inputs=""):
    return Row(name, Category.OPERATOR, start, end, thread=thread, inputs=inputs)


def communicates(start, end, *, thread=MAIN, **message):
    """PyTorch's operator around a communication operation."""
    return Row(
        COLLECTIVE_OPERATOR,
        Category.OPERATOR,
        start,
        end,
        thread=thread,
        message=Message(**message),
    )


def python(name, start, end, *, thread=MAIN):
    return Row(name, Category.PYTHON, start, end, thread=thread)


def annotation(name, start, end, *, thread=MAIN):
    return Row(name, Category.ANNOTATION, start, end, thread=thread)


def step(number, start, end):
    return annotation(f"ProfilerStep#{number}", start, end)


def sync_row(kind, start, end, *, correlation, device=0, stream=ABSENT, **waited_for):
    """CUPTI's row of a wait: "Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"."""
    return Row(
        kind,
        Category.SYNC,
        start,
        end,
        device=device,
        stream=stream,
        correlation=correlation,
        **waited_for,
    )


def event_row(start, *, correlation, event, device=0, stream=7):
    """CUPTI's record of a CUDA event that the GPU reached."""
    return Row(
        "cudaEvent",
        Category.CUDA_EVENT,
        start,
        start,
        device=device,
        stream=stream,
        correlation=correlation,
        event=event,
    )


def trace(
    *rows: Row,
    threads: Sequence[str] = THREADS,
    gpu: str = "",
) -> Trace:
    """The trace of these rows; GPU 0 has a name where one is given."""
    strings = tuple(dict.fromkeys(row.name for row in rows))

    def column(values: Iterable[int], dtype: type = np.int64) -> np.ndarray:
        return np.array(list(values), dtype=dtype)

    messages, message_row = messages_of(rows)
    graph_nodes, graph_node_row = graph_nodes_of(rows)
    sparse = absent_columns(len(rows)) | {
        "device_number": column((row.device for row in rows), np.int32),
        "stream_number": column(row.stream for row in rows),
        "correlation": column(row.correlation for row in rows),
        "wait_stream_number": column(row.wait_stream for row in rows),
        "wait_correlation": column(row.wait_correlation for row in rows),
        "cuda_event_number": column(row.event for row in rows),
        "copied_bytes": column(row.copied_bytes for row in rows),
        "message_row": message_row,
        "graph_node_row": graph_node_row,
        "operator_input_row": column(i if row.inputs else ABSENT for i, row in enumerate(rows)),
        "occupancy_percent": column(row.occupancy for row in rows),
    }
    texts = tuple(dict.fromkeys(row.inputs for row in rows))
    text_index = column((*(texts.index(row.inputs) for row in rows), ABSENT), np.int32)
    return Trace(
        **sparse,
        path="hand.json",
        origin_ns=0,
        start_ns=column(row.start for row in rows),
        duration_ns=column(row.end - row.start for row in rows),
        category=column((row.category for row in rows), np.int8),
        name_index=column((strings.index(row.name) for row in rows), np.int32),
        thread_index=column((row.thread for row in rows), np.int32),
        messages=messages,
        graph_nodes=graph_nodes,
        operator_inputs=OperatorInputs(text_index, texts),
        file_index=column(range(len(rows))),
        strings=strings,
        threads=tuple(Thread("1", str(i), name) for i, name in enumerate(threads)),
        metadata=MappingProxyType({}),
        objects=len(rows),
        losses=MappingProxyType({}),
        loss_names=MappingProxyType({}),
        info=FileInfo(device_names=MappingProxyType({0: gpu} if gpu else {})),
    )


def absent_columns(count: int) -> dict[str, np.ndarray]:
    """The columns of a trace that few events have, saying nothing of any."""
    hints = Trace.__annotations__
    names = [name for name, hint in hints.items() if hint == "SparseColumn"]
    return {name: np.full(count, ABSENT, dtype=np.int64) for name in names}


def graph_nodes_of(rows: Sequence[Row]) -> tuple[GraphNodes, np.ndarray]:
    """The nodes of graphs among these rows, and each one's row among them."""
    nodes = [row.node for row in rows if row.node]
    annotations = tuple(dict.fromkeys(node.annotation for node in nodes if node.annotation))
    index = [annotations.index(x.annotation) if x.annotation else ABSENT for x in nodes]
    graph_nodes = GraphNodes(
        annotation_index=np.array([*index, ABSENT], dtype=np.int32),
        annotations=annotations,
    )
    is_node = np.array([row.node is not None for row in rows], dtype=np.bool_)
    return graph_nodes, np.where(is_node, np.cumsum(is_node) - 1, ABSENT).astype(np.int32)


def messages_of(rows: Sequence[Row]) -> tuple[Messages, np.ndarray]:
    """The messages of these rows, and each one's row among them."""
    said = [row.message for row in rows if row.message]
    names = tuple(dict.fromkeys(message.name for message in said))
    texts = [
        GroupText(one.group, one.ranks, one.size, one.first_rank, one.rank_stride) for one in said
    ]
    groups = tuple(dict.fromkeys(texts))
    name_index = [names.index(message.name) for message in said]
    group_index = [groups.index(text) for text in texts]
    numbers = {
        name: np.array([*(getattr(message, field) for message in said), ABSENT], dtype=np.int64)
        for name, field in (
            ("sequence", "sequence"),
            ("peer_rank", "peer"),
            ("in_bytes", "in_bytes"),
            ("out_bytes", "out_bytes"),
        )
    }
    messages = Messages(
        name_index=np.array([*name_index, ABSENT], dtype=np.int32),
        group_index=np.array([*group_index, ABSENT], dtype=np.int32),
        **numbers,
        names=names,
        groups=groups,
    )
    has_message = np.array([row.message is not None for row in rows], dtype=np.bool_)
    return messages, np.where(has_message, np.cumsum(has_message) - 1, ABSENT).astype(np.int32)


def timeline(*rows: Row, step_pattern: str = PROFILER_STEP, **of_trace) -> Timeline:
    return build_timeline(trace(*rows, **of_trace), step_pattern=step_pattern)


def host(*rows: Row, **of_trace) -> Host:
    return observe_host(timeline(*rows, **of_trace))


def graph(*rows: Row, **of_trace) -> Graph:
    return build_graph(host(*rows, **of_trace))
