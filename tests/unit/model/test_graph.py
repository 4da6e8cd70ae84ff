from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    PAGEABLE_H2D,
    US,
    call,
    copy,
    event_row,
    graph,
    kernel,
    launch,
    memset,
    operator,
    sync_row,
)
from tests.examples import examples
from tests.reference.ticks import TICK, Account, scaled
from tracelab.model.binding import Reason
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import EdgeKind, EventLinks, window_graph
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, Category

EVER = 2**40


def edges(dependencies, kind):
    """Pairs of event ids, of one kind of edge."""
    chosen = dependencies.kind == kind
    return sorted(
        zip(
            dependencies.source_id[chosen].tolist(),
            dependencies.target_id[chosen].tolist(),
            strict=True,
        )
    )


def awaited(dependencies):
    """Event id to the event id that a stream wait made it wait for."""
    timeline = dependencies.host.timeline
    return {
        int(timeline.event_id[row]): int(timeline.event_id[source])
        for row, source in enumerate(dependencies.binding.event_row.tolist())
        if source != ABSENT
    }


def after_unknown(dependencies):
    is_unknown = dependencies.binding.reason == Reason.WAIT_WITHOUT_RECORD
    return dependencies.host.timeline.event_id[is_unknown].tolist()


def wait(start, correlation, *, stream, device=0, **waited_for):
    """The row of a stream that waits for another."""
    on_stream = {"device": device, "stream": stream}
    return sync_row(
        "Stream Wait Event", start, start, correlation=correlation, **on_stream, **waited_for
    )


def test_calls_without_any_activity():
    dependencies = graph(launch(0, 3, 1), call("cudaStreamSynchronize", 5, 7, correlation=2))

    assert edges(dependencies, EdgeKind.HOST) == [(0, 1)]
    assert len(dependencies.source_id) == 1
    assert dependencies.links == EventLinks(0, 0, 0)


# What must hold of every trace.


@examples(80)
@given(random_rows())
def test_graph_is_acyclic_and_no_edge_runs_against_time(rows):
    dependencies = graph(*scaled(rows))
    timeline, blocking = dependencies.host.timeline, dependencies.host.blocking_calls
    trace, early = timeline.trace, set(timeline.event_id[timeline.overlaps_previous].tolist())
    waits = {
        call
        for call, kind in zip(blocking.event_id.tolist(), blocking.kind.tolist(), strict=True)
        if kind in (Blocking.DEVICE, Blocking.STREAM, Blocking.EVENT)
    }

    network = window_graph(dependencies, 0, EVER)

    assert nx.is_directed_acyclic_graph(network)
    for source, target, kind in zip(
        dependencies.source_id.tolist(),
        dependencies.target_id.tolist(),
        dependencies.kind.tolist(),
        strict=True,
    ):
        assert network.has_edge(source, target)
        begun = trace.end_ns[target] if target in waits else trace.start_ns[target]
        if kind == EdgeKind.LAUNCH or (kind == EdgeKind.STREAM and target in early):
            assert trace.start_ns[source] <= begun
        elif kind == EdgeKind.HOST:  # one after the other, or one inside the other
            inside = trace.end_ns[target] <= trace.end_ns[source]
            assert trace.start_ns[source] <= begun
            assert trace.end_ns[source] <= begun or inside
        else:
            assert trace.end_ns[source] <= begun


@examples(80)
@given(random_rows())
def test_every_dependency_is_an_edge_or_counted_as_against_time(rows):
    # GIVEN the dependencies that can be counted without looking at waits: every launch, every pair
    # of neighbours of a stream, and for every call but the first of a thread the call before it or
    # around it (none for what is inside a pure wait)
    account, dependencies = Account(rows), graph(*scaled(rows))
    streams = {(rows[i].device, rows[i].stream) for i in account.activities}
    threads = {rows[i].thread for i in account.calls}
    launched = sum(call is not None for call in account.launch.values())

    # WHEN
    kept = Counter(dependencies.kind.tolist())

    # THEN what is missing of them is among what was left out
    missing = (
        launched
        - kept[EdgeKind.LAUNCH]
        + (len(account.activities) - len(streams))
        - kept[EdgeKind.STREAM]
        + max(0, len(account.calls) - len(threads) - _inside_waits(account))
        - kept[EdgeKind.HOST]
    )
    assert kept[EdgeKind.LAUNCH] <= launched
    assert kept[EdgeKind.STREAM] <= len(account.activities) - len(streams)
    assert 0 <= missing <= dependencies.against_time
    if not account.blocking and not any(row.name == "Stream Wait Event" for row in rows):
        assert missing == dependencies.against_time


