"""Remedies of backward passes that train nothing, or repeat the forward pass."""

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import AUTOGRAD, annotation, operator, python
from tracelab.findings.remedies.recognizers import named
from tracelab.model.trace import Category

ENGINE = "autograd::engine::evaluate_function: "
NODE = ENGINE + "AddmmBackward0"
ACCUMULATE = ENGINE + "torch::autograd::AccumulateGrad"
STORED, ADDED = "aten::detach", "aten::add_"


class Pass:
    """A backward pass that begins so many us after the step does."""

    def __init__(self, program, at, *, frames=False):
        self._program, self._at = program, at + 100
        if frames:
            name = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
            program.add(python, name, at, at + 900)
        else:
            program.add(operator, "aten::ones_like", at, at + 10)

    def node(self, products=2, name=NODE):
        self._program.add(operator, name, self._at, self._at + 60, thread=AUTOGRAD)
        for i in range(products):
            start = self._at + 5 + 20 * i
            self._program.add(operator, "aten::mm", start, start + 15, thread=AUTOGRAD)
        self._program.add(operator, "aten::sum", self._at + 48, self._at + 55, thread=AUTOGRAD)
        self._at += 70
        return self

    def gradients(self, *stored_or_added):
        for how in stored_or_added:
            self._program.add(operator, ACCUMULATE, self._at, self._at + 20, thread=AUTOGRAD)
            self._program.add(operator, how, self._at + 5, self._at + 15, thread=AUTOGRAD)
            self._at += 30
        return self


def optimizer(program, at):
    program.add(annotation, "Optimizer.step#AdamW.step", at, at + 100)


def frozen_backbone(*, added=ADDED, frames=False, steps=True):
    """The head's weight and bias, then two layers of a backbone that the optimizer has not."""

    def run(program):
        backward = Pass(program, 1_000, frames=frames)
        backward.node().gradients(STORED, STORED)
        backward.node().gradients(added).node(products=1).gradients(added)
        if steps:
            optimizer(program, 3_000)

    return run


@pytest.mark.parametrize("frames", [True, False])
def test_all_that_follows_the_last_gradient_that_is_used(frames):
    # Two nodes and two gradients a step; what a recording begins with is like what follows.
    assert recognized(frozen_backbone(frames=frames)) == {"untrained-gradients": 4 * 5}


@pytest.mark.parametrize(
    "run",
    [
        frozen_backbone(added=STORED),  # all are trained
        frozen_backbone(steps=False),  # the file does not say when an optimizer uses them
    ],
)
def test_gradients_that_are_cleared_are_used(run):
    assert recognized(run) == {}


def test_gradients_that_are_cleared_to_zero_are_all_added():
    def run(program):
        Pass(program, 1_000).node().gradients(ADDED, ADDED).node().gradients(ADDED)
        optimizer(program, 3_000)

    assert recognized(run) == {}


def generator(products=2, discriminator=(STORED, STORED)):
    """A discriminator's step, and a generator's whose loss passes through the discriminator."""

    def run(program):
        Pass(program, 1_000).node().gradients(*discriminator)
        optimizer(program, 3_000)
        backward = Pass(program, 4_000)
        backward.node(products).gradients(ADDED, ADDED).node().gradients(STORED)
        optimizer(program, 6_000)

    return run


@pytest.mark.parametrize("products", [1, 2])
def test_only_the_gradient_of_the_weight_is_for_nothing_before_one_that_is_used(products):
    # Two additions, and of the discriminator's node the second product, for the first one goes on,
    # and the sum that is the bias's gradient.
    assert recognized(generator(products)) == {"untrained-gradients": 4 * 5}


def test_gradients_that_only_some_steps_use_are_not_told_apart():
    # Five were cleared before, two are added to: three of them may be used by a later step.
    assert recognized(generator(discriminator=[STORED] * 5)) == {}


