"""Optimizers, averages of parameters and gradient scaling that launch or read too much."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    NO_EVENTS,
    blocks,
    calls_of_copies,
    chosen,
    counts_inside,
    every,
    holds,
    launches,
    made_by,
    outside,
    recurs,
    step_indices,
    without_functions,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.frames import is_backward, is_engine_operator
from tracelab.model.graph import Graph
from tracelab.model.lookup import match_names
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT

_FEWEST_LAUNCHES = 40  # a step: fewer are not worth another optimizer
_FEWEST_LIST_LAUNCHES = 5  # a step: Adam has eight at least, SGD without momentum one
# Of a loop over parameters, with nothing else in between: operators, and those that write in place.
_FEWEST_OPERATORS, _FEWEST_UPDATES = 16, 6
_TORCH_LOOP = r"torch/optim/\w+\.py\(\d+\): _single_tensor_(?!muon)\w+$"
_LIST_LOOP = r"torch/optim/(?:adam|adamw|sgd)\.py\(\d+\): _(?:multi|single)_tensor_\w+$"
_SCALED_STEP = r"torch/(?:cuda/)?amp/grad_scaler\.py\(\d+\): _maybe_opt_step$"
_STEP = r"^Optimizer\.step#"
_OF_TORCH = r"^Optimizer\.step#|^(?:DistributedDataParallel|FullyShardedDataParallel|FSDP)\b"
_SPARSE = r"^aten::_?(?:sparse|coalesce)"
_LISTS = r"^aten::_(?:foreach|fused)_"
_TAKES_A_PART = re.compile(r"^aten::(?:select|slice|narrow|index|unbind)$")
_UPDATE = re.compile(r"^aten::(?:lerp_|copy_|mul_|add_|sub_)$")
_ELEMENTWISE = re.compile(r"^aten::(?:lerp|copy|mul|add|sub|rsub|div|to|_to_copy|clone)_?$")
_TORCH_OPTIM = "PyTorch documentation: torch.optim"
_TORCH_OPTIM_URL = "https://docs.pytorch.org/docs/stable/optim.html"
_AMP_URL = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html"


def _without_closure(graph: Graph, events: Int64Array) -> Int64Array:
    """The optimizer steps during which no backward pass ran, as of a closure's."""
    timeline = graph.host.timeline
    trace, operators = timeline.trace, timeline.operators
    backward = operators.event_id[operators.have_name(is_engine_operator)]
    starts_ns = np.sort(trace.start_ns[backward])
    first, end = (
        np.searchsorted(starts_ns, times)
        for times in (trace.start_ns[events], trace.end_ns[events])
    )
    return chosen(events, first == end)


def _updates_one_by_one(graph: Graph, _events: Int64Array) -> Int64Array:
    """Operators that update many tensors, one after another, with nothing else in between.

    Of each thread and step those that launch work, in order: every run of elementwise operators in
    which several write in place. Not those of optimizers, of the backward pass
    and of the buffers that DDP broadcasts, and not copies from or to the host.
    """
    timeline = graph.host.timeline
    trace, operators = timeline.trace, timeline.operators
    is_outermost = operators.parent_index == ABSENT
    update = operators.event_id[is_outermost & operators.have_name(_UPDATE.match)]
    if len(update) < _FEWEST_UPDATES:
        return NO_EVENTS
    outer = operators.event_id[is_outermost]
    launching = timeline.launch_id[timeline.launch_id != ABSENT]
    # What takes parts of a sequence, as `values[t] = ...`, is no loop over parameters.
    takes_a_part = match_names(trace, outer, _TAKES_A_PART.match)
    outer = outer[takes_a_part | (counts_inside(trace, outer, launching) > 0)]
    outer = outer[np.lexsort((trace.start_ns[outer], trace.thread_index[outer]))]
    is_chosen = match_names(trace, outer, _ELEMENTWISE.match)
    for direction in ("h2d", "d2h"):
        calls = calls_of_copies(timeline, direction, None)
        is_chosen &= counts_inside(trace, outer, calls) == 0
    is_chosen &= np.isin(outer, outside(_OF_TORCH)(graph, outer))
    begins = np.diff(is_chosen, prepend=False)
    for same in (trace.thread_index[outer], step_indices(graph, outer)):
        begins |= np.diff(same, prepend=same[:1]) != 0
    run = np.cumsum(begins)
    runs = int(begins.sum()) + 1
    is_update = is_chosen & np.isin(outer, update)
    is_chosen &= np.bincount(run[is_update], minlength=runs)[run] >= _FEWEST_UPDATES
    is_chosen &= np.bincount(run[is_chosen], minlength=runs)[run] >= _FEWEST_OPERATORS
    return recurs(graph, outer[is_chosen])


