"""Copies between host and GPU that block, wait for the CPU, or are too many."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    NO_EVENTS,
    are_in_launching_thread,
    are_inside,
    behind_replays,
    counts_inside,
    named,
    operators_named,
    parents_match,
    recurring,
    recurs,
    step_indices,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.arithmetic import is_layout_change
from tracelab.model.driver_api import is_stream_sync
from tracelab.model.frames import is_built_in
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory, copy_direction
from tracelab.model.lookup import calls_of_name, match_names
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

_GUIDE = "PyTorch tutorial: A guide on good usage of non_blocking and pin_memory()"
_GUIDE_URL = "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"
_TUNING = "PyTorch Performance Tuning Guide"
_TUNING_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

_COPY = "aten::copy_"
_CONVERTS = r"^aten::(?:to|_to_copy|contiguous|clone)$"
_LEAST_CONVERSION_NS = 50_000  # on the CPU: less is no matter
_FEW_BYTES = 4_096  # as a list of numbers has, which is made on the GPU instead
_SMALL_BYTES = 65_536
_MANY = 10  # small copies in a step that directly follow another one
# They copy images with their channels last, and give back others. In the U-Net of a diffusion model
# (1.3 times as long as the changes of layout) a step of 16.8 ms took 22 to 29 with channels last,
# and one of a ResNet-50 of 30.7 ms 42.7; with batch normalization one of 59.3 took 33.8.
_ONLY_NCHW = r"^aten::(?:native_group_norm(?:_backward)?|instance_norm)$"
_MUCH_NCHW = 0.1
_OF_SEQUENCES, _OF_IMAGES = r"^aten::conv(?:_transpose)?1d$", r"^aten::conv(?:_transpose)?[23]d$"


def _rows_of_copies(graph: Graph, direction: str, *, pageable: bool) -> NDArray[np.intp]:
    """Timeline rows of the launched copies in a direction, from or to pageable memory or not."""
    timeline = graph.host.timeline

    def is_such(name: str) -> bool:
        return copy_direction(name) == direction and copies_pageable_memory(name) == pageable

    is_chosen = (timeline.kind == Kind.COPY) & (timeline.launch_id != ABSENT)
    is_chosen &= match_names(timeline.trace, timeline.event_id, is_such)
    return np.flatnonzero(is_chosen)


def _launches(graph: Graph, direction: str, *, pageable: bool) -> Int64Array:
    """Event ids of the calls of such copies."""
    rows = _rows_of_copies(graph, direction, pageable=pageable)
    return np.unique(graph.host.timeline.launch_id[rows]).astype(np.int64)


def _from_pageable(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The calls of such copies that are no scalars or lists of few numbers."""
    timeline = graph.host.timeline
    rows = _rows_of_copies(graph, "h2d", pageable=True)
    size_bytes = timeline.trace.copied_bytes[timeline.event_id[rows]]
    is_batch = (size_bytes == ABSENT) | (size_bytes > _FEW_BYTES)
    return np.unique(timeline.launch_id[rows[is_batch]]).astype(np.int64)


