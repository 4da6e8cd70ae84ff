"""The remedy of elementwise kernels in a row: of a function, and of its nodes on the way back."""

import re

import pytest

from tests.build.remedy_programs import LENGTH, STEPS, recognized
from tests.build.rows import AUTOGRAD, operator, python
from tracelab.findings.remedies import REMEDIES

CHAINS = [remedy for remedy in REMEDIES if remedy.id == "elementwise-chains"]

FUNCTION, LIBRARY = "train.py(5): distances", "timm/layers/mlp.py(47): forward"
ENGINE = "autograd::engine::evaluate_function: "
SUB, POW = (f"void at::native::elementwise_kernel<2, {x}>(int)" for x in ("sub", "pow"))
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def calling(*kernels, function=FUNCTION, back=(), lasts=100):
    """A function whose operators launch one kernel each; a node of each is numbered as it is."""

    def run(program):
        base = 100 * program.number
        program.add(python, function, 1_000, 1_100 + 200 * len(kernels))
        for i, name in enumerate(kernels):
            at = 1_010 + 200 * i
            program.add(operator, f"aten::op{base + i}", at, at + 150)
            program.launch(at + 5, at + 10, name=name, lasts=lasts)
        for i, (number, name) in enumerate(back):
            at = 6_000 + 200 * i
            program.add(operator, f"{ENGINE}X{base + number}Y", at, at + 150, thread=AUTOGRAD)
            program.launch(at + 5, at + 10, name=name, lasts=lasts, thread=AUTOGRAD)

    return run


def arguments(trace, event_ids):
    names = {event: trace.strings[trace.name_index[event]] for event in event_ids}
    found = {event: re.search(r"(?:op|X)(\d+)", name) for event, name in names.items()}
    return {x: {"Sequence number": int(match[1])} for x, match in found.items() if match}


def launches(run, **more):
    """How many launches are recognized in each step."""
    found = recognized(run, remedies=CHAINS, arguments=arguments, **more)
    return found.get("elementwise-chains", 0) / STEPS


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (calling(SUB, POW, SUM), 3),
        (calling(SUB, POW, GEMM, SUM), 2),  # the last has no neighbor
        (calling(SUB, GEMM, POW), 0),
        (calling(POW, POW, POW), 0),  # a loop of one operator
        (calling(SUB, POW, function=LIBRARY), 0),
        (calling("triton_poi_fused_add_0", "triton_red_fused_sum_1"), 0),
        (calling(SUB, POW, lasts=20), 0),  # 40 of 960 us: less than 5 %
    ],
    ids=["three", "two", "apart", "alike", "library", "compiled", "little"],
)
def test_different_kernels_in_a_row(run, count):
    assert launches(run) == count


def test_the_backward_pass_is_that_of_the_same_operators():
    # Not that of an operator which something else ran, and no product.
    back = ((1, SUM), (0, POW), (0, GEMM), (50, POW))
    assert launches(calling(SUB, POW, back=back)) == 4


def test_the_function_with_the_loop_over_steps_is_not_compiled():
    loop = python("train.py(9): main", 0, STEPS * LENGTH)

    def in_main(program):
        for i, name in enumerate((SUB, POW)):
            program.launch(1_000 + 200 * i, 1_005 + 200 * i, name=name, lasts=100)

    assert launches(in_main, outside=[loop]) == 0
    assert launches(calling(SUB, POW), outside=[loop]) == 2


def test_once_is_not_enough():
    assert launches(calling(SUB, POW), in_steps=(3,)) == 0
