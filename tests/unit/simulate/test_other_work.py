"""Host work that is more than launching stays where launches become one."""

import pytest

from tests.build.repeated_scenes import scene
from tests.build.rows import US, kernel, launch, python


def step_with(*frames, gap=400 * US):
    """Two launches, a gap in some functions, two more and 20 us of the loop."""

    def of_step(begin, number):
        second = begin + 15 * US + gap
        starts = (begin, begin + 10 * US, second, second + 10 * US)
        for i, start in enumerate(starts):
            yield launch(start, start + 5 * US, number + i)
            yield kernel(start + 10 * US, start + 15 * US, correlation=number + i)
        for i, name in enumerate(frames):
            yield python(name, begin + (16 + i) * US, second - (1 + i) * US)

    return scene(50 * US + gap, of_step)


def test_what_an_environment_does_is_not_replayed_by_a_graph():
    # Each graph takes 10 us to launch, the environment 400 us, and the rest of the loop 20 us.
    frames = "train.py(9): step", "gymnasium/core.py(3): step"
    assert step_with(*frames).step_ns("graph") == (10 + 400 + 10 + 20) * US


def test_what_pytorch_does_to_launch_is_gone():
    frames = "train.py(9): step", "torch/optim/adam.py(700): _group_tensors"
    assert step_with(*frames).step_ns("graph") == (10 + 20) * US


@pytest.mark.parametrize(("gap", "step"), [(400 * US, 30 * US), (1000 * US, 1040 * US)])
def test_without_functions_in_the_file_only_a_longer_gap_is_other_work(gap, step):
    assert step_with(gap=gap).step_ns("graph") == step


def test_a_short_gap_is_part_of_launching():
    assert step_with("gymnasium/core.py(3): step", gap=100 * US).step_ns("graph") == 30 * US
