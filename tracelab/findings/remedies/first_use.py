"""What comes once in a program, and what should come once and goes on."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.findings.remedies.compilation import (
    COMPILES,
    plans,
    plans_attention_again,
    records_graphs_once,
)
from tracelab.findings.remedies.guards import (
    Events,
    are_in_launching_thread,
    counts_inside,
    recurring,
    step_indices,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import (
    asks_about_kernel,
    is_event_sync,
    is_free,
    is_kernel_launch,
    loads_module,
)
from tracelab.model.graph import Graph
from tracelab.model.lookup import calls_of_name, groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.steady import FEWEST_STEPS
from tracelab.model.trace import ABSENT

_TUNING = "PyTorch Performance Tuning Guide"
_TUNING_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

# A launch takes 2 to 10 us, one that loads the kernel's code first 0.3 to 300 ms.
_SLOW_LAUNCH_NS = 200_000
_PLANS = r"cudnn_(?:attention|convolution|rnn)|miopen_(?:convolution|rnn)"
# The backward pass of a convolution calls cuDNN without an operator of its name.
_CONVOLUTIONS = r"(?:cudnn|miopen)_convolution|aten::convolution_backward"
_ATTENTION = re.compile(r"attention")
_TRIALS = 2  # timed by an operator that tries algorithms: it waits for an event after each
# What creates something at its first call takes so long, and so many times as long as later.
_SLOW_FIRST_NS, _SLOW_FIRST = 1_000_000, 10
_TUNES = (
    r"triton/runtime/autotuner\.py\(\d+\): (?:_bench|benchmark)$"
    r"|triton/testing\.py\(\d+\): do_bench"
    r"|torch/_inductor/runtime/triton_heuristics\.py\(\d+\): "
    r"(?:benchmark_all_configs|autotune_to_one_config|coordinate_descent_tuning)$"
    r"|torch/_inductor/select_algorithm\.py\(\d+\): benchmark_choices$"
    r"|triton/compiler/compiler\.py\(\d+\): compile$"
)


def _once(graph: Graph, events: Int64Array) -> Int64Array:
    """These events, unless they go on."""
    return events[:0] if len(recurring(graph, events)) else events


def _loads_code(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The first launches of kernels that took long, and the calls that load modules."""
    trace = graph.host.timeline.trace
    may_load = np.union1d(_first_launches(graph), calls_of_name(trace, asks_about_kernel))
    slow_id = may_load[trace.duration_ns[may_load] >= _SLOW_LAUNCH_NS]
    return np.union1d(slow_id, calls_of_name(trace, loads_module)).astype(np.int64)


