"""torch.compile and CUDA graphs that do not settle, or are not used."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.findings.compiled_regions import compiled_functions, compiled_regions
from tracelab.findings.remedies.guards import (
    blocks,
    called_directly,
    chosen,
    counts_inside,
    every,
    launches_inside,
    named,
    operators_named,
    recurring,
    recurs,
)
from tracelab.findings.remedies.launches import backward_of
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import (
    begins_capture,
    ends_capture,
    is_graph_launch,
    is_kernel_launch,
)
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import calls_of_name, groups_of
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

# What torch.compile records of itself; since 2.6 also around all of it, of the forward pass as
# "dynamo", of the backward pass as "entire_backward_compile".
COMPILES = (
    r"^(?:dynamo|entire_(?:frame|backward)_compile|inductor_compile)$"
    r"|(?:compile_inner|_backward_impl|compile_fx_inner|create_aot_dispatcher_function"
    r"|entire_frame_compile|inductor_compile) \(dynamo_timed\)$"
)
_LOOKUP = "TorchDynamo Cache Lookup"
# Kernels that compiled code fuses: of element by element, and reductions.
_FUSED = "kernel:elementwise_kernel|reduce_kernel"
_FEWEST_LAUNCHES = 10  # of one compiled graph: fewer are no matter for a CUDA graph
# An operator of cuDNN that has its plan takes below 0.2 ms of the host, one that makes it 5 to 80.
_PLANNING_NS = 2_000_000
_PLANS_SEEN = 3  # of a file without steps, from which on they are no first use
# Around a capture, `torch.cuda.graph` waits for the GPU and frees memory.
_RECORDS = re.compile(
    r"torch/(?:_inductor/cudagraph_trees\.py\(\d+\): _record"
    r"|cuda/graphs\.py\(\d+\): __(?:enter|exit)__)$"
)
_MAKES = re.compile(r"torch/cuda/graphs\.py\(\d+\): __(?:new|init)__$")
_MAKES_OR_FREES = re.compile(r"^(?:cuda|cu|hip)Graph(?:Instantiate|(?:Exec)?Destroy)")
_RESUMES = re.compile(r": torch_dynamo_resume_in_")
_READS = r"^aten::(?:item|is_nonzero|nonzero|to|_to_copy|copy_)$"
_NAMED = (Category.OPERATOR, Category.ANNOTATION)
# With FSDP2 and DDP's optimizer a graph breaks at each block, by design.
_BREAKS_BY_DESIGN = re.compile(r"^FSDP::")


def _breaks(graph: Graph, events: Int64Array) -> Int64Array:
    """What graph breaks cost in each step; none with FSDP2, whose hooks break graphs by design."""
    if any(map(_BREAKS_BY_DESIGN.match, graph.host.timeline.trace.strings)):
        return events[:0]
    return recurring(graph, events)


def _before_rest(graph: Graph, events: Int64Array) -> Int64Array:
    """The events in a compiled region that goes on as another function behind them.

    The rest of a function that a break cuts is called from its first part. It is compiled on its
    own, unless it computes nothing, as behind a guard that lets pass.
    """
    trace = graph.host.timeline.trace
    regions = compiled_functions(trace)
    rests = named(trace, _RESUMES.search, Category.PYTHON)
    around = np.concatenate((regions.parent_index, regions.innermost(rests)))
    start_ns = np.concatenate((regions.start_ns, trace.start_ns[rests]))
    is_inner = around != ABSENT
    last_ns = np.zeros(len(regions.event_id) + 1, dtype=np.int64)  # the last is for ABSENT
    np.maximum.at(last_ns, around[is_inner], start_ns[is_inner])
    return chosen(events, last_ns[regions.innermost(events)] > trace.start_ns[events])


def _found_no_code(graph: Graph, events: Int64Array) -> Int64Array:
    """Calls that look for compiled code, find none and make none, with what goes back through them.

    A function that is not to be compiled is not looked up. One that may not be compiled again is,
    and then runs as it is written.
    """
    trace = graph.host.timeline.trace
    compiled = (compiled_regions(trace).event_id, operators_named(graph.host.timeline, COMPILES))
    is_eager = launches_inside(graph.host.timeline, events) >= _FEWEST_LAUNCHES
    is_eager &= counts_inside(trace, events, named(trace, _LOOKUP.__eq__, *_NAMED)) > 0
    is_eager &= counts_inside(trace, events, np.concatenate(compiled)) == 0
    calls = recurring(graph, events[is_eager])
    return np.union1d(calls, backward_of(graph, calls)) if len(calls) else calls


def _cut(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The compiled regions that reads of the GPU cut, in steady steps."""
    regions = compiled_functions(graph.host.timeline.trace)
    reads = _READS_THAT_BREAK(graph, operators_named(graph.host.timeline, _READS))
    inside = regions.innermost(reads)
    return np.unique(regions.event_id[inside[inside != ABSENT]]).astype(np.int64)