def test_where_no_pass_begins_nothing_is_told():
    def run(program):
        frozen_backbone()(program)
        program.add(python, "train.py(3): train", 900, 3_200)

    assert recognized(run) == {}


def test_two_losses_of_one_step_add_up():
    def run(program):
        Pass(program, 1_000).node().gradients(STORED).node().gradients(STORED)
        Pass(program, 4_000).node().gradients(STORED).node().gradients(ADDED)
        optimizer(program, 7_000)

    assert recognized(run) == {}


def test_a_pass_that_stores_no_gradient_is_not_the_first():
    # A critic's gradient penalty; its loss also goes back through the generator.
    def run(program):
        Pass(program, 1_000).node()
        Pass(program, 4_000).node().gradients(STORED).node().gradients(ADDED, ADDED)
        optimizer(program, 7_000)

    assert recognized(run) == {"untrained-gradients": 5 * 3}


def critic(program):
    """Two passes through a critic, one through its generator, and what a penalty adds to it."""
    backward = Pass(program, 1_000)
    backward.node().gradients(STORED).node().gradients(STORED)
    backward.node().gradients(ADDED).node().gradients(ADDED)
    backward.node().gradients(STORED)
    optimizer(program, 3_000)


def numbered(*numbers):
    """The "args" of the nodes of each step: number and thread of the operator that each is of."""

    def arguments(trace, event_ids):
        nodes = named(trace, NODE.__eq__, Category.OPERATOR).tolist()
        known = {node: numbers[i % len(numbers)] for i, node in enumerate(nodes)}
        return {
            event: {"Sequence number": known[event][0], "Fwd thread id": known[event][1]}
            for event in event_ids
            if known[event] is not None
        }

    return arguments


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        # Both additions, and of each node the second product and the sum.
        (None, 6),
        # The nodes as well: 1 and 2 ran before 8, the first operator with a gradient that is used.
        (numbered((9, 1), (8, 1), (2, 1), (1, 1), (9, 1)), 8),
        # What is used last was used first.
        (numbered((9, 1), (8, 1), (2, 1), (1, 1), (0, 1)), 6),
        # Of another thread, or not known: nothing says which came first.
        (numbered((9, 1), (8, 1), (2, 1), (1, 1), (9, 0)), 6),
        (numbered((9, 1), (8, 1), (2, 1), (1, 1), None), 6),
    ],
)
def test_what_ran_before_the_first_use_of_a_trained_parameter(arguments, found):
    assert recognized(critic, arguments=arguments) == {"untrained-gradients": 5 * found}


def checkpointed(node, *inside, frames=False):
    """A node of the backward pass with operators inside it, and maybe the function around some."""

    def run(program):
        program.add(operator, ENGINE + node, 1_000, 1_900, thread=AUTOGRAD)
        program.add(operator, node, 1_010, 1_890, thread=AUTOGRAD)
        for i, name in enumerate(inside):
            at = 1_100 + 100 * i
            program.add(operator, name, at, at + 90, thread=AUTOGRAD)
        if frames:
            name = "torch/utils/checkpoint.py(1588): recompute_fn"
            program.add(python, name, 1_050, 1_299, thread=AUTOGRAD)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        # What the node does by itself follows the forward pass.
        (
            checkpointed(
                "MulBackward0", "aten::view", "aten::linear", "aten::native_layer_norm_backward"
            ),
            2,
        ),
        (checkpointed("MulBackward0", "aten::linear", "aten::mul", frames=True), 1),
        (checkpointed("CheckpointFunctionBackward", "aten::mul", "aten::linear", NODE), 2),
        (checkpointed("MulBackward0", "aten::mul"), 0),
        (checkpointed("LossFunctionBackward", "aten::linear"), 0),  # a function of the program's
    ],
)
def test_the_forward_pass_again(run, found):
    assert recognized(run) == ({"checkpoint-recompute": 5 * found} if found else {})