def _first_launches(graph: Graph) -> NDArray[np.int64]:
    """The event id of the first call of the file that launched each kernel, by its name."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    launch_id = timeline.launch_id[launched]
    is_kernel = match_names(trace, launch_id, is_kernel_launch)
    launched, launch_id = launched[is_kernel], launch_id[is_kernel]
    by_launch = np.argsort(trace.start_ns[launch_id], kind="stable")
    names = trace.name_index[timeline.event_id[launched[by_launch]]]
    _, first = np.unique(names, return_index=True)
    return launch_id[by_launch[first]]


def _only_plans(graph: Graph, events: Int64Array) -> Int64Array:
    """The runs of operators that planned before they launched."""
    planning = plans(graph, events)
    return planning[~_tries_algorithms(graph, planning)]


def _plans_again(graph: Graph, events: Int64Array) -> Int64Array:
    """Those where that goes on; attention has a remedy of its own."""
    planning = _only_plans(graph, events)
    is_attention = match_names(graph.host.timeline.trace, planning, _ATTENTION.search)
    return recurring(graph, planning[~is_attention])


def _plans_once(graph: Graph, events: Int64Array) -> Int64Array:
    planning = _only_plans(graph, events)
    is_attention = match_names(graph.host.timeline.trace, planning, _ATTENTION.search)
    goes_on = np.concatenate(
        (_plans_again(graph, events), plans_attention_again(graph, planning[is_attention]))
    )
    return planning[~np.isin(planning, goes_on)]


def _tries_algorithms(graph: Graph, operators: Events) -> NDArray[np.bool_]:
    """bool[k], which operators time several algorithms."""
    trace = graph.host.timeline.trace
    return counts_inside(trace, operators, calls_of_name(trace, is_event_sync)) >= _TRIALS


def _tries_again(graph: Graph, events: Int64Array) -> Int64Array:
    return recurring(graph, events[_tries_algorithms(graph, events)])


def _tries_once(graph: Graph, events: Int64Array) -> Int64Array:
    return _once(graph, events[_tries_algorithms(graph, events)])


def _slow_first(graph: Graph, events: Int64Array) -> Int64Array:
    """The first event of a name on a thread, where it took much longer than all later ones.

    What a kernel's code took to load in it is left out.
    """
    trace = graph.host.timeline.trace
    loading, nesting = _loads_code(graph, events), Nesting(trace, events)
    names = trace.name_index[nesting.event_id]
    is_inner = (nesting.parent_index != ABSENT) & (names[nesting.parent_index] == names)
    events = nesting.event_id[~is_inner]
    own_ns = trace.duration_ns[events].copy()
    for thread, index in groups_of(trace.thread_index[events]):
        here = loading[trace.thread_index[loading] == thread]
        loads = union(trace.start_ns[here], trace.end_ns[here])
        region = events[index]
        own_ns[index] -= measure_within(loads, trace.start_ns[region], trace.end_ns[region])
    slow = []
    threads = trace.thread_index[events].astype(np.int64)
    for _, index in groups_of(threads * len(trace.strings) + trace.name_index[events]):
        first, *later = index[np.argsort(trace.start_ns[events[index]], kind="stable")].tolist()
        longest_ns = max(own_ns[later], default=None)
        if longest_ns is not None and own_ns[first] >= _SLOW_FIRST * longest_ns:
            slow.append(first)
    of_slow = events[slow]
    return of_slow[own_ns[slow] >= _SLOW_FIRST_NS]


def _fills_memory(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The allocator's calls that do not go on.

    These are all where only the first of several steps has any. A program whose memory is never
    freed stops allocating: without a call that frees, all come once, unless at least every other
    steady step has one. In a file without steps, which usually begins as the program does, those
    before the first call that frees come once. A library frees memory as it begins; that is not
    the allocator's.
    """
    timeline, calls = graph.host.timeline, _allocator_calls(graph)
    starts, _ = _library_starts(graph)
    others = calls[~np.isin(calls, starts)]
    if len(timeline.steps) > 1 and (step_indices(graph, others) <= 0).all():
        return calls
    gives_back = match_names(timeline.trace, others, is_free)
    if gives_back.any():
        before = 0 if timeline.steps else int(np.argmax(gives_back))
        return np.concatenate((starts, others[:before]))
    steady = list(timeline.steady.indices) if timeline.steady else []
    seen = np.isin(steady, step_indices(graph, others)).sum()
    return starts if len(steady) >= FEWEST_STEPS and 2 * seen >= len(steady) else calls


def _allocator_calls(graph: Graph) -> Int64Array:
    """The allocator's calls in threads that launch, by start; none that kept others from it."""
    trace, blocking = graph.host.timeline.trace, graph.host.blocking_calls
    is_own = blocking.kind == Blocking.ALLOCATION
    is_own[graph.host.stalled_calls.allocation_index] = False
    calls = blocking.event_id[is_own]
    calls = calls[are_in_launching_thread(graph, calls)]
    by_start: Int64Array = calls[np.argsort(trace.start_ns[calls], kind="stable")]
    return by_start


def _library_starts(graph: Graph) -> tuple[Int64Array, Int64Array]:
    """The calls that free memory in the first run of an operator, and in no later one.

    So does the first product of a thread, which creates cuBLAS's handle, and the first convolution.

    Returns:
        the calls, and the innermost operator around each: event ids.
    """
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    calls = _allocator_calls(graph)
    frees = calls[match_names(trace, calls, is_free)]
    operator = operators.innermost(frees)
    frees, operator = frees[operator != ABSENT], operator[operator != ABSENT]
    key = operators.thread_index.astype(np.int64) * len(trace.strings)
    key += trace.name_index[operators.event_id]
    _, first, of_key = np.unique(key, return_index=True, return_inverse=True)
    begins = np.zeros(len(frees), dtype=np.bool_)
    for number, index in groups_of(of_key[operator]):
        begins[index] = (trace.end_ns[frees[index]] <= operators.end_ns[first[number]]).all()
    return frees[begins], operators.event_id[operator[begins]]


def _creates_handle(graph: Graph, events: Int64Array) -> Int64Array:
    """The first runs that took much longer than all later ones, or began a library."""
    _, starts = _library_starts(graph)
    return np.union1d(_slow_first(graph, events), np.intersect1d(events, starts))


