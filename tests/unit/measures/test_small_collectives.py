"""Which collectives are small and in a row. Times are in microseconds."""

import pytest
from hypothesis import given, strategies as st

from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    US,
    comm,
    kernel,
    launch,
    operator,
    step,
    timeline,
)
from tests.examples import examples
from tests.reference.small_collectives import Launched, saved
from tracelab.measures.collective_costs import small_collectives
from tracelab.model.trace import ABSENT

KB, MB = 1_000, 1_000_000
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def program(*items, stream=20):
    """Rows and the slow model's kernels of collectives (thread, length, bytes) and compute.

    Items follow one another on the host; a collective starts 5 us after its launch or after the
    one before. An item without a size is compute: (thread,).
    """
    rows, kernels, now, free = [step(1, 0, 100_000 * US)], [], 10, 0
    for number, (thread, *collective) in enumerate(items, 1):
        is_gradient = thread == AUTOGRAD
        rows.append(launch(now * US, (now + 1) * US, number, thread=thread))
        if is_gradient:
            rows.append(operator(ACCUMULATE, (now - 1) * US, (now + 2) * US, thread=thread))
        if collective:
            length, size = collective
            start, free = max(now + 5, free + 1), max(now + 5, free + 1) + length
            rows.append(
                comm(
                    start * US,
                    free * US,
                    stream=stream,
                    correlation=number,
                    message_bytes=ABSENT if size is None else size,
                )
            )
            span = start * US, free * US
            kernels.append(Launched(now * US, thread, *span, ("sort",), size, 1, is_gradient))
        else:
            rows.append(kernel((now + 3) * US, (now + 4) * US, correlation=number))
            kernels.append(Launched(now * US, thread))
        now += 20
    return rows, kernels


def found(rows):
    """Of each small collective that is saved: start, latency and start of the gap before it."""
    ordered = timeline(*rows)
    small = small_collectives(ordered)
    columns = ordered.start_ns[small.row], small.latency_ns, small.gap_start_ns
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def in_us(*items):
    return [tuple(ns // US for ns in row) for row in found(program(*items)[0])]


def test_all_but_one_cost_a_latency_and_the_time_since_the_one_before():
    # Launched at 10, 30, 50 and 70: each starts 5 us later, and the shortest takes 7 us.
    collectives = [(MAIN, length, 4 * KB) for length in (9, 7, 8, 7)]

    assert in_us(*collectives) == [(35, 7, 24), (55, 7, 42), (75, 7, 63)]


def test_beside_a_large_one_all_small_ones_could_be_part_of_it():
    collectives = [(MAIN, length, 4 * KB) for length in (9, 7, 8, 7)]

    assert len(in_us(*collectives, (MAIN, 100, 16 * MB))) == 4


@pytest.mark.parametrize(
    "items",
    [
        [(MAIN, 9, 4 * KB)] * 3,  # three: perhaps the buffers of three types
        [(MAIN, 9, 1 * MB)] * 8,  # no small message
        [(MAIN, 9, None)] * 8,  # of unknown size
        [(MAIN, 9, 4 * KB), *[(MAIN,)] * 3] * 8,  # the next layer uses each of them
        [(AUTOGRAD, 9, 4 * KB), (MAIN,)] * 8,  # one of each backward pass
    ],
)
def test_silence(items):
    assert in_us(*items) == []


def test_nothing_that_takes_so_long_is_a_latency():
    assert {latency for _, latency, _ in in_us(*[(MAIN, 300, 4 * KB)] * 8)} == {0}


def test_gradients_are_in_a_row_whatever_their_backward_pass_computes_between():
    items = [(AUTOGRAD, 9, 4 * KB), *[(AUTOGRAD,)] * 5] * 4

    assert in_us(*items) == [(start, 9, start) for start in (135, 255, 375)]


def test_a_division_between_uses_only_what_is_sent():
    assert len(in_us(*[(MAIN, 9, 4 * KB), (MAIN,)] * 4)) == 3


ITEMS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([MAIN, AUTOGRAD])),
        st.tuples(
            st.sampled_from([MAIN, AUTOGRAD]),
            st.integers(1, 250),
            st.sampled_from([None, 100, 4 * KB, MB]),
        ),
    ),
    max_size=24,
)


@examples(100)
@given(ITEMS)
def test_small_collectives_are_those_of_a_slow_account(items):
    rows, kernels = program(*items)

    assert found(rows) == saved(kernels)