def _with_optimizer(graph: Graph, events: Int64Array) -> Int64Array:
    """Some events, and the updates that a fused optimizer makes in one launch."""
    frames = python_frames(graph.host.timeline)
    is_update = frames.have_name(re.compile(_LIST_LOOP).search)
    is_step = frames.have_name(re.compile(_SCALED_STEP).search)
    index = np.flatnonzero(is_update & (len(events) > 0))
    inside = frames.around(index, is_step) != ABSENT
    return np.concatenate((events, frames.event_id[index[inside]]))


def _with_additions(graph: Graph, events: Int64Array) -> Int64Array:
    """Zeroed gradients, and the additions to them in the backward pass that follows.

    What is not zeroed but dropped is assigned by the first backward pass, not added to.
    """
    timeline = graph.host.timeline
    trace, frames, operators = timeline.trace, python_frames(timeline), timeline.operators
    passes = frames.event_id[frames.have_name(is_backward)]
    if not len(passes) or not len(events):
        return events
    passes = passes[np.argsort(trace.start_ns[passes])]
    following = np.searchsorted(trace.start_ns[passes], trace.end_ns[events])
    passes = passes[following[following < len(passes)]]
    is_addition = operators.have_name(lambda name: name == "aten::add_")
    accumulates = operators.have_name(lambda name: name == "torch::autograd::AccumulateGrad")
    is_addition &= np.append(accumulates, False)[operators.parent_index]
    additions = operators.event_id[is_addition]
    starts_ns = trace.start_ns[additions]
    is_inside = np.zeros(len(additions), dtype=np.bool_)
    for begins_ns, ends_ns in zip(trace.start_ns[passes], trace.end_ns[passes], strict=True):
        is_inside |= (starts_ns >= begins_ns) & (starts_ns < ends_ns)
    return np.concatenate((events, additions[is_inside]))


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="optimizer-loop",
        name="an optimizer that updates one parameter at a time",
        title="The optimizer updates one parameter at a time",
        shows="`_single_tensor_adam`, or another optimizer's, runs in `Optimizer.step#`, with a "
        "set of small kernels for each parameter.",
        not_when="The optimizer must be differentiable, or parameters are complex or of a tensor "
        "subclass. The fused and the foreach form exclude each other.",
        fixes=(
            Instead(
                "Pass `fused=True` to the optimizer (Adam, AdamW, SGD), else `foreach=True`. "
                "`foreach` is the default on the GPU: find what switched it off "
                "(`differentiable=True`, `foreach=False`, a parameter on the CPU).",
                since="2.3",
                short="Pass `fused=True` to the optimizer (Adam, AdamW, SGD), `foreach=True` to "
                "others.",
            ),
            Instead(
                "Pass `fused=True` to Adam or AdamW, `foreach=True` to other optimizers. "
                "`foreach` is the default on the GPU: find what switched it off.",
                since="2.0",
                short="Pass `fused=True` to Adam or AdamW, `foreach=True` to other optimizers.",
            ),
            Instead("Pass `foreach=True` to the optimizer.", since="1.12"),
        ),
        source=_TORCH_OPTIM,
        url=_TORCH_OPTIM_URL,
        rules=("TL301",),
        edit="fuse:{place}",
        frames=_TORCH_LOOP,
        occurs=every(holds(_SPARSE, is_wanted=False), launches(_FEWEST_LAUNCHES)),
    ),
    Remedy(
        id="optimizer-step-loop",
        name="an optimizer's step of many small kernels",
        title="The optimizer's step launches many small kernels",
        shows="`Optimizer.step#` holds 40 launches or more, and neither `aten::_foreach_` nor "
        "`aten::_fused_` operators.",
        not_when="A closure computes gradients inside the step, as of L-BFGS.",
        fixes=(
            Instead(
                "Use an optimizer of `torch.optim` with `fused=True` (Adam, AdamW, SGD) or "
                "`foreach=True`. In an optimizer of your own, update lists of tensors "
                "(`torch._foreach_add_`), or compile its step (`torch.compile(optimizer.step)`).",
                since="2.3",
                short="Use an optimizer of `torch.optim` with `fused=True` or `foreach=True`, or "
                "compile the step: `torch.compile(optimizer.step)`.",
            ),
            Instead(
                "Use an optimizer of `torch.optim` with `foreach=True`, or update lists of tensors "
                "in an optimizer of your own (`torch._foreach_add_`)."
            ),
        ),
        source=_TORCH_OPTIM,
        url=_TORCH_OPTIM_URL,
        rules=("TL301",),
        edit="fuse:{place}",
        operators=_STEP,
        occurs=every(
            holds(_LISTS, is_wanted=False),
            holds(_SPARSE, is_wanted=False),
            without_functions(_TORCH_LOOP),
            _without_closure,
            launches(_FEWEST_LAUNCHES),
        ),
    ),
    Remedy(
        id="optimizer-foreach",
        name="an optimizer with a fused form that is not used",
        title="The optimizer updates lists of parameters, operation by operation",
        shows="`_multi_tensor_adam`, or that of AdamW or SGD, launches five kernels or more a step "
        "through `aten::_foreach_` operators, and the GPU waits for the CPU.",
        not_when="The GPU is busy during the step anyway, or parameters are of a tensor subclass.",
        fixes=(
            Instead(
                "Pass `fused=True` to the optimizer: one kernel for each list of parameters.",
                since="2.3",
            ),
            Instead(
                "Pass `fused=True` if it is Adam or AdamW: one kernel for each list of parameters.",
                since="2.0",
            ),
        ),
        source=_TORCH_OPTIM,
        url=_TORCH_OPTIM_URL,
        rules=("TL301",),
        edit="fuse:{place}",
        frames=r"torch/optim/(?:adam|adamw|sgd)\.py\(\d+\): _multi_tensor_\w+$",
        occurs=launches(_FEWEST_LIST_LAUNCHES),
    ),
    Remedy(
        id="optimizer-step-on-gpu",
        name="an optimizer that reads its step count from the GPU",
        title="The optimizer reads its step count from the GPU for each parameter",
        shows="`_get_value` of torch/optim/optimizer.py calls `.item()` on a GPU tensor, once or "
        "twice a parameter, as a rule after a checkpoint was loaded.",
        not_when="The optimizer is `capturable` for a CUDA graph: then it does not read.",
        fixes=(
            Instead(
                "Move the counts back to the CPU after loading: `for s in "
                'optimizer.state.values(): s["step"] = s["step"].cpu()`. Or pass `fused=True` or '
                "`capturable=True`, which leave them on the GPU.",
                since="2.0",
                short="Move the counts to the CPU after loading: `for s in "
                'optimizer.state.values(): s["step"] = s["step"].cpu()`.',
            ),
            Instead(
                "Move the counts back to the CPU after loading: `for s in "
                'optimizer.state.values(): s["step"] = s["step"].cpu()`.'
            ),
        ),
        source="PyTorch issue 128208",
        url="https://github.com/pytorch/pytorch/issues/128208",
        rules=("TL101",),
        edit="unblock:{place}",
        frames=r"torch/optim/\w+\.py\(\d+\): _get_value$",
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="update-loop",
        name="a loop that updates one tensor at a time, as of a moving average",
        title="A loop updates one tensor at a time",
        shows="Runs of `aten::lerp_`, `aten::copy_`, `aten::mul_` or `aten::add_` of many tensors "
        "in each step, outside the optimizer: an EMA, a target network, a manual update.",
        not_when="The tensors are on the CPU, or the copy is sharded differently.",
        fixes=(
            Instead(
                "Update all tensors at once: `torch._foreach_lerp_(averages, parameters, 1 - "
                "decay)`, `torch._foreach_copy_(...)`, with both lists made once; or "
                "`AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))`.",
                since="2.1",
                short="Update all tensors at once: `torch._foreach_lerp_(averages, parameters, 1 "
                "- decay)` or `torch._foreach_copy_(targets, sources)`.",
            ),
            Instead(
                "Update all tensors at once: `torch._foreach_mul_(averages, decay)`, "
                "`torch._foreach_add_(averages, parameters, alpha=1 - decay)`."
            ),
        ),
        source="PyTorch documentation: torch.optim, weight averaging",
        url="https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema",
        rules=("TL301",),
        edit="fuse:{place}",
        occurs=_updates_one_by_one,
    ),
    Remedy(
        id="zero-grad-zeros",
        name="gradients that are set to zero instead of dropped",
        title="The program fills the gradients with zeros in each step, and adds to them",
        shows="`Optimizer.zero_grad#` runs `aten::zero_` or `aten::_foreach_zero_`.",
        not_when="A CUDA graph needs gradients at fixed addresses, DDP has "
        "`gradient_as_bucket_view=True`, or code reads `.grad` as zeros.",
        fixes=(
            Instead(
                "Pass `set_to_none=True` to `optimizer.zero_grad`; from PyTorch 2.0 on it is the "
                "default.",
                since="1.7",
            ),
        ),
        source="PyTorch Performance Tuning Guide",
        url="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        rules=("TL301",),
        edit="remove:{place}",
        operators=r"^Optimizer\.zero_grad#",
        occurs=every(holds(r"^aten::(?:_foreach_)?zero_$"), launches(1), _with_additions),
    ),
    Remedy(
        id="clip-loop",
        name="gradient clipping, one tensor at a time",
        title="Gradient clipping works on one tensor at a time",
        shows="`clip_grad_norm_` launches 40 kernels or more, and runs no `aten::_foreach_norm`.",
        not_when="Gradients are on the CPU or of a tensor subclass.",
        fixes=(
            Instead(
                "Leave `foreach` at its default in `torch.nn.utils.clip_grad_norm_`, or pass "
                "`foreach=True` to see what keeps it from being used.",
                since="2.0",
            ),
            Instead(
                "Clip lists: `norms = torch._foreach_norm(grads)`, then "
                "`torch._foreach_mul_(grads, coefficient)`.",
                since="1.12",
            ),
        ),
        source="PyTorch documentation: torch.nn.utils.clip_grad_norm_",
        url="https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        rules=("TL301",),
        edit="fuse:{place}",
        frames=r"torch/nn/utils/clip_grad\.py\(\d+\): clip_grad_norm_$",
        occurs=every(holds(r"^aten::_foreach_", is_wanted=False), launches(_FEWEST_LAUNCHES)),
    ),
    Remedy(
        id="clip-nonfinite",
        name="gradient clipping that checks the norm for finite values",
        title="Gradient clipping checks whether the norm is finite, and the CPU waits",
        shows="`clip_grad_norm_` runs `aten::is_nonzero` on the total norm.",
        not_when="The run must stop at once where a gradient is not finite: check it every N "
        "steps.",
        fixes=(
            Instead(
                "Leave `error_if_nonfinite=False`, the default. To catch bad norms, keep the one "
                "that `clip_grad_norm_` returns on the GPU and read it every N steps.",
                short="Pass `error_if_nonfinite=False` (the default) to `clip_grad_norm_`, and "
                "check the norm that it returns every N steps.",
            ),
        ),
        source="PyTorch documentation: torch.nn.utils.clip_grad_norm_",
        url="https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        rules=("TL101", "TL301"),
        edit="remove:{place}",
        frames=r"torch/nn/utils/clip_grad\.py\(\d+\): (?:_?get_total_norm|clip_grad_norm_)$",
        operators=r"^aten::(?:is_nonzero|logical_or|isnan|isinf)$",
        occurs=recurs,
    ),
    Remedy(
        id="scaler-found-inf",
        name="gradient scaling with an optimizer that cannot skip its step on the GPU",
        title="The gradient scaler reads from the GPU whether to skip the step",
        shows="`_maybe_opt_step` of the gradient scaler calls `.item()` before `Optimizer.step#`.",
        not_when="The optimizer has no fused form, or takes a closure.",
        fixes=(
            Instead(
                "Pass `fused=True` to the optimizer (Adam, AdamW, SGD): it decides on the GPU. Or "
                "train in bfloat16, which needs no scaler.",
                since="2.3",
            ),
            Instead(
                "Pass `fused=True` if it is Adam or AdamW: it decides on the GPU. Or train in "
                "bfloat16, which needs no scaler.",
                since="2.0",
            ),
        ),
        source="PyTorch source: torch/amp/grad_scaler.py, and issue 80167",
        url="https://github.com/pytorch/pytorch/issues/80167",
        rules=("TL101",),
        edit="unblock:{place} + fuse:{place}",
        frames=_SCALED_STEP,
        operators=r"^aten::item$",
        occurs=every(outside(_STEP), blocks, recurs, _with_optimizer),
    ),
    Remedy(
        id="scaler-get-scale",
        name="a gradient scale that is read in each step",
        title="The program reads the scale of the gradient scaler in each step",
        shows="`get_scale` of the gradient scaler calls `.item()`.",
        not_when="The program must know in this step whether the last one was skipped.",
        fixes=(Instead("Read `scaler.get_scale()` every N steps, for the log only."),),
        source="PyTorch documentation: automatic mixed precision",
        url=_AMP_URL,
        rules=("TL101",),
        edit="unblock:{place}",
        frames=r"torch/(?:cuda/)?amp/grad_scaler\.py\(\d+\): (?:get_scale|state_dict)$",
        operators=r"^aten::item$",
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="scheduler-reads-loss",
        name="a learning-rate schedule that reads the loss in each step",
        title="The learning-rate schedule reads the loss from the GPU in each step",
        shows="`step` of torch/optim/lr_scheduler.py converts a GPU tensor: `aten::item`.",
        not_when="The schedule must react to each step's loss.",
        fixes=(
            Instead(
                "Call `ReduceLROnPlateau.step(loss)` once an epoch, or with a mean that is read "
                "every N steps."
            ),
        ),
        source="PyTorch documentation: ReduceLROnPlateau",
        url="https://docs.pytorch.org/docs/stable/generated/"
        "torch.optim.lr_scheduler.ReduceLROnPlateau.html",
        rules=("TL101",),
        edit="unblock:{place}",
        frames=r"torch/optim/lr_scheduler\.py\(\d+\): step$",
        operators=r"^aten::item$",
        occurs=every(made_by(r"torch/optim/lr_scheduler\.py\(\d+\): step$"), blocks, recurs),
    ),
)
