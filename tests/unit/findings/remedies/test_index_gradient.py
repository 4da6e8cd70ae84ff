"""The remedy of a gradient that adds up rows of the same index one after the other."""

import pytest

from tests.build.remedy_programs import LENGTH, STEPS, back_through, recognized
from tests.build.rows import AUTOGRAD, operator
from tracelab.findings.remedies import REMEDIES

SLOW = [remedy for remedy in REMEDIES if remedy.id == "index-gradient"]

ADDS = "void (anonymous namespace)::indexing_backward_kernel<float, 4>(long const*, long, bool)"
NODE = "autograd::engine::evaluate_function: IndexBackward0"


def indexing(*, adds=700, sorts=100):
    """In each step two operators index; the second has a node that sorts and adds, so many us."""

    def run(program):
        program.add(operator, "aten::index", 1_000, 1_050)
        program.launch(1_010, 1_015, lasts=20)
        program.add(operator, "aten::index", 1_100, 1_150)
        program.launch(1_110, 1_115, lasts=20)
        program.add(operator, NODE, 2_000, 2_100, thread=AUTOGRAD)
        program.launch(2_010, 2_015, name="sort", lasts=sorts, thread=AUTOGRAD)
        program.launch(2_020, 2_025, name=ADDS, lasts=adds, thread=AUTOGRAD)

    return run


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (indexing(), 2),  # the second operator and its node
        (indexing(adds=500), 0),  # 5 times the rest
        (indexing(adds=700, sorts=1), 2),
    ],
    ids=["slow", "few equal rows", "hardly sorted"],
)
def test_most_of_the_node_adds_up_rows(run, count):
    found = recognized(run, remedies=SLOW, arguments=back_through("aten::index", NODE))
    assert found.get("index-gradient", 0) == count * STEPS


def test_what_is_indexed_before_has_the_same_number_and_no_gradient():
    def arguments(trace, event_ids):
        steps = {event: int(trace.start_ns[event]) // LENGTH for event in event_ids}
        return {event: {"Sequence number": number} for event, number in steps.items()}

    found = recognized(indexing(), remedies=SLOW, arguments=arguments)
    assert found == {"index-gradient": 2 * STEPS}  # not 3
