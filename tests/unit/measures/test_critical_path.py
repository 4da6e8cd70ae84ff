from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tests.build.random_replays import random_replays
from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    PAGEABLE_H2D,
    THREADS,
    US,
    call,
    comm,
    copy,
    event_row,
    graph,
    kernel,
    launch,
    memset,
    operator,
    step,
    sync_row,
    trace,
)
from tests.examples import examples
from tests.reference.ticks import beside_allocations, scaled
from tests.reference.walks import Walks
from tracelab.measures.critical_path import PathKind, critical_paths
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import ABSENT

LAUNCH, QUEUE, HOST, SYNC = PathKind.LAUNCH, PathKind.QUEUE, PathKind.HOST, PathKind.SYNC
UNKNOWN = PathKind.UNKNOWN
COMPUTE, COMM, COPY, MEMSET = (PathKind[kind.name] for kind in Kind)


def segments(path):
    return list(
        zip(
            path.start_ns.tolist(),
            path.end_ns.tolist(),
            map(PathKind, path.kind.tolist()),
            path.event_id.tolist(),
            strict=True,
        )
    )


def path(*rows, window=0):
    """The segments of the whole trace, or of another window of the timeline."""
    made_graph = graph(*rows)
    return segments(critical_paths(made_graph, [made_graph.host.timeline.windows[window]])[0])


# What must hold of every trace; that it ends at all is a part of it.


@pytest.mark.parametrize("unit", [100, 10_000])  # ns
@examples(150)
@given(data=st.data())
def test_path_through_replays_is_that_of_a_slow_walk_and_tiles_its_window(unit, data):
    rows = data.draw(random_replays(unit))
    made_graph = graph(*rows)

    [found] = critical_paths(made_graph)

    [whole] = made_graph.host.timeline.windows
    assert segments(found) == Walks(rows, made_graph).critical_path(whole)
    bounds = [whole.start_ns, *found.end_ns.tolist()]
    assert bounds[-1] == whole.end_ns
    assert found.start_ns.tolist() == bounds[:-1]


@examples(240)
@given(st.one_of(random_rows(), beside_allocations(random_rows())))
def test_segments_tile_every_window_and_lie_in_what_they_name(rows):
    made_graph = graph(*scaled(rows))
    timeline = made_graph.host.timeline
    recorded, launches = (
        timeline.trace,
        dict(zip(timeline.event_id.tolist(), timeline.launch_id.tolist(), strict=True)),
    )
    kinds = dict(zip(timeline.event_id.tolist(), timeline.kind.tolist(), strict=True))
    first, last = int(recorded.start_ns.min()), int(recorded.end_ns.max())
    windows = [*timeline.windows, Window(99, first, last), Window(98, last, last)]

    for window, measured in zip(windows, critical_paths(made_graph, windows), strict=True):
        parts = segments(measured)
        bounds = [window.start_ns, *(end for _, end, _, _ in parts)]
        assert [start for start, *_ in parts] == bounds[:-1]
        assert bounds[-1] == window.end_ns or not window.length_ns
        assert all(before < after for before, after in pairwise(bounds))
        assert sum(measured.by_kind().values()) == window.length_ns
        for start, end, kind, event in parts:
            if kind <= MEMSET:
                assert kinds[event] == kind
                assert recorded.start_ns[event] <= start < end <= recorded.end_ns[event]
            elif kind == LAUNCH:
                assert recorded.start_ns[launches[event]] <= start
                assert end <= recorded.start_ns[event]
            elif kind == QUEUE:
                assert end <= recorded.start_ns[event]
            elif kind == SYNC:
                assert (
                    event in made_graph.host.blocking_calls.event_id
                    or event in made_graph.host.stalled_calls.event_id
                )
                assert recorded.start_ns[event] <= start < end <= recorded.end_ns[event]


@examples(200)
@given(st.one_of(random_rows(), beside_allocations(random_rows())))
def test_path_is_the_one_that_a_slow_walk_finds(rows):
    rows = scaled(rows)
    made_graph = graph(*rows)
    whole, walks = made_graph.host.timeline.windows[0], Walks(rows, made_graph)
    middle = (whole.start_ns + whole.end_ns) // 2
    windows = [
        *made_graph.host.timeline.windows,
        Window(None, middle, whole.end_ns + 5 * US),
        Window(None, whole.start_ns, middle),
    ]

    paths = critical_paths(made_graph, windows)

    assert [segments(x) for x in paths] == [walks.critical_path(x) for x in windows]


