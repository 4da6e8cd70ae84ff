"""Derivatives that are asked for one by one: three calls over two nodes, then the backward pass."""

import re

import pytest

from tests.build.remedy_programs import STEPS, recognized
from tests.build.rows import AUTOGRAD, operator, python
from tracelab.findings.remedies import REMEDIES

AGAIN = [remedy for remedy in REMEDIES if remedy.id == "grad-again"]

ENGINE = "autograd::engine::evaluate_function: "
LEAF = ENGINE + "torch::autograd::AccumulateGrad"
GRAD = "torch/autograd/__init__.py(392): grad"
RUN = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
# Numbers stand in the names: of nodes of the program's operators, of nodes of autograd's operators,
# and of these operators themselves.
_THREADS = {"Add": 1, "Mul": 2, "op": 0}
_NUMBERED = re.compile(r"(Add|Mul|op)(\d+)")


def arguments(trace, event_ids):
    names = {event: trace.strings[trace.name_index[event]] for event in event_ids}
    found = {event: _NUMBERED.search(name) for event, name in names.items()}
    return {
        event: {"Sequence number": int(match[2]), "Fwd thread id": _THREADS[match[1]]}
        for event, match in found.items()
        if match
    }


def call(program, at, *nodes, made=None, name=GRAD):
    """A call that waits for nodes; in the first of them an operator with a number is made."""
    program.add(python, name, at, at + 300)
    program.add(python, RUN, at + 10, at + 290)
    for i, node in enumerate(nodes):
        start = at + 20 + 40 * i
        program.add(operator, node, start, start + 35, thread=AUTOGRAD)
        if made is not None and i == 0:
            program.add(operator, f"aten::op{made}", start + 5, start + 10, thread=AUTOGRAD)
            program.add(operator, f"aten::op{made + 1}", start + 12, start + 20, thread=AUTOGRAD)


def derivatives(*calls, back=()):
    """One function with these calls; each has two numbers of autograd's operators of its own."""

    def run(program):
        base = 100 * program.number
        program.add(python, "pinn.py(9): gradient", 1_000, 1_000 + 400 * len(calls))
        for i, nodes in enumerate(calls):
            named = [ENGINE + f"{x}{base + n}Backward0" if n else LEAF for x, n in nodes]
            call(program, 1_050 + 400 * i, *named, made=base + 2 * i)
        named = [ENGINE + f"Mul{base + n}Backward0" for n in back]
        call(program, 5_000, *named, name="torch/_tensor.py(576): backward")

    return run


ONE_LEAF = ("", 0)
SAME = [("Add", 9), ("Add", 8), ONE_LEAF]


def found(run, arguments=arguments):
    return recognized(run, remedies=AGAIN, arguments=arguments)


def test_all_calls_but_the_first_and_what_goes_back_through_them():
    # The nodes 5, 4 and 2 go back through the third and the second call, 1 through the first.
    run = derivatives(SAME, SAME, SAME, back=(5, 4, 2, 1))
    assert found(run) == {"grad-again": STEPS * (2 + 3)}


@pytest.mark.parametrize(
    "calls",
    [
        [SAME],
        [SAME, [("Add", 7), ("Add", 6), ONE_LEAF]],  # of another micro-batch
        [SAME, [("Add", 10), *SAME]],  # a vector's product is a node of its own
        [[*SAME, ONE_LEAF]] * 2,  # all inputs at once, for different results
    ],
)
def test_other_nodes_need_another_call(calls):
    assert found(derivatives(*calls)) == {}


def test_where_the_file_does_not_say_which_nodes_nothing_is_told():
    assert found(derivatives(SAME, SAME), lambda _trace, _events: {}) == {}


def test_passes_that_add_up_are_none():
    def run(program):
        program.add(python, "train.py(9): step", 1_000, 3_000)
        for i in range(3):
            nodes = (ENGINE + "Add9Backward0", LEAF)
            call(program, 1_050 + 400 * i, *nodes, name="torch/_tensor.py(576): backward")

    assert found(run) == {}
