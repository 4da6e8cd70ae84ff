"""Values that the host reads from the GPU, and waits for.

The general ones say what to do about a kind of read wherever the program makes it; they count where
no remedy of a library knows better.
"""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.awaited_results import Awaited, awaited_results, own_waits
from tracelab.findings.remedies.guards import (
    Occurs,
    blocks,
    called_directly,
    chosen,
    copies,
    every,
    functions_around,
    recurs,
    step_indices,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.graph import Graph
from tracelab.model.lookup import groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT

_TIMES = re.compile(
    r"^<built-in (?:function|method) (?:time|time_ns|perf_counter|perf_counter_ns|monotonic"
    r"|monotonic_ns|elapsed_time)\b|: elapsed_time$"
)
_INDEXES = re.compile(r"^aten::(?:select|slice|narrow|index_select|arange|view|reshape|expand)$")
_MOST_INDEXING_NS = 5_000  # from the read of an index to the operator that takes it
_READS = re.compile(r"^<built-in method (?:item|tolist|__\w+__) of ")
_MAKES = re.compile(
    r"^<built-in method (?:tensor|as_tensor|from_numpy|scalar_tensor|full|zeros|ones|empty|arange"
    r"|linspace|eye|rand|randn|randint|randperm) of "
)
_FEWEST_READS = 4  # in a row
_MOST_BETWEEN_READS = 5  # launches, the read's own copy among them
_FEW_BYTES = 1 << 16
_TUNING = "PyTorch Performance Tuning Guide: avoid unnecessary CPU-GPU synchronization"
_TUNING_URL = (
    "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    "#avoid-unnecessary-cpu-gpu-synchronization"
)
_ASYNCHRONOUS = "PyTorch documentation: CUDA semantics, asynchronous execution"
_ASYNCHRONOUS_URL = "https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution"


def synchronizes(awaited: Awaited) -> Occurs:
    """The calls that do nothing but wait, that no operator made, and that let the host read this.

    Args:
        awaited: what the host may read behind them.
    """

    def synchronize(graph: Graph, _events: Int64Array) -> Int64Array:
        waits = own_waits(graph)
        return chosen(waits, awaited_results(graph, waits) == awaited)

    return synchronize


def _before_reading_clock(graph: Graph, events: Int64Array) -> Int64Array:
    """The functions (frames) after which the function around them reads a clock next."""
    frames = python_frames(graph.host.timeline)
    index = np.flatnonzero(np.isin(frames.event_id, events))
    following = _first_after(frames, index)
    is_clock = np.append(frames.have_name(_TIMES.search), False)
    is_next = is_clock[following] & (frames.parent_index[following] == frames.parent_index[index])
    return chosen(frames.event_id, index[is_next])


def _used_as_index(graph: Graph, events: Int64Array) -> Int64Array:
    """The reads (`aten::item`) that the program did not ask for by name: an index, a size, a range.

    The operator that takes the number follows at once, and Python calls nothing in between.
    """
    timeline = graph.host.timeline
    operators, frames = timeline.operators, python_frames(timeline)
    index = np.flatnonzero(np.isin(operators.event_id, events))
    following = _first_after(operators, index)
    soon = operators.start_ns[following] - operators.end_ns[index] <= _MOST_INDEXING_NS
    soon &= operators.parent_index[following] == operators.parent_index[index]
    takes = np.append(operators.have_name(_INDEXES.match), False)[following] & soon
    read_frame = frames.innermost(operators.event_id[index])
    is_asked = np.append(frames.have_name(_READS.match), False)[read_frame]
    calls_nothing = np.zeros(len(index), dtype=np.bool_)
    for thread, own in groups_of(np.where(takes, operators.thread_index[index], ABSENT)):
        starts_ns = frames.start_ns[frames.of_thread(thread)]
        first = np.searchsorted(starts_ns, operators.end_ns[index[own]])
        end = np.searchsorted(starts_ns, operators.start_ns[following[own]])
        calls_nothing[own] = first == end
    return chosen(operators.event_id, index[takes & ~is_asked & calls_nothing])


def _in_a_row(graph: Graph, events: Int64Array) -> Int64Array:
    """The reads that one function makes one after another, with few launches in between."""
    timeline = graph.host.timeline
    trace, frames = timeline.trace, python_frames(timeline)
    events = events[np.lexsort((trace.start_ns[events], trace.thread_index[events]))]
    launched = np.zeros(len(events), dtype=np.int64)
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    for thread, own in groups_of(trace.thread_index[events]):
        starts_ns = np.sort(trace.start_ns[launch_id[trace.thread_index[launch_id] == thread]])
        launched[own] = np.searchsorted(starts_ns, trace.start_ns[events[own]])
    goes_on = np.diff(launched, prepend=0) <= _MOST_BETWEEN_READS
    function = frames.names(functions_around(graph, events))
    for same in (trace.thread_index[events], function, step_indices(graph, events)):
        goes_on &= np.diff(same, prepend=ABSENT) == 0
    run = np.cumsum(~goes_on)
    return chosen(events, np.bincount(run, minlength=1)[run] >= _FEWEST_READS)


def _made_of_values(graph: Graph, events: Int64Array) -> Int64Array:
    """The moves to a device (`aten::to`) of a tensor that the program has just made on the host.

    PyTorch lifts one of Python's values next (`aten::lift_fresh`); any other was made by the
    built-in function before the one that moves it, as in ``torch.from_numpy(x).to(device)``.
    """
    operators, frames = graph.host.timeline.operators, python_frames(graph.host.timeline)
    index = np.flatnonzero(np.isin(operators.event_id, events))
    following = _first_after(operators, index)
    is_lift = np.append(operators.have_name(lambda name: name == "aten::lift_fresh"), False)
    is_made = operators.parent_index[following] == operators.parent_index[index]
    is_made &= is_lift[following]
    maker = np.flatnonzero(frames.have_name(_MAKES.match))
    mover = _first_after(frames, maker)
    mover = mover[frames.parent_index[mover] == frames.parent_index[maker]]
    is_made |= np.isin(frames.innermost(operators.event_id[index]), mover[mover != ABSENT])
    return chosen(operators.event_id, index[is_made])


def _first_after(nesting: Nesting, index: Int64Array) -> Int64Array:
    """int64[k], the first entry of the thread that begins when each one has ended, else ABSENT."""
    following = np.full(len(index), ABSENT, dtype=np.int64)
    for thread, of_thread in groups_of(nesting.thread_index[index]):
        own = nesting.of_thread(thread)
        next_ = np.searchsorted(nesting.start_ns[own], nesting.end_ns[index[of_thread]])
        following[of_thread] = np.where(next_ < own.stop - own.start, next_ + own.start, ABSENT)
    return following


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="print-tensor",
        name="a GPU tensor that is printed",
        title="Printing a GPU tensor reads it piece by piece",
        shows="`_str_intern` of torch/_tensor_str.py runs, with several blocking reads.",
        not_when="It happens once.",
        fixes=(
            Instead(
                "Print every N steps, and a number: `print(x.item())`, or `print(x.cpu())` for a "
                "tensor."
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL101", "TL301"),
        edit="remove:{place}",
        frames=r"torch/_tensor_str\.py\(\d+\): _str_intern$",
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="scalar-index",
        name="a GPU scalar used as an index or a size",
        title="The CPU reads a GPU scalar to index with it",
        shows="`aten::item` that no `.item()` called, followed by `aten::select`, `aten::slice` or "
        "`aten::arange`, as of `x[i]`, `x[:n]`, `torch.arange(n)`.",
        not_when="A length that only the data decide and that the CPU needs.",
        fixes=(
            Instead(
                "Index on the GPU: `x.index_select(0, i)`, `x.gather(...)`, a mask of fixed shape. "
                "Carry lengths as Python numbers from the data loader on.",
                short="Index on the GPU: `x.index_select(0, i)`, or a mask of fixed shape. Carry "
                "lengths as Python numbers.",
            ),
        ),
        source="PyTorch documentation: torch.cuda.set_sync_debug_mode",
        url="https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::item$",
        occurs=every(called_directly, _used_as_index, blocks, recurs),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="tensor-from-values",
        name="GPU tensors made from CPU values again and again",
        title="The program creates GPU tensors from CPU values again and again",
        shows="`aten::to` with a small copy from pageable memory, right after the tensor was made: "
        '`torch.tensor(..., device="cuda")`, `x[[1, 2]]`, `torch.from_numpy(table).to(device)`.',
        not_when="The values change in each step and are many: then pin them.",
        fixes=(
            Instead(
                "Make them on the GPU: `torch.full((), value, device=...)`, `torch.arange(..., "
                "device=...)`, or use the Python number itself. Make constants once, "
                "before the loop (`register_buffer` in a module). For values that change: "
                "`torch.tensor(values).pin_memory().to(device, non_blocking=True)`.",
                short='Create them on the GPU: `torch.full((), value, device="cuda")`. Create '
                "constants once, before the loop.",
            ),
        ),
        source="PyTorch Performance Tuning Guide: create tensors directly on the target device",
        url="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        "#create-tensors-directly-on-the-target-device",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::to$",
        occurs=every(copies("h2d", _FEW_BYTES), blocks, _made_of_values, recurs),
    ),
    Remedy(
        id="normal-checks-scale",
        name="normally distributed samples with a tensor of scales",
        title="`torch.normal` checks whether all scales are positive, and the CPU waits",
        shows="`aten::normal` calls `aten::item`, as in `Normal.sample()`.",
        not_when="The scale is one Python number: then nothing is read.",
        fixes=(
            Instead(
                "Scale yourself: `mean + std * torch.randn_like(mean)`. With a distribution, call "
                "`dist.rsample()` under `torch.no_grad()`, instead of `dist.sample()`.",
                short="Scale the samples yourself: `mean + std * torch.randn_like(mean)`, or call "
                "`dist.rsample()` under `torch.no_grad()`.",
            ),
        ),
        source="PyTorch source: aten/src/ATen/native/DistributionTemplates.h",
        url="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/"
        "DistributionTemplates.h",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::normal$",
        occurs=every(blocks, recurs),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="one-hot-classes",
        name="one-hot vectors without the number of classes",
        title="`one_hot()` makes the CPU wait for the number of classes",
        shows="`aten::one_hot` calls `aten::item`.",
        not_when="The number of classes is not known.",
        fixes=(Instead("Pass the number: `F.one_hot(x, num_classes=n)`."),),
        source="PyTorch documentation: torch.nn.functional.one_hot",
        url="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::one_hot$",
        occurs=every(blocks, recurs),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="repeat-interleave-size",
        name="repeat_interleave without the size of its result",
        title="`repeat_interleave()` makes the CPU wait for the size of its result",
        shows="`aten::repeat_interleave` with a copy to the CPU that blocks.",
        not_when="The CPU cannot know the sum of the repeats.",
        fixes=(
            Instead(
                "Pass the sum of the repeats: `torch.repeat_interleave(x, repeats, "
                "output_size=n)`. If all are repeated alike: `x.unsqueeze(1).expand(-1, "
                "n).reshape(-1)`.",
                since="1.10",
                short="Pass the sum of the repeats: `torch.repeat_interleave(x, repeats, "
                "output_size=n)`.",
            ),
        ),
        source="PyTorch documentation: torch.repeat_interleave",
        url="https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::repeat_interleave$",
        occurs=every(called_directly, blocks, recurs),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="count-values",
        name="counts or unique values of GPU data",
        title="The CPU waits for the number of different values",
        shows="`aten::_unique2`, `aten::unique_consecutive`, `aten::bincount` or `aten::histc` "
        "with a copy to the CPU that blocks.",
        not_when="The number of values must be known on the CPU.",
        fixes=(
            Instead(
                "Count with a fixed size: `torch.zeros(n, device=...).scatter_add_(0, x, ones)` "
                "for `bincount`. Sort and compare neighbors instead of `unique`, or do it on the "
                "CPU where the batch is made.",
                short='Count with a fixed size: `torch.zeros(n, device="cuda").scatter_add_(0, x, '
                "ones)`, or on the CPU, where the batch is made.",
            ),
        ),
        source="PyTorch documentation: torch.bincount",
        url="https://docs.pytorch.org/docs/stable/generated/torch.bincount.html",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::(?:_unique2?|unique_dim|unique_consecutive|bincount|histc)$",
        occurs=every(called_directly, blocks, recurs),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="packed-lengths",
        name="sequence lengths on the GPU that packing needs on the CPU",
        title="Packing sequences moves lengths or their order between CPU and GPU",
        shows="`pack_padded_sequence` or `pad_packed_sequence` with a copy that blocks.",
        not_when="A network computes the lengths.",
        fixes=(
            Instead(
                "Leave the lengths on the CPU when the batch is moved. Sort the batch by length "
                "where it is made, and pass `enforce_sorted=True`.",
                short="Keep the lengths on the CPU, sort the batch by length where it is made, "
                "and pass `enforce_sorted=True`.",
            ),
        ),
        source="PyTorch documentation: torch.nn.utils.rnn.pack_padded_sequence",
        url="https://docs.pytorch.org/docs/stable/generated/"
        "torch.nn.utils.rnn.pack_padded_sequence.html",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        frames=r"torch/nn/utils/rnn\.py\(\d+\): pa(?:ck|d)_\w*sequence$",
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="synchronize-for-timing",
        name="a synchronize to read a clock",
        title="The CPU waits for the GPU to read a clock",
        shows="`synchronize`, and then `perf_counter`, `time` or `elapsed_time` in the same "
        "function.",
        not_when="A benchmark that needs the latency of each step.",
        fixes=(
            Instead(
                "Record `torch.cuda.Event(enable_timing=True)` pairs and read `elapsed_time` some "
                "steps later, when they are reached. Or synchronize every N steps and divide.",
                short="Record `torch.cuda.Event(enable_timing=True)` pairs and read "
                "`elapsed_time` some steps later.",
            ),
        ),
        source=_ASYNCHRONOUS,
        url=_ASYNCHRONOUS_URL,
        rules=("TL101",),
        edit="unblock:{place}",
        frames=r"torch/cuda/(?:__init__|streams)\.py\(\d+\): synchronize$",
        occurs=every(blocks, _before_reading_clock, recurs),
        by_call_site=True,
    ),
    Remedy(
        id="elapsed-time-waits",
        name="times of GPU events that are read immediately",
        title="",
        shows="A call that blocks inside `elapsed_time`.",
        not_when="A benchmark that needs the time of each step at once.",
        fixes=(
            Instead(
                "Keep the events of each step and read them one or more steps later, when they are "
                "reached."
            ),
        ),
        source=_ASYNCHRONOUS,
        url=_ASYNCHRONOUS_URL,
        rules=("TL101",),
        edit="unblock:{place}",
        frames=r": elapsed_time$|^<built-in method elapsed_time of ",
        occurs=blocks,
        by_call_site=True,
    ),
    Remedy(
        id="synchronize-for-copy",
        name="a synchronize after a copy to the CPU",
        title="",
        shows="`cudaDeviceSynchronize`, `cudaStreamSynchronize` or `cudaEventSynchronize` not "
        "called by an operator, which returns after an asynchronous copy to the CPU has ended, "
        "with nothing launched between the two.",
        not_when="The program needs the values at once, as the actions of an environment.",
        fixes=(
            Instead(
                "A copy to the CPU ends before this wait, so the CPU may read it after it. "
                "Record an event after the copy, launch the next step, and wait for that "
                "event (`event.synchronize()`) one step later, with two pinned buffers in "
                "turn. If the CPU reads nothing there, remove the wait.",
                short="Record an event after the copy, launch the next step, and wait for the "
                "event one step later: `event.synchronize()`.",
            ),
        ),
        source="PyTorch tutorial: a guide on good usage of non_blocking and pin_memory",
        url="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        rules=("TL101",),
        edit="unblock:{place}",
        occurs=synchronizes(Awaited.RESULT),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="synchronize",
        name="a synchronize in the program",
        title="",
        shows="`cudaDeviceSynchronize`, `cudaStreamSynchronize` or `cudaEventSynchronize` not "
        "called by an operator, with no asynchronous copy to the CPU before it.",
        not_when="The CPU must wait, as before it reads what a kernel wrote into its memory.",
        fixes=(
            Instead(
                "Remove it, or make a stream wait instead of the CPU: "
                "`torch.cuda.current_stream().wait_event(event)`."
            ),
        ),
        source=_ASYNCHRONOUS,
        url=_ASYNCHRONOUS_URL,
        rules=("TL101",),
        edit="unblock:{place}",
        occurs=synchronizes(Awaited.NOTHING),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="tensor-condition",
        name="a condition on a GPU tensor",
        title="",
        shows="`aten::is_nonzero`, `aten::equal` or `aten::allclose` with a copy to the CPU.",
        not_when="The program must branch in this step: then the wait is a dependency.",
        fixes=(
            Instead(
                "A condition on a tensor is evaluated on the CPU, which waits for its "
                "value. Evaluate it every N steps, or one step late: copy the condition "
                "into pinned memory with `non_blocking=True` and look at it in the next "
                "step.",
                short="Evaluate it every N steps, or one step late: copy the condition into "
                "pinned memory with `non_blocking=True`.",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::(?:is_nonzero|equal|allclose)$",
        occurs=every(called_directly, blocks),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="reads-in-loop",
        name="many numbers read from the GPU one by one",
        title="The program reads numbers from the GPU one by one",
        shows=f"{_FEWEST_READS} or more `aten::item` in a row from one function in each step, with "
        "hardly a launch in between, as of the norm of each gradient.",
        not_when="Each number decides what is computed for the next.",
        fixes=(
            Instead(
                "Read them with one copy: `torch.stack(values).tolist()`. Norms of gradients: "
                "`torch.stack(torch._foreach_norm(grads))`, which stays on the GPU until it is "
                "logged.",
                since="1.12",
                short="Read them with one copy: `torch.stack(values).tolist()`.",
            ),
            Instead("Read them with one copy: `torch.stack(values).tolist()`."),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::item$",
        occurs=every(called_directly, blocks, _in_a_row, recurs),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="scalar-read",
        name="a number read from the GPU",
        title="",
        shows="`aten::item` with a copy to the CPU, called by the program: `.item()`, "
        "`float(x)`, an f-string.",
        not_when="The number decides what the program does next in this step.",
        fixes=(
            Instead(
                "Read the value every N steps, or keep it on the GPU: `log.append(loss.detach())`, "
                "and `torch.stack(log).tolist()` after the loop."
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::item$",
        occurs=every(called_directly, blocks),
        by_call_site=True,
        is_general=True,
    ),
    Remedy(
        id="tensor-read",
        name="a tensor copied to the CPU",
        title="",
        shows="`aten::to` or `aten::copy_` with a copy to the CPU that blocks: `.cpu()`, "
        "`.tolist()`, `.numpy()`.",
        not_when="The program needs the values at once, as the actions of an environment.",
        fixes=(
            Instead(
                "Copy into pinned memory with `non_blocking=True`, and wait for an event of that "
                "copy one step later. Read several tensors with one copy.",
                short="Copy into pinned memory: `pinned.copy_(x, non_blocking=True)`. Read it one "
                "step later, after `event.synchronize()`.",
            ),
        ),
        source="PyTorch tutorial: a guide on good usage of non_blocking and pin_memory",
        url="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        rules=("TL101",),
        edit="unblock:{place}",
        operators=r"^aten::(?:to|_to_copy|copy_)$",
        occurs=every(called_directly, copies("d2h"), blocks),
        by_call_site=True,
        is_general=True,
    ),
)
