"""No damage to a trace makes a figure wrong in silence: `tests/benchmarks/mutilated.py`."""

import pytest

from tests.benchmarks.mutilated import CAPTURES, CUTS, DAMAGES, outcomes

FEW = ("graphs_parts", "copies_own_stream")
# What remains of a graph where every replay lost the same nodes, or one its beginning, is a graph:
# only the arrows, which a profiler that lost the records does not draw, tell that.
SAME_NODES = {"every second kernel", "a tenth of the GPU's rows, in one piece"}


@pytest.mark.parametrize("damage", [*DAMAGES, *CUTS])
def test_no_damage_is_silent(damage):
    assert [x for x in outcomes(FEW, [damage]) if x.is_silent] == []


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES)
def test_no_damage_to_any_capture_is_silent(capture):
    assert [x for x in outcomes([capture], [*DAMAGES, *CUTS]) if x.is_silent] == []


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES)
def test_what_is_silent_without_arrows(capture):
    found = outcomes([capture], [*DAMAGES, *CUTS], with_arrows=False)
    assert {x.damage for x in found if x.is_silent} <= SAME_NODES
