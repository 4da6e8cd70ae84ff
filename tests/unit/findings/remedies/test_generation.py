"""The remedy of passes over a whole sequence for each token: steps of one pass of 24 kernels."""

import pytest

from tests.build.remedy_programs import LENGTH, recognized
from tests.build.rows import operator, python

FOUND = "no-key-value-cache"
KERNELS, BATCH = 24, 4


def run_pass(program):
    program.add(python, "nn.Module: GPT_0", 100, 5_000)
    program.add(python, "nn.Module: Block_0", 110, 4_990)
    for i in range(KERNELS):
        program.launch(200 + 100 * i, 205 + 100 * i)


def train(program):
    run_pass(program)
    program.add(operator, "autograd::engine::evaluate_function: MmBackward0", 5_100, 5_200)


def blocks(lengths, growing=KERNELS):
    """The "args" of kernels, of which so many have a block for each token of the sequences."""

    def arguments(trace, event_ids):
        known = {}
        for i, event in enumerate(event_ids):
            length = lengths[int(trace.start_ns[event]) // LENGTH]
            known[event] = {"grid": [length * BATCH if i % KERNELS < growing else 7, 1, 1]}
        return known

    return arguments


@pytest.mark.parametrize(
    ("lengths", "found"),
    [
        ([100, 101, 102, 103, 104], {FOUND: 4}),
        ([100, 101, 102, 100, 101], {FOUND: 2}),  # another sequence begins
        ([100, 101, 103, 104, 106], {}),
        ([100, 100, 100, 100, 100], {}),
        ([104, 103, 102, 101, 100], {}),
    ],
)
def test_passes_for_one_token_more_than_the_one_before(lengths, found):
    assert recognized(run_pass, arguments=blocks(lengths)) == found


@pytest.mark.parametrize(("steps", "found"), [(3, {FOUND: 2}), (2, {})])
def test_two_passes_may_grow_by_chance(steps, found):
    assert recognized(run_pass, steps=steps, arguments=blocks([9, 10, 11])) == found


@pytest.mark.parametrize(("growing", "found"), [(6, {FOUND: 4}), (5, {})])
def test_a_quarter_of_the_kernels_grow(growing, found):
    # Where keys and values are kept, those grow that read and write them.
    arguments = blocks([100, 101, 102, 103, 104], growing)
    assert recognized(run_pass, arguments=arguments) == found


def test_sequences_of_training_may_grow():
    arguments = blocks([100, 101, 102, 103, 104])
    assert recognized(train, arguments=arguments) == {}


@pytest.mark.parametrize("grid", [None, "9", [400, 1], [400, 1, "1"], [0, 1, 1], [1 << 40, 1, 1]])
def test_what_is_no_grid_says_nothing(grid):
    def arguments(trace, event_ids):  # noqa: ARG001
        return {event: {"grid": grid} for event in event_ids}

    assert recognized(run_pass, arguments=arguments) == {}
