"""Which annotations are steps, how they are numbered, and what is offered where none are."""

import re

import pytest
from hypothesis import given, strategies as st

from tests.build.rows import MAIN, THREADS, annotation, kernel, launch, timeline
from tracelab.base.options import PROFILER_STEP
from tracelab.model.steps import (
    KNOWN_STEPS,
    RepeatedAnnotation,
    UnusedSteps,
    find_repeated,
    known_steps,
)
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


OTHER = next(i for i in range(len(THREADS)) if i != MAIN)
VLLM, SGLANG, LIGHTNING, LIGHTNING_LOOPS = (known.pattern for known in KNOWN_STEPS)
BATCH = "[pl][profile]run_training_batch"

# As the frameworks' sources write them.
NAMES = {
    VLLM: [
        "execute_context_1(512)_generation_0(0)",
        "execute_context_0(0)_generation_8(8)",
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
        "execute_new_1_cached_0",
    ],
    SGLANG: [
        "step[DECODE bs=8]",
        "step[EXTEND bs=1 toks=512]",
        "step[TARGET_VERIFY bs=4]",
        "step[DECODE bs=8 g_sq=8 forward_id=7]",
    ],
    LIGHTNING: [BATCH],
    LIGHTNING_LOOPS: [
        "[pl][profile][Strategy]DDPStrategy.validation_step",
        "[pl][profile][Strategy]SingleDeviceStrategy.test_step",
        "[pl][profile][Strategy]FSDPStrategy.predict_step",
    ],
}
PARTS_OF_STEPS = [
    "[pl][profile][Strategy]DDPStrategy.training_step",
    "[pl][profile][Strategy]DDPStrategy.optimizer_step",
    "[pl][profile]run_training_epoch",
    "[pl][profile][LightningModule]Model.on_train_batch_start",
    "Optimizer.step#AdamW.step",
    "Optimizer.zero_grad#AdamW.zero_grad",
    "DistributedDataParallel.forward",
    "CustomFSDP.forward",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "gpu_model_runner: forward",
    "execute_model",
    "step",
    "step_3",
    "my step[DECODE bs=8]",
]


def span(name, start, *, work=60, key=0, thread=MAIN, length=100):
    """An annotation that launches a kernel of so many ns, which runs from 10 ns after its start."""
    key = key or start + 1
    return [
        annotation(name, start, start + length, thread=thread),
        launch(start + 1, start + 2, key, thread=thread),
        kernel(start + 10, start + 10 + work, correlation=key),
    ]


def spans(*names, start=0, **of_each):
    """One after another, each 100 ns after the one before."""
    return [row for i, name in enumerate(names) for row in span(name, start + 100 * i, **of_each)]


@pytest.mark.parametrize(
    ("pattern", "name"), [(pattern, name) for pattern in NAMES for name in NAMES[pattern]]
)
def test_each_name_is_of_one_framework_and_is_found(pattern, name):
    matching = [known.pattern for known in KNOWN_STEPS if re.search(known.pattern, name)]
    made = timeline(*spans(name, name, name))

    assert matching == [pattern]
    assert (made.step_pattern, [step.number for step in made.steps]) == (pattern, [0, 1, 2])


@pytest.mark.parametrize("name", PARTS_OF_STEPS)
def test_what_is_only_a_part_of_a_step_is_none(name):
    made = timeline(*spans(name, name, name))

    assert (made.step_pattern, made.steps) == (PROFILER_STEP, ())


def test_windows_are_those_of_the_annotations():
    # GIVEN three steps of other names, the second of which launches a kernel of 150 ns
    rows = [
        *span("step[EXTEND bs=1 toks=512]", 0),
        *span("step[DECODE bs=1]", 100, work=150),
        *span("step[DECODE bs=2]", 200),
    ]

    # WHEN nobody says what the steps are
    made = timeline(*rows)

    # THEN the second lasts until its kernel ends, and the third begins there
    assert [(x.number, x.start_ns, x.end_ns) for x in made.steps] == [
        (0, 0, 100),
        (1, 100, 260),
        (2, 260, 300),
    ]
    assert made.step_index.tolist() == [0, 1, 2]