# One rule after the other.


def test_activities_of_a_stream_with_the_gap_between_them():
    # Launched long before: from 10 to 12 it was the queue.
    rows = [
        launch(0, 1, 1),
        launch(1, 2, 2),
        launch(2, 3, 3),
        kernel(5, 10, correlation=1),
        comm(12, 20, correlation=2),
        memset(20, 25, correlation=3),
    ]

    assert path(*rows) == [
        (5, 10, COMPUTE, 3),
        (10, 12, QUEUE, 4),
        (12, 20, COMM, 4),
        (20, 25, MEMSET, 5),
    ]


def test_kernel_that_begins_early_leads_to_the_one_before_it():
    # GIVEN a kernel that was launched at 40 us, while the one before it ran, and begins at 48, 2 us
    # before that ends
    rows = [
        launch(0, US, 1),
        kernel(5 * US, 50 * US, correlation=1),
        launch(40 * US, 41 * US, 2, name="cudaLaunchKernelExC"),
        kernel(48 * US, 60 * US, correlation=2),
    ]

    # THEN the first one counts until then, and the host does not come into it
    assert path(*rows) == [(5 * US, 48 * US, COMPUTE, 1), (48 * US, 60 * US, COMPUTE, 3)]


def test_launch_that_comes_late_leads_to_the_host():
    # The kernel at 60 was launched at 50, long after the one before it had ended: what led up to
    # the launch was the host, back to the window's start.
    rows = [
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        launch(50, 55, 2),
        kernel(60, 70, correlation=2),
    ]

    assert path(*rows) == [(2, 50, HOST, 3), (50, 60, LAUNCH, 3), (60, 70, COMPUTE, 3)]


def test_host_leads_to_the_activity_that_a_blocking_call_waited_for():
    # The call returns at 30, 20 ns after the kernel that it waited for.
    rows = [
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        call("cudaStreamSynchronize", 5, 30),
        launch(50, 55, 2),
        kernel(60, 70, correlation=2),
    ]

    assert path(*rows) == [
        (2, 10, COMPUTE, 1),
        (10, 30, SYNC, 2),
        (30, 50, HOST, 4),
        (50, 60, LAUNCH, 4),
        (60, 70, COMPUTE, 4),
    ]


def test_call_whose_work_was_done_before_did_not_wait():
    # CUPTI's row says that it waited for stream 7, whose kernel ended at 10, before the call at 12.
    rows = [
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        call("cudaStreamSynchronize", 12, 30, correlation=5),
        sync_row("Stream Sync", 12, 30, correlation=5, stream=7),
        launch(50, 55, 2),
        kernel(60, 70, correlation=2),
    ]

    assert path(*rows) == [(2, 50, HOST, 5), (50, 60, LAUNCH, 5), (60, 70, COMPUTE, 5)]


def test_call_that_waited_for_something_unknown_is_passed_whole():
    # What cudaFree waited for is not known: its 20 ns are its own, and before it was the host.
    rows = [
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        call("cudaFree", 20, 40),
        launch(50, 55, 2),
        kernel(60, 70, correlation=2),
    ]

    assert path(*rows) == [
        (2, 20, HOST, 2),
        (20, 40, SYNC, 2),
        (40, 50, HOST, 4),
        (50, 60, LAUNCH, 4),
        (60, 70, COMPUTE, 4),
    ]


@pytest.mark.parametrize(
    ("doing", "expected"),
    [
        # Autograd's thread, which launches, did nothing when the main thread's call began ...
        ([], [(2, 10, COMPUTE, 1), (10, 30, SYNC, 2), (30, 50, HOST, 4)]),
        # ... or was at work of its own.
        ([operator("Backward", 4, 50, thread=AUTOGRAD)], [(2, 50, HOST, 4)]),
    ],
)
def test_another_threads_call_holds_up_who_did_nothing(doing, expected):
    rows = [
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        call("cudaStreamSynchronize", 5, 30),
        launch(50, 55, 2, thread=AUTOGRAD),
        kernel(60, 70, correlation=2),
        *doing,
    ]

    assert path(*rows) == [*expected, (50, 60, LAUNCH, 4), (60, 70, COMPUTE, 4)]


