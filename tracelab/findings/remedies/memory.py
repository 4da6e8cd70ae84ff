"""Memory that is given back and asked for again, or asked for at the wrong time."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    are_in_launching_thread,
    are_inside,
    named,
    recurring,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.driver_api import is_allocation
from tracelab.model.graph import Graph
from tracelab.model.lookup import calls_of_name
from tracelab.model.trace import Category

_MANAGEMENT = "PyTorch documentation: Memory management"
_MANAGEMENT_URL = "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"
# DataLoader's thread that copies batches into pinned memory, as PyTorch names it and its function.
_PINNING_THREAD = re.compile(r"pt_data_pin|pin_memory")
_PINNING = re.compile(r"torch/utils/data/_utils/pin_memory\.py\(\d+\): ")


def _allocates_itself(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The allocator's calls in threads that launch."""
    calls = calls_of_name(graph.host.timeline.trace, is_allocation).astype(np.int64)
    own: Int64Array = calls[are_in_launching_thread(graph, calls)]
    return own


def _allocates_again(graph: Graph, events: Int64Array) -> Int64Array:
    return recurring(graph, _allocates_itself(graph, events))


def _pins_batches(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The allocator's calls of DataLoader's thread that pins, by its name or its functions."""
    trace = graph.host.timeline.trace
    calls = calls_of_name(trace, is_allocation).astype(np.int64)
    calls = calls[~are_in_launching_thread(graph, calls)]
    is_named = np.array([bool(_PINNING_THREAD.search(x.name)) for x in trace.threads], dtype=bool)
    pins = is_named[trace.thread_index[calls]]
    pins |= are_inside(trace, calls, named(trace, _PINNING.search, Category.PYTHON))
    pinning: Int64Array = calls[pins]
    return pinning


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="empty-cache-in-loop",
        name="empty_cache() in the loop",
        title="`empty_cache()` returns memory to CUDA, and the next step allocates it again",
        shows="`cudaFree` in `empty_cache` of torch/cuda/memory.py, and `cudaMalloc` in the work "
        "after it.",
        not_when="It stands between phases of a program, or another process needs the memory.",
        fixes=(
            Instead(
                "Remove it from the loop (Hugging Face: `torch_empty_cache_steps=None`). It "
                "frees no memory that PyTorch could not use. If memory is short: "
                "`PYTORCH_ALLOC_CONF=expandable_segments:True`.",
                since="2.9",
                short="Remove it from the loop. If memory is short, set "
                "`PYTORCH_ALLOC_CONF=expandable_segments:True`.",
            ),
            Instead(
                "Remove it from the loop (Hugging Face: `torch_empty_cache_steps=None`). It "
                "frees no memory that PyTorch could not use. If memory is short: "
                "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
                since="2.1",
                short="Remove it from the loop. If memory is short, set "
                "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
            ),
            Instead("Remove it from the loop. It frees no memory that PyTorch could not use."),
        ),
        source="PyTorch documentation: torch.cuda.empty_cache",
        url="https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html",
        rules=("TL101", "TL103", "TL301"),
        edit="remove:{place}",
        frames=r"torch/cuda/memory\.py\(\d+\): empty_cache$",
    ),
    Remedy(
        id="pin-thread-allocates",
        name="DataLoader's pin_memory thread that allocates",
        title="",
        shows="`cudaHostAlloc` in the thread of `_pin_memory_loop`, while launches of other "
        "threads last as long.",
        not_when="The first batches are recorded: it allocates until it holds a block for each "
        "batch in flight.",
        fixes=(
            Instead(
                "DataLoader's pin_memory thread asks CUDA for new pinned memory, and no other "
                "thread can launch until it has it. It does so until it holds a block for each "
                "batch in flight: let it settle (record after more warm-up steps) before you "
                "judge. If it continues: the same batch shape in every step (pad, "
                "`drop_last=True`), or fewer batches in flight (`num_workers` times "
                "`prefetch_factor`).",
                short="Record after more warm-up steps. If it continues, keep one batch shape "
                "(pad, `drop_last=True`), or lower `prefetch_factor`.",
            ),
        ),
        source=_MANAGEMENT,
        url=_MANAGEMENT_URL,
        rules=("TL103",),
        edit="remove:{place}",
        occurs=_pins_batches,
    ),
    Remedy(
        id="allocator-churn",
        name="memory that is returned to CUDA and allocated again",
        title="",
        shows="`cudaFree` and `cudaMalloc` in at least two steady steps after the first one.",
        not_when="Only the first steps allocate: that is the allocator's growth.",
        fixes=(
            Instead(
                "Let the allocator keep its memory: no `torch.cuda.empty_cache()` in the loop, the "
                "same shapes in every step (pad or bucket), pinned buffers made once. If memory is "
                "short: `PYTORCH_ALLOC_CONF=expandable_segments:True`.",
                since="2.9",
                short="Keep the shapes the same in every step (pad), or set "
                "`PYTORCH_ALLOC_CONF=expandable_segments:True` if memory is short.",
            ),
            Instead(
                "Let the allocator keep its memory: no `torch.cuda.empty_cache()` in the loop, the "
                "same shapes in every step (pad or bucket), pinned buffers made once. If memory is "
                "short: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
                since="2.1",
                short="Keep the shapes the same in every step (pad), or set "
                "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` if memory is short.",
            ),
            Instead(
                "Let the allocator keep its memory: no `torch.cuda.empty_cache()` in the loop, the "
                "same shapes in every step (pad or bucket), pinned buffers made once.",
                short="Remove `empty_cache()` from the loop, keep the shapes the same in every "
                "step (pad), and allocate pinned buffers once.",
            ),
        ),
        source=_MANAGEMENT,
        url=_MANAGEMENT_URL,
        rules=("TL103",),
        edit="remove:{place}",
        occurs=_allocates_again,
        is_general=True,
    ),
)