GOES_ON: tuple[Remedy, ...] = (
    Remedy(
        id="autotuning-again",
        name="kernels that Triton compiles or tunes again in later steps",
        title="Triton compiles or tunes kernels again and again",
        shows="`_bench`, `do_bench` or `benchmark_all_configs` of Triton or Inductor, or Triton's "
        "`compile`, in at least two steady steps after the first one.",
        not_when="The first steps are recorded.",
        fixes=(
            Instead(
                "Tune once: leave sizes that change out of `key=` of `triton.autotune`, or round "
                "them up to a few (`triton.next_power_of_2`), and keep the cache folders "
                "(`TRITON_CACHE_DIR`, `TORCHINDUCTOR_CACHE_DIR`) between runs.",
                short="Tune once: round changing sizes (`triton.next_power_of_2(n)`) or drop them "
                "from `key=`, and keep `TRITON_CACHE_DIR` between runs.",
            ),
        ),
        source="Triton documentation: triton.autotune",
        url="https://triton-lang.org/main/python-api/generated/triton.autotune.html",
        rules=("TL301", "TL305"),
        edit="remove:{place}",
        frames=_TUNES,
        occurs=recurring,
    ),
    Remedy(
        id="cudnn-benchmark-again",
        name="cudnn.benchmark with shapes that change",
        title="cuDNN tries its algorithms again for each new shape",
        shows="`aten::cudnn_convolution`, or its backward, waits for the events of at least two "
        "trials, in at least two steady steps after the first one.",
        not_when="The shapes are fixed: then it tries once, and the search pays.",
        fixes=(
            Instead(
                "Set `torch.backends.cudnn.benchmark = False`, or keep to a few shapes "
                "(pad, or crop to a few sizes); `torch.backends.cudnn.benchmark_limit = 3` "
                "tries fewer algorithms.",
                since="1.13",
                short="Set `torch.backends.cudnn.benchmark = False`, or keep to a few shapes "
                "(pad, or crop to a few sizes).",
            ),
            Instead(
                "Set `torch.backends.cudnn.benchmark = False`, or keep to a few shapes (pad).",
                short="Set `torch.backends.cudnn.benchmark = False`, or keep to a few shapes "
                "(pad).",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL301", "TL305"),
        # The one run that is left is some percent of what is tried: of 210 ms 9 were left.
        edit="remove:{place}",
        operators=_CONVOLUTIONS,
        occurs=_tries_again,
    ),
    Remedy(
        id="cudnn-plans-again",
        name="convolutions or RNNs that cuDNN plans anew for each shape",
        title="cuDNN makes a plan for each new shape",
        shows="A convolution or RNN operator of cuDNN or MIOpen takes more than 2 ms of CPU time "
        "in at least two steady steps after the first one.",
        not_when="It waits for the GPU, or for memory.",
        fixes=(
            Instead(
                "A plan is made for each new shape: keep to a few shapes (pad, or crop to a few "
                "sizes).",
                short="Keep to a few shapes: pad, or crop to a few sizes.",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL301", "TL305"),
        edit="host:{place}=0.01",  # with a plan it takes 0.1 ms of the host, without 10 and more
        operators=_PLANS,
        occurs=_plans_again,
    ),
)
# In the order in which TL305 reports them.
ONCE: tuple[Remedy, ...] = (
    Remedy(
        id="first-graph-capture",
        name="the first capture of CUDA graphs",
        title="The recording contains the first capture of CUDA graphs",
        shows="`cudaStreamBeginCapture` to `cudaStreamEndCapture`, in which the GPU gets no work.",
        not_when="It continues in later steps: see graph-recorded-again.",
        fixes=(
            Instead(
                "Nothing in the loop, if it ends: a graph is captured before it is replayed. "
                "Record after the last capture.",
                since="1.10",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source="PyTorch documentation: CUDA semantics, CUDA Graphs",
        url="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        rules=("TL305",),
        edit=None,
        occurs=records_graphs_once,
    ),
    Remedy(
        id="first-compilation",
        name="the first compilation by `torch.compile`",
        title="`torch.compile` compiles at the first call",
        shows="Operators such as `_compile.compile_inner (dynamo_timed)` in the first steps.",
        not_when="It continues in later steps: see recompilation.",
        fixes=(
            Instead(
                "Nothing in the loop, if it ends. Record after a few more steps. Compiled code is "
                "kept between runs in `TORCHINDUCTOR_CACHE_DIR`.",
                since="2.1",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source="PyTorch documentation: Compile time caching",
        url="https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html",
        rules=("TL305",),
        edit=None,
        operators=COMPILES,
        occurs=_once,
    ),
    Remedy(
        id="first-autotuning",
        name="Triton's first compilation and tuning",
        title="Triton compiles and tunes kernels at their first use",
        shows="`_bench`, `do_bench` or `benchmark_all_configs` of Triton or Inductor in the first "
        "steps.",
        not_when="It continues in later steps: see autotuning-again.",
        fixes=(
            Instead(
                "Nothing in the loop, if it ends. Record after a few more steps, and keep the "
                "cache folders (`TRITON_CACHE_DIR`, `TORCHINDUCTOR_CACHE_DIR`) between runs.",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source="Triton documentation: triton.autotune",
        url="https://triton-lang.org/main/python-api/generated/triton.autotune.html",
        rules=("TL305",),
        edit=None,
        frames=_TUNES,
        occurs=_once,
    ),
    Remedy(
        id="first-cudnn-benchmark",
        name="cuDNN's first trials of its algorithms",
        title="cuDNN tries its algorithms at the first use of a shape",
        shows="`aten::cudnn_convolution` waits for the events of at least two trials, in the first "
        "steps.",
        not_when="It continues in later steps: see cudnn-benchmark-again.",
        fixes=(
            Instead(
                "Nothing in the loop, if it ends. Record after a few more steps.",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL305",),
        edit=None,
        operators=_CONVOLUTIONS,
        occurs=_tries_once,
    ),
    Remedy(
        id="first-communicator",
        name="the first collective's communicator",
        title="The first collective creates its communicator",
        shows="The first `record_param_comms` or `nccl:` operator of a thread takes more than 1 ms "
        "and ten times as long as any later one.",
        not_when="Later collectives take as long.",
        fixes=(
            Instead(
                'Create it before the loop: `init_process_group("nccl", device_id='
                'torch.device("cuda", local_rank))`, and one collective for each group as a '
                "warm-up.",
                since="2.3",
                short='Create it before the loop: `init_process_group("nccl", '
                'device_id=torch.device("cuda", local_rank))`.',
            ),
            Instead("Make one collective for each group as a warm-up before the loop."),
        ),
        source="PyTorch documentation: torch.distributed.init_process_group",
        url="https://docs.pytorch.org/docs/stable/distributed.html",
        rules=("TL305",),
        edit=None,
        operators=r"^record_param_comms$|^(?:c10d|nccl|rccl):",
        occurs=_slow_first,
    ),
    Remedy(
        id="first-matrix-product",
        name="cuBLAS's handle and workspace",
        title="The first matrix product creates cuBLAS's handle and workspace",
        shows="The first `aten::mm`, `aten::addmm` or `aten::bmm` of a thread takes more than 1 ms "
        "and ten times as long as any later one, without what kernels' code takes to load, or only "
        "that one frees memory.",
        not_when="Later ones take as long.",
        fixes=(
            Instead(
                "Nothing in the loop: each thread and stream creates them once. Record after a few "
                "more steps; warm up in the streams that are used.",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source="PyTorch documentation: cuBLAS workspaces",
        url="https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces",
        rules=("TL305",),
        edit=None,
        operators=r"^aten::(?:mm|addmm|bmm|baddbmm|_scaled_mm)$",
        occurs=_creates_handle,
    ),
    Remedy(
        id="kernel-loading",
        name="loading of the kernels' code",
        title="Kernels load their code at their first launch",
        shows="The first launch of a kernel takes more than 0.2 ms, or a question about a kernel "
        "does, or a call loads a module.",
        not_when="The same kernel is loaded again.",
        fixes=(
            Instead(
                "Nothing in the loop: the code of a kernel is loaded once. Record after a few more "
                "steps (`torch.profiler.schedule(wait=..., warmup=...)`); where the first step "
                "counts, set `CUDA_MODULE_LOADING=EAGER`.",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source="CUDA C++ Programming Guide: Lazy Loading",
        url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading",
        rules=("TL305",),
        edit=None,
        occurs=_loads_code,
    ),
    Remedy(
        id="first-cudnn-plan",
        name="the first plans of cuDNN or MIOpen",
        title="cuDNN or MIOpen plans an operator at its first use",
        shows="A convolution, RNN or attention operator of cuDNN or MIOpen takes more than 2 ms of "
        "the CPU in the first steps, without what its memory takes.",
        not_when="It continues in later steps: see cudnn-plans-again.",
        fixes=(
            Instead(
                "A plan is made for each new shape (`torch.backends.cudnn.benchmark` tries "
                "several). Record after a few more steps; if later steps plan too, keep to a few "
                "shapes.",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL305",),
        edit=None,
        operators=_PLANS,
        occurs=_plans_once,
    ),
    Remedy(
        id="allocator-growth",
        name="the allocator's first memory",
        title="The allocator requests its first memory from CUDA, and keeps it",
        shows="`cudaMalloc` in the first step only, or without a `cudaFree` in fewer than half of "
        "the steady steps, or before the first `cudaFree` in a file without steps; and `cudaFree` "
        "in the first run of an operator on a thread, where a library begins (cuBLAS, cuDNN).",
        not_when="It continues in most steps.",
        fixes=(
            Instead(
                "Nothing in the loop, if it ends: the allocator keeps the memory that it got. "
                "Record after a few more steps. If later steps allocate too, their shapes differ: "
                "pad or bucket them, or run the longest batch first.",
                short="Record later steps: `torch.profiler.schedule(wait=10, warmup=5, active=5)`.",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL305",),
        edit=None,
        occurs=_fills_memory,
        is_general=True,
    ),
)
REMEDIES: tuple[Remedy, ...] = (*GOES_ON, *ONCE)