def _launches_one_by_one(graph: Graph, events: Int64Array) -> Int64Array:
    """Calls of compiled graphs that a CUDA graph could replay: the same launches, and no waits.

    None where reads cut them into pieces: those are to be mended first.
    """
    timeline = graph.host.timeline
    if len(_cut(graph, events)):
        return events[:0]
    trace = timeline.trace
    is_kernel = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    launches = counts_inside(trace, events, timeline.launch_id[is_kernel])
    is_whole = launches >= _FEWEST_LAUNCHES
    waits = graph.host.blocking_calls.event_id
    for calls in (waits, calls_of_name(trace, is_graph_launch)):
        is_whole &= counts_inside(trace, events, calls) == 0
    for _, index in groups_of(trace.name_index[events]):
        is_whole[index] &= len(np.unique(launches[index])) == 1
    return recurring(graph, events[is_whole])


def _records_graphs(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """What records CUDA graphs in several steps: functions, and all from begin to end."""
    return _recorded(graph, recurring(graph, _captures(graph)))


def records_graphs_once(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The same, where it does not go on."""
    begins = _captures(graph)
    return _recorded(graph, begins[:0] if len(recurring(graph, begins)) else begins)


def _captures(graph: Graph) -> Int64Array:
    """The calls that begin to record a graph (event ids), by start."""
    return calls_of_name(graph.host.timeline.trace, begins_capture).astype(np.int64)


def _recorded(graph: Graph, begins: Int64Array) -> Int64Array:
    """What these calls (event ids) record, with the functions around them and what follows."""
    trace = graph.host.timeline.trace
    if not len(begins):
        return begins
    ends = calls_of_name(trace, ends_capture)
    inside = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    inside = inside[np.argsort(trace.start_ns[inside], kind="stable")]
    recorded = [
        calls_of_name(trace, _MAKES_OR_FREES.match),
        named(trace, _MAKES.search, Category.PYTHON),
    ]
    for thread, index in groups_of(trace.thread_index[begins]):
        of_thread = inside[trace.thread_index[inside] == thread]
        ends_ns = trace.end_ns[ends[trace.thread_index[ends] == thread]]
        for begin in begins[index].tolist():
            last = np.searchsorted(ends_ns, trace.start_ns[begin])
            if last < len(ends_ns):
                bounds_ns = (trace.start_ns[begin], ends_ns[last])
                first, end = np.searchsorted(trace.start_ns[of_thread], bounds_ns)
                between = of_thread[first:end]
                recorded.append(between[trace.end_ns[between] <= ends_ns[last]])
    functions = named(trace, _RECORDS.search, Category.PYTHON)
    marks = np.union1d(begins, ends)
    recorded.append(functions[counts_inside(trace, functions, marks) > 0])
    return np.unique(np.concatenate(recorded)).astype(np.int64)


def plans_attention_again(graph: Graph, events: Int64Array) -> Int64Array:
    """The runs of an attention operator that made a plan, where that goes on."""
    planning = plans(graph, events)
    if graph.host.timeline.steady is None:
        return planning if len(planning) >= _PLANS_SEEN else planning[:0]
    return recurring(graph, planning)


def plans(graph: Graph, events: Int64Array) -> Int64Array:
    """The runs of cuDNN's operators that made a plan before they launched."""
    trace = graph.host.timeline.trace
    launches = counts_inside(trace, events, calls_of_name(trace, is_kernel_launch))
    # What memory takes in it is no planning: on ROCm a hipFree may fill each run.
    blocking = graph.host.blocking_calls
    is_memory = blocking.kind == Blocking.ALLOCATION
    own_ns = trace.duration_ns[events].copy()
    for thread, index in groups_of(trace.thread_index[events]):
        here = is_memory & (blocking.thread_index == thread)
        memory = union(blocking.start_ns[here], blocking.end_ns[here])
        own_ns[index] -= measure_within(
            memory, trace.start_ns[events[index]], trace.end_ns[events[index]]
        )
    # An RNN takes milliseconds as well, but to launch.
    return events[own_ns >= _PLANNING_NS * np.maximum(1, launches / 2)]


_READS_THAT_BREAK = every(called_directly, blocks, _before_rest, recurs)

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="recompilation",
        name="torch.compile that compiles again in later steps",
        title="`torch.compile` compiles again and again",
        shows="Operators such as `_compile.compile_inner (dynamo_timed)` in at least two steady "
        "steps after the first one, and `Torch-Compiled Region: 0/n` with a growing n.",
        not_when="The first steps are recorded, or each length of a small fixed set is compiled "
        "once: compile those in a warm-up.",
        fixes=(
            Instead(
                "Run with `TORCH_LOGS=recompiles` to see which guard fails. Mark a size that "
                "changes (`torch._dynamo.mark_dynamic(x, 1)`) or pad it to a few lengths, and pass "
                "numbers that change (step, learning rate) as tensors. After 8 compilations the "
                "function runs uncompiled.",
                since="2.1",
                short="Find the guard with `TORCH_LOGS=recompiles`. Mark sizes that change: "
                "`torch._dynamo.mark_dynamic(x, 1)`, or pad them.",
            ),
            Instead(
                "Pad sizes that change to a few lengths, or use `torch.compile(dynamic=True)`."
            ),
        ),
        source="PyTorch documentation: Recompilation",
        url="https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html",
        rules=("TL301", "TL305"),
        edit="remove:{place}",
        operators=COMPILES,
        occurs=recurring,
    ),
    Remedy(
        id="recompile-limit",
        name="a compiled function that was compiled too often, and runs eagerly",
        title="A compiled function runs eagerly: it reached the recompile limit",
        shows="`compile_wrapper` of torch/_dynamo/eval_frame.py with a `TorchDynamo Cache Lookup` "
        "in at least two steady steps, and no `Torch-Compiled Region` inside it.",
        not_when="The first steps are recorded, while it is compiled.",
        fixes=(
            Instead(
                "Run with `TORCH_LOGS=recompiles` to see which guard failed: after 8 compilations "
                "the function runs uncompiled. Keep what changes, such as a counter of steps, in a "
                "tensor (`register_buffer`) instead of a Python number, and mark sizes that change "
                "(`torch._dynamo.mark_dynamic(x, 1)`). If the variants are few, allow them: "
                "`torch._dynamo.config.recompile_limit = 32`.",
                short="Find the guard with `TORCH_LOGS=recompiles`. Keep counters in tensors "
                "(`register_buffer`), or raise `torch._dynamo.config.recompile_limit`.",
            ),
        ),
        source="PyTorch documentation: Recompilation",
        url="https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html",
        rules=("TL301", "TL410"),
        edit=f"host:{{place}}=0 + scale:{_FUSED}=0",
        frames=r"torch/_dynamo/eval_frame\.py\(\d+\): (?:compile_wrapper|_fn)$",
        occurs=_found_no_code,
        is_bound=True,
    ),
    Remedy(
        id="graph-breaks",
        name="a compiled function that graph breaks cut into pieces",
        title="Graph breaks cut a compiled function into pieces",
        shows="Python functions named `torch_dynamo_resume_in_...` in at least two steady steps, "
        "with a cache lookup and a prologue for each piece.",
        not_when="The breaks are at the hooks of FSDP2 or DDP, which break graphs by design.",
        fixes=(
            Instead(
                "Run with `TORCH_LOGS=graph_breaks`, or compile with `fullgraph=True`, to "
                "see the breaks. Move `.item()`, `print` and logging out of the compiled "
                "function; `torch._dynamo.config.capture_scalar_outputs = True` keeps an "
                "`.item()` whose value is only used as a number. The predicted saving is "
                "that of the lookups alone: fusing across the breaks saves more.",
                since="2.1",
                short="Move `.item()`, `print` and logging out of the compiled function; find "
                "breaks with `torch.compile(model, fullgraph=True)`.",
            ),
        ),
        source="PyTorch documentation: Common graph breaks",
        url="https://docs.pytorch.org/docs/stable/compile/programming_model.common_graph_breaks.html",
        rules=("TL301",),
        edit="remove:{place}",
        frames=r"\(\d+\): torch_dynamo_resume_in_",
        operators=r"^(?:TorchDynamo Cache Lookup|Pregraph bytecode)$",
        occurs=_breaks,
    ),
    Remedy(
        id="read-breaks-graph",
        name="a read of the GPU that breaks a compiled graph",
        title="",
        shows="`aten::item`, `aten::nonzero` or a copy to the CPU that blocks, inside a "
        "`Torch-Compiled Region` that continues as another one after it.",
        not_when="The number decides something that only the CPU can do.",
        fixes=(
            Instead(
                "The compiled graph ends here, and a CUDA graph with it: the CPU waits, and "
                "launches the rest as another one. Read the value after the compiled "
                "function, or bound it on the GPU (`clamp`). `fullgraph=True` names what "
                "breaks a graph.",
                since="2.0",
                short="Move the read after the compiled function, or bound the value on the GPU: "
                "`x.clamp(...)`.",
            ),
        ),
        source="PyTorch documentation: Common graph breaks",
        url="https://docs.pytorch.org/docs/stable/compile/programming_model.common_graph_breaks.html",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=_READS,
        occurs=_READS_THAT_BREAK,
        by_call_site=True,
    ),
    Remedy(
        id="reads-cut-compiled",
        name="a compiled function that reads of the GPU cut into pieces",
        title="Reads of the GPU cut a compiled function into pieces",
        shows="`aten::is_nonzero`, `aten::item` or another read that blocks inside a "
        "`Torch-Compiled Region`, and after it another one, or a function named "
        "`torch_dynamo_resume_in_...`; the GPU waits for the launches of the pieces.",
        not_when="The number decides something that only the CPU can do.",
        fixes=(
            Instead(
                "Each `if` on a tensor, `.item()` or `nonzero` ends a compiled graph: the rest "
                "is looked up and launched on its own. Compute both cases where they are cheap "
                "(`x.clamp(...)` without the `if`), or decide after the compiled function. "
                "`TORCH_LOGS=graph_breaks` and `fullgraph=True` name each break.",
                since="2.0",
                short="Compute both cases instead of the `if` (`torch.where(condition, a, b)`), "
                "or decide after the compiled function.",
            ),
        ),
        source="PyTorch documentation: Common graph breaks",
        url="https://docs.pytorch.org/docs/stable/compile/programming_model.common_graph_breaks.html",
        rules=("TL301",),
        edit=None,
        occurs=_cut,
    ),
    Remedy(
        id="compiled-without-graph",
        name="compiled code that is launched kernel by kernel",
        title="The CPU launches compiled code kernel by kernel",
        shows="`## Call CompiledFxGraph ... ##` with at least ten launches, the same number each "
        "time, no `cudaGraphLaunch` and nothing that blocks inside.",
        not_when="The log says `skipping cudagraphs due to ...` (tensors or operators of the CPU, "
        "inputs changed in place, dynamic shapes), or the kernels are long.",
        fixes=(
            Instead(
                'Replay it as a CUDA graph: `torch.compile(model, mode="reduce-overhead")`. Call '
                "`torch.compiler.cudagraph_mark_step_begin()` before each step, and `clone()` "
                "outputs that are kept.",
                since="2.1",
                short='Pass `mode="reduce-overhead"` to `torch.compile`, and call '
                "`torch.compiler.cudagraph_mark_step_begin()` before each step.",
            ),
            Instead('Replay it as a CUDA graph: `torch.compile(model, mode="reduce-overhead")`.'),
        ),
        source="PyTorch documentation: CUDAGraph Trees",
        url="https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html",
        rules=("TL301",),
        edit="graph:{place}",
        operators=r"^## Call CompiledFxGraph \w+ ##$",
        occurs=_launches_one_by_one,
    ),
    Remedy(
        id="graph-recorded-again",
        name="CUDA graphs that are recorded again in later steps",
        title="The program records CUDA graphs again and again",
        shows="`cudaStreamBeginCapture` in at least two steady steps after the first one.",
        not_when="Each shape of a small fixed set is recorded once: record those in a warm-up.",
        fixes=(
            Instead(
                "Keep the addresses and shapes of inputs, parameters and `.grad` the same in all "
                "steps: copy inputs into fixed buffers (`static.copy_(x)`), pad to a few lengths, "
                "do not create parameters anew. With changing shapes: "
                "`torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True`.",
                since="2.4",
                short="Keep the addresses and shapes of inputs: copy them into fixed buffers "
                "(`static.copy_(x)`), and pad to a few lengths.",
            ),
            Instead(
                "Keep the addresses and shapes of inputs and parameters the same in all steps: "
                "copy inputs into fixed buffers (`static.copy_(x)`), pad to a few lengths."
            ),
        ),
        source="PyTorch documentation: CUDAGraph Trees",
        url="https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html",
        rules=("TL301", "TL305"),
        edit="remove:{place}",
        occurs=_records_graphs,
    ),
    Remedy(
        id="cudnn-attention-plans",
        name="cuDNN attention that is planned anew for each length",
        title="cuDNN plans attention again for each length",
        shows="`aten::_scaled_dot_product_cudnn_attention` takes more than 2 ms of CPU time in "
        "several steps, without a call of CUDA that takes that long.",
        not_when="The lengths repeat later: their plans are kept, and another backend made such "
        "steps a sixth longer. Skip more steps before recording.",
        fixes=(
            Instead(
                "cuDNN plans attention for each new length. Keep to a few lengths: pad, or use a "
                "cache of fixed size. If lengths never repeat, use another backend: "
                "`torch.backends.cuda.enable_cudnn_sdp(False)`.",
                since="2.5",
                short="Pad to a few lengths. If lengths never repeat, use another backend: "
                "`torch.backends.cuda.enable_cudnn_sdp(False)`.",
            ),
        ),
        source="PyTorch documentation: torch.backends.cuda.enable_cudnn_sdp",
        url="https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cuda.enable_cudnn_sdp",
        rules=("TL301", "TL305"),
        edit="host:{place}=0.01",  # with a plan it takes 0.05 ms of the host, without 5 and more
        operators=r"^aten::_(?:scaled_dot_product_)?cudnn_attention(?:_forward|_backward)?$",
        occurs=plans_attention_again,
    ),
)