def test_call_that_has_not_returned_yet_is_not_what_came_before():
    # Autograd's thread launches at 50 while the main thread waits for just that, until 75.
    rows = [
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        call("cudaStreamSynchronize", 40, 75),
        launch(50, 55, 2, thread=AUTOGRAD),
        kernel(60, 70, correlation=2),
    ]

    assert path(*rows) == [(2, 50, HOST, 4), (50, 60, LAUNCH, 4), (60, 70, COMPUTE, 4)]


# A launch that the allocation of another thread holds up. Times are microseconds.

PIN = len(THREADS)  # the thread of a DataLoader that allocates; it launches nothing


def path_beside_pin(*rows):
    """The segments of the whole trace."""
    rows = [replace(row, start=row.start * US, end=row.end * US) for row in rows]
    recorded = trace(*rows, threads=(*THREADS, "thread 4 (pt_data_pin)"))
    made_graph = build_graph(observe_host(build_timeline(recorded)))
    (whole,) = critical_paths(made_graph, made_graph.host.timeline.windows[:1])
    return [(start // US, end // US, *rest) for start, end, *rest in segments(whole)]


def launched_slowly(*allocations, start=412):
    """A kernel until 10; the next is launched in [50, 410), and some allocations."""
    return path_beside_pin(
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        launch(50, 410, 2),
        kernel(start, 420, correlation=2),
        *(call("cudaHostAlloc", *x, thread=PIN) for x in allocations),
    )


@pytest.mark.parametrize(
    ("allocations", "since"),
    [
        ([(40, 400)], 50),
        ([(60, 400)], 60),  # until it began, the host was slow by itself
        ([(40, 140), (140, 240)], 50),
        ([(60, 140), (55, 240)], 55),
    ],
)
def test_launch_that_an_allocation_stalled_was_blocked_until_it_returned(allocations, since):
    assert launched_slowly(*allocations) == [
        (1, since, HOST, 2),
        (since, 410, SYNC, 2),
        (410, 412, LAUNCH, 3),
        (412, 420, COMPUTE, 3),
    ]


def test_stalled_launch_is_blocked_no_longer_than_until_its_work_begins():
    assert launched_slowly((40, 400), start=408) == [
        (1, 50, HOST, 2),
        (50, 408, SYNC, 2),
        (408, 420, COMPUTE, 3),
    ]


def test_long_launch_that_no_allocation_stalled_is_a_launch():
    # The allocation returns 1 us after the launch, which therefore did not wait for it.
    assert launched_slowly((40, 411)) == [
        (1, 50, HOST, 3),
        (50, 412, LAUNCH, 3),
        (412, 420, COMPUTE, 3),
    ]


@pytest.mark.parametrize("thread", [MAIN, AUTOGRAD])
def test_call_that_an_allocation_stalled_before_the_launch(thread):
    # The record of an event takes from 50 to 410, the launch comes at 450: from the same thread, or
    # from autograd's, of which nothing else is recorded.
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        call("cudaEventRecord", 50, 410),
        launch(450, 451, 2, thread=thread),
        kernel(455, 460, correlation=2),
        call("cudaHostAlloc", 40, 400, thread=PIN),
    ]

    assert path_beside_pin(*rows) == [
        (1, 50, HOST, 2),
        (50, 410, SYNC, 2),
        (410, 450, HOST, 4),
        (450, 455, LAUNCH, 4),
        (455, 460, COMPUTE, 4),
    ]


def test_call_that_an_allocation_stalled_in_another_thread_than_the_one_at_work():
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        call("cudaEventRecord", 50, 410),
        launch(450, 451, 2, thread=AUTOGRAD),
        kernel(455, 460, correlation=2),
        call("cudaHostAlloc", 40, 400, thread=PIN),
        operator("Backward", 45, 451, thread=AUTOGRAD),
    ]

    assert path_beside_pin(*rows)[0] == (1, 450, HOST, 4)


