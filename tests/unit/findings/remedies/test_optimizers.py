"""Optimizers, averages and gradient scaling: each pitfall, and beside it what is none."""

import pytest

from tests.build.call_trees import (
    LAUNCH,
    annotation,
    backward,
    condition,
    function,
    item,
    operator,
    program,
)
from tests.build.rows import graph
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import recognize

SCHEDULER = "torch/optim/lr_scheduler.py(1696): step"
STEP = "Optimizer.step#AdamW.step"
ZERO_GRAD = "Optimizer.zero_grad#AdamW.zero_grad"
ACCUMULATE = "torch::autograd::AccumulateGrad"
RUN_BACKWARD = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
SINGLE = "torch/optim/adam.py(345): _single_tensor_adam"
LISTS = "torch/optim/adam.py(553): _multi_tensor_adam"
MUON = "torch/optim/_muon.py(308): _single_tensor_muon"
CLIP = "torch/nn/utils/clip_grad.py(184): clip_grad_norm_"
NORM = "torch/nn/utils/clip_grad.py(48): _get_total_norm"
SCALER = "torch/amp/grad_scaler.py(363): _maybe_opt_step"
OLD_SCALER = "torch/cuda/amp/grad_scaler.py(320): _maybe_opt_step"
GET_SCALE = "torch/amp/grad_scaler.py(564): get_scale"
GET_VALUE = "torch/optim/optimizer.py(90): _get_value"
UPDATE = "train.py(40): update"


def kernel_of(name):
    return operator(f"aten::{name}", LAUNCH)


def loop(count=50):
    """An optimizer's, with one kernel for each parameter."""
    return annotation(STEP, function(SINGLE, kernel_of("addcdiv_") * count))


def lists(count=10):
    return annotation(STEP, function(LISTS, kernel_of("_foreach_add_") * count))


def finite_check():
    return (
        operator("aten::isnan", LAUNCH),
        operator("aten::isinf", LAUNCH),
        operator("aten::logical_or", LAUNCH),
        condition(),
    )


def average(count=50, *, between=()):
    """A moving average: two kernels for each parameter."""
    of_one = (kernel_of("mul_"), kernel_of("add_"), *between)
    return function(UPDATE, of_one * count)


@pytest.mark.parametrize(
    ("remedy", "nodes", "events"),
    [
        ("optimizer-loop", [loop()], {SINGLE}),
        ("optimizer-step-loop", [annotation(STEP, kernel_of("lerp_") * 50)], {STEP}),
        (
            "optimizer-step-loop",
            [annotation("Optimizer.step#Muon.step", function(MUON, kernel_of("mm") * 50))],
            {"Optimizer.step#Muon.step"},
        ),
        ("optimizer-foreach", [lists()], {LISTS}),
        ("optimizer-step-on-gpu", [function(SINGLE, function(GET_VALUE, item()))], {GET_VALUE}),
        ("update-loop", [average()], {"aten::mul_", "aten::add_"}),
        ("update-loop", [kernel_of("lerp_") * 50], {"aten::lerp_"}),
        (
            "update-loop",
            [kernel_of("mul") * 50, kernel_of("copy_") * 50],
            {"aten::mul", "aten::copy_"},
        ),
        (
            "zero-grad-zeros",
            [annotation(ZERO_GRAD, kernel_of("_foreach_zero_"))],
            {ZERO_GRAD},
        ),
        (
            "zero-grad-zeros",
            [
                annotation(ZERO_GRAD, kernel_of("zero_")),
                function(RUN_BACKWARD, operator(ACCUMULATE, kernel_of("add_")), kernel_of("add_")),
                function(RUN_BACKWARD, operator(ACCUMULATE, kernel_of("add"))),
            ],
            {ZERO_GRAD, "aten::add_"},
        ),
        ("clip-loop", [function(CLIP, kernel_of("linalg_vector_norm") * 50)], {CLIP}),
        (
            "clip-nonfinite",
            [function(CLIP, function(NORM, finite_check()))],
            {"aten::isnan", "aten::isinf", "aten::logical_or", "aten::is_nonzero"},
        ),
        ("scaler-found-inf", [function(SCALER, item())], {"aten::item"}),
        ("scaler-found-inf", [function(OLD_SCALER, item())], {"aten::item"}),
        ("scaler-found-inf", [function(SCALER, item(), lists())], {"aten::item", LISTS}),
        ("scaler-get-scale", [function(GET_SCALE, item())], {"aten::item"}),
        ("scheduler-reads-loss", [function(SCHEDULER, item())], {"aten::item"}),
    ],
)
def test_recognized(recognized, remedy, nodes, events):
    assert recognized(*nodes)[remedy] == events


