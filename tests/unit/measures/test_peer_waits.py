"""What collectives waited for a peer. Times are in microseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.rows import US, comm, communicates, graph, kernel, launch, step, timeline
from tests.examples import examples
from tests.reference.peer_waits import Collective, waits
from tracelab.measures.collective_costs import peer_waits
from tracelab.measures.exposed import exposed
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT

MIB = 1 << 20


def in_ns(*rows):
    return [replace(row, start=row.start * US, end=row.end * US) for row in rows]


def waited(*rows):
    """Of each collective by start: fastest twin, wait, whether slow; in microseconds."""
    ordered = timeline(*in_ns(*rows))
    found, comms = peer_waits(ordered), np.flatnonzero(ordered.kind == Kind.COMM)
    return [
        (
            None if found.fastest_ns[row] == ABSENT else int(found.fastest_ns[row]) // US,
            int(found.wait_ns[row]) // US,
            bool(found.is_slow[row]),
        )
        for row in comms[np.argsort(ordered.start_ns[comms], kind="stable")].tolist()
    ]


def test_waits_for_what_it_takes_beyond_its_fastest_twin():
    rows = [comm(start, end, message_bytes=MIB) for start, end in ((0, 20), (100, 150), (200, 249))]

    assert waited(*rows) == [(20, 0, False), (20, 30, False), (20, 0, False)]


@pytest.mark.parametrize(
    "other",
    [
        {"message_bytes": 2 * MIB},
        {"message_bytes": MIB, "stream": 8},
        {"message_bytes": MIB, "process_group": "1"},
    ],
)
def test_twins_are_of_one_size_stream_and_group(other):
    rows = [comm(0, 20, message_bytes=MIB), comm(100, 140, **other)]

    assert waited(*rows) == [(None, 0, False), (None, 0, False)]


def test_slower_than_any_link_is_said_without_a_faster_twin():
    # At 25 bytes a nanosecond 100 MB take 4 ms.
    rows = [comm(start, start + 4_001, message_bytes=100_000_000) for start in (0, 5_000)]

    assert waited(*rows) == [(4_001, 4_001, True)] * 2
    assert waited(comm(0, 4_000, message_bytes=100_000_000)) == [(None, 0, False)]


def test_size_is_that_of_the_operator_around_the_launch():
    rows = []
    for number, start, end, size in ((1, 0, 20, MIB), (2, 100, 150, MIB), (3, 200, 280, 2 * MIB)):
        around = communicates(start - 9, start - 1, in_bytes=size)
        rows += [around, launch(start - 8, start - 7, number), comm(start, end, correlation=number)]

    assert waited(*rows) == [(20, 0, False), (20, 30, False), (None, 0, False)]


def test_only_size_of_a_file_is_that_of_all():
    around = communicates(0, 1, in_bytes=MIB)

    assert waited(around, comm(5, 25), comm(100, 150)) == [(20, 0, False), (20, 30, False)]


def test_without_sizes_twins_have_the_same_place_in_their_steps():
    rows = []
    for number in range(2):
        start = 1_000 * number
        rows.append(step(number, start, start + 900))
        for place, length in ((0, 10), (1, 100 * (1 + 2 * number))):
            correlation = 2 * number + place + 1
            launched = start + 10 + place
            rows.append(launch(launched, launched + 1, correlation))
            begin = start + 100 + 200 * place
            rows.append(comm(begin, begin + length, correlation=correlation))

    assert waited(*rows) == [(10, 0, False), (100, 0, False), (10, 0, False), (100, 200, False)]
    assert waited(comm(0, 20), comm(100, 150)) == [(None, 0, False)] * 2


SIZES = st.sampled_from([ABSENT, 100, 1_000_000, 3_000_000])
COLLECTIVES = st.lists(
    st.tuples(st.integers(1, 300), SIZES, st.sampled_from([7, 8]), st.booleans()), max_size=12
)


@examples(100)
@given(COLLECTIVES)
def test_waits_are_those_of_a_slow_account(chosen):
    rows, expected, now, number = [], [], 10, 0
    for index, (length, size, stream, is_in_next_step) in enumerate(chosen):
        if is_in_next_step or not index:
            now, number = now + 20, number + 1
        rows.append(launch(now, now + 1, index + 1))
        rows.append(
            comm(
                now + 2, now + 2 + length, stream=stream, correlation=index + 1, message_bytes=size
            )
        )
        moved = None if size == ABSENT else size
        span = ((now + 2) * US, (now + 2 + length) * US)
        expected.append(Collective(*span, (stream,), moved, number))
        now += length + 5
    begins = {}
    for row, one in zip(rows[::2], expected, strict=True):
        begins.setdefault(one.step, row.start - 1)
    bounds = [*sorted(begins.values()), now + 1]
    steps = [step(i, bounds[i], bounds[i + 1]) for i in range(len(begins))]

    found = waited(*steps, *rows)

    in_us = [(fast, wait, slow) for fast, wait, slow in waits(expected)]
    assert found == [(f and f // US, w // US, s) for f, w, s in in_us]


def test_exposed_time_is_that_of_the_transfer_and_that_of_the_wait():
    # The second waits for 30 us, of which 10 are exposed.
    rows = in_ns(
        comm(0, 20, stream=9, message_bytes=MIB),
        kernel(100, 120),
        comm(100, 150, stream=9, message_bytes=MIB),
    )
    measured = graph(*rows)
    ordered = measured.host.timeline

    moving, waiting = peer_waits(ordered).split(ordered, exposed(measured))

    assert [(x.start_ns.tolist(), x.end_ns.tolist()) for x in (moving, waiting)] == [
        ([0, 130_000], [20_000, 150_000]),
        ([120_000], [130_000]),
    ]
    assert not waiting.bound_ns.any()
