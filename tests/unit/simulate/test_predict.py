"""Predictions of fixes: what is replayed, the bounds, and the words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.build.rows import US
from tests.unit.simulate.test_edits import pageable_copy, synchronized
from tracelab.simulate.baseline import Baseline, StepBasis
from tracelab.simulate.edits import parse_edit
from tracelab.simulate.predict import Fix, bounds_ns, predict
from tracelab.simulate.program import NodeKind, replace_cost
from tracelab.simulate.replay import replay


def baseline_of(the_scene, **columns):
    step_ns = the_scene.step_ns()
    return Baseline(
        program=the_scene.program,
        step_ns=step_ns,
        replayed_ns=step_ns,
        **{"printed": StepBasis(step_ns, step_ns), **columns},
    )


def predictions(the_scene, *fixes, **columns):
    some = [Fix(" + ".join(fix), tuple(map(parse_edit, fix))) for fix in fixes]
    return predict(baseline_of(the_scene, **columns), the_scene.sites, some)


def test_a_prediction_is_as_far_off_the_replay_as_the_baseline_is():
    the_scene = synchronized()
    baseline = baseline_of(the_scene)
    step_ns = baseline.step_ns + 700
    measured = replace(baseline, step_ns=step_ns, printed=StepBasis(step_ns, step_ns))
    [found] = predict(measured, the_scene.sites, [Fix("TL101", (parse_edit("unblock"),), (3,))])
    share = the_scene.step_ns("unblock") / the_scene.step_ns()
    assert found.predicted_ns == round(share * measured.step_ns)
    assert (found.step_ns, found.name, found.findings) == (measured.step_ns, "TL101", (3,))
    assert found.edits == ("unblock",)
    assert found.low_ns < found.predicted_ns < found.high_ns < found.step_ns
    assert found.reason is None


def test_what_matches_nothing_is_predicted_to_change_nothing(snapshot):
    [found] = predictions(synchronized(), ["unblock:train.py:40"])
    assert found.predicted_ns == found.low_ns == found.high_ns == found.step_ns
    assert found.reason == snapshot


def test_what_saves_little_is_not_uncertain_by_more():
    the_scene = synchronized()
    [found] = predictions(the_scene, ["host:log=0.9"])
    assert found.predicted_ns == the_scene.step_ns() - US
    assert found.low_ns == found.predicted_ns - US
    assert found.high_ns == found.step_ns


def test_bounds_of_an_edit_are_within_those_of_the_prediction():
    the_scene = pageable_copy()
    [found] = predictions(the_scene, ["pin"])
    low, high = the_scene.bounds_ns("pin")
    assert found.low_ns < low < found.predicted_ns < high < found.high_ns


def test_edits_of_one_fix_are_made_together():
    the_scene = synchronized()
    alone, together = predictions(the_scene, ["unblock"], ["unblock", "scale=0.8"])
    assert alone.predicted_ns == the_scene.step_ns("unblock")
    assert together.predicted_ns == the_scene.step_ns("unblock", "scale=0.8")
    assert together.edits == ("unblock", "scale=0.8")


def test_more_fixes_than_one_replay_holds():
    the_scene = synchronized()
    fixes = [[f"host:log={i / 100}"] for i in range(150)]
    found = predictions(the_scene, *fixes)
    assert [x.predicted_ns for x in found] == [
        the_scene.step_ns() - 10 * US + i * 100 for i in range(150)
    ]


def test_a_function_of_the_users_own_is_an_edit():
    def kernels_for_free(program):
        return replace_cost(program, program.kind == NodeKind.ACTIVITY, 0)

    the_scene = synchronized()
    [found] = predict(baseline_of(the_scene), the_scene.sites, [Fix("mine", (kernels_for_free,))])
    assert found.edits == ("kernels_for_free",)
    # 10 us until the synchronize, its 4 us, 20 after it.
    assert found.predicted_ns == 34 * US


def test_other_programs_that_the_recording_allows_widen_the_interval():
    the_scene = synchronized(kernel_us=1)
    program = the_scene.program
    slower = replace_cost(program, program.kind == NodeKind.CALL, program.cost_ns + 2 * US)
    assert replay([slower]).step_ns[0] > replay([program]).step_ns[0]
    [alone] = predictions(the_scene, ["unblock"])
    [loose] = predictions(the_scene, ["unblock"], loose=(slower,))
    assert alone.predicted_ns == loose.predicted_ns
    assert loose.low_ns <= alone.low_ns
    assert loose.high_ns >= alone.high_ns


def test_without_a_replay_there_are_no_predictions():
    the_scene = synchronized()
    nothing = Baseline(not_replayed="The file has no steady steps.")
    assert predict(nothing, the_scene.sites, [Fix("all", (parse_edit("unblock"),))]) == ()


def test_a_fix_after_others_is_worth_what_it_adds():
    # GIVEN a read, and kernels that take a fifth less: both together, and one after the other
    the_scene, unblock, scale = synchronized(), parse_edit("unblock"), parse_edit("scale=0.8")
    first, together, added = predict(
        baseline_of(the_scene),
        the_scene.sites,
        [
            Fix("first", (unblock,)),
            Fix("together", (unblock, scale)),
            Fix("added", (scale,), after=(unblock,)),
        ],
    )
    # THEN it starts from where the first ends, ends where both do, and lists its own edit alone
    assert (added.step_ns, added.predicted_ns) == (first.predicted_ns, together.predicted_ns)
    assert added.edits == ("scale=0.8",)
    assert added.low_ns <= added.predicted_ns <= added.high_ns


@pytest.mark.parametrize(("predicted_ns", "low_ns"), [(1_000, 1_000), (750, 653), (200, 130)])
def test_what_is_left_may_take_less_the_more_was_taken_away(predicted_ns, low_ns):
    """GIVEN a step of 1000 ns, and a fix that leaves 750, or 200, known to 3 %
    THEN that may be 0.4 of the share less that went: 3 % + 10 % of 750, 3 % + 32 % of 200."""
    assert bounds_ns(1_000, np.array([predicted_ns]), (0.03, 0.03)).low_ns == low_ns