@pytest.mark.parametrize(
    ("remedy", "nodes"),
    [
        ("optimizer-loop", [loop(39)]),
        ("optimizer-loop", [function(SINGLE, kernel_of("_sparse_mask"), kernel_of("add_") * 50)]),
        ("optimizer-loop", [lists(100)]),
        ("optimizer-step-loop", [loop()]),  # what it calls is recognized
        ("optimizer-step-loop", [annotation(STEP, kernel_of("_foreach_add_") * 50)]),
        ("optimizer-step-loop", [annotation(STEP, kernel_of("_fused_adamw_") * 50)]),
        ("optimizer-foreach", [lists(4)]),
        ("optimizer-foreach", [function("torch/optim/adam.py(802): _fused_adam", LAUNCH * 20)]),
        ("optimizer-step-on-gpu", [function(SINGLE, function(GET_VALUE, item(LAUNCH)))]),
        ("optimizer-step-on-gpu", [function(SINGLE, item())]),
        ("update-loop", [average(5)]),
        ("update-loop", [average(50, between=(kernel_of("mm"),))]),
        # A recurrence over time, as of advantages: it takes and writes parts of sequences.
        ("update-loop", [(operator("aten::select"), kernel_of("mul"), kernel_of("copy_")) * 50]),
        ("update-loop", [annotation(STEP, kernel_of("add_") * 50)]),
        ("update-loop", [annotation("DistributedDataParallel.forward", kernel_of("copy_") * 50)]),
        ("update-loop", [kernel_of("_foreach_lerp_") * 50]),
        ("zero-grad-zeros", [annotation(ZERO_GRAD)]),
        ("clip-loop", [function(CLIP, kernel_of("_foreach_norm"), LAUNCH * 50)]),
        ("clip-loop", [function(CLIP, LAUNCH * 39)]),
        ("clip-nonfinite", [function(CLIP, function(NORM, LAUNCH))]),
        ("clip-nonfinite", [function("train.py(9): check", finite_check())]),
        ("scaler-found-inf", [function(SCALER, annotation(STEP, item()))]),
        ("scaler-found-inf", [function(SCALER, annotation(STEP, LAUNCH))]),
        ("scaler-get-scale", [function(GET_SCALE)]),
        ("scheduler-reads-loss", [function(SCHEDULER, LAUNCH)]),
    ],
)
def test_not_recognized(recognized, remedy, nodes):
    assert remedy not in recognized(*nodes, LAUNCH)


def test_an_optimizer_whose_closure_runs_backward_is_not_slow_itself(recognized):
    step = annotation(STEP, kernel_of("mm") * 50)
    with_closure = annotation(STEP, kernel_of("mm") * 50, backward(LAUNCH))

    assert "optimizer-step-loop" in recognized(step, backward(LAUNCH))
    assert "optimizer-step-loop" not in recognized(with_closure)


def test_what_one_step_of_several_does_came_by_chance(recognized):
    check = function(CLIP, function(NORM, finite_check()))

    assert "clip-nonfinite" in recognized(LAUNCH, first=[check], steps=1)
    assert "clip-nonfinite" not in recognized(LAUNCH, first=[check], steps=2)


def test_gradients_are_added_to_in_the_first_backward_pass_only():
    # GIVEN two micro-batches for each step of the optimizer
    micro_batch = function(RUN_BACKWARD, operator(ACCUMULATE, kernel_of("add_")))
    rows = program(annotation(ZERO_GRAD, kernel_of("zero_")), micro_batch, micro_batch)

    events = recognize(graph(*rows), REMEDIES).places["zero-grad-zeros"]

    # THEN of each of two steps, what zeroes and one addition
    assert len(events) == 2 * 2
