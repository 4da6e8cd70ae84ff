"""Which annotations are steps, and how they are numbered: as the file names them."""

import pytest
from hypothesis import given, strategies as st

from tests.build.rows import annotation, kernel, launch, timeline
from tracelab.model.steps import UnusedSteps
from tracelab.model.trace import ABSENT


def numbers(*names):
    """The numbers of steps of these names, and how many have none."""
    rows = [annotation(name, 10 * i, 10 * i + 5) for i, name in enumerate(names)]
    made = timeline(*rows, kernel(0, 1), step_pattern="step|warm-up")
    assert {x.loss for x in made.unused_steps} <= {"repeated_steps"}
    return [step.number for step in made.steps], sum(x.count for x in made.unused_steps)


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


def windows(made):
    return [(window.step, window.start_ns, window.end_ns) for window in made.windows[1:]]


def test_repeated_steps_are_told_by_name():
    names = ["step#1", "step#1", "step#2", "step#1", "step#2"]
    rows = [annotation(name, 10 * i, 10 * i + 10) for i, name in enumerate(names)]

    made = timeline(*rows, kernel(0, 1), step_pattern="step")

    assert windows(made) == [(1, 0, 10), (2, 20, 30)]
    assert made.unused_steps == (
        UnusedSteps("repeated_steps", "step#1", 2),
        UnusedSteps("repeated_steps", "step#2", 1),
    )


def test_annotations_inside_a_step_are_part_of_it():
    # GIVEN two steps of two micro-batches each, which launch a kernel each
    rows = []
    for number, start in ((4, 0), (5, 100)):
        rows.append(annotation(f"step#{number}", start, start + 90))
        for i, begin in enumerate((start + 10, start + 50)):
            rows += [
                annotation("micro step", begin, begin + 30),
                launch(begin + 1, begin + 2, 10 * number + i),
                kernel(begin + 5, begin + 25, correlation=10 * number + i),
            ]

    # WHEN a pattern matches both
    made = timeline(*rows, step_pattern="step")

    # THEN the outer ones are the steps, and have the work of the inner ones
    assert windows(made) == [(4, 0, 90), (5, 100, 190)]
    assert made.step_index.tolist() == [0, 0, 1, 1]
    assert made.unused_steps == (UnusedSteps("nested_steps", "micro step", 4),)

    # AND one that matches the inner ones makes them the steps
    made = timeline(*rows, step_pattern="micro step")
    assert windows(made) == [(0, 10, 40), (1, 50, 80), (2, 110, 140), (3, 150, 180)]
    assert made.step_index.tolist() == [0, 1, 2, 3]
    assert made.unused_steps == ()


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ((10, 20), ["nested_steps"]),
        ((0, 100), ["nested_steps"]),  # as old files write one step as two events
        ((90, 100), ["nested_steps"]),
        ((90, 101), []),  # another thread's
        ((100, 110), []),
        ((100, 100), []),
    ],
)
def test_what_is_inside(second, expected):
    made = timeline(
        annotation("step#1", 0, 100),
        annotation("step#2", *second),
        kernel(0, 1),
        step_pattern="step",
    )

    assert [x.loss for x in made.unused_steps] == expected


def test_the_outer_one_may_be_written_after_the_inner_one():
    made = timeline(
        annotation("step#2", 0, 40),
        annotation("step#1", 0, 100),
        kernel(0, 1),
        step_pattern="step",
    )

    assert windows(made) == [(1, 0, 100)]
    assert made.unused_steps == (UnusedSteps("nested_steps", "step#2", 1),)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8),
)
def test_windows_tile_and_every_annotation_is_a_step_or_told(spans):
    """Of steps [start, start + length): an inner one lies in an earlier or longer one."""
    spans = sorted({(start, start + length) for start, length in spans})
    rows = [annotation(f"step#{i}", *span) for i, span in enumerate(spans)]

    made = timeline(*rows, kernel(0, 1), step_pattern="step")

    outermost = [
        i
        for i, (start, end) in enumerate(spans)
        if not any(
            other != (start, end) and other[0] <= start < other[1] and end <= other[1]
            for other in spans
        )
    ]
    assert sorted(step.number for step in made.steps) == outermost
    assert sum(x.count for x in made.unused_steps) == len(spans) - len(outermost)
    ends = [window.end_ns for window in made.windows[1:]]
    starts = [window.start_ns for window in made.windows[1:]]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