def test_pageable_copy_waits_for_itself():
    # The call in [20, 40) copies in [25, 35); the kernel after it is launched at 50.
    rows = [
        copy(25, 35, PAGEABLE_H2D, correlation=1),
        launch(20, 40, 1, name="cudaMemcpyAsync"),
        launch(50, 55, 2),
        kernel(60, 70, correlation=2),
        kernel(0, 5),
    ]

    assert path(*rows) == [
        (0, 20, HOST, 0),
        (20, 25, LAUNCH, 0),
        (25, 35, COPY, 0),
        (35, 40, SYNC, 1),
        (40, 50, HOST, 3),
        (50, 60, LAUNCH, 3),
        (60, 70, COMPUTE, 3),
    ]


@pytest.mark.parametrize(
    ("end", "own_end", "binding"), [(40, 20, 0), (20, 40, 1)], ids=["wait", "own stream"]
)
def test_of_the_own_stream_and_a_stream_wait_the_one_that_ended_last_was_binding(
    end, own_end, binding
):
    # Stream 13's kernel at 42 follows its own and stream 7's, which the wait names.
    rows = [
        kernel(2, end, correlation=1),
        kernel(2, own_end, correlation=2, stream=13),
        kernel(42, 50, correlation=3, stream=13),
        launch(0, 1, 1),
        launch(1, 2, 2),
        call("cudaEventRecord", 3, 3, correlation=8),
        sync_row(
            "Stream Wait Event",
            4,
            4,
            correlation=9,
            device=0,
            stream=13,
            wait_stream=7,
            wait_correlation=8,
        ),
        launch(5, 6, 3),
    ]

    assert path(*rows) == [(2, 40, COMPUTE, binding), (40, 42, QUEUE, 2), (42, 50, COMPUTE, 2)]


def test_stream_wait_leads_to_another_device():
    rows = [
        kernel(2, 40, correlation=1),
        kernel(42, 50, correlation=3, device=1),
        launch(0, 1, 1),
        call("cudaEventRecord", 3, 3, correlation=8),
        event_row(40, correlation=8, event=5),
        sync_row("Stream Wait Event", 4, 4, correlation=9, device=1, stream=7, event=5),
        launch(5, 6, 3),
    ]

    assert path(*rows) == [(2, 40, COMPUTE, 0), (40, 42, QUEUE, 1), (42, 50, COMPUTE, 1)]


def test_activity_that_ended_just_before_blocked_what_starts_late_for_no_known_reason():
    # Stream 13's kernel was launched at 5 us and starts at 100 us. Its stream was free; stream 7's
    # ended 4 us before, and both may share a hardware queue.
    rows = [
        launch(0, US, 1),
        launch(5 * US, 6 * US, 2),
        kernel(2 * US, 96 * US, correlation=1),
        kernel(100 * US, 120 * US, correlation=2, stream=13),
    ]

    assert path(*rows) == [
        (2 * US, 96 * US, COMPUTE, 2),
        (96 * US, 100 * US, QUEUE, 3),
        (100 * US, 120 * US, COMPUTE, 3),
    ]


def test_activity_that_still_runs_blocked_what_starts_late_where_none_has_ended():
    # As before, but stream 7's kernel runs on until 110 us: no multiprocessor was free before.
    rows = [
        launch(0, US, 1),
        launch(5 * US, 6 * US, 2),
        kernel(2 * US, 110 * US, correlation=1),
        kernel(100 * US, 120 * US, correlation=2, stream=13),
    ]

    assert path(*rows) == [(2 * US, 100 * US, COMPUTE, 2), (100 * US, 120 * US, COMPUTE, 3)]


def test_start_within_its_latency_needs_no_other_cause():
    # The call returns at 6 us, and the start at 28 us is no more than typical and 20 us after.
    rows = [
        launch(0, US, 1),
        launch(5 * US, 6 * US, 2),
        kernel(2 * US, 27 * US, correlation=1),
        kernel(28 * US, 30 * US, correlation=2, stream=13),
    ]

    assert path(*rows) == [
        (2 * US, 5 * US, HOST, 3),
        (5 * US, 28 * US, LAUNCH, 3),
        (28 * US, 30 * US, COMPUTE, 3),
    ]


def test_late_start_that_nothing_explains_is_unknown():
    # Stream 7's kernel ended 50 us before: too long ago to be what it waited for, but all that
    # could have been in the way after that is not known.
    rows = [
        launch(0, US, 1),
        launch(5 * US, 6 * US, 2),
        kernel(2 * US, 50 * US, correlation=1),
        kernel(100 * US, 120 * US, correlation=2, stream=13),
    ]

    assert path(*rows) == [
        (2 * US, 50 * US, COMPUTE, 2),
        (50 * US, 100 * US, UNKNOWN, 3),
        (100 * US, 120 * US, COMPUTE, 3),
    ]


