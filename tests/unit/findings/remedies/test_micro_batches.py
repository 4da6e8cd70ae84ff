"""Small micro-batches: backward passes alike before each step of an optimizer."""

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import annotation, python

RUN_BACKWARD = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"


def accumulates(*launches_of_each, optimizer=True):
    """A step of micro-batches, each a module and a backward pass with so many launches."""

    def run(program):
        for number, launches in enumerate(launches_of_each):
            at = 100 + 1_000 * number
            program.add(python, "nn.Module: Sequential_0", at, at + 300)
            program.add(python, "nn.Module: Linear_0", at + 10, at + 290)
            program.add(python, RUN_BACKWARD, at + 400, at + 900)
            for i in range(launches):
                program.launch(at + 410 + 20 * i, at + 415 + 20 * i)
        if optimizer:
            program.add(annotation, "Optimizer.step#AdamW.step", 8_000, 9_000)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (accumulates(10, 12, 12), {"small-micro-batches": 30}),  # a module and a backward pass each
        (accumulates(10, 10), {}),
        (accumulates(10, 10, 16), {}),
        (accumulates(10, 10, 10, optimizer=False), {}),
    ],
    ids=["three", "two losses", "they differ", "no optimizer"],
)
def test_micro_batches_alike(run, found):
    assert recognized(run) == found


def trainer(*, steps_inside):
    """A loop that calls a function for each micro-batch, which holds all of it."""

    def run(program):
        program.add(python, "trainer.py(9): loop", 50, 9_500)
        program.add(python, "trainer.py(3): load", 60, 90)
        for number in range(3):
            at = 100 + 1_000 * number
            program.add(python, "trainer.py(5): training_step", at, at + 950)
            program.add(python, "torch/_tensor.py(570): backward", at + 350, at + 940)
        accumulates(10, 10, 10, optimizer=not steps_inside)(program)
        if steps_inside:
            program.add(annotation, "Optimizer.step#AdamW.step", 3_020, 3_040)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        # What the loop calls for each, a module and a pass; not what it calls before the first one.
        (trainer(steps_inside=False), {"small-micro-batches": 5 * 9}),
        # What holds a step of the optimizer is not for the batch alone.
        (trainer(steps_inside=True), {"small-micro-batches": 5 * 8}),
    ],
)
def test_what_else_is_called_for_micro_batches(run, found):
    assert recognized(run) == found


def test_microbatches_of_a_pipeline_are_no_accumulation():
    schedule = python("torch/distributed/pipelining/schedules.py(700): step", 1, 2)
    assert recognized(accumulates(10, 10, 10), outside=[schedule]) == {}
