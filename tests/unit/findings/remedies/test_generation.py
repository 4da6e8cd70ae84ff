"""Remedies of models that generate token by token."""

import pytest

from tests.build.remedy_programs import LENGTH, recognized
from tests.build.rows import operator, python

FOUND = "no-key-value-cache"
# A step is a pass of so many kernels.
KERNELS, BATCH = 24, 16


def run_pass(program):
    program.add(python, "nn.Module: GPT_0", 100, 5_000)
    program.add(python, "nn.Module: Block_0", 110, 4_990)
    program.add(operator, "aten::softmax", 120, 180)
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
        ([63, 64, 65, 66, 67], {FOUND: 3}),  # 1,008 tokens, then 1,024
        ([1, 2, 3, 4, 5], {}),  # sizes of batches, or of images
        ([1 << 40, (1 << 40) + 1, (1 << 40) + 2, 1, 1], {}),
        ([104, 103, 102, 101, 100], {}),
    ],
)
def test_passes_for_one_token_more_than_the_one_before(lengths, found):
    assert recognized(run_pass, arguments=blocks(lengths)) == found


@pytest.mark.parametrize(("steps", "found"), [(3, {FOUND: 2}), (2, {})])
def test_two_passes_may_grow_by_chance(steps, found):
    assert recognized(run_pass, steps=steps, arguments=blocks([100, 101, 102])) == found


@pytest.mark.parametrize(("growing", "found"), [(6, {FOUND: 4}), (5, {})])
def test_a_quarter_of_the_kernels_grow(growing, found):
    # Where keys and values are kept, those grow that read and write them.
    arguments = blocks([100, 101, 102, 103, 104], growing)
    assert recognized(run_pass, arguments=arguments) == found


def test_what_does_not_attend_keeps_no_keys():
    def run(program):
        run_pass(program)
        [softmax] = [row for row in program.rows if row.name == "aten::softmax"]
        program.rows.remove(softmax)

    assert recognized(run, arguments=blocks([100, 101, 102, 103, 104])) == {}


def test_sequences_of_training_may_grow():
    arguments = blocks([100, 101, 102, 103, 104])
    assert recognized(train, arguments=arguments) == {}


@pytest.mark.parametrize("grid", [None, "9", [400, 1], [400, 1, "1"], [0, 1, 1], [1 << 40, 1, 1]])
def test_what_is_no_grid_says_nothing(grid):
    def arguments(trace, event_ids):  # noqa: ARG001
        return {event: {"grid": grid} for event in event_ids}

    assert recognized(run_pass, arguments=arguments) == {}


@pytest.mark.parametrize(
    ("around", "launches", "found"),
    [
        ((), 40, {"hf-generate-eager": 5}),
        ((), 39, {}),
        # With a cache of a fixed size, and before the first token.
        (["torch/_dynamo/eval_frame.py(956): compile_wrapper"], 40, {}),
        (["transformers/generation/utils.py(4065): _prefill"], 40, {}),
    ],
)
def test_transformers_compiles_the_pass_of_a_token(around, launches, found):
    def run(program):
        functions = ["chat.py(8): answer", "transformers/generation/utils.py(2917): _sample"]
        for i, name in enumerate([*functions, *around, "nn.Module: GPT_0"]):
            program.add(python, name, 100 + i, 9_000 - i)
        program.add(python, "gpt.py(9): forward", 110, 8_900)
        program.add(python, "nn.Module: Block_0", 120, 8_800)
        for i in range(launches):
            program.launch(200 + 100 * i, 205 + 100 * i)

    assert recognized(run) == found