DECODE, EXTEND = "step[DECODE bs=8]", "step[EXTEND bs=1 toks=512]"


@pytest.mark.parametrize(
    ("names", "phase"),
    [
        ([DECODE] * 4 + [EXTEND] * 3, "decode"),
        ([DECODE] * 2 + [EXTEND] * 3, "prefill"),
        ([DECODE] * 3 + [EXTEND] * 3, ""),  # neither is most
        ([DECODE] * 2 + [EXTEND], ""),  # too few
        ([DECODE] * 3, ""),  # all of them anyway
        ([DECODE] * 2 + ["step[TARGET_VERIFY bs=4]"] * 3, ""),  # the most are of no known phase
    ],
)
def test_steps_are_those_of_the_phase_that_most_are_in(names, phase):
    made = timeline(*spans(*names))

    assert known_steps(made.step_pattern)[0].framework == "SGLang"
    assert known_steps(made.step_pattern)[1] == phase
    known = {"decode": DECODE, "prefill": EXTEND}
    assert len(made.steps) == (names.count(known[phase]) if phase else len(names))


@pytest.mark.parametrize(
    ("name", "phase", "sequences"),
    [
        ("execute_context_1(512)_generation_0(0)", "prefill", 1),
        ("execute_context_0(0)_generation_8(8)", "decode", 8),
        ("execute_512_context_2(sq512sk512sqsq9sqsk9)_generation_30(sq30)", "mixed", 32),
        ("execute_new_1_cached_0", "prefill", 1),
        ("execute_new_0_cached_16", "decode", 16),
        ("step[DECODE bs=8 g_sq=8 forward_id=7]", "decode", 8),
        (EXTEND, "prefill", 1),
        ("step[TARGET_VERIFY bs=4]", "", 4),
    ],
)
def test_names_tell_phase_and_requests(name, phase, sequences):
    [known] = [known for known in KNOWN_STEPS if re.search(known.pattern, name)]
    assert (known.phase_of(name), known.sequences_of(name)) == (phase, sequences)


def test_two_are_too_few():
    made = timeline(*spans("step[DECODE bs=8]", "step[DECODE bs=8]"))

    assert made.steps == ()


@pytest.mark.parametrize(("elsewhere_ns", "count"), [(179, 3), (180, 0)])
def test_they_launch_more_than_half_of_the_work(elsewhere_ns, count):
    # GIVEN three steps that launch 60 ns each, 180 in all, and a kernel launched after them
    rows = spans(*["step[DECODE bs=8]"] * 3)
    rows += [launch(301, 302, 9), kernel(310, 310 + elsewhere_ns, correlation=9)]

    assert len(timeline(*rows).steps) == count


def test_work_without_a_launch_counts_as_elsewhere():
    rows = [*spans(*["step[DECODE bs=8]"] * 3), kernel(400, 580)]

    assert timeline(*rows).steps == ()


@pytest.mark.parametrize(
    ("start", "thread", "count"),
    [
        (300, MAIN, 4),
        (299, MAIN, 0),  # overlaps the third
        (220, MAIN, 0),  # begins in it, too
        (300, OTHER, 0),
        (220, OTHER, 0),
    ],
)
def test_they_are_apart_and_of_one_thread(start, thread, count):
    rows = spans(*["step[DECODE bs=8]"] * 3)
    rows += span("step[DECODE bs=8]", start, key=7, thread=thread)

    assert len(timeline(*rows).steps) == count


def test_nested_ones_are_no_steps():
    rows = spans(*["step[DECODE bs=8]"] * 3)
    rows += [annotation("step[DECODE bs=4]", 110, 120)]

    assert timeline(*rows).steps == ()


def test_the_profilers_own_come_first_even_one():
    rows = [annotation("ProfilerStep#7", 0, 300), *spans(*["step[DECODE bs=8]"] * 3)]
    made = timeline(*rows)

    assert (made.step_pattern, [step.number for step in made.steps]) == (PROFILER_STEP, [7])


