"""Who waited for the GIL, which lets one thread of a process run Python at a time."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.build.rows import AUTOGRAD, MAIN, US, host, kernel, launch, operator, python, trace
from tests.examples import examples
from tests.reference import gil
from tracelab.measures.gil_waits import gil_waits
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import Thread

OTHER = AUTOGRAD
LINEAR = "<built-in function linear>"
SLEEP, LOCK = "<built-in function sleep>", "<built-in method acquire of _thread.lock object at 0x7>"
SHORT, LONG = "<built-in function len>", "<built-in method compress of zlib at 0x7>"
STEP, TOKENIZE = "train.py(3): step", "tokens.py(9): tokenize"


def waits(*rows):
    """(thread, holder, start, end, held) of each wait, in us."""
    found = gil_waits(host(*rows))
    columns = (found.start_ns // US, found.end_ns // US, found.held_ns // US)
    threads_of = (found.thread_index, found.holder_index)
    return sorted(zip(*(column.tolist() for column in (*threads_of, *columns)), strict=True))


def scene(main_us, *others, silent=STEP):
    """A step that launches, with a function around whose end nothing happens but elsewhere."""
    return [
        kernel(900 * US, 910 * US, correlation=1),
        python(STEP, 0, (main_us + 5) * US),
        python(silent, 10 * US, main_us * US),
        launch(15 * US, 20 * US, 1),
        *others,
    ]


def runs(*moments_us, name=TOKENIZE, inner=SHORT):
    """A function of the other thread, with short ones from each of these moments on, 1 us long."""
    within = [python(inner, us * US, (us + 1) * US, thread=OTHER) for us in moments_us]
    return [python(name, 0, 990 * US, thread=OTHER), *within]


def test_a_built_in_function_does_not_return_while_another_thread_runs_python():
    # linear launched until 20 and returned at 220; the other thread ran from 30 to 201.
    assert waits(*scene(220, *runs(30, 200), silent=LINEAR)) == [(MAIN, OTHER, 20, 220, 171)]


def test_so_does_python_between_two_calls():
    # The step went on at 20 and its function ended at 100.
    assert waits(*scene(100, *runs(40, 70))) == [(MAIN, OTHER, 20, 100, 31)]


@pytest.mark.parametrize(
    "others",
    [
        [],
        runs(300, 400),  # at another time
        [python(TOKENIZE, 0, 990 * US, thread=OTHER)],  # of which nothing is seen meanwhile
        [python(TOKENIZE, 30 * US, 990 * US, thread=OTHER)],  # as little as once
        runs(40, 70, name=SLEEP, inner=SLEEP),
        [
            *runs(),
            *(python(LONG, us * US, (us + 110) * US, thread=OTHER) for us in (25, 135, 245)),
        ],
        [python(TOKENIZE, 0, 990 * US, thread=OTHER)]
        + [operator("aten::mm", us * US, (us + 10) * US, thread=OTHER) for us in (30, 60)],
    ],
)
def test_a_thread_that_is_not_seen_running_python_has_no_lock(others):
    assert [row[:2] for row in waits(*scene(220, *others, silent=LINEAR))] == []


@pytest.mark.parametrize("silent", [SLEEP, LOCK])
def test_a_thread_that_sleeps_or_waits_needs_no_lock(silent):
    assert waits(*scene(220, *runs(30, 200), silent=silent)) == []


def test_a_built_in_function_that_called_nothing_may_have_given_the_lock_back():
    rows = scene(220, *runs(130, 200), silent=STEP)

    assert waits(*rows, python(LINEAR, 100 * US, 210 * US)) == []


def test_a_line_of_python_takes_a_while():
    assert waits(*scene(39, *runs(25, 30))) == []


def test_a_thread_that_launches_nothing_holds_up_no_gpu():
    rows = [
        python(STEP, 0, 1_000 * US),
        *runs(30, 200),
        kernel(900 * US, 910 * US, correlation=1),
        launch(15 * US, 20 * US, 1, thread=OTHER),
    ]

    assert [row[0] for row in waits(*rows)] == [OTHER] * len(waits(*rows))


def test_each_process_has_its_own_lock():
    rows = scene(220, *runs(30, 200), silent=LINEAR)
    of_two = replace(trace(*rows), threads=(Thread("1", "1", ""), Thread("2", "2", "")))

    assert len(gil_waits(observe_host(build_timeline(of_two)))) == 0


@st.composite
def nested_functions(draw, thread):
    """Events of one thread that lie inside one another or apart, in tens of microseconds."""
    rows, start = [], 0
    for _ in range(draw(st.integers(0, 6))):
        start += draw(st.integers(0, 4))
        length = draw(st.integers(2, 16))
        name = draw(st.sampled_from([STEP, LINEAR, SLEEP, SHORT, LONG]))
        rows.append(python(name, start, start + length, thread=thread))
        if draw(st.booleans()):
            inner = draw(st.integers(1, length - 1))
            maker = draw(st.sampled_from([operator, python]))
            name = "aten::mm" if maker is operator else SHORT
            rows.append(maker(name, start, start + inner, thread=thread))
        start += length
    return rows


@examples(200)
@given(nested_functions(MAIN), nested_functions(OTHER))
def test_every_wait_is_that_of_the_definition(of_main, of_other):
    ticks = 10 * US
    rows = [
        replace(row, start=row.start * ticks, end=row.end * ticks) for row in (*of_main, *of_other)
    ]
    launched = [kernel(5_000 * US, 5_001 * US, correlation=1), launch(3_000 * US, 3_001 * US, 1)]

    found = gil_waits(host(*rows, *launched))

    columns = (found.thread_index, found.holder_index, found.start_ns, found.end_ns, found.held_ns)
    assert sorted(zip(*(x.tolist() for x in columns), strict=True)) == gil.gil_waits(
        [*rows, *launched], {MAIN}, {SLEEP}
    )
