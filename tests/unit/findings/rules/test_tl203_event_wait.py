"""TL203: three kernels of 200 us that are serialized, the second one in a side stream."""

import pytest

from tests.build.files import US
from tests.build.finding_events import LARGE, SMALL, serialized_kernels, wait, work
from tracelab.findings.finding import CRITICAL, INFO


def test_streams_serialized_by_an_event(summaries):
    # Twice 200 us were lost, but the side stream has only 200 us of work to put beside them.
    assert summaries(*serialized_kernels(SMALL)) == [("TL203", "event_wait", CRITICAL, 200)]


def test_counts_the_side_streams_work_once_whatever_the_kernels_are(summaries):
    # Two findings, because two kernels were waited for: the side stream's 200 us can run beside
    # the first kernel, or the second one beside them, but not both.
    kernels = ("first", "side", "second")

    assert summaries(*serialized_kernels(SMALL, names=kernels)) == [
        ("TL203", "event_wait", CRITICAL, 200),
        ("TL203", "event_wait", INFO, 0),
    ]


def test_room_by_the_blocks_of_kernels_and_the_gpus_multiprocessors(summaries):
    # GIVEN what PyTorch's own CUPTI collector writes: no share of the GPU, but the grid
    gpu = {"deviceProperties": [{"id": 0, "numSms": 100}]}
    a_third, most = {"grid": [11, 3, 1]}, {"grid": [80, 1, 1]}

    assert summaries(*serialized_kernels(a_third), before=gpu) == [
        ("TL203", "event_wait", CRITICAL, 200)
    ]
    assert summaries(*serialized_kernels(most), before=gpu) == [("TL203", "no_free_sm", INFO, 0)]
    assert summaries(*serialized_kernels(a_third)) == [("TL203", "no_free_sm", INFO, 0)]


@pytest.mark.parametrize("room", [LARGE, {}, {"blocks per SM": "many"}], ids=str)
def test_kernels_without_room_alarm_nobody(summaries, room):
    assert summaries(*serialized_kernels(room)) == [("TL203", "no_free_sm", INFO, 0)]


def test_is_silent_where_the_streams_overlap(summaries):
    rows = [
        *work(10 * US, 210 * US, "scan", launched=0, correlation=1, **SMALL),
        *work(12 * US, 212 * US, "scan", launched=5 * US, correlation=2, stream=13, **SMALL),
        *wait(9 * US, 12, stream=7, of=13, recorded=8 * US),
        *work(212 * US, 412 * US, "scan", launched=10 * US, correlation=3, **SMALL),
    ]

    assert summaries(*rows) == []