def _inside_waits(account):
    """How many calls of a thread begin inside the outermost call around them, a pure wait."""
    rows, inside = account.rows, 0
    for thread in {rows[i].thread for i in account.calls}:
        calls = sorted(
            (i for i in account.calls if rows[i].thread == thread),
            key=lambda i: (rows[i].start, -rows[i].end, i),
        )
        outer, reach = None, -1
        for i in calls:
            if rows[i].start >= reach:
                outer = i
            elif account.blocking.get(outer, Blocking.COPY) <= Blocking.EVENT:
                inside += 1
            reach = max(reach, rows[i].end)
    return inside


@examples(30)
@given(random_rows())
def test_window_graph_holds_all_that_is_seen_in_the_window(rows):
    dependencies = graph(*scaled(rows))
    start, end = 20, 40

    network = window_graph(dependencies, start * TICK, end * TICK)

    account = Account(rows)
    assert set(network) == {
        i
        for i in (*account.activities, *account.calls)
        if rows[i].start < end and (rows[i].end > start or rows[i].start >= start)
    }


# Edges, one kind after the other.


def test_launch_edges():
    # A graph replay has one launch and many activities.
    dependencies = graph(
        call("cudaGraphLaunch", 0, 5, correlation=1),
        kernel(10, 20, correlation=1),
        kernel(22, 30, correlation=1, stream=13),
        kernel(40, 50, correlation=2),
    )

    assert edges(dependencies, EdgeKind.LAUNCH) == [(0, 1), (0, 2)]


def test_stream_edges_are_between_neighbours():
    dependencies = graph(kernel(20, 30), kernel(0, 10), kernel(30, 31), kernel(5, 9, stream=13))

    assert edges(dependencies, EdgeKind.STREAM) == [(0, 2), (1, 0)]
    assert dependencies.against_time == 0


def test_stream_edge_between_activities_that_overlap_is_counted_instead():
    # [5, 9) starts before [0, 10) has ended, and [12, 20) after it has.
    dependencies = graph(kernel(0, 10), kernel(5, 9), kernel(12, 20))

    assert edges(dependencies, EdgeKind.STREAM) == [(1, 2)]
    assert dependencies.against_time == 1


@pytest.mark.parametrize("name", ["cudaLaunchKernelExC", "cuLaunchKernelEx"])
def test_stream_edge_to_a_kernel_that_its_launch_let_begin_early(name):
    # GIVEN a kernel that begins at 8, 2 ns before the one that it depends on has ended, and one
    # that begins when it ends
    dependencies = graph(
        launch(0, 1, 1),
        launch(1, 2, 2, name=name),
        launch(2, 3, 3),
        kernel(4, 10, correlation=1),
        kernel(8, 15, correlation=2),
        kernel(15, 20, correlation=3),
    )

    # WHEN
    network = window_graph(dependencies, 0, EVER)

    # THEN it still comes after it, and nothing is missing
    assert edges(dependencies, EdgeKind.STREAM) == [(3, 4), (4, 5)]
    assert dependencies.against_time == 0
    assert {3, 4} <= nx.ancestors(network, 5)


def test_launch_after_its_activity_is_counted_instead():
    dependencies = graph(kernel(0, 10, correlation=1), launch(5, 8, 1))

    assert edges(dependencies, EdgeKind.LAUNCH) == []
    assert dependencies.against_time == 1


def test_host_edges_follow_each_thread():
    # GIVEN a call inside another, one after it, one on another thread, and no operators
    dependencies = graph(
        kernel(0, 1),
        call("cudaMemcpyAsync", 10, 20),
        call("cuMemcpyHtoDAsync", 12, 18),
        launch(20, 25, 1),
        launch(14, 15, 2, thread=AUTOGRAD),
        launch(30, 31, 3, thread=AUTOGRAD),
        operator("aten::mm", 9, 26),
    )

    # THEN
    assert edges(dependencies, EdgeKind.HOST) == [(1, 2), (1, 3), (4, 5)]


