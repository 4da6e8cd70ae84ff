"""Loops in Python that launch in each turn what one call could launch, or write a log."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    NO_EVENTS,
    calls_of_copies,
    counts_inside,
    every,
    functions_around,
    launches_inside,
    operators_named,
    recurs,
    step_indices,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.frames import is_engine_operator, is_source_function
from tracelab.model.graph import Graph
from tracelab.model.lookup import groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import python_frames
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Trace

_FEWEST_CELLS = 8  # in a step
_MOST_BETWEEN = 1  # launches for each cell that are not its own
_CELL_BACKWARD = re.compile(
    r"^autograd::engine::evaluate_function: ThnnFused(?:Lstm|Gru)CellBackward"
)
# Of the host's time for cells: cuDNN launches as often, but from C++. Eight cells of an LSTM took
# 0.9 ms forward and 2.2 ms backward under the profiler, as one layer 0.2 and 0.6 ms, which hardly
# grows with their number.
_CUDNN_HOST_SHARE = 0.1
# Its kernels take 0.44 (an LSTM of 8 time steps) and 0.27 (a GRU of 96, batch 256) of the time.
_CUDNN_GPU_SHARE = 0.4
_ROUTES = r"^aten::(?:topk|one_hot)$"  # which experts a token goes to
_FEWEST_EXPERTS = 2  # in one call of a layer
_FEWEST_CASTS = 2  # of the arguments of one operator: more than its input
_LOG_SHARE = 0.01  # of the steps
_TAKES_WEIGHTS = r"^aten::(?:linear|conv[123]d|conv_transpose[123]d|matmul|addmm)$"


def _cells_in_a_row(graph: Graph, events: Int64Array) -> Int64Array:
    """The cells of steps in which little is launched between them, and their backward pass.

    What autograd's thread runs from the first cell's backward function to the last one's is of the
    loop, too.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    step = step_indices(graph, events)
    launching = timeline.launch_id[timeline.launch_id != ABSENT]
    operators = timeline.operators
    functions = operators.event_id[operators.have_name(is_engine_operator)]
    backward = operators.event_id[operators.have_name(_CELL_BACKWARD.match)]
    chosen = [NO_EVENTS]
    for number in np.unique(step).tolist():
        cells = events[step == number]
        span = _launched_between(trace, cells, launching)
        between = span - int(counts_inside(trace, cells, launching).sum())
        if len(cells) < _FEWEST_CELLS or between > _MOST_BETWEEN * len(cells):
            continue
        chosen.append(cells)
        own = backward[step_indices(graph, backward) == number]
        if len(own):
            is_between = trace.start_ns[functions] >= trace.start_ns[own].min()
            is_between &= trace.end_ns[functions] <= trace.end_ns[own].max()
            is_between &= np.isin(trace.thread_index[functions], trace.thread_index[own])
            chosen.append(functions[is_between])
    return np.concatenate(chosen)


def _launched_between(trace: Trace, cells: Int64Array, launching: Int64Array) -> int:
    """How many launches there are from the first of some cells to the last, on their threads."""
    count = 0
    for thread, index in groups_of(trace.thread_index[cells]):
        first_ns, end_ns = trace.start_ns[cells[index]].min(), trace.end_ns[cells[index]].max()
        of_thread = launching[trace.thread_index[launching] == thread]
        is_between = (trace.start_ns[of_thread] >= first_ns) & (trace.start_ns[of_thread] < end_ns)
        count += int(is_between.sum())
    return count


def _expert_loops(graph: Graph, _events: Int64Array) -> Int64Array:
    """The functions that look up positions and add rows back several times in one call.

    A router chose the positions, in that function or in the one that called it: a loop over the
    relations of a graph network does the same without one.
    """
    timeline = graph.host.timeline
    frames = python_frames(timeline)
    adds = operators_named(timeline, r"^aten::index_add_?$")
    positions = operators_named(timeline, r"^aten::nonzero$")
    if not len(adds) or not len(positions) or not len(frames.event_id):
        return NO_EVENTS
    count = np.zeros((2, len(frames.event_id) + 1), dtype=np.int64)  # the last is for ABSENT
    for row, operators in enumerate((adds, positions)):
        np.add.at(count[row], functions_around(graph, operators), 1)
    loops = np.flatnonzero((count[:, :-1] >= _FEWEST_EXPERTS).all(axis=0))
    callers = frames.around(frames.parent_index[loops], frames.have_name(_is_caller))
    choices = operators_named(timeline, _ROUTES)
    is_routed = counts_inside(timeline.trace, frames.event_id[loops], choices) > 0
    known = callers != ABSENT
    is_routed[known] |= counts_inside(timeline.trace, frames.event_id[callers[known]], choices) > 0
    return recurs(graph, frames.event_id[loops[is_routed]])


