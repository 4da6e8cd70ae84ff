"""Remedies of debug switches and of Python's garbage collector."""

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import AUTOGRAD, operator, python

NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def backward(checked, nodes=4):
    """Nodes of the backward pass, of which some are looked at for NaN."""

    def run(program):
        for i in range(nodes):
            at = 100 + 200 * i
            program.add(operator, f"{NODE[:-1]}{i}", at, at + 180, thread=AUTOGRAD)
            if i < checked:
                program.add(operator, "aten::isnan", at + 50, at + 60, thread=AUTOGRAD)
                program.add(operator, "aten::_is_any_true", at + 70, at + 90, thread=AUTOGRAD)
                program.add(operator, "aten::any", at + 72, at + 88, thread=AUTOGRAD)
                program.add(operator, "aten::item", at + 100, at + 170, thread=AUTOGRAD)

    return run


@pytest.mark.parametrize(
    ("checked", "found"), [(4, {"anomaly-mode": 60}), (2, {"anomaly-mode": 30}), (1, {})]
)
def test_anomaly_mode_looks_for_nan_after_most_nodes(checked, found):
    # Directly inside each node are three of the four operators: 3 x 4 nodes x 5 steps.
    assert recognized(backward(checked)) == found


def test_anomaly_mode_formats_the_stack_of_each_operator():
    checks = backward(4)

    def run(program):
        checks(program)
        program.add(operator, "aten::addmm", 1_000, 1_500)
        program.add(python, "torch/fx/traceback.py(497): format_stack", 1_010, 1_400)
        program.add(python, "traceback.py(213): format_stack", 1_600, 1_700)  # of the program

    assert recognized(run) == {"anomaly-mode": 65}


@pytest.mark.parametrize(
    ("around", "launches", "found"),
    [
        ("aten::empty", True, {"deterministic-fill": 5}),
        ("aten::empty_strided", True, {"deterministic-fill": 5}),
        ("aten::zeros", True, {}),
        ("aten::empty", False, {}),
    ],
)
def test_memory_that_deterministic_mode_fills(around, launches, found):
    def run(program):
        program.add(operator, around, 100, 200)
        program.add(operator, "aten::fill_", 110, 190)
        if launches:
            program.launch(120, 130)

    assert recognized(run) == found


def launching(*, after_kernel, launches=40):
    """Launches of which so many in each step return only after their kernel has ended."""

    def run(program):
        for i in range(launches):
            at = 100 + 100 * i
            program.add(operator, "aten::add", at, at + 90)
            ends = at + (80 if i < after_kernel else 15)
            program.launch(at + 10, ends, after=10, lasts=20)

    return run


@pytest.mark.parametrize(("after_kernel", "found"), [(40, True), (38, False), (0, False)])
def test_launches_that_wait_for_their_kernel(after_kernel, found):
    # With the kernel that ends a step, 40 of 41 wait (98 %), or 38 (93 %).
    assert ("blocking-launches" in recognized(launching(after_kernel=after_kernel))) == found


@pytest.mark.parametrize(
    ("in_steps", "found"), [((1, 2), {"collected-each-step": 2}), ((0, 2), {})]
)
def test_collections_that_the_program_asks_for(in_steps, found):
    def run(program):
        program.add(python, "<built-in function collect>", 100, 9_000)

    assert recognized(run, in_steps=in_steps) == found


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ([], {"perhaps-garbage-collection": 1}),
        ([("<built-in function sleep>", 110, 15_900)], {}),
        ([("Python GC", 16_100, 16_200)], {}),
        ([("train.py(9): log", 8_000, 8_010)], {}),
    ],
    ids=["silent", "sleeps", "collections are recorded", "does something"],
)
def test_a_silent_function_may_have_collected(more, found):
    def run(program):
        program.add(python, "train.py(3): step", 100, 16_000)
        for name, start, end in more:
            program.add(python, name, start, end)

    assert recognized(run, in_steps=(2,)) == found
