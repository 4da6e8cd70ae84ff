"""How steps are numbered: as the file names them."""

import pytest
from hypothesis import given, strategies as st

from tests.build.rows import annotation, kernel, launch, timeline
from tracelab.model.trace import ABSENT


def numbers(*names):
    """The numbers of steps of these names, and how many have none."""
    rows = [annotation(name, 10 * i, 10 * i + 5) for i, name in enumerate(names)]
    made = timeline(*rows, kernel(0, 1), step_pattern="step|warm-up")
    return [step.number for step in made.steps], made.repeated_steps


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["step#1", "step#2", "step#3"], ([1, 2, 3], 0)),
        (["step#1", "step#2", "step#2", "step#3"], ([1, 2, 3], 1)),
        (["step#5", "step#6", "step#5", "step#6"], ([5, 6], 2)),
        (["step", "step", "step"], ([0, 1, 2], 0)),
        (["warm-up", "step#1", "step#2"], ([0, 1, 2], 0)),
        (["warm-up", "step#0", "step#1"], ([2, 0, 1], 0)),  # its place is the number of another
        (["step#007", "step#7"], ([7], 1)),
        (["step 7", "step 8"], ([0, 1], 0)),  # what no # stands before is no number
        (["2nd step#5", "2nd step#6"], ([5, 6], 0)),
        ([f"step#{10**17}", "step#1"], ([10**17, 1], 0)),
        ([f"step#{10**18}", "step#1"], ([1], 1)),
        (["step#" + "9" * 5000, "step#1"], ([1], 1)),
        (["step#²", "step#1"], ([0, 1], 0)),
    ],
)
def test_numbers_are_those_of_the_file(names, expected):
    assert numbers(*names) == expected


def test_steps_are_those_of_the_profiler_where_no_pattern_says_otherwise():
    names = ["ProfilerStep#7", "ProfilerStep#12", "my ProfilerStep#13", "ProfilerStep#14 (warm-up)"]
    rows = [annotation(name, 10 * i, 10 * i + 5) for i, name in enumerate(names)]

    assert [step.number for step in timeline(*rows, kernel(0, 1)).steps] == [7, 12]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_every_number_of_the_file_is_there_once_and_no_other(given_numbers):
    found, left_out = numbers(*(f"step#{number}" for number in given_numbers))
    assert found == list(dict.fromkeys(given_numbers))
    assert left_out == len(given_numbers) - len(found)


def test_work_of_a_repeated_step_belongs_to_none():
    # Steps 1, 1 and 2, each of which launches a kernel; the second 1 is none of the steps.
    rows = [annotation(f"ProfilerStep#{n}", s, s + 10) for n, s in ((1, 0), (1, 20), (2, 40))]
    for i, start in enumerate((1, 21, 41)):
        rows += [launch(start, start + 1, i), kernel(start + 2, start + 5, correlation=i)]
    made = timeline(*rows)
    assert made.step_index.tolist() == [0, ABSENT, 1]
    assert [(w.step, w.start_ns, w.end_ns) for w in made.windows] == [
        (None, 3, 46),
        (1, 0, 10),
        (2, 40, 50),
    ]