def test_calls_of_a_thread_that_cross_are_counted_instead():
    # [15, 30) begins inside [10, 20) and ends after it: neither after it nor inside.
    dependencies = graph(kernel(0, 1), launch(10, 20, 1), launch(15, 30, 2))

    assert edges(dependencies, EdgeKind.HOST) == []
    assert dependencies.against_time == 1


def test_call_inside_a_pure_wait_is_a_part_of_it_and_no_loss():
    # GIVEN a synchronize, over at 20, with the driver's call from 12 to 18 inside
    dependencies = graph(
        kernel(0, 15, correlation=1),
        launch(0, 1, 1),
        call("cudaStreamSynchronize", 10, 20),
        call("cuStreamSynchronize", 12, 18),
        launch(25, 26, 2),
    )

    # THEN
    assert edges(dependencies, EdgeKind.HOST) == [(1, 2), (2, 4)]
    assert dependencies.against_time == 0


# What a blocking call waited for.


def queues():
    """Two streams of device 0 and one of device 1; event ids 0 to 3 are launched by 4 to 7."""
    return [
        kernel(10, 30, correlation=1),
        kernel(30, 50, correlation=2),
        kernel(12, 40, correlation=3, stream=13),
        kernel(12, 45, correlation=4, device=1),
        launch(0, 1, 1),
        launch(1, 2, 2),
        launch(2, 3, 3),
        launch(3, 4, 4),
    ]


def later():
    """Work after a device synchronize, which is the profiler's own otherwise."""
    return [launch(60, 61, 6), kernel(62, 63, correlation=6)]


def test_device_synchronize_waits_for_the_last_of_every_stream_of_its_device():
    dependencies = graph(
        *queues(),
        call("cudaDeviceSynchronize", 5, 50, correlation=5),
        sync_row("Context Sync", 5, 50, correlation=5, device=0),
        *later(),
    )

    assert edges(dependencies, EdgeKind.SYNC) == [(1, 8), (2, 8)]


def test_device_synchronize_without_a_row_may_have_waited_for_any_device():
    # It returns at 46: what ended on stream 7 at 50 cannot be what it waited for, and that it is
    # not is no loss.
    dependencies = graph(*queues(), call("cudaDeviceSynchronize", 5, 46, correlation=5), *later())

    assert edges(dependencies, EdgeKind.SYNC) == [(2, 8), (3, 8)]
    assert dependencies.against_time == 0


def test_stream_synchronize_waits_for_its_stream():
    # The second kernel of stream 7 is not launched before 1: who waits from then on waits for the
    # first alone.
    dependencies = graph(
        *queues(),
        call("cudaStreamSynchronize", 5, 41, correlation=5, thread=AUTOGRAD),
        sync_row("Stream Sync", 5, 41, correlation=5, stream=13),
        call("cudaStreamSynchronize", 1, 31, correlation=6, thread=3),
        sync_row("Stream Sync", 1, 31, correlation=6, stream=7),
    )

    assert edges(dependencies, EdgeKind.SYNC) == [(0, 10), (2, 8)]


def test_event_synchronize_waits_for_what_was_launched_before_the_record():
    # The record at 1 comes after the launch at 0 and not before the one at 1.
    dependencies = graph(
        *queues(),
        call("cudaEventRecord", 1, 1, correlation=9, thread=AUTOGRAD),
        call("cudaEventSynchronize", 5, 31, correlation=5),
        sync_row("Event Sync", 5, 31, correlation=5, wait_stream=7, wait_correlation=9),
    )

    assert edges(dependencies, EdgeKind.SYNC) == [(0, 9)]


@pytest.mark.parametrize(
    ("ended_7", "ended_13", "returned", "awaited"),
    [
        (30, 90, 31, 0),  # the recording thread gave work to stream 7 last
        (30, 40, 31, 0),
        (80, 40, 45, 1),  # stream 7 still worked when the call returned: not that
        (20, 60, 62, 1),  # stream 7 had been idle for long, stream 13 only just
        (44, 60, 62, 0),  # both just had
        (4, 7, 8, 0),  # a call so short may not have waited at all
    ],
)
def test_event_synchronize_that_names_its_record_and_no_stream(
    ended_7, ended_13, returned, awaited
):
    # GIVEN the layout of PyTorch's own CUPTI collector; times in microseconds
    rows = [
        kernel(3, ended_7, correlation=1),
        kernel(3, ended_13, correlation=2, stream=13),
        launch(0, 1, 2),
        launch(1, 2, 1),
        call("cudaEventRecord", 2, 2, correlation=9),
        call("cudaEventSynchronize", 5, returned, correlation=5),
        sync_row("Event Sync", 5, returned, correlation=5, wait_correlation=9),
    ]
    dependencies = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))

    assert edges(dependencies, EdgeKind.SYNC) == [(awaited, 5)]


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaEventSynchronize"])
def test_wait_without_a_row_waited_for_what_ended_last_during_it(name):
    # Launched before 5 and ended between 5 and 46: kernels 2 (at 40) and 3 (at 45).
    dependencies = graph(*queues(), call(name, 5, 46, correlation=5))

    assert edges(dependencies, EdgeKind.SYNC) == [(3, 8)]


