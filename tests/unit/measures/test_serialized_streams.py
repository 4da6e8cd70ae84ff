"""Streams that ran serialized. Times are ticks of 10 us."""

import pytest
from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import call, graph, kernel
from tests.examples import examples
from tests.reference.ticks import TICK, Account, scaled, wait, work
from tracelab.measures.overlap_blockers import OverlapBlocker, serialized_streams
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT


def pieces(*rows):
    """Every piece: what was blocked, what ran, start, end, blocker, call, bound."""
    measured = graph(*scaled(rows))
    timeline, serialized = measured.host.timeline, serialized_streams(measured)
    return [
        (
            timeline.trace.name_of(int(timeline.event_id[row])),
            timeline.trace.name_of(int(timeline.event_id[other])),
            start // TICK,
            end // TICK,
            OverlapBlocker(blocker),
            blocking_call_id,
            bound // TICK,
        )
        for row, other, start, end, blocker, blocking_call_id, bound in zip(
            serialized.row.tolist(),
            serialized.other_row.tolist(),
            serialized.start_ns.tolist(),
            serialized.end_ns.tolist(),
            serialized.blocker.tolist(),
            serialized.blocking_call_id.tolist(),
            serialized.bound_ns.tolist(),
            strict=True,
        )
    ]


@examples(100)
@given(random_rows())
def test_one_stream_computed_while_the_other_was_blocked(rows):
    account, measured = Account(rows), graph(*scaled(rows))
    timeline = measured.host.timeline

    serialized = serialized_streams(measured)

    for row, other, start, end, bound in zip(
        serialized.row.tolist(),
        serialized.other_row.tolist(),
        (serialized.start_ns // TICK).tolist(),
        (serialized.end_ns // TICK).tolist(),
        (serialized.bound_ns // TICK).tolist(),
        strict=True,
    ):
        blocked, ran = (rows[int(timeline.event_id[x])] for x in (row, other))
        assert blocked.device == ran.device
        assert blocked.stream != ran.stream
        assert start < end <= min(blocked.start, ran.end)
        assert 0 <= bound <= end - start
        compute = account.of(blocked.device, Kind.COMPUTE)
        of_stream = [i for i in compute if rows[i].stream == blocked.stream]
        assert bound <= len({t for t in account.busy(of_stream) if t >= blocked.start})
    assert not (serialized.blocker == OverlapBlocker.TRUE_DEPENDENCY).any()
    assert (
        (serialized.blocking_call_id != ABSENT) == (serialized.blocker == OverlapBlocker.HOST_SYNC)
    ).all()


def in_turns_by_events():
    """Stream 7 computes in [10, 30) and [50, 58), stream 13 in [30, 50); all launched by 8.

    Each waits for all that the other was given by then.
    """
    return [
        *work(10, 30, 0, 1, name="first"),
        *wait(2, 10, stream=13, of=7, recorded=1),
        *work(30, 50, 3, 2, name="side", stream=13),
        *wait(5, 12, stream=7, of=13, recorded=4),
        *work(50, 58, 6, 3, name="second"),
    ]


def test_turns_by_events():
    # The side stream could have done its 20 ticks in the 20 of the first; the second kernel is 8.
    assert pieces(*in_turns_by_events()) == [
        ("side", "first", 10, 30, OverlapBlocker.EVENT_WAIT, ABSENT, 20),
        ("second", "side", 30, 50, OverlapBlocker.EVENT_WAIT, ABSENT, 8),
    ]


def test_turns_by_a_blocking_call():
    # The host waits from 2 to 31 (event 2) before it launches the other stream's work at 32.
    rows = [
        *work(10, 30, 0, 1, name="first"),
        call("cudaStreamSynchronize", 2, 31),
        *work(33, 45, 32, 2, name="side", stream=13),
    ]

    assert pieces(*rows) == [("side", "first", 10, 30, OverlapBlocker.HOST_SYNC, 2, 12)]


def test_turns_by_the_hardware_queue():
    rows = [
        *work(10, 30, 0, 1, name="first"),
        *work(30, 50, 2, 2, name="side", stream=13),
    ]

    assert pieces(*rows) == [("side", "first", 10, 30, OverlapBlocker.HARDWARE_QUEUE, ABSENT, 20)]


def test_turn_of_several_kernels_is_one():
    # Three kernels of stream 7 until 40, with a break; then two of stream 13, 12 ticks in all.
    rows = [
        *work(10, 20, 0, 1, name="a"),
        *work(20, 30, 1, 2, name="b"),
        *work(34, 40, 2, 3, name="c"),
        *wait(4, 10, stream=13, of=7, recorded=3),
        *work(40, 45, 5, 4, name="side", stream=13),
        *work(48, 55, 6, 5, name="more", stream=13),
    ]

    assert pieces(*rows) == [("side", "c", 10, 40, OverlapBlocker.EVENT_WAIT, ABSENT, 12)]


# When nothing is said.


@pytest.mark.parametrize("start", [12, 26])
def test_streams_that_overlap_take_no_turns(start):
    # From 12 on 18 of 20 ticks are common, from 26 on 4 of 16; more than a fifth either way.
    rows = [
        *work(10, 30, 0, 1),
        *work(start, 42 if start == 26 else 32, 2, 2, stream=13),
    ]

    assert pieces(*rows) == []


@pytest.mark.parametrize(("length", "heard"), [(4, 0), (5, 2)])
def test_stream_with_little_compute_takes_no_turns(length, heard):
    # Of a trace of 100 ticks, 4 are less than 5 %.
    middle = 50 + length
    rows = [
        *work(10, 50, 0, 1, name="first"),
        *wait(2, 10, stream=13, of=7, recorded=1),
        *work(50, middle, 3, 2, name="side", stream=13),
        *wait(5, 12, stream=7, of=13, recorded=4),
        *work(middle, 110, 6, 3, name="second"),
    ]

    assert len(pieces(*rows)) == heard


def test_other_devices_take_no_turns():
    rows = [*work(10, 30, 0, 1), *work(30, 50, 2, 2, device=1)]

    assert pieces(*rows) == []


def test_communication_and_copies_take_no_turns():
    # What overlaps them is for `exposed` to say.
    rows = [
        *work(10, 30, 0, 1),
        *work(30, 50, 2, 2, maker=kernel, name="ncclDevKernel_AllReduce", stream=13),
    ]

    assert pieces(*rows) == []


def test_one_stream_takes_no_turns():
    assert pieces(*work(10, 30, 0, 1), *work(30, 50, 2, 2)) == []