def _is_caller(name: str) -> bool:
    return is_source_function(name) and "torch/nn/modules/" not in name


def _casts_again(graph: Graph, events: Int64Array) -> Int64Array:
    """Casts of weights that a module repeats in a step, or that inference makes in each step.

    Args:
        graph: the file's dependencies.
        events: operators that take weights.

    Returns:
        the casts (`aten::to`) directly inside them; of training without the first of each
        operator, which is its input's.
    """
    timeline = graph.host.timeline
    operators = timeline.operators
    casts, owner = _casts(timeline, events)
    if not len(casts):
        return NO_EVENTS
    count = np.bincount(owner, minlength=len(operators.event_id))
    is_of_weights = count[owner] >= _FEWEST_CASTS
    if not operators.have_name(is_engine_operator).any():
        # Without autocast the inputs need no cast either.
        return recurs(graph, operators.event_id[casts[is_of_weights]])
    is_of_weights &= np.diff(owner, prepend=-1) == 0
    of_weights, of_owner = casts[is_of_weights], owner[is_of_weights]
    frames = python_frames(timeline)
    module = frames.around(
        frames.innermost(operators.event_id[of_owner]),
        frames.have_name(lambda name: name.startswith("nn.Module: ")),
    )
    known = module != ABSENT
    of_weights, of_owner, module = of_weights[known], of_owner[known], module[known]
    key = np.stack(
        (frames.names(module), step_indices(graph, operators.event_id[of_owner])), axis=1
    )
    _, use = np.unique(key, axis=0, return_inverse=True)
    # Of each module and step all but the first call, which may run several such operators.
    first_call = np.full(int(use.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_call, use, module)
    return recurs(graph, operators.event_id[of_weights[module > first_call[use]]])


def _casts(timeline: Timeline, events: Int64Array) -> tuple[NDArray[Any], Int64Array]:
    """The casts on the GPU directly inside operators, and those; as indices of operators."""
    operators = timeline.operators
    is_owner = np.isin(operators.event_id, events)
    is_cast = operators.have_name(lambda name: name == "aten::to")
    parent = operators.parent_index
    index = np.flatnonzero(is_cast & (parent != ABSENT))
    index = index[is_owner[parent[index]]]
    moved = calls_of_copies(timeline, "h2d", None)
    event_id = operators.event_id[index]
    is_kernel = launches_inside(timeline, event_id) > 0
    is_kernel &= counts_inside(timeline.trace, event_id, moved) == 0
    return index[is_kernel], parent[index[is_kernel]]


def _takes_time(graph: Graph, events: Int64Array) -> Int64Array:
    """All events if without what they hold of one another they take 1 % of the steps, else none."""
    timeline = graph.host.timeline
    trace = timeline.trace
    threads = sorted(graph.host.launching_threads)
    events = events[np.isin(trace.thread_index[events], threads)]
    nesting = Nesting(trace, events)
    outermost = nesting.parent_index == ABSENT
    spent_ns = int((nesting.end_ns - nesting.start_ns)[outermost].sum())
    total_ns = sum(window.end_ns - window.start_ns for window in timeline.steps)
    return events if total_ns and spent_ns >= _LOG_SHARE * total_ns else NO_EVENTS


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="rnn-cell-loop",
        name="a loop over the time steps of a recurrent cell",
        title="A loop launches a recurrent cell for each time step",
        shows="`aten::lstm_cell`, `aten::gru_cell` or `aten::rnn_tanh_cell` many times in a step, "
        "with little else in between, and no `aten::_cudnn_rnn`.",
        not_when="A time step needs something else made of the one before, as attention or a "
        "sampled token: then only a CUDA graph or `torch.compile` helps.",
        fixes=(
            Instead(
                "Give the whole sequence to `nn.LSTM`, `nn.GRU` or `nn.RNN`, which cuDNN "
                "runs at once. For a cell of your own, move the product with the inputs out "
                "of the loop, and compile the loop (`torch.compile`).",
                short="Pass the whole sequence to `nn.LSTM`, `nn.GRU` or `nn.RNN`. For a cell of "
                "your own, compile the loop: `torch.compile(loop)`.",
            ),
        ),
        source="PyTorch documentation: torch.nn.LSTM",
        url="https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
        rules=("TL301",),
        edit=f"host:{{place}}={_CUDNN_HOST_SHARE} + scale:{{place}}={_CUDNN_GPU_SHARE}",
        operators=r"^aten::(?:lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell)$",
        occurs=every(_cells_in_a_row, recurs),
    ),
    Remedy(
        id="expert-loop",
        name="a loop over the experts of a layer",
        title="A loop runs one expert after another",
        shows="One function calls `aten::nonzero` and `aten::index_add_` for each expert, with a "
        "copy to the CPU that blocks for each of them, after `aten::topk` or `aten::one_hot`.",
        not_when="Experts without a grouped kernel, as some that are quantized.",
        fixes=(
            Instead(
                'Transformers 5 and later: `experts_implementation="grouped_mm"`. In a layer of '
                "your own: sort the tokens by expert and call "
                "`torch.nn.functional.grouped_mm` with the offsets on the GPU. Megatron: "
                "`--moe-grouped-gemm`.",
                since="2.10",
                short="Sort the tokens by expert and call `F.grouped_mm`, or with Transformers 5 "
                'pass `experts_implementation="grouped_mm"`.',
            ),
            Instead(
                "Sort the tokens by expert and multiply them in one grouped call "
                "(`torch._grouped_mm`, with the offsets on the GPU). Megatron: "
                "`--moe-grouped-gemm`.",
                since="2.8",
                short="Sort the tokens by expert and multiply them in one call: "
                "`torch._grouped_mm`, with the offsets on the GPU.",
            ),
            Instead(
                "Give each expert the same number of tokens and multiply them as a batch "
                "(`torch.bmm`), or use a library with grouped kernels. Megatron: "
                "`--moe-grouped-gemm`.",
                short="Give each expert the same number of tokens and multiply them as a batch: "
                "`torch.bmm(tokens, weights)`.",
            ),
        ),
        source="Transformers source: integrations/moe.py",
        url="https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/"
        "moe.py",
        rules=("TL101", "TL102", "TL301"),
        edit="unblock:{place} + fuse:{place}",
        occurs=_expert_loops,
    ),
    Remedy(
        id="autocast-again",
        name="weights that autocast casts again and again",
        title="Autocast casts the same weights again and again",
        shows="Two or more `aten::to` directly inside `aten::linear` or a convolution, for each "
        "call of one module in a step, or in each step of inference.",
        not_when="The weights change inside the autocast block, or each is used once in training.",
        fixes=(
            Instead(
                "Inference: `model.to(torch.bfloat16)` once, without autocast. Training: one "
                "autocast block around the whole forward pass, not one for each call, and never "
                "`cache_enabled=False`.",
                short="Use one autocast block around the whole forward pass. For inference, "
                "convert once instead: `model.to(torch.bfloat16)`.",
            ),
        ),
        source="PyTorch source: aten/src/ATen/autocast_mode.cpp",
        url="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.cpp",
        rules=("TL301",),
        edit="remove:{place}",
        operators=_TAKES_WEIGHTS,
        occurs=_casts_again,
    ),
    Remedy(
        id="log-each-step",
        name="a log or a progress bar in each step",
        title="The program writes a log or a progress bar in each step",
        shows="Functions of tqdm, rich, logging, wandb, TensorBoard, MLflow or json take 1 % of "
        "the steps or more while the GPU waits.",
        not_when="The time is in reading a number from the GPU: that is a finding of its own.",
        fixes=(
            Instead(
                "Write every N steps, and draw the bar less often: `tqdm(..., mininterval=5)`, "
                "`Trainer(log_every_n_steps=50, enable_progress_bar=False)`, "
                "`TrainingArguments(logging_steps=50, disable_tqdm=True)`.",
                short="Write every N steps: `tqdm(loader, mininterval=5)`, "
                "`Trainer(log_every_n_steps=50)`, `TrainingArguments(logging_steps=50)`.",
            ),
        ),
        source="Lightning documentation: speed up model training",
        url="https://lightning.ai/docs/pytorch/stable/advanced/speed.html",
        rules=("TL301",),
        edit="remove:{place}",
        frames=r"(?:^|/)(?:tqdm/(?:std|asyncio|notebook)\.py\(\d+\): (?:refresh|display|update"
        r"|set_postfix\w*|set_description\w*|write)|rich/(?:console|live|progress)\.py\(\d+\): "
        r"(?:print|refresh|update|log)|logging/__init__\.py\(\d+\): _?log"
        r"|wandb/sdk/wandb_run\.py\(\d+\): (?:_?log|_partial_history_callback)"
        r"|(?:torch/utils/tensorboard|tensorboardX)/writer\.py\(\d+\): add_\w+"
        r"|mlflow/\w+/\w+\.py\(\d+\): log_\w+|json/__init__\.py\(\d+\): dumps?)$",
        occurs=every(recurs, _takes_time),
    ),
)
