"""Remedies of first uses, and of what should come once and goes on."""

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import AUTOGRAD, call, operator

CONVOLUTION = "aten::cudnn_convolution"


def tries(program, operator_name=CONVOLUTION):
    program.add(operator, operator_name, 100, 9_000)
    program.add(call, "cudaEventSynchronize", 200, 300)
    program.add(call, "cudaEventSynchronize", 400, 500)


def tries_backward(program):
    tries(program, "aten::convolution_backward")


def plans(program):
    program.add(operator, CONVOLUTION, 100, 9_000)


@pytest.mark.parametrize(
    ("run", "again", "once"),
    [
        (tries, "cudnn-benchmark-again", "first-cudnn-benchmark"),
        (tries_backward, "cudnn-benchmark-again", "first-cudnn-benchmark"),
    ],
)
def test_what_goes_on_and_what_comes_once(run, again, once):
    assert recognized(run, in_steps=(1, 2, 3)) == {again: 3}
    assert recognized(run, in_steps=(0, 1)) == {once: 2}


def test_plans_of_a_convolution_come_once():
    assert recognized(plans, in_steps=(0, 1)) == {"first-cudnn-plan": 2}
    assert recognized(plans, in_steps=(1, 2, 3)) == {}


def slow_first(name, first, later, *, thread=0):
    def run(program):
        program.add(operator, name, 100, 100 + (later if program.number else first), thread=thread)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (slow_first("record_param_comms", 9_000, 100), {"first-communicator": 1}),
        (slow_first("aten::addmm", 2_000, 50), {"first-matrix-product": 1}),
        (slow_first("aten::mm", 2_000, 50, thread=AUTOGRAD), {"first-matrix-product": 1}),
        (slow_first("aten::addmm", 2_000, 201), {}),
        (slow_first("aten::addmm", 900, 50), {}),
        (slow_first("aten::add", 2_000, 50), {}),
    ],
    ids=["collective", "product", "in the backward pass", "not ten times", "short", "no product"],
)
def test_first_calls_that_create_something(run, found):
    assert recognized(run) == found