def test_host_that_waited_in_a_way_that_is_not_recorded():
    # GIVEN the host launches two kernels until 20 us, then nothing of it is recorded until 3 ms,
    # while the second works on; a third, in another stream, is launched at 3 ms
    rows = [
        launch(0, 10 * US, 1),
        launch(10 * US, 20 * US, 2),
        kernel(11 * US, 15 * US, correlation=1),
        kernel(21 * US, 3_050 * US, correlation=2),
        launch(3_000 * US, 3_005 * US, 3),
        kernel(3_010 * US, 3_100 * US, correlation=3, stream=13),
    ]

    # THEN what it waited for is not known; the work before that had ended at 15
    assert path(*rows) == [
        (11 * US, 15 * US, COMPUTE, 2),
        (15 * US, 3_000 * US, UNKNOWN, ABSENT),
        (3_000 * US, 3_010 * US, LAUNCH, 5),
        (3_010 * US, 3_100 * US, COMPUTE, 5),
    ]


def test_before_an_activity_without_launch_or_predecessor_nothing_is_known():
    rows = [kernel(0, 5), kernel(40, 50, device=1)]

    assert path(*rows) == [(0, 40, PathKind.UNKNOWN, ABSENT), (40, 50, COMPUTE, 1)]


def test_step_that_ends_on_the_host():
    # The step's work ended at 20, its annotation at 50: the host led up to the end, from the
    # step's start on.
    rows = [step(1, 0, 50), launch(1, 2, 1), kernel(5, 20, correlation=1)]

    assert path(*rows, window=1) == [(0, 50, HOST, ABSENT)]


def test_step_that_ends_on_the_host_after_a_wait():
    rows = [
        step(1, 0, 50),
        launch(1, 2, 1),
        kernel(5, 20, correlation=1),
        call("cudaStreamSynchronize", 10, 22),
    ]

    assert path(*rows, window=1) == [
        (0, 1, HOST, 2),
        (1, 5, LAUNCH, 2),
        (5, 20, COMPUTE, 2),
        (20, 22, SYNC, 3),
        (22, 50, HOST, ABSENT),
    ]


def test_window_cuts_what_runs_into_it():
    # Step 2 begins at 80, when step 1's work ends; the kernel of step 2 starts at 82.
    rows = [
        step(1, 0, 30),
        launch(1, 2, 1),
        kernel(5, 80, correlation=1),
        step(2, 30, 60),
        launch(31, 32, 2),
        kernel(82, 90, correlation=2),
    ]

    assert path(*rows, window=2) == [(80, 82, QUEUE, 5), (82, 90, COMPUTE, 5)]


def test_lengths_by_kind():
    rows = [
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        call("cudaStreamSynchronize", 5, 30),
        launch(50, 55, 2),
        comm(60, 70, correlation=2),
    ]
    made_graph = graph(*rows)

    (whole,) = critical_paths(made_graph, made_graph.host.timeline.windows[:1])

    assert whole.by_kind() == {
        "compute": 8,
        "comm": 10,
        "copy": 0,
        "memset": 0,
        "launch": 10,
        "queue": 0,
        "host": 20,
        "sync": 20,
        "unknown": 0,
    }


def test_activities_of_no_length_at_one_moment_make_no_circle():
    # GIVEN two streams that wait for each other at one moment, all without length
    rows = [
        kernel(5, 5, correlation=1),
        kernel(5, 5, correlation=2, stream=13),
        kernel(5, 9, correlation=3),
        launch(0, 0, 1),
        launch(0, 0, 2),
        launch(0, 0, 3),
        *(
            sync_row(
                "Stream Wait Event",
                0,
                0,
                correlation=9 + stream,
                device=0,
                stream=stream,
                wait_stream=20 - stream,
                wait_correlation=8,
            )
            for stream in (7, 13)
        ),
        call("cudaEventRecord", 1, 1, correlation=8),
    ]

    assert path(*rows) == [(5, 9, COMPUTE, 2)]
