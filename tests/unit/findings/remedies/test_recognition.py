"""A remedy is recognized by host events; what happens inside them belongs to it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.build.rows import AUTOGRAD, graph, kernel, launch, operator, python
from tracelab.findings.remedy import Instead, Remedy, is_available, recognize
from tracelab.model.trace import ABSENT

STEP = "torch/optim/adam.py(345): _single_tensor_adam"
RUN_BACKWARD = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
LOOP = Remedy(
    id="loop",
    name="a loop",
    title="",
    shows="",
    not_when="",
    fixes=(
        Instead("Pass `fused=True`.", since="2.0"),
        Instead("Pass `foreach=True`.", since="1.12"),
    ),
    source="the documentation",
    url="https://example.org",
    rules=("TL301",),
    edit="fuse:{place}",
    frames=r"torch/optim/\w+\.py\(\d+\): _single_tensor_\w+$",
)
ITEM = replace(
    LOOP,
    id="item",
    edit="unblock:{place}",
    frames="",
    operators="^aten::item$",
    by_call_site=True,
    is_general=True,
)


def recognized(*rows, remedies):
    return recognize(graph(kernel(100, 110, correlation=1), launch(20, 30, 1), *rows), remedies)


def remedies_of_launch(*rows, remedies, rule="TL301"):
    """The remedies of the launch in [20, 30), which is event 1."""
    return recognized(*rows, remedies=remedies).remedies(np.array([1]), rule)


def test_what_happens_inside_a_function_belongs_to_its_remedy():
    found = recognized(python(STEP, 10, 50), launch(50, 55, 2), remedies=[LOOP])

    assert found.remedies(np.array([1, 3, ABSENT]), "TL301") == (LOOP, None, None)
    assert {name: events.tolist() for name, events in found.places.items()} == {"loop": [2]}


def test_what_the_profiler_calls_is_not_the_programs():
    step = python("torch/profiler/profiler.py(894): step", 60, 90)
    found = recognized(python(STEP, 10, 50), step, python(STEP, 65, 85), remedies=[LOOP])

    assert {name: events.tolist() for name, events in found.places.items()} == {"loop": [2]}


def test_a_remedy_counts_for_its_own_rules():
    assert remedies_of_launch(python(STEP, 10, 50), remedies=[LOOP], rule="TL101") == (None,)


def test_of_remedies_inside_one_another_the_innermost_of_the_rule_counts():
    rows = [python(STEP, 10, 50), operator("aten::mul_", 15, 40)]
    inner = replace(LOOP, id="inner", frames="", operators="^aten::mul_$")

    assert remedies_of_launch(*rows, remedies=[LOOP, inner]) == (inner,)
    of_other_rule = replace(inner, rules=("TL101",))
    assert remedies_of_launch(*rows, remedies=[LOOP, of_other_rule]) == (LOOP,)


def test_a_general_remedy_counts_where_no_other_does():
    rows = [operator("aten::item", 15, 40)]

    assert remedies_of_launch(*rows, remedies=[ITEM, LOOP]) == (ITEM,)
    assert remedies_of_launch(*rows, python(STEP, 10, 50), remedies=[ITEM, LOOP]) == (LOOP,)


def test_of_two_for_one_event_the_first_counts():
    again = replace(LOOP, id="again")
    assert remedies_of_launch(python(STEP, 10, 50), remedies=[LOOP, again]) == (LOOP,)


def test_of_two_for_one_event_each_counts_for_its_own_rule():
    of_other_rule = replace(LOOP, id="other", rules=("TL101",))
    rows = [python(STEP, 10, 50)]

    assert remedies_of_launch(*rows, remedies=[of_other_rule, LOOP]) == (LOOP,)
    assert remedies_of_launch(*rows, remedies=[of_other_rule, LOOP], rule="TL101") == (
        of_other_rule,
    )


def test_operators_inside_functions():
    in_step = replace(LOOP, operators="^aten::mul_$")
    rows = [operator("aten::mul_", 15, 40), operator("aten::mul_", 60, 70)]

    found = recognized(*rows, python(STEP, 10, 50), remedies=[in_step])

    assert found.places["loop"].tolist() == [2]
    assert not recognized(*rows, remedies=[in_step]).places


def test_guard_decides_what_really_is_the_pitfall():
    twice = replace(LOOP, occurs=lambda _, events: events if len(events) > 1 else events[:0])

    assert not recognized(python(STEP, 10, 50), remedies=[twice]).places
    two = recognized(python(STEP, 10, 50), python(STEP, 60, 70), remedies=[twice])
    assert two.places["loop"].tolist() == [2, 3]


def test_guard_without_a_pattern_finds_the_events():
    launches = replace(LOOP, frames="", occurs=lambda *_: np.array([1]))
    assert recognized(remedies=[launches]).places["loop"].tolist() == [1]


def test_guard_is_not_asked_where_nothing_matches():
    def occurs(*_):
        raise AssertionError

    assert not recognized(remedies=[replace(LOOP, occurs=occurs)]).places


def test_backward_pass_belongs_to_the_function_that_called_it():
    rows = [
        python(STEP, 10, 50),
        python(RUN_BACKWARD, 12, 48),
        operator("autograd::engine::evaluate_function: Mul", 15, 45, thread=AUTOGRAD),
        launch(21, 29, 2, thread=AUTOGRAD),
    ]
    found = recognized(*rows, remedies=[LOOP])
    assert found.remedies(np.array([5]), "TL301") == (LOOP,)


@pytest.mark.parametrize(
    ("torch", "fix"),
    [
        ("2.11.0+cu130", "Pass `fused=True`."),
        ("1.13.1", "Pass `foreach=True`."),
        ("1.9.0", None),
        (None, "Pass `fused=True`. This needs PyTorch 2.0."),
    ],
)
def test_no_fix_is_newer_than_the_program(torch, fix):
    found = LOOP.fix_for(torch)
    assert (found and found.text, found and found.summary) == (fix, fix)


def test_version_that_nobody_can_read_has_everything():
    assert is_available("2.3", "nightly")