def test_wait_without_a_row_reads_no_other_row():
    # The last row of the file is another wait's, which names a record.
    dependencies = graph(
        *queues(),
        call("cudaEventSynchronize", 5, 46, correlation=5),
        call("cudaEventRecord", 1, 1, correlation=9, thread=AUTOGRAD),
        sync_row("Event Sync", 5, 31, correlation=6, wait_stream=7, wait_correlation=9),
    )

    assert edges(dependencies, EdgeKind.SYNC) == [(3, 8)]


def test_after_a_blocking_copy_comes_the_next_call_of_its_thread():
    # GIVEN a copy that its call waits for, and one that ends after its call, staged
    dependencies = graph(
        copy(5, 15, PAGEABLE_H2D, correlation=1),
        launch(0, 20, 1, name="cudaMemcpyAsync"),
        copy(28, 40, PAGEABLE_H2D, correlation=2),
        launch(25, 30, 2, name="cudaMemcpyAsync"),
        launch(32, 33, 3),
        launch(21, 22, 4, thread=AUTOGRAD),
    )

    # THEN the call at 25 could only come after the copy that ended at 15; that the call at 32 came
    # before the end of the staged one is no loss
    assert edges(dependencies, EdgeKind.SYNC) == [(0, 3)]
    assert dependencies.against_time == 0


def test_allocation_waits_for_nothing_that_is_known():
    dependencies = graph(*queues(), call("cudaFree", 5, 50))

    assert edges(dependencies, EdgeKind.SYNC) == []


# What streams waited for.


def test_stream_wait_with_its_record_in_the_file():
    # GIVEN stream 13 waits from 6 on for what stream 7 had been given by the record at 4: the
    # kernel launched at 1, not the one launched at 5
    dependencies = graph(
        kernel(10, 20, correlation=1),
        kernel(20, 60, correlation=2),
        kernel(21, 30, correlation=3, stream=13),
        kernel(30, 35, correlation=4, stream=13),
        launch(1, 2, 1),
        launch(5, 6, 2),
        launch(7, 8, 3),
        launch(8, 9, 4),
        call("cudaEventRecord", 4, 4, correlation=8),
        call("cudaStreamWaitEvent", 6, 7, correlation=9),
        wait(6, 9, stream=13, wait_stream=7, wait_correlation=8),
    )

    # THEN the first kernel of stream 13 launched after the wait waited for it
    assert awaited(dependencies) == {2: 0}
    assert edges(dependencies, EdgeKind.EVENT) == [(0, 2)]
    assert dependencies.links == EventLinks(exact=1, inferred=0, unresolved=0)


def test_stream_wait_whose_record_the_file_shows_only_on_the_gpu():
    # The event was recorded before the file began and reached at 25: the kernel that ended at 20
    # was before it, the one that ended at 30 after it.
    dependencies = graph(
        kernel(10, 20),
        kernel(20, 30),
        kernel(26, 40, correlation=3, stream=13),
        launch(7, 8, 3),
        event_row(25, correlation=8, event=1),
        wait(6, 9, stream=13, wait_stream=7, wait_correlation=8),
    )

    assert awaited(dependencies) == {2: 0}
    assert dependencies.links == EventLinks(1, 0, 0)


def test_stream_wait_whose_record_is_nowhere():
    # It names its record, so it counts as exact, but what was upstream is not known.
    dependencies = graph(
        kernel(10, 20),
        kernel(26, 40, correlation=3, stream=13),
        launch(7, 8, 3),
        wait(6, 9, stream=13, wait_stream=7, wait_correlation=8),
    )

    assert awaited(dependencies) == {}
    assert dependencies.links == EventLinks(1, 0, 0)


