"""Peaks of memory, where they were reached, and allocations that were tried again. Times in ns."""

from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from tests.build.rows import call, graph, kernel, launch, operator, step
from tests.examples import examples
from tracelab.measures.memory import find_retries, memory
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import MemoryReadings

MIB = 2**20
NO_LINES = SourceLines()


def with_memory(*rows, readings):
    """The graph of these rows and readings: time, thread, device, allocated, reserved bytes."""
    plain = graph(*rows).host.timeline.trace
    time, thread, device, allocated, reserved = np.array(readings).reshape(-1, 5).T
    known = MemoryReadings(
        time, thread.astype(np.int32), device.astype(np.int32), allocated, reserved
    )
    return build_graph(observe_host(build_timeline(replace(plain, memory=known))))


def rows_of(made):
    return list(memory(made, made.host.timeline.windows, NO_LINES))


TWO_STEPS = (
    step(1, 0, 100),
    operator("aten::mm", 10, 40),
    operator("aten::empty", 12, 20),
    launch(30, 32, 1),
    kernel(40, 60, correlation=1),
    step(2, 100, 200),
    launch(130, 132, 2),
    kernel(140, 160, correlation=2),
)


def test_peaks_are_the_highest_readings_of_a_window_and_name_their_operator():
    """GIVEN 5 MiB in step 1, 9 MiB within it, inside of an operator, and 7 MiB before step 2
    THEN step 1 peaks in the innermost operator, and step 2 where it began: nowhere in it."""
    made = with_memory(
        *TWO_STEPS,
        readings=[
            (5, 0, 0, 5 * MIB, 10 * MIB),
            (15, 0, 0, 9 * MIB, 20 * MIB),
            (50, 0, 0, 7 * MIB, 20 * MIB),
            (150, 0, 0, 6 * MIB, 12 * MIB),
            (160, 0, -1, 99 * MIB, 0),
        ],
    )
    whole, first, second = rows_of(made)
    peaks = [(row.peak_allocated_bytes, row.operator) for row in (whole, first, second)]
    assert peaks == [(9 * MIB, "aten::empty"), (9 * MIB, "aten::empty"), (7 * MIB, None)]
    assert (first.peak_reserved_bytes, first.grown_bytes) == (20 * MIB, 2 * MIB)
    assert (second.peak_reserved_bytes, second.grown_bytes) == (20 * MIB, -MIB)


def test_a_file_without_readings_has_no_rows():
    assert rows_of(graph(*TWO_STEPS)) == []


def retrying(*rows, at=19):
    """Starts of the retries among these calls; the allocator is read once in the operator."""
    made = with_memory(*TWO_STEPS, *rows, readings=[(5, 0, 0, MIB, MIB), (at, 0, 0, MIB, MIB)])
    found = find_retries(made.host.timeline)
    assert [row.retries for row in rows_of(made)][1:] == [len(found[0]), 0]
    assert set(found) == {0}
    return found[0].tolist()


FREED = call("cudaFree", 15, 16), call("cudaFree", 16, 17)


def test_an_allocation_after_what_was_kept_is_given_back_in_one_operator_is_a_retry():
    """GIVEN a limit of the process, and a full GPU, which fails a first call."""
    assert retrying(*FREED, call("cudaMalloc", 17, 18)) == [17]
    assert retrying(call("cudaMalloc", 13, 14), *FREED, call("cudaMalloc", 17, 18)) == [17]


def test_allocations_that_give_nothing_back_are_none():
    assert retrying(call("cudaMalloc", 13, 14), call("cudaMalloc", 17, 18)) == []


def test_allocations_of_several_operators_or_of_none_are_none():
    assert retrying(*FREED, call("cudaMalloc", 22, 23), at=24) == []
    assert retrying(call("cudaFree", 53, 54), call("cudaMalloc", 55, 56), at=57) == []


def test_what_a_library_allocates_for_itself_is_none():
    assert retrying(*FREED, call("cudaMalloc", 17, 18), at=30) == []
    several = call("cudaMalloc", 17, 18), call("cudaMalloc", 18, 19)
    assert retrying(*FREED, *several, at=19) == []


_readings = st.lists(
    st.tuples(
        st.integers(0, 220), st.just(0), st.integers(0, 0), st.integers(0, 9), st.integers(0, 9)
    ),
    max_size=12,
)


@examples(60)
@given(_readings)
def test_peaks_beside_a_loop_over_moments(readings):
    """What a reading says holds until the next one; before the first one nothing is known."""
    readings = sorted(readings, key=lambda reading: reading[0])
    made = with_memory(*TWO_STEPS, readings=readings)
    windows = {x.step: x for x in made.host.timeline.windows}

    def held(at_ns, field):
        earlier = [reading[field] for reading in readings if reading[0] <= at_ns]
        return earlier[-1] if earlier else None

    for row in rows_of(made):
        window = windows[row.step]
        start, end = (-1, 221) if row.step is None else (window.start_ns, window.end_ns)
        for field, peak in ((3, row.peak_allocated_bytes), (4, row.peak_reserved_bytes)):
            known = [x for x in (held(start - 1, field),) if x is not None]
            known += [reading[field] for reading in readings if start <= reading[0] < end]
            assert peak == max(known)
    known = {step for step, x in windows.items() if held(x.end_ns - 1, 3) is not None}
    assert {row.step for row in rows_of(made)} - {None} == known - {None}