def _to_pageable(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """Copies to pageable memory, but of what replays compute: there more than that is to change."""
    calls = _launches(graph, "d2h", pageable=True)
    return np.setdiff1d(calls, behind_replays(graph, calls))


def _to_pageable_unawaited(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """Copies to pageable memory in an operator that does not wait: with `non_blocking=True`.

    None in a file without any wait for a stream: it does not record them.
    """
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    calls = _launches(graph, "d2h", pageable=True)
    index = operators.innermost(calls)
    calls, index = calls[index != ABSENT], index[index != ABSENT]
    is_copy = match_names(trace, operators.event_id[index], _COPY.__eq__)
    calls, index = calls[is_copy], index[is_copy]
    waits = calls_of_name(trace, is_stream_sync)
    if not len(waits):
        return NO_EVENTS
    unawaited: Int64Array = calls[counts_inside(trace, operators.event_id[index], waits) == 0]
    return unawaited


def _waits_for_pinned(graph: Graph, events: Int64Array) -> Int64Array:
    """The operators that copy from pinned memory and wait for the stream behind it."""
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    index = operators.innermost(_launches(graph, "h2d", pageable=False))
    copying = np.intersect1d(operators.event_id[index[index != ABSENT]], events)
    waits = calls_of_name(trace, is_stream_sync)
    waited: Int64Array = copying[counts_inside(trace, copying, waits) > 0]
    return waited


def _pins_itself(graph: Graph, events: Int64Array) -> Int64Array:
    """Pinning in a thread that launches, other than that of a loader without workers."""
    trace = graph.host.timeline.trace
    own = events[are_in_launching_thread(graph, events)]
    own = own[~are_inside(trace, own, named(trace, _IN_LOADER.search, *_REGIONS))]
    return recurring(graph, own)


_REGIONS = (Category.ANNOTATION, Category.OPERATOR)
_IN_LOADER = re.compile(r"enumerate\(DataLoader\)")


def _converts(graph: Graph, events: Int64Array) -> Int64Array:
    """Conversions without any call of CUDA, in a thread that launches and outside of loading."""
    trace = graph.host.timeline.trace
    long = events[trace.duration_ns[events] >= _LEAST_CONVERSION_NS]
    long = long[are_in_launching_thread(graph, long)]
    long = long[counts_inside(trace, long, trace.of_category(*HOST_CALLS)) == 0]
    return recurring(graph, long[~are_inside(trace, long, graph.host.loading_id)])


def _converts_within_copy(graph: Graph, events: Int64Array) -> Int64Array:
    """The operators that copy to the GPU what they first convert on the CPU."""
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    conversions = parents_match(graph, _converts(graph, events), _COPY.__eq__)
    parent = operators.parent_index[np.isin(operators.event_id, conversions)]
    copying = np.unique(operators.event_id[parent])
    to_gpu = [_launches(graph, "h2d", pageable=pageable) for pageable in (False, True)]
    within: Int64Array = copying[counts_inside(trace, copying, np.concatenate(to_gpu)) > 0]
    return within


def _converts_before(graph: Graph, events: Int64Array) -> Int64Array:
    """Conversions that are no part of a copy."""
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    conversions = _converts(graph, events)
    conversions = conversions[match_names(trace, conversions, re.compile("to").search)]
    copies = operators.event_id[operators.have_name(_COPY.__eq__)]
    return conversions[~are_inside(trace, conversions, copies)]


def _many_small(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """Small copies that directly follow another one on their thread, in steps that have many.

    The first of a row stays: it stands for the copy that replaces them. Copies with other launches
    between them are needed at different times.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    call_id = timeline.launch_id[launched]
    order = np.lexsort((trace.start_ns[call_id], trace.thread_index[call_id]))
    launched, call_id = launched[order], call_id[order]
    is_small = (timeline.kind[launched] == Kind.COPY) & match_names(
        trace, timeline.event_id[launched], lambda name: copy_direction(name) == "h2d"
    )
    size_bytes = trace.copied_bytes[timeline.event_id[launched]]
    is_small &= (size_bytes != ABSENT) & (size_bytes <= _SMALL_BYTES)
    follows = is_small[1:] & is_small[:-1]
    follows &= trace.thread_index[call_id[1:]] == trace.thread_index[call_id[:-1]]
    following = call_id[1:][follows].astype(np.int64)
    if not len(following) or timeline.steady is None:
        return NO_EVENTS
    step, of_step, count = np.unique(
        step_indices(graph, following), return_inverse=True, return_counts=True
    )
    many = following[(count[of_step] >= _MANY) & (step[of_step] >= 0)]
    # Without a copy all that was called for it goes: its memory, and the wait for it.
    operators, frames = timeline.operators, python_frames(timeline)
    around = operators.around(operators.innermost(many), operators.parent_index == ABSENT)
    called = frames.innermost(many)
    called = called[np.append(frames.have_name(is_built_in), False)[called]]
    for_them = (operators.event_id[around[around != ABSENT]], frames.event_id[called])
    return recurring(graph, np.unique(np.concatenate((many, *for_them))))


def _transposes(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The launches of cuDNN's kernels that change the layout, where they go on.

    None where normalization without a kernel for the other layout takes a tenth as long, or all
    convolutions are of sequences, which have no channels last.
    """
    timeline = graph.host.timeline
    of_sequences = len(operators_named(timeline, _OF_SEQUENCES))
    if of_sequences and not len(operators_named(timeline, _OF_IMAGES)):
        return NO_EVENTS
    row = np.flatnonzero((timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT))
    launch_id, length_ns = timeline.launch_id[row], timeline.end_ns[row] - timeline.start_ns[row]
    is_chosen = match_names(timeline.trace, timeline.event_id[row], is_layout_change)
    is_nchw = are_inside(timeline.trace, launch_id, operators_named(timeline, _ONLY_NCHW))
    is_slower = length_ns[is_nchw].sum() >= _MUCH_NCHW * length_ns[is_chosen].sum()
    if is_slower:
        return NO_EVENTS
    return recurs(graph, np.unique(launch_id[is_chosen]))


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="pinned-but-blocking",
        name="a copy from pinned memory that blocks the CPU",
        title="The CPU waits for a copy from pinned memory",
        shows="`Memcpy HtoD (Pinned -> Device)`, and a `cudaStreamSynchronize` after it in the "
        "same `aten::copy_`.",
        not_when="The CPU overwrites the pinned memory before the copy has run: then wait for an "
        "event before it does.",
        fixes=(
            Instead(
                "The memory is pinned already: pass `non_blocking=True` as well, "
                '`batch.to("cuda", non_blocking=True)` (Accelerate: '
                "`DataLoaderConfiguration(non_blocking=True)`).",
                short='Pass `non_blocking=True`: `batch.to("cuda", non_blocking=True)`.',
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL101",),
        edit="unblock:{place}",
        operators=f"^{_COPY}$",
        occurs=_waits_for_pinned,
        by_call_site=True,
    ),
    Remedy(
        id="non-blocking-to-pageable",
        name="a copy to pageable memory with non_blocking=True",
        title="A copy with `non_blocking=True` goes to pageable memory, and blocks all the same",
        shows="`Memcpy DtoH (Device -> Pageable)` in an `aten::copy_` without a synchronize: the "
        "`cudaMemcpyAsync` itself lasts until the copy is done.",
        not_when="The copies are few bytes.",
        fixes=(
            Instead(
                "Copy into pinned memory: `pinned = torch.empty(x.shape, dtype=x.dtype, "
                "pin_memory=True)` once, `pinned.copy_(x, non_blocking=True)`, and an event after "
                "it that you wait for before you read (`event.synchronize()`, one step later): "
                "without it the values may be old.",
                short="Copy into memory allocated once with `pin_memory=True`: `pinned.copy_(x, "
                "non_blocking=True)`. Wait for an event before reading: "
                "`event.synchronize()`.",
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL102",),
        edit="pin:{place}",
        occurs=_to_pageable_unawaited,
        by_call_site=True,
    ),
    Remedy(
        id="pinning-in-training-thread",
        name="pin_memory() in the thread that launches",
        title="The launching thread pins memory itself",
        shows="`aten::pin_memory` in a thread that launches, in at least two steady steps.",
        not_when="It is done once, for memory that is kept.",
        fixes=(
            Instead(
                "Let the loader's thread pin (`DataLoader(..., pin_memory=True)`), or fill a "
                "pinned buffer that you keep: `buffer.copy_(batch)`, then "
                '`buffer.to("cuda", non_blocking=True)`. Pinning copies the memory, on the CPU.',
                short="Pin in the loader's thread (`DataLoader(..., pin_memory=True)`), or fill a "
                "pinned buffer that you keep: `buffer.copy_(batch)`.",
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL103", "TL301", "TL302"),
        edit="remove:{place}",
        operators=r"^aten::_?pin_memory$",
        occurs=_pins_itself,
    ),
    Remedy(
        id="conversion-on-cpu",
        name="a dtype or layout conversion on the CPU, in the thread that launches",
        title="The launching thread converts tensors on the CPU",
        shows="`aten::to` or `aten::_to_copy` of more than 0.05 ms without any call of CUDA "
        "inside, in at least two steady steps.",
        not_when="The wider tensor does not fit on the GPU, or is needed on the CPU.",
        fixes=(
            Instead(
                'Copy first and convert on the GPU: `x.to("cuda", non_blocking=True).float()` '
                "instead of `x.float().cuda()`. Send images as uint8 and normalize them on the "
                "GPU.",
                short='Copy first and convert on the GPU: `x.to("cuda", '
                "non_blocking=True).float()` instead of `x.float().cuda()`.",
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL301", "TL302"),
        edit="remove:{place}",
        operators=_CONVERTS,
        occurs=_converts_before,
    ),
    Remedy(
        id="conversion-within-copy",
        name="a blocking copy to the GPU that first converts on the CPU",
        title="A blocking copy to the GPU converts on the CPU first",
        shows="Inside an `aten::copy_` with a copy to the GPU, an `aten::to` or "
        "`aten::contiguous` of more than 0.05 ms without any call of CUDA; what is copied then "
        "is pageable memory.",
        not_when="The wider tensor does not fit on the GPU.",
        fixes=(
            Instead(
                'Convert on the GPU: `x.to("cuda", non_blocking=True).to(dtype)` from pinned '
                'memory, in a stream of its own, instead of `x.to("cuda", dtype)`, which converts '
                "on the CPU where it blocks. Make batches contiguous where they are loaded.",
                short='Convert on the GPU: `x.to("cuda", non_blocking=True).to(dtype)` instead of '
                '`x.to("cuda", dtype)`, from pinned memory.',
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL101", "TL102", "TL301"),
        # The conversion goes, the call of the copy stays.
        edit="prefetch:{place} + host:{place}=0.05",
        operators=_CONVERTS,
        occurs=_converts_within_copy,
    ),
    Remedy(
        id="layout-transposes",
        name="convolutions that change the layout of their tensors and back",
        title="cuDNN changes the layout of tensors before and after convolutions",
        shows="Kernels `nchwToNhwcKernel` and `nhwcToNchwKernel` around convolutions in at least "
        "two steady steps, hardly any group or instance normalization, and images (`conv2d`).",
        not_when="There are few channels, or layers without kernels for channels last: "
        "`nn.GroupNorm` and `nn.InstanceNorm2d` copy their images to the other layout and made a "
        "step a third longer. Time a step with and without it.",
        fixes=(
            Instead(
                "Keep images with their channels last: "
                "`model = model.to(memory_format=torch.channels_last)` once, and "
                "`images = images.to(memory_format=torch.channels_last)` for each batch. "
                "Normalization and pooling get faster, too.",
                since="1.5",
                short="Keep the channels last: `model.to(memory_format=torch.channels_last)` "
                "once, and `images.to(...)` likewise for each batch.",
            ),
        ),
        source="PyTorch tutorial: Channels Last Memory Format",
        url="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
        rules=("TL402",),
        edit="channels-last",
        occurs=_transposes,
    ),
    Remedy(
        id="many-small-copies",
        name="many small copies to the GPU in each step",
        title="The program copies many small tensors to the GPU one by one",
        shows="More than ten copies of at most 64 KiB one after another, in each of at least two "
        "steady steps.",
        not_when="Other work is launched between them: they are needed at different times.",
        fixes=(
            Instead(
                "Copy once: collate into one tensor, or pack small values into one pinned buffer, "
                '`packed.to("cuda", non_blocking=True)`, and split it on the GPU '
                "(`packed.split(sizes)`).",
                short='Copy once: pack the values into one pinned buffer, `packed.to("cuda", '
                "non_blocking=True)`, and split it on the GPU: `packed.split(sizes)`.",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL101", "TL102", "TL301"),
        edit="remove:{place}",
        occurs=_many_small,
        is_general=True,
    ),
    Remedy(
        id="pageable-batch",
        name="a copy to the GPU from pageable memory",
        title="",
        shows="`Memcpy HtoD (Pageable -> Device)`, whose call returns only when it is done.",
        not_when="The copies are at most 4 KiB, or what a process may lock in memory is limited.",
        fixes=(
            Instead(
                "Pin the memory and do not wait for the copy: `DataLoader(..., "
                'pin_memory=True)` or `tensor.pin_memory()`, then `batch.to("cuda", '
                "non_blocking=True)`, in a stream of its own. Make scalars and constants on the "
                "GPU (`torch.full`).",
                short="Pin the memory and do not wait: `DataLoader(..., pin_memory=True)` or "
                '`x.pin_memory()`, then `x.to("cuda", non_blocking=True)`.',
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL102",),
        edit="prefetch:{place}",
        occurs=_from_pageable,
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="pageable-read",
        name="a copy from the GPU to pageable memory, as by .cpu()",
        title="",
        shows="`Memcpy DtoH (Device -> Pageable)`, whose call returns only when it is done.",
        not_when="It is a few bytes: then the wait is the cost, not the copy.",
        fixes=(
            Instead(
                "Copy into pinned memory and read it later: `pinned = torch.empty(x.shape, "
                "dtype=x.dtype, pin_memory=True)` once, `pinned.copy_(x, non_blocking=True)`, an "
                "event after it, and `event.synchronize()` one step later.",
                short="Copy into pinned memory and read it one step later: `pinned.copy_(x, "
                "non_blocking=True)`, `event.record()`, then `event.synchronize()`.",
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL102",),
        edit="pin:{place}",
        occurs=_to_pageable,
        by_call_site=True,
        is_general=True,
    ),
)