def test_what_is_asked_for_comes_first():
    rows = [*spans(*["step[DECODE bs=8]"] * 3), *spans("mine", start=300)]

    assert len(timeline(*rows, step_pattern="^mine$").steps) == 1
    assert len(timeline(*rows, step_pattern="^nothing$").steps) == 0


def test_the_first_framework_whose_annotations_are_steps_counts():
    # GIVEN vLLM's name twice, which is too few, and Lightning's of training and of validation
    validation = "[pl][profile][Strategy]DDPStrategy.validation_step"
    rows = [
        *spans("execute_context_1(5)_generation_0(0)", "execute_context_0(0)_generation_1(1)"),
        *spans(BATCH, BATCH, BATCH, start=200),
        *spans(validation, validation, validation, start=500, work=20),
    ]

    # WHEN / THEN 180 of 360 ns are not most of them, with a longer kernel they are
    assert timeline(*rows).steps == ()
    made = timeline(*rows, *span(BATCH, 800))
    assert (made.step_pattern, len(made.steps)) == (LIGHTNING, 4)
    assert made.unused_steps == ()


def test_with_a_pattern_nested_ones_are_told_as_ever():
    rows = [*spans(*["step[DECODE bs=8]"] * 3), annotation("step[DECODE bs=4]", 110, 120)]
    made = timeline(*rows, step_pattern=SGLANG)

    assert made.unused_steps == (UnusedSteps("nested_steps", "step[DECODE bs=4]", 1),)


# --- what repeats ---


def repeated(*rows):
    made = timeline(*rows)
    return find_repeated(made.trace, made.launch_id, made.end_ns - made.start_ns)


def test_what_repeats_is_told_by_what_it_launches():
    # GIVEN 240 ns of work: 2 times 80 in forward, 2 times 30 in backward, 20 in a step of its own
    rows = [
        *spans("forward", start=0, work=80),
        *spans("backward", start=100, work=30),
        *spans("forward", start=200, work=80),
        *spans("backward", start=300, work=30),
        *spans("save", start=400, work=20),
        annotation("nothing", 500, 510),
        annotation("nothing", 520, 530),
    ]

    assert repeated(*rows) == (
        RepeatedAnnotation("forward", "^forward$", 2, 160 / 240),
        RepeatedAnnotation("backward", "^backward$", 2, 60 / 240),
    )


def test_what_differs_in_a_number_repeats():
    rows = [*spans("batch 8 of 10", "batch 9 of 10", "batch 10 of 10"), *spans("b", "b", start=300)]

    assert repeated(*rows) == (
        RepeatedAnnotation("batch N of N", r"^batch \d+ of \d+$", 3, 3 / 5),
        RepeatedAnnotation("b", "^b$", 2, 2 / 5),
    )


def test_numbers_that_repeat_are_names():
    rows = spans("layer 1", "layer 2", "layer 1", "layer 2")

    assert [x.pattern for x in repeated(*rows)] == ["^layer 1$", "^layer 2$"]


def test_work_of_annotations_inside_each_other_counts_once():
    rows = [annotation("outer", 0, 100), annotation("outer", 0, 100), *spans("a", "a")]

    assert [(x.name, x.gpu_share) for x in repeated(*rows)] == [("a", 1.0), ("outer", 0.5)]


@pytest.mark.parametrize("name", ["nccl:all_reduce", "gloo:broadcast", "x" * 201])
def test_what_is_no_step_of_anybody_is_not_offered(name):
    assert repeated(*spans(name, name)) == ()


def test_at_most_ten_are_told():
    rows = [row for i in range(12) for row in spans(f"a{i}", f"a{i}", start=200 * i)]

    assert len(repeated(*rows)) == 10


NAME = st.text("aN12.#(*$[\\ ", min_size=1, max_size=4)


@given(st.lists(NAME, min_size=2, max_size=8))
def test_patterns_match_what_they_count_and_nothing_else(names):
    for annotations in repeated(*spans(*names)):
        matching = [name for name in names if re.search(annotations.pattern, name)]
        assert len(matching) == annotations.count
        made = timeline(*spans(*names), step_pattern=annotations.pattern)
        assert len(made.steps) + sum(x.count for x in made.unused_steps) == annotations.count
