"""Loops in Python: each pitfall, and beside it what is none."""

from functools import partial

import numpy as np
import pytest

from tests.build.call_trees import (
    LAUNCH,
    READ,
    backward,
    condition,
    function,
    item,
    on_autograd,
    operator,
    positions,
    program,
)
from tests.build.remedy_programs import back_through
from tests.build.rows import graph
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import recognize

TRAIN = "train.py(3): train"
EXPERTS = "transformers/models/mixtral/modeling_mixtral.py(68): forward"
CELL_BACKWARD = "autograd::engine::evaluate_function: ThnnFusedLstmCellBackward0"
BLOCK = "transformers/models/mixtral/modeling_mixtral.py(120): forward"
RELATIONS = "rgcn.py(40): forward"
LINEAR_0, LINEAR_1 = "nn.Module: Linear_0", "nn.Module: Linear_1"
UPDATE_BAR = "tqdm/std.py(1203): update"
WORK = operator("aten::mm", LAUNCH * 20)
OTHER = operator("aten::add", LAUNCH)
CELL = operator("aten::lstm_cell", LAUNCH, operator("aten::_thnn_fused_lstm_cell", LAUNCH))
ROUTER = operator("aten::topk", LAUNCH)
EXPERT = (operator("aten::where", positions()), WORK, operator("aten::index_add_", LAUNCH))


def linear(casts=3):
    """A layer under autocast: its input, its weight and its bias may be cast."""
    cast = operator("aten::to", operator("aten::_to_copy", operator("aten::copy_", LAUNCH)))
    return operator("aten::linear", cast * casts, operator("aten::addmm", LAUNCH))


@pytest.mark.parametrize(
    ("remedy", "nodes", "events"),
    [
        ("rnn-cell-loop", [function(TRAIN, CELL * 8)], {"aten::lstm_cell"}),
        ("rnn-cell-loop", [(CELL, OTHER) * 8], {"aten::lstm_cell"}),
        ("expert-loop", [function(EXPERTS, ROUTER, EXPERT * 2)], {EXPERTS}),
        ("expert-loop", [function(BLOCK, ROUTER, function(EXPERTS, EXPERT * 2))], {EXPERTS}),
        (
            "autocast-again",
            [function(LINEAR_0, linear()), function(LINEAR_0, linear()), backward(LAUNCH)],
            {"aten::to"},
        ),
        ("autocast-again", [function(LINEAR_0, linear(2))], {"aten::to"}),  # inference
        (
            "log-each-step",
            [function(UPDATE_BAR, function("tqdm/std.py(1): refresh"))],
            {UPDATE_BAR, "tqdm/std.py(1): refresh"},
        ),
    ],
)
def test_recognized(recognized, remedy, nodes, events):
    assert recognized(*nodes, OTHER)[remedy] == events


@pytest.mark.parametrize(
    ("remedy", "nodes"),
    [
        ("rnn-cell-loop", [CELL * 7]),
        ("rnn-cell-loop", [(CELL, OTHER, OTHER) * 8]),  # attention between the times
        ("rnn-cell-loop", [operator("aten::_cudnn_rnn", LAUNCH * 16)]),
        ("expert-loop", [function(EXPERTS, ROUTER, EXPERT)]),
        # The relations of a graph network, and the choice of the best answers two functions above.
        ("expert-loop", [function(RELATIONS, EXPERT * 2)]),
        ("expert-loop", [function(EXPERTS, ROUTER, positions() * 2, WORK)]),
        ("expert-loop", [function(EXPERTS, condition(), operator("aten::_grouped_mm", LAUNCH))]),
        (
            "autocast-again",  # one cast for each layer of a training step is normal
            [function(LINEAR_0, linear()), function(LINEAR_1, linear()), backward(LAUNCH)],
        ),
        (
            "autocast-again",  # two layers in one call of a module
            [function(LINEAR_0, linear(), linear(2)), backward(LAUNCH)],
        ),
        ("autocast-again", [function(LINEAR_0, linear(1)), function(LINEAR_0, linear(1))]),
        ("autocast-again", [linear(0)]),
        ("log-each-step", [function(UPDATE_BAR), WORK * 10]),
        ("log-each-step", [function("train.py(9): update"), WORK]),
    ],
)
def test_not_recognized(recognized, remedy, nodes):
    assert remedy not in recognized(*nodes, OTHER)