def test_stream_wait_that_names_no_record_and_delays_nothing():
    # It starts 18 ns after its launch. What waits that do delay something waited for is in
    # test_stream_waits.py.
    dependencies = graph(
        kernel(10, 20),
        kernel(26, 40, correlation=3, stream=13),
        launch(7, 8, 3),
        wait(6, 9, stream=13),
    )

    assert awaited(dependencies) == {}
    assert after_unknown(dependencies) == []
    assert dependencies.links == EventLinks(0, 0, 1)


def test_stream_wait_for_another_device_is_found_by_its_event():
    # GIVEN device 1 waits at 6 for event 5, which device 0 recorded three times: at 1, at 4 and,
    # after the wait, at 50; kernels 0, 1 and 2 were launched before each
    dependencies = graph(
        kernel(10, 20, correlation=1),
        kernel(20, 30, correlation=3),
        kernel(60, 70, correlation=11),
        kernel(31, 40, correlation=8, device=1, stream=13),
        launch(0, 1, 1),
        launch(2, 3, 3),
        launch(45, 46, 11),
        launch(7, 8, 8),
        call("cudaEventRecord", 1, 1, correlation=2),
        call("cudaEventRecord", 4, 4, correlation=5),
        call("cudaEventRecord", 50, 50, correlation=12),
        event_row(20, correlation=2, event=5),
        event_row(30, correlation=5, event=5),
        event_row(70, correlation=12, event=5),
        wait(6, 6, stream=13, device=1, event=5),
    )

    # THEN the record before the wait is the second
    assert awaited(dependencies) == {3: 1}
    assert after_unknown(dependencies) == []
    assert dependencies.links == EventLinks(1, 0, 0)


def test_stream_wait_for_an_event_that_is_recorded_only_later_is_unresolved():
    dependencies = graph(
        kernel(10, 20),
        kernel(31, 40, correlation=8, device=1, stream=13),
        launch(7, 8, 8),
        event_row(70, correlation=12, event=5),
        event_row(1, correlation=2, event=ABSENT),
        wait(6, 6, stream=13, device=1, event=5),
        wait(6, 7, stream=13, device=1),
    )

    assert awaited(dependencies) == {}
    assert dependencies.links == EventLinks(0, 0, 2)


def test_of_several_waits_the_one_that_ended_last_counts():
    # Stream 20 waits for stream 7 (until 20) and for stream 13 (until 25).
    dependencies = graph(
        kernel(10, 20, correlation=1),
        kernel(10, 25, correlation=2, stream=13),
        kernel(26, 30, correlation=3, stream=20),
        launch(0, 1, 1),
        launch(1, 2, 2),
        launch(8, 9, 3),
        call("cudaEventRecord", 3, 3, correlation=10),
        call("cudaEventRecord", 4, 4, correlation=11),
        wait(6, 12, stream=20, wait_stream=13, wait_correlation=11),
        wait(7, 13, stream=20, wait_stream=7, wait_correlation=10),
    )

    assert awaited(dependencies) == {2: 1}
    assert edges(dependencies, EdgeKind.EVENT) == [(0, 2), (1, 2)]


def test_wait_that_runs_against_time_is_counted_instead():
    # The kernel on stream 13 starts at 15, before what it is said to wait for ends at 20.
    dependencies = graph(
        kernel(10, 20, correlation=1),
        kernel(15, 40, correlation=3, stream=13),
        launch(0, 1, 1),
        launch(7, 8, 3),
        call("cudaEventRecord", 3, 3, correlation=8),
        wait(6, 9, stream=13, wait_stream=7, wait_correlation=8),
    )

    assert awaited(dependencies) == {}
    assert dependencies.against_time == 1


def test_stream_that_waits_for_itself_waits_for_nothing():
    dependencies = graph(
        kernel(10, 20, correlation=1),
        kernel(20, 30, correlation=2),
        launch(0, 1, 1),
        launch(7, 8, 2),
        call("cudaEventRecord", 3, 3, correlation=8),
        wait(6, 9, stream=7, wait_stream=7, wait_correlation=8),
    )

    assert awaited(dependencies) == {}
    assert dependencies.links == EventLinks(1, 0, 0)


