"""Python threads that launch or wait for one another."""

import numpy as np
import pytest

from tests.build.data_parallel import LOCK, data_parallel
from tests.build.files import write
from tests.build.rows import AUTOGRAD, US, graph, kernel, launch, python
from tracelab import analyze
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import recognize

OTHER = AUTOGRAD
OF_THREADS = [x for x in REMEDIES if x.id in ("data-parallel", "thread-wait")]
STEP, TOKENIZE = "train.py(3): step", "tokens.py(9): tokenize"
SHORT = "<built-in function len>"
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
    rows = [
        kernel(30 * US, 40 * US, correlation=1),
        launch(20 * US, 25 * US, 1),
        python(STEP, 0, 500 * US),
        python(RESULT, 0, 500 * US, thread=OTHER),
    ]

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
