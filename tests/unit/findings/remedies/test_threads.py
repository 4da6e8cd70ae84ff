"""Python threads that launch, wait for one another, or have the GIL."""

from dataclasses import replace

import numpy as np
import pytest

from tests.build.data_parallel import LOCK, data_parallel
from tests.build.files import write
from tests.build.rows import AUTOGRAD, US, graph, kernel, launch, operator, python
from tracelab import analyze
from tracelab.findings.recognition import recognize
from tracelab.findings.remedies import REMEDIES

OTHER = AUTOGRAD
OF_THREADS = [x for x in REMEDIES if x.id in ("data-parallel", "gil-contention", "thread-wait")]
STEP, TOKENIZE = "train.py(3): step", "tokens.py(9): tokenize"
LINEAR, SHORT = "<built-in function linear>", "<built-in function len>"
RESULT = "concurrent/futures/_base.py(428): result"


def places(*rows):
    """Event ids by the id of the remedy that is recognized by them."""
    found = recognize(graph(*rows), OF_THREADS)
    return {name: events.tolist() for name, events in found.places.items()}


def findings(tmp_path, events):
    return [
        (x.remedy, x.where.function, x.where.waited_in)
        for x in analyze(write(tmp_path / "hand.json", events)).findings
        if x.rule == "TL301"
    ]


# nn.DataParallel.


@pytest.mark.parametrize("with_stacks", [True, False])
def test_launches_of_data_parallels_threads_have_its_remedy(tmp_path, with_stacks):
    found = findings(tmp_path, data_parallel(with_stacks=with_stacks))

    expected = (
        ("data-parallel", "step", "parallel_apply")
        if with_stacks
        else ("data-parallel", None, "DataParallel.forward")
    )
    assert found.count(expected) == 1
    assert [remedy for remedy, *_ in found].count("data-parallel") == 1
    # The optimizer, which the main thread runs, is none of it.
    assert [remedy for remedy, *_ in found].count(None) == 1


def test_data_parallel_on_one_gpu_starts_no_threads(tmp_path):
    threads = {event["tid"] for event in data_parallel() if event["tid"] < 0}
    of_main = [event for event in data_parallel() if event["tid"] not in threads]

    assert len(threads) == 2
    assert "data-parallel" not in [remedy for remedy, *_ in findings(tmp_path, of_main)]


# The GIL.


def launches_every_ms(*others, count=10):
    """A step with a launch in each ms, by `linear`, which returns 0.5 ms after it launched."""
    rows = [python(STEP, 0, count * 1_000 * US)]
    for i in range(count):
        at = 1_000 * i
        rows += [
            kernel((at + 30) * US, (at + 40) * US, correlation=i + 1),
            launch((at + 20) * US, (at + 25) * US, i + 1),
            python(LINEAR, (at + 10) * US, (at + 525) * US),
        ]
    return [*rows, *others]


def tokenizes(*ranges_us):
    """A thread that calls a function every 10 us for some time, and else sleeps."""
    rows = []
    for start_us, end_us in ranges_us:
        rows.append(python(TOKENIZE, start_us * US, end_us * US, thread=OTHER))
        rows += [
            python(SHORT, us * US, (us + 1) * US, thread=OTHER)
            for us in range(start_us + 1, end_us - 1, 10)
        ]
    return rows


def test_launches_after_waits_for_the_gil_have_its_remedy():
    # The other thread runs beside the second half of each ms: `linear` returns 0.5 ms late, and
    # then the step itself does not go on.
    rows = launches_every_ms(*tokenizes((0, 10_000)))

    found = places(*rows)["gil-contention"]

    late = [rows[event_id] for event_id in found]
    assert [row.start // US for row in late] == [1_020 + 1_000 * i for i in range(9)]


def test_share_of_time_with_the_gil_counts_from_the_first_launch():
    later = 600_000_000 * US  # ten minutes after the first event of the file
    rows = [
        replace(row, start=row.start + later, end=row.end + later)
        for row in launches_every_ms(*tokenizes((0, 10_000)))
    ]

    assert len(places(*rows, python("import", 0, 1, thread=OTHER))["gil-contention"]) == 9


@pytest.mark.parametrize(
    "others",
    [
        [],
        tokenizes((30, 500)),  # one of ten launches is late
        [python("<built-in function sleep>", 0, 10_000 * US, thread=OTHER)],
        [python(TOKENIZE, 0, 10_000 * US, thread=OTHER)]
        + [
            operator("aten::mm", us * US, (us + 90) * US, thread=OTHER) for us in range(0, 9900, 99)
        ],
    ],
)
def test_a_thread_that_has_the_gil_seldom_is_no_contender(others):
    assert "gil-contention" not in places(*launches_every_ms(*others))


# Waits for other threads.


def waits_for_tokens(*others):
    """The step waits from 10 to 90 for what it submitted, and launches at 95."""
    return [
        kernel(1 * US, 5 * US, correlation=1),
        launch(0, 1 * US, 1),
        python(STEP, 0, 120 * US),
        python(RESULT, 10 * US, 90 * US),
        python(LOCK, 12 * US, 88 * US),
        launch(95 * US, 96 * US, 2),
        kernel(100 * US, 110 * US, correlation=2),
        *others,
    ]


def test_a_wait_and_what_the_other_thread_did_meanwhile():
    rows = waits_for_tokens(
        python("threading.py(1): run", 0, 500 * US, thread=OTHER),  # its loop
        python(TOKENIZE, 8 * US, 87 * US, thread=OTHER),
        python(SHORT, 100 * US, 110 * US, thread=OTHER),  # after the wait
    )

    assert places(*rows) == {"thread-wait": [3, 4, 8]}


def test_a_thread_that_launches_nothing_may_wait():
    rows = [python(RESULT, 0, 500 * US, thread=OTHER), *launches_every_ms()]

    assert places(*rows) == {}


def test_of_a_thread_that_launches_itself_only_the_wait_is_said():
    rows = waits_for_tokens(
        python(TOKENIZE, 8 * US, 87 * US, thread=OTHER),
        launch(50 * US, 51 * US, 3, thread=OTHER),
        kernel(60 * US, 61 * US, correlation=3),
    )

    assert places(*rows) == {"thread-wait": [3, 4]}
    found = recognize(graph(*rows), OF_THREADS).remedies(np.array([7]), "TL301")
    assert found == (None,)