def test_casts_of_weights_are_the_ones_that_go():
    # GIVEN a layer that is called three times, with an input, a weight and a bias to cast
    calls = [function(LINEAR_0, linear()) for _ in range(3)]
    rows = program(*calls, backward(LAUNCH))

    events = recognize(graph(*rows), REMEDIES).places["autocast-again"]

    # THEN of two steps and two repetitions each, the weight's and the bias's
    assert len(events) == 2 * 2 * 2


def test_the_loop_has_its_backward_pass():
    # GIVEN functions of other layers before and behind those of the cells
    of_cells = operator(CELL_BACKWARD, LAUNCH), operator("autograd::engine::evaluate_function: Mm")
    rows = program(
        CELL * 8, backward(OTHER), *map(on_autograd, (*of_cells, *of_cells)), backward(OTHER)
    )

    events = recognize(graph(*rows), REMEDIES).places["rnn-cell-loop"]

    names = [rows[event_id].name for event_id in events.tolist()]
    assert names.count(CELL_BACKWARD) == 2 * 2
    assert names.count("autograd::engine::evaluate_function: Mm") == 2 * 1  # between the cells'
    assert "autograd::engine::evaluate_function: Backward0" not in names


FEATURES = "dgcnn.py(10): edge_features"
SUB_BACKWARD = "autograd::engine::evaluate_function: SubBackward0"
VIEW_BACKWARD = "autograd::engine::evaluate_function: ViewBackward0"
CDIST = function("torch/functional.py(1434): cdist", operator("aten::cdist", LAUNCH))
OF_SUBTRACTIONS = back_through("aten::sub", SUB_BACKWARD)
TURN = (CDIST, operator("aten::index", LAUNCH), operator("aten::sub", LAUNCH))


def test_a_loop_of_launches_has_all_of_its_turns_and_their_backward_pass(recognized):
    # GIVEN 30 turns, each with two operators of Python's and one within a function of PyTorch's
    turns_back = map(on_autograd, (operator(SUB_BACKWARD, LAUNCH), operator(VIEW_BACKWARD)) * 30)
    found = recognized(
        function(FEATURES, TURN * 30), *turns_back, steps=4, arguments=OF_SUBTRACTIONS
    )
    # THEN the nodes that go back through them are of the loop, and those between two of them
    names = {CDIST.name, "aten::index", "aten::sub", SUB_BACKWARD, VIEW_BACKWARD}
    assert found["launch-loop"] == names


def test_few_turns_are_no_loop_of_launches(recognized):
    assert "launch-loop" not in recognized(function(FEATURES, TURN * 29), steps=4)


@pytest.mark.parametrize(
    ("more", "is_loop"),
    [
        # What it reads decides whether to go on: each turn needs the one before.
        ((operator("aten::matmul", LAUNCH), item()), False),
        ((operator("aten::matmul", LAUNCH),), True),  # as of each head of an attention
        ((item(),), True),
    ],
    ids=["solver", "products", "reads"],
)
def test_a_solver_is_no_loop_of_launches(recognized, more, is_loop):
    turn = (operator("aten::sub", LAUNCH), operator("aten::abs", LAUNCH), *TURN, *more)
    assert ("launch-loop" in recognized(function(FEATURES, turn * 30), steps=4)) == is_loop


def test_what_autograd_does_for_others_is_not_of_the_loop(recognized):
    # GIVEN a loop without a backward pass, and that of a subtraction which is none of the loop's
    other = operator("aten::sub", LAUNCH), on_autograd(operator(SUB_BACKWARD, LAUNCH))
    found = recognized(function(FEATURES, TURN * 30), *other, steps=4, arguments=OF_SUBTRACTIONS)
    assert found["launch-loop"] == {CDIST.name, "aten::index", "aten::sub"}


def test_autograd_goes_back_through_the_operators_of_the_loop():
    # GIVEN a node of each subtraction, of which the last is none of the loop's
    rows = program(
        function(FEATURES, TURN * 30),
        operator("aten::sub", LAUNCH),
        *map(on_autograd, operator(SUB_BACKWARD, LAUNCH) * 31),
        steps=4,
    )
    built = graph(*rows)
    arguments = partial(OF_SUBTRACTIONS, built.host.timeline.trace)
    events = recognize(built, REMEDIES, arguments).places["launch-loop"]
    back = [event for event in range(len(rows)) if rows[event].name == SUB_BACKWARD]
    # THEN the first node is that last one's
    assert [event for event in back if event not in events] == back[::31]


REGULATE = "fastspeech.py(47): regulate"
EXPAND_BACKWARD = "autograd::engine::evaluate_function: ExpandBackward0"
PHONEME = (operator("aten::expand"), item())
PHONEME_BACK = on_autograd(operator(EXPAND_BACKWARD, LAUNCH))


