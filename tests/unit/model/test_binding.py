"""What each activity waited for. Times of hand-made traces are microseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.random_replays import random_replays
from tests.build.random_rows import random_rows
from tests.build.rows import (
    D2D,
    H2D,
    PAGEABLE_H2D,
    US,
    call,
    comm,
    copy,
    graph,
    kernel,
    launch,
    memset,
    sync_row,
)
from tests.examples import examples
from tests.reference.binding import Bindings
from tests.reference.ticks import beside_allocations
from tracelab.model.binding import Constraint, Reason
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import (
    AWAITED,
    LATENCIES,
    NODE,
    Since,
    event_index,
    launch_index,
    previous_index,
)
from tracelab.model.stream_progress import StreamProgress, StreamQueues
from tracelab.model.stream_waits import resolve_waits
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import ABSENT
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources


def difference(made_graph):
    """The rows, the product's and the slow model's, in which the two do not agree."""
    timeline, binding = made_graph.host.timeline, made_graph.binding
    queues = StreamQueues(timeline)
    expected = Bindings(
        made_graph, resolve_waits(timeline, queues, StreamProgress(timeline, queues))
    )
    columns = (
        binding.launch_ns,
        binding.stream_ns,
        binding.event_ns,
        binding.constraint,
        binding.source_row,
        binding.is_inferred,
        binding.ready_ns,
        binding.delay_ns,
        binding.unexplained_ns,
        binding.reason,
    )
    found = zip(*(column.tolist() for column in columns), strict=True)
    wanted = [
        tuple(ABSENT if value is None else value for value in vars(bound).values())
        for bound in expected.bound
    ]
    typical = [expected.typical[x.since, x.previous, x.kind] for x in LATENCIES]
    own = [(x.since, x.previous, x.kind) in expected.is_own for x in LATENCIES]
    assert binding.latencies.typical_ns.tolist() == typical
    assert binding.latencies.is_own.tolist() == own
    return [
        (row, *pair)
        for row, pair in enumerate(zip(found, wanted, strict=True))
        if pair[0] != pair[1]
    ]


@pytest.mark.parametrize("unit", [1_000, 4_000, 10_000])  # ns; within latencies, and past them
@examples(150)
@given(st.one_of(random_rows(), beside_allocations(random_rows())))
def test_binding_is_that_of_a_slow_account(unit, rows):
    in_ns = [replace(row, start=row.start * unit, end=row.end * unit) for row in rows]

    assert difference(graph(*in_ns)) == []


@pytest.mark.parametrize("unit", [100, 2_000, 10_000])  # ns
@examples(200)
@given(data=st.data())
def test_binding_of_nodes_of_graphs_is_that_of_a_slow_account(unit, data):
    rows = data.draw(random_replays(unit))

    assert difference(graph(*rows)) == []


def test_binding_of_bundled_traces_is_that_of_a_slow_account(bundled_path):
    [source] = find_sources([str(bundled_path)])

    assert difference(build_graph(observe_host(build_timeline(read_trace(source))))) == []


# One constraint after the other. Rows are in microseconds; the kernel in question is the first.


def bound(*rows, **expected):
    """What the first of these rows waited for, in the columns that are expected."""
    in_ns = [replace(row, start=round(row.start * US), end=round(row.end * US)) for row in rows]
    made_graph = graph(*in_ns)
    timeline, binding = made_graph.host.timeline, made_graph.binding
    [row] = np.flatnonzero(timeline.event_id == 0)
    source = binding.source_row[row]
    found = {
        "constraint": Constraint(binding.constraint[row]),
        "source": None if source == ABSENT else int(timeline.event_id[source]),
        "is_inferred": bool(binding.is_inferred[row]),
        "reason": Reason(binding.reason[row]),
        "ready": binding.ready_ns[row] / US,
        "delay": None if binding.delay_ns[row] == ABSENT else binding.delay_ns[row] / US,
        "unexplained": binding.unexplained_ns[row] / US,
    }
    return {name: found[name] for name in expected}, expected


def holds(*rows, **expected):
    found, wanted = bound(*rows, **expected)
    assert found == wanted


BEFORE = [kernel(0, 5, correlation=100), launch(-2, -1, 100)]  # stream 7 works until 5


def test_launch_counts_from_the_return_of_its_call():
    # Called at 3, while the stream still worked, and back at 9, 4 us after the stream was free.
    holds(
        kernel(11, 20, correlation=1),
        launch(3, 9, 1),
        *BEFORE,
        constraint=Constraint.LAUNCH,
        source=None,
        is_inferred=False,
        ready=9,
        delay=4,
        unexplained=0,
    )


def test_stream_that_was_free_after_the_call_had_returned():
    holds(
        kernel(6, 20, correlation=1),
        launch(1, 3, 1),
        *BEFORE,
        constraint=Constraint.STREAM,
        source=2,
        is_inferred=False,
        ready=5,
        delay=2,
    )


@pytest.mark.parametrize(
    ("start", "constraint", "ready"),
    [
        # Typical is 1.6 us after the one before; up to 5 us more the stream explains it.
        (11.6, Constraint.STREAM, 5),
        (11.601, Constraint.LAUNCH, 11.601),
    ],
)
def test_start_within_a_long_call(start, constraint, ready):
    # The call lasted from 3 to 40: when in it the launch was made, the file does not say.
    holds(
        kernel(start, 45, correlation=1),
        launch(3, 40, 1),
        *BEFORE,
        constraint=constraint,
        ready=ready,
    )


def test_first_activity_of_all_had_nothing_but_its_launch():
    holds(
        kernel(11, 20, correlation=1),
        launch(3, 9, 1),
        constraint=Constraint.LAUNCH,
        ready=9,
        delay=None,
    )


@pytest.mark.parametrize(
    ("start", "constraint", "source", "ready"),
    [(7, Constraint.LAUNCH, None, 2), (7.001, Constraint.DEPENDENT_LAUNCH, 2, 7.001)],
)
def test_kernel_that_its_launch_lets_begin_early(start, constraint, source, ready):
    # The one before it ran until 30. Up to 5 us after its launch, that is what it waited for.
    holds(
        kernel(start, 40, correlation=1),
        launch(1, 2, 1, name="cudaLaunchKernelExC"),
        kernel(0, 30, correlation=100),
        launch(-2, -1, 100),
        constraint=constraint,
        source=source,
        ready=ready,
    )


def test_stream_is_free_when_all_before_has_ended():
    # The kernel just before began early and was over at 60, the one before that at 100.
    holds(
        kernel(102, 110, correlation=3),
        launch(5, 6, 3),
        kernel(50, 60, correlation=2),
        launch(3, 4, 2, name="cudaLaunchKernelExC"),
        kernel(10, 100, correlation=1),
        launch(1, 2, 1),
        constraint=Constraint.STREAM,
        source=4,
        ready=100,
        delay=94,
        unexplained=0,
    )


def test_event_that_another_stream_recorded():
    waits = [
        call("cudaEventRecord", -1, -1, correlation=8),
        sync_row(
            "Stream Wait Event",
            0,
            0,
            correlation=9,
            stream=13,
            wait_stream=7,
            wait_correlation=8,
        ),
    ]
    holds(
        kernel(12, 20, correlation=1, stream=13),
        launch(1, 3, 1),
        *BEFORE,
        *waits,
        constraint=Constraint.EVENT,
        source=2,
        is_inferred=False,
        ready=5,
        delay=2,
    )


# What the file does not show: the kernel of stream 13 could have started at 3.


def late(start, *rows, **changed):
    return [
        kernel(start, 200, **({"correlation": 1, "stream": 13} | changed)),
        launch(1, 3, 1),
        *rows,
    ]


@pytest.mark.parametrize(
    ("start", "constraint", "reason", "unexplained"),
    [
        # A kernel typically starts 2.112 us after its launch.
        (25.112, Constraint.LAUNCH, Reason.NONE, 0),
        (25.113, Constraint.UNKNOWN, Reason.NOTHING_IN_THE_WAY, 22.113),
    ],
)
def test_start_is_late_20_us_after_what_is_typical(start, constraint, reason, unexplained):
    holds(*late(start), constraint=constraint, reason=reason, unexplained=unexplained)


@pytest.mark.parametrize(
    ("ended", "constraint"), [(65, Constraint.QUEUE), (64.999, Constraint.UNKNOWN)]
)
def test_late_start_was_behind_what_ended_at_most_35_us_before(ended, constraint):
    other = [kernel(0, ended, correlation=2), launch(-2, -1, 2)]
    holds(*late(100, *other), constraint=constraint)


def test_queue_that_was_in_the_way():
    other = [kernel(0, 98, correlation=2), launch(-2, -1, 2)]
    holds(
        *late(100, *other),
        constraint=Constraint.QUEUE,
        source=2,
        is_inferred=True,
        ready=98,
        delay=95,
        unexplained=0,
    )


@pytest.mark.parametrize(
    "other",
    [
        [kernel(0, 98, correlation=2), launch(1.5, 2, 2)],  # launched after it
        [kernel(0, 98, correlation=2, device=1), launch(-2, -1, 2)],  # on another device
        [kernel(-4, 3, correlation=2), launch(-6, -5, 2)],  # over when it could have started
    ],
)
def test_late_start_was_not_behind(other):
    holds(*late(100, *other), constraint=Constraint.UNKNOWN, source=None)


def test_collective_waits_for_the_one_before_it_whatever_its_stream():
    # NCCL makes the streams of a communicator wait.
    rows = late(100, comm(0, 90, correlation=2, stream=20), launch(-2, -1, 2))
    rows[0] = comm(100, 200, correlation=1, stream=13)
    holds(*rows, constraint=Constraint.EVENT, source=2, is_inferred=True, ready=90)


def test_nodes_of_one_graph_wait_for_each_other():
    rows = [
        kernel(100, 110, correlation=1, stream=13),
        kernel(5, 98, correlation=1),
        kernel(4, 5, correlation=1, stream=13),
        launch(1, 3, 1, name="cudaGraphLaunch"),
    ]
    holds(*rows, constraint=Constraint.EVENT, source=1, is_inferred=True, ready=98)


def test_late_node_of_a_graph_has_what_is_known_of_it():
    # 50 us after the node before it in its stream, and nothing ran beside it.
    holds(
        kernel(60, 70, correlation=1),
        kernel(5, 10, correlation=1),
        launch(1, 3, 1, name="cudaGraphLaunch"),
        constraint=Constraint.STREAM,
        source=1,
        reason=Reason.NONE,
        ready=10,
        delay=7,
        unexplained=50,
    )


@pytest.mark.parametrize(
    ("count", "constraint"), [(63, Constraint.QUEUE), (64, Constraint.UNKNOWN)]
)
def test_of_very_much_that_ended_just_before_the_last_64_are_looked_over(count, constraint):
    # What ended first was launched before the kernel, all else after it.
    rows = [kernel(0, 90, correlation=2), launch(-2, -1, 2)]
    for i in range(count):
        rows += [memset(91 + i / 10, 91.1 + i / 10, stream=20, correlation=3 + i)]
        rows += [launch(10 + i, 10.5 + i, 3 + i)]
    holds(*late(100, *rows), constraint=constraint)


def test_collective_alone_leaves_room():
    other = [comm(2, 150, correlation=2), launch(-2, -1, 2)]
    holds(*late(100, *other), constraint=Constraint.UNKNOWN)


@pytest.mark.parametrize(
    ("begins", "constraint"), [(23, Constraint.NO_FREE_SM), (23.001, Constraint.UNKNOWN)]
)
def test_kernels_that_ran_all_the_time_left_no_multiprocessor(begins, constraint):
    # It could have started at 3 and did at 100; the other kernel ran from 20 us after 3 on.
    other = [kernel(begins, 150, correlation=2), launch(0, 1, 2)]
    holds(*late(100, *other), constraint=constraint)


def test_multiprocessor_that_was_not_free():
    # Two kernels ran: the one that ran longest was in the way.
    others = [
        kernel(2, 150, correlation=2),
        kernel(2, 140, correlation=3, stream=20),
        launch(-2, -1, 2),
        launch(0, 1, 3),
    ]
    holds(
        *late(100, *others),
        constraint=Constraint.NO_FREE_SM,
        source=2,
        is_inferred=True,
        ready=100,
        delay=97,
        unexplained=0,
    )


@pytest.mark.parametrize(
    ("name", "constraint"), [(H2D, Constraint.UNKNOWN), (D2D, Constraint.NO_FREE_SM)]
)
def test_copy_that_leaves_or_reaches_the_device_needs_no_multiprocessor(name, constraint):
    rows = late(100, kernel(2, 150, correlation=2), launch(-2, -1, 2))
    rows[0] = copy(100, 200, name, correlation=1, stream=13)
    holds(*rows, constraint=constraint)


def test_copy_takes_no_multiprocessor():
    other = [copy(2, 150, correlation=2), launch(-2, -1, 2)]
    holds(*late(100, *other), constraint=Constraint.UNKNOWN)


# After a wait whose record is not named, nothing tells since when it waited for something else.


def unresolved_wait(*, device=0):
    return sync_row("Stream Wait Event", 0, 0, correlation=9, device=device, stream=13)


@pytest.mark.parametrize(
    ("begins", "constraint"), [(85, Constraint.NO_FREE_SM), (85.001, Constraint.UNKNOWN)]
)
def test_after_an_unresolved_wait_kernels_must_have_run_for_35_us(begins, constraint):
    # Of the last 35 us, from 65 on, the other kernel ran all but 20. Either way nothing explains
    # the 97 us since 3 for sure.
    other = [kernel(begins, 150, correlation=2), launch(0, 1, 2)]
    reason = Reason.NONE if constraint == Constraint.NO_FREE_SM else Reason.WAIT_WITHOUT_RECORD
    holds(
        *late(100, *other, unresolved_wait()),
        constraint=constraint,
        reason=reason,
        unexplained=97,
    )


@pytest.mark.parametrize("device", [0, 1])
def test_unresolved_wait_of_its_stream_is_the_reason(device):
    # All that the file has had ended 95 us before: the wait was for something else.
    other = [kernel(0, 5, correlation=2, device=device), launch(-2, -1, 2)]
    reason = Reason.WAIT_WITHOUT_RECORD
    holds(*late(100, *other, unresolved_wait()), constraint=Constraint.UNKNOWN, reason=reason)


@pytest.mark.parametrize(
    ("device", "reason"), [(1, Reason.WAIT_WITHOUT_RECORD), (0, Reason.NOTHING_IN_THE_WAY)]
)
def test_wait_of_an_unknown_stream_may_be_for_another_device(device, reason):
    # The file shows the call that makes some stream wait, and not which.
    wait_call = call("hipStreamWaitEvent", -4, -3)
    other = [kernel(0, 5, correlation=2, device=device), launch(-9, -8, 2)]
    holds(*late(100, *other, wait_call), constraint=Constraint.UNKNOWN, reason=reason)


# What the host may still have been busy with.


@pytest.mark.parametrize(
    ("name", "constraint"), [(PAGEABLE_H2D, Constraint.LAUNCH), (H2D, Constraint.UNKNOWN)]
)
def test_driver_makes_a_copy_of_pageable_memory_when_it_is_ready(name, constraint):
    # The call had returned 97 us before.
    rows = late(100)
    rows[0] = copy(100, 200, name, correlation=1, stream=13)
    rows[1] = launch(1, 3, 1, name="cudaMemcpyAsync")
    is_staged = constraint == Constraint.LAUNCH
    holds(*rows, constraint=constraint, is_inferred=is_staged, unexplained=0 if is_staged else 97)


def test_copy_of_pageable_memory_just_after_other_work_waited_for_it():
    rows = late(100, kernel(0, 98, correlation=2), launch(-2, -1, 2))
    rows[0] = copy(100, 200, PAGEABLE_H2D, correlation=1, stream=13)
    rows[1] = launch(1, 150, 1, name="cudaMemcpyAsync")
    holds(*rows, constraint=Constraint.QUEUE, source=2)


# Work launched before the recording.


def test_without_a_launch_nothing_is_known_but_what_is_likely():
    holds(
        kernel(7, 20),
        *BEFORE,
        constraint=Constraint.UNKNOWN,
        source=1,
        is_inferred=False,
        ready=5,
        delay=2,
        unexplained=0,
        reason=Reason.LAUNCH_NOT_IN_FILE,
    )


# What is typical in a trace.


def gaps_of(count, gap_ns):
    """Kernels of stream 7, launched long before, with such a gap behind each but the last."""
    rows = []
    for i in range(count + 1):
        begin = 1_000 * US + i * (10 * US + gap_ns)
        rows += [kernel(begin, begin + 10 * US, correlation=50 + i), launch(i, i + 1, 50 + i)]
    return graph(*rows).binding.latencies


@pytest.mark.parametrize(
    ("count", "gap_ns", "expected"),
    [
        (20, 4_000, (4_000, True)),
        (19, 4_000, (1_600, False)),  # too few
        (20, 20_000, (20_000, True)),
        (20, 20_001, (1_600, False)),  # so long that it needs an explanation itself
    ],
)
def test_own_median_counts_from_20_starts_on_and_up_to_20_us(count, gap_ns, expected):
    latencies = gaps_of(count, gap_ns)

    assert (int(latencies.typical_ns[0]), bool(latencies.is_own[0])) == expected
    assert latencies.start_count[0] == count


def test_what_is_late_depends_on_what_is_typical_in_the_trace():
    # GIVEN 20 kernels 10 us after the one before each, and one more 30 us after
    rows = []
    for i in range(21):
        rows += [kernel(100 + 20 * i, 110 + 20 * i, correlation=50 + i), launch(i, i + 0.5, 50 + i)]
    last = [kernel(540, 550, correlation=1), launch(30, 31, 1)]

    # THEN that is 20 us more than typical, no more; of the captures' 1.6 us it would be 28 us more
    holds(*last, *rows, constraint=Constraint.STREAM, unexplained=0)
    holds(*last, *rows[-8:], constraint=Constraint.UNKNOWN, unexplained=30)


def test_every_latency_has_its_place():
    kinds = np.array(Kind, dtype=np.int8)
    previous, kind = (x.ravel() for x in np.meshgrid(kinds, kinds, indexing="ij"))

    gaps = [LATENCIES[i] for i in previous_index(previous, kind).tolist()]
    launches = [LATENCIES[i] for i in launch_index(kinds).tolist()]
    events = [LATENCIES[i] for i in event_index(kinds).tolist()]

    assert [(x.since, x.previous, x.kind) for x in gaps] == [
        (Since.PREVIOUS, Kind(a), Kind(b)) for a, b in zip(previous, kind, strict=True)
    ]
    assert [(x.since, x.kind) for x in launches] == [(Since.LAUNCH, kind) for kind in Kind]
    assert [(x.since, x.kind) for x in events] == [(Since.EVENT, kind) for kind in Kind]
    assert LATENCIES[AWAITED].since == Since.AWAITED
    assert LATENCIES[NODE].since == Since.NODE
    assert len(LATENCIES) == len({*gaps, *launches, *events, LATENCIES[AWAITED], LATENCIES[NODE]})
