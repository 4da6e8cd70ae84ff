"""Waits of the host in programs that replay CUDA graphs."""

from __future__ import annotations

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.awaited_results import Awaited
from tracelab.findings.remedies.guards import (
    NO_EVENTS,
    behind_replays,
    blocks,
    called_directly,
    every,
    operators_named,
    recurs,
)
from tracelab.findings.remedies.reads import synchronizes
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.graph import Graph

_GRAPHS = "PyTorch documentation: CUDA semantics, CUDA Graphs"
_GRAPHS_URL = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs"


def _reads_results(graph: Graph, _events: Int64Array) -> Int64Array:
    """The reads that block, and the waits for a copy to the host with no replay behind it."""
    operators = operators_named(graph.host.timeline, r"^aten::(?:item|to|_to_copy|copy_)$")
    reads = every(called_directly, blocks)(graph, operators)
    return np.concatenate((reads, synchronizes(Awaited.RESULT)(graph, NO_EVENTS)))


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="replay-result-read",
        name="the result of a replay that is read before the next one is launched",
        title="",
        shows="`aten::item`, `aten::to` or `aten::copy_` with a copy to the CPU that blocks, or a "
        "synchronize that returns after a copy to the CPU has ended, with no later replay queued, "
        "in a program of which most activities are replayed from CUDA graphs: a token in each "
        "step.",
        not_when="The value decides whether there is a next replay, and one more must not run.",
        fixes=(
            Instead(
                "Launch the next replay first, and read the result of the one before while "
                "it runs: the graph takes its next input from the GPU "
                "(`static_input.copy_(token)` inside it), the result is copied into pinned "
                "memory (`non_blocking=True`), and the CPU waits for an event of that copy "
                "one replay later. A replay too many at the end is thrown away. A value that only "
                "decides the next graph's input can stay on the GPU (`torch.where`).",
                short="Launch the next replay first, and read the result of the one before while "
                "it runs, from pinned memory (`non_blocking=True`).",
            ),
        ),
        source="TensorRT-LLM documentation: overlap scheduler",
        url="https://nvidia.github.io/TensorRT-LLM/features/overlap-scheduler.html",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        occurs=every(_reads_results, behind_replays, recurs),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="replays-synchronized",
        name="a synchronize after each replay",
        title="",
        shows="`cudaDeviceSynchronize`, `cudaStreamSynchronize` or `cudaEventSynchronize` not "
        "called by an operator, with no copy to the CPU before it, in a program of which most "
        "activities are replayed from CUDA graphs.",
        not_when="The CPU reads what a kernel wrote into its memory: then launch the next replay "
        "before it waits.",
        fixes=(
            Instead(
                "Remove it: replays of one stream run in order, and the next may be "
                "launched while one runs. Graphs of several streams wait for events "
                "(`stream.wait_event(event)`). Graphs that always follow one another can be "
                "captured as one.",
                short="Remove it: replays of one stream run in order. Across streams, use "
                "`stream.wait_event(event)`.",
            ),
        ),
        source=_GRAPHS,
        url=_GRAPHS_URL,
        rules=("TL101",),
        edit="unblock:{place}",
        occurs=every(synchronizes(Awaited.NOTHING), behind_replays, recurs),
        by_call_site=True,
        is_general=True,
    ),
)