@pytest.mark.parametrize(
    ("turns", "nodes", "is_found"),
    [
        (31, 31, True),  # of the operators between the first and the last read 30 have nodes
        (30, 30, False),
        (31, 29, False),  # such as numbers that are only read
    ],
)
def test_a_loop_that_reads_has_what_is_between_and_the_backward_pass(
    recognized, turns, nodes, is_found
):
    events = recognized(
        function(REGULATE, PHONEME * turns),
        *[PHONEME_BACK] * nodes,
        arguments=back_through("aten::expand", EXPAND_BACKWARD),
    )
    found = events.get("read-loop", set())
    assert found >= ({"aten::item", "aten::expand", EXPAND_BACKWARD} if is_found else set())
    assert bool(found) == is_found


def test_a_forward_pass_before_its_reads_is_not_of_the_loop(recognized):
    # GIVEN a step whose operators have nodes, which then reads 31 numbers of no operator between
    step = function(TRAIN, operator("aten::expand") * 40, item() * 31)
    events = recognized(
        step, *[PHONEME_BACK] * 40, arguments=back_through("aten::expand", EXPAND_BACKWARD)
    )
    assert "read-loop" not in events


TOKENS = "tabular.py(9): forward"
ADDMM = operator("aten::addmm", LAUNCH)
LAYERS = [function(f"nn.Module: Linear_{i}", operator("aten::linear", ADDMM)) for i in range(8)]
TABLES = [
    function(f"nn.Module: Embedding_{i}", operator("aten::embedding", LAUNCH)) for i in range(8)
]
STACK = operator("aten::stack", LAUNCH)
SLICE = operator("aten::slice")


def test_a_loop_over_modules_whose_results_are_put_together(recognized):
    turns = [x for layer in LAYERS for x in (SLICE, layer)]
    found = recognized(function(TOKENS, *turns, STACK), steps=4)
    assert found["launch-loop"] == {layer.name for layer in LAYERS}


def test_a_list_of_modules_that_a_caller_puts_together(recognized):
    inner = function("tabular.py(12): <listcomp>", *LAYERS)
    found = recognized(function(TOKENS, inner, STACK), steps=4)
    assert found["launch-loop"] == {layer.name for layer in LAYERS}


@pytest.mark.parametrize(
    "nodes",
    [
        [function(TOKENS, *LAYERS)],  # each layer may need the one before
        [function(TOKENS, STACK, *LAYERS)],
        [function(TOKENS, *LAYERS[:7], STACK)],
        [function(TOKENS, LAYERS[0] * 8, STACK)],  # one layer again and again
        [function("torch/nn/modules/container.py(240): forward", *LAYERS), STACK],
        # Blocks of a model, of which each launches much, and with other work in between.
        [
            function(
                TOKENS,
                *(function(f"nn.Module: Block_{i}", ADDMM * 4) for i in range(8)),
                STACK,
            )
        ],
        [function(TOKENS, *(x for layer in LAYERS for x in (layer, *OTHER * 3)), STACK)],
    ],
)
def test_layers_of_a_model_are_no_loop(recognized, nodes):
    assert "launch-loop" not in recognized(*nodes, steps=4)


MASK = operator("aten::index", operator("aten::nonzero", LAUNCH * 3, READ), LAUNCH)
HIGHEST = function("<built-in method max of Tensor object at 0x7f>", operator("aten::max", LAUNCH))


def test_a_loop_of_masks_is_one_pitfall():
    rows = program(function(TOKENS, (MASK, HIGHEST) * 30), steps=4)
    recognized = recognize(graph(*rows), REMEDIES)
    names = {rows[event_id].name for event_id in recognized.places["mask-loop"].tolist()}
    assert names == {"aten::index", HIGHEST.name}
    assert "launch-loop" not in recognized.places
    # THEN what a mask waits for is the loop's, not the mask's
    reads = [i for i, row in enumerate(rows) if row.name == "cudaStreamSynchronize"]
    found = recognized.remedies(np.array(reads), "TL101")
    assert {remedy.id for remedy in found} == {"mask-loop"}


def test_masks_that_are_little_of_a_loop_stand_for_themselves(recognized):
    found = recognized(function(TOKENS, (MASK, *OTHER * 8) * 30), steps=4)
    assert "mask-loop" not in found
    assert "aten::index" in found["boolean-mask"]


def test_few_masks_are_no_loop(recognized):
    assert "mask-loop" not in recognized(function(TOKENS, (MASK, HIGHEST) * 29), steps=4)