@pytest.mark.parametrize("name", ["cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"])
def test_file_without_rows_of_waits_has_only_unresolved_ones(name):
    dependencies = graph(
        kernel(10, 20), call(name, 1, 2), call(name, 3, 4), call("cudaEventRecord", 5, 6)
    )

    assert dependencies.links == EventLinks(0, 0, 2)


def test_wait_call_without_a_row_in_a_file_that_has_rows_is_not_counted():
    # Kineto leaves the row of a wait out where no activity of its stream could be late.
    dependencies = graph(
        kernel(10, 20),
        call("cudaStreamWaitEvent", 1, 2, correlation=5),
        call("cudaStreamSynchronize", 3, 20, correlation=6),
        sync_row("Stream Sync", 3, 20, correlation=6, stream=7),
    )

    assert dependencies.links == EventLinks(0, 0, 0)


# One window as a networkx graph.


def test_nodes_and_edges_say_what_they_are():
    # GIVEN
    dependencies = graph(
        kernel(10, 20, "gemm", correlation=1),
        memset(20, 22, correlation=2, device=0, stream=7),
        launch(1, 5, 1),
        launch(6, 8, 2, name="cudaMemsetAsync"),
        operator("aten::mm", 0, 9),
    )

    # WHEN
    network = window_graph(dependencies, 0, 100)

    # THEN
    assert dict(network.nodes(data=True)) == {
        0: {
            "name": "gemm",
            "kind": "compute",
            "start_ns": 10,
            "end_ns": 20,
            "device": 0,
            "stream": 7,
            "constraint": "launch",
            "unexplained_ns": 0,
        },
        1: {
            "name": "Memset (Device)",
            "kind": "memset",
            "start_ns": 20,
            "end_ns": 22,
            "device": 0,
            "stream": 7,
            "constraint": "stream",
            "unexplained_ns": 0,
        },
        2: {"name": "cudaLaunchKernel", "kind": "call", "start_ns": 1, "end_ns": 5, "thread": 0},
        3: {"name": "cudaMemsetAsync", "kind": "call", "start_ns": 6, "end_ns": 8, "thread": 0},
    }
    assert sorted(network.edges(data="kind")) == [
        (0, 1, "stream"),
        (2, 0, "launch"),
        (2, 3, "host"),
        (3, 1, "launch"),
    ]
    # The memset waited for the kernel until 20: but for that it could have started once its launch
    # was over at 8. For the kernel nothing is known but its launch.
    bound = {(source, target): edge for source, target, edge in network.edges(data=True)}
    assert [edge["binding"] for _, edge in sorted(bound.items())] == [True, True, False, False]
    assert [bound[0, 1]["delay_ns"], bound[2, 0]["delay_ns"]] == [12, None]


def test_edges_that_only_the_times_tell():
    # GIVEN a kernel of stream 13, launched at 2 us, that starts at 100 us, 1 us after stream 7's,
    # and nothing that says why
    dependencies = graph(
        kernel(10 * US, 99 * US, correlation=1),
        kernel(100 * US, 120 * US, correlation=2, stream=13),
        launch(0, US, 1),
        launch(US, 2 * US, 2),
    )

    # WHEN
    network = window_graph(dependencies, 0, 120 * US)

    # THEN it waited from 2 to 99 us for the hardware queue that both share
    edge = {"kind": "queue", "binding": True, "inferred": True, "delay_ns": 97 * US}
    assert network.edges[0, 1] == edge
    assert network.nodes[1]["constraint"] == "queue"
    assert not network.edges[3, 1]["binding"]


def test_window_cuts_the_graph():
    dependencies = graph(kernel(10, 20), kernel(20, 30), kernel(30, 40), kernel(25, 25, stream=13))

    network = window_graph(dependencies, 20, 30)

    # [10, 20) ended when the window began, [30, 40) starts when it ends.
    assert sorted(network) == [1, 3]
    assert not network.edges


def test_only_work_and_calls_are_nodes():
    dependencies = graph(
        kernel(10, 20),
        operator("aten::mm", 0, 30),
        sync_row("Context Sync", 5, 9, correlation=3),
        event_row(12, correlation=4, event=1),
    )

    network = window_graph(dependencies, 0, 100)

    categories = {
        Category(int(dependencies.host.timeline.trace.category[node])) for node in network
    }
    assert categories <= set(GPU_ACTIVITIES)
