"""What streams waited for, by records and by times. In these tests all times are microseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    D2D,
    MAIN,
    US,
    call,
    copy,
    event_row,
    graph,
    kernel,
    launch,
    sync_row,
    timeline,
)
from tests.examples import examples
from tests.reference.stream_waits import Replay
from tests.reference.ticks import far_away, scaled
from tracelab.model.graph import EdgeKind, EventLinks
from tracelab.model.stream_progress import StreamProgress, StreamQueues
from tracelab.model.stream_waits import resolve_waits
from tracelab.model.trace import ABSENT, Category


def dependencies_of(*rows):
    return graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))


def awaited(dependencies):
    """Event id to the event id that it waited for, and whether that is inferred."""
    timeline = dependencies.host.timeline
    return {
        int(timeline.event_id[row]): (int(timeline.event_id[source]), bool(inferred))
        for row, (source, inferred) in enumerate(
            zip(
                dependencies.binding.event_row.tolist(),
                dependencies.binding.event_is_inferred.tolist(),
                strict=True,
            )
        )
        if source != ABSENT
    }


def event_edges(dependencies):
    chosen = dependencies.kind == EdgeKind.EVENT
    return sorted(
        zip(
            dependencies.source_id[chosen].tolist(),
            dependencies.target_id[chosen].tolist(),
            strict=True,
        )
    )


def waits_of(activities):
    queues = StreamQueues(activities)
    return resolve_waits(activities, queues, StreamProgress(activities, queues))


def after_unresolved(dependencies):
    """The event ids of what was late, after a wait for something that nothing tells."""
    activities = dependencies.host.timeline
    return activities.event_id[waits_of(activities).after_unresolved_wait].tolist()


def record(at, correlation):
    return call("cudaEventRecord", at, at + 1, correlation=correlation)


def wait(at, correlation, *, stream, device=0, **waited_for):
    return sync_row(
        "Stream Wait Event",
        at,
        at,
        correlation=correlation,
        device=device,
        stream=stream,
        **waited_for,
    )


# Chains: a stream that waits, does nothing, and is waited for.


def chain(*between, then=()):
    """Stream 7 works until 100, stream 20 waits for it, stream 13 for stream 20.

    Event ids 0 and 1 are the work of streams 7 and 13.
    """
    return [
        kernel(10, 100, correlation=1),
        kernel(108, 150, correlation=2, stream=13),
        launch(0, 1, 1),
        record(2, 10),
        wait(4, 11, stream=20, wait_stream=7, wait_correlation=10),
        *between,
        record(8, 12),
        wait(10, 13, stream=13, wait_stream=20, wait_correlation=12),
        launch(12, 13, 2),
        *then,
    ]


def test_wait_reaches_through_a_stream_that_only_waits_itself():
    # GIVEN stream 20 works later, so that Kineto keeps the row of its wait
    dependencies = dependencies_of(
        *chain(then=[launch(20, 21, 3), kernel(200, 210, correlation=3, stream=20)])
    )

    assert awaited(dependencies) == {1: (0, False), 9: (0, False)}
    assert event_edges(dependencies) == [(0, 1), (0, 9)]
    assert dependencies.links == EventLinks(exact=2, inferred=0, unresolved=0)


def test_wait_reaches_through_a_stream_that_never_works():
    assert awaited(dependencies_of(*chain())) == {1: (0, False)}


def test_work_of_a_stream_after_its_own_wait_is_upstream():
    # GIVEN work of stream 20 between its wait and the record: that waited for stream 7 in turn
    dependencies = dependencies_of(
        *chain(launch(6, 7, 3), kernel(101, 104, correlation=3, stream=20)),
    )

    assert awaited(dependencies) == {1: (6, False), 6: (0, False)}
    assert event_edges(dependencies) == [(0, 6), (6, 1)]


def test_wait_after_the_record_is_not_upstream_of_it():
    dependencies = dependencies_of(
        *chain(),
        kernel(10, 60, correlation=5, stream=30),
        launch(0, 1, 5),
        record(3, 20),
        wait(9, 21, stream=20, wait_stream=30, wait_correlation=20),
    )

    assert event_edges(dependencies) == [(0, 1)]


def test_chain_back_to_the_stream_that_waits_is_no_wait():
    rows = [replace(row, stream=7) if row.stream == 13 else row for row in chain()]

    assert awaited(dependencies_of(*rows)) == {}


def test_wait_reaches_across_devices_by_the_events():
    # GIVEN stream 20 of device 1 waits for device 0, and device 2 for stream 20; Kineto names no
    # record of another device, only its event
    dependencies = dependencies_of(
        kernel(10, 100, correlation=1),
        kernel(115, 150, correlation=2, device=2),
        launch(0, 1, 1),
        record(2, 10),
        event_row(101, correlation=10, event=5),
        wait(4, 11, device=1, stream=20, event=5),
        record(8, 12),
        event_row(105, correlation=12, event=6, device=1, stream=20),
        wait(10, 13, device=2, stream=7, event=6),
        launch(12, 13, 2),
    )

    assert awaited(dependencies) == {1: (0, False)}
    assert dependencies.links == EventLinks(2, 0, 0)


def after_an_idle_stream(reached):
    """As `chain`, but Kineto left out the row of the wait of stream 20, which never works."""
    rows = [row for row in chain() if not (row.category == Category.SYNC and row.stream == 20)]
    return [
        *rows,
        call("cudaStreamWaitEvent", 4, 5, correlation=11),
        event_row(reached, correlation=12, event=5, stream=20),
    ]


def test_record_of_an_idle_stream_that_was_reached_late_tells_what_the_stream_waited_for():
    dependencies = dependencies_of(*after_an_idle_stream(reached=104))

    assert awaited(dependencies) == {1: (0, True)}
    assert dependencies.links == EventLinks(exact=1, inferred=0, unresolved=0)


def test_record_of_an_idle_stream_that_was_reached_at_once_stands_for_nothing():
    dependencies = dependencies_of(*after_an_idle_stream(reached=11))

    assert awaited(dependencies) == {}
    assert after_unresolved(dependencies) == []


def test_record_of_an_idle_stream_that_was_reached_late_for_no_known_reason():
    # Stream 7 still worked at 60: that it ended just before stream 13 went on is chance.
    dependencies = dependencies_of(*after_an_idle_stream(reached=60))

    assert awaited(dependencies) == {}
    assert after_unresolved(dependencies) == []


# Waits that name nothing.


def after_wait_without_record(*, ended=100, start=108, recorded=4, launched=6, launched_next=None):
    """Stream 7 works until `ended`, stream 13 waits for what the file does not name.

    Event ids 0 and 1 are the work of streams 7 and 13.
    """
    rows = [
        kernel(10, ended, correlation=1),
        kernel(start, start + 40, correlation=2, stream=13),
        launch(1, 2, 1),
        record(recorded, 10),
        wait(launched - 1, 11, stream=13),
        launch(launched, launched + 1, 2),
    ]
    if launched_next is not None:
        rows += [
            launch(launched_next, launched_next, 3),
            kernel(start + 90, start + 99, correlation=3),
        ]
    return rows


def test_late_activity_waited_for_what_had_just_ended():
    dependencies = dependencies_of(*after_wait_without_record())

    assert awaited(dependencies) == {1: (0, True)}
    assert event_edges(dependencies) == [(0, 1)]
    assert after_unresolved(dependencies) == []
    assert dependencies.links == EventLinks(exact=0, inferred=1, unresolved=0)


def test_late_activity_waited_across_devices():
    rows = [
        replace(row, device=1) if row.stream == 13 else row for row in after_wait_without_record()
    ]

    assert awaited(dependencies_of(*rows)) == {1: (0, True)}


def test_wait_that_delayed_nothing_stays_unresolved_and_needs_no_explanation():
    # It starts 5 us after its launch call, just after stream 7 ended by chance.
    dependencies = dependencies_of(*after_wait_without_record(ended=11, start=12))

    assert awaited(dependencies) == {}
    assert after_unresolved(dependencies) == []
    assert dependencies.links == EventLinks(0, 0, 1)


@pytest.mark.parametrize(
    "rows",
    [
        after_wait_without_record(ended=70),  # ended too long before
        after_wait_without_record(ended=110),  # had not ended
        after_wait_without_record(recorded=0),  # no event was recorded after its launch
        after_wait_without_record(recorded=9),  # the event was recorded after the wait
        after_wait_without_record(
            recorded=4, launched_next=3
        ),  # the event stands for the activity after it
    ],
)
def test_late_activity_without_anything_that_fits_waited_for_something_unknown(rows):
    dependencies = dependencies_of(*rows)

    assert awaited(dependencies) == {}
    assert after_unresolved(dependencies) == [1]
    assert dependencies.links == EventLinks(0, 0, 1)


def test_start_that_its_latency_explains_is_not_unknown():
    # 19 us after its launch call.
    dependencies = dependencies_of(*after_wait_without_record(ended=200, start=26))

    assert not dependencies.binding.reason.any()
    assert dependencies.links == EventLinks(0, 0, 1)


def test_what_ended_before_the_stream_was_free_delayed_nothing():
    # Stream 13 itself works until 101, stream 7 until 100.
    dependencies = dependencies_of(
        *after_wait_without_record(),
        launch(0, 1, 4),
        kernel(20, 101, correlation=4, stream=13),
        record(2, 5),
    )

    assert awaited(dependencies) == {}


def test_of_all_that_fits_the_one_that_ended_last_is_the_source_of_one_wait():
    # GIVEN stream 13 waits twice, and streams 7 and 20 had both just ended
    dependencies = dependencies_of(
        *after_wait_without_record(),
        launch(3, 4, 4),
        kernel(10, 103, correlation=4, stream=20),
        wait(5, 14, stream=13),
    )

    assert awaited(dependencies) == {1: (7, True)}
    assert event_edges(dependencies) == [(7, 1)]
    assert dependencies.links == EventLinks(0, 1, 1)


def test_record_that_explains_the_start_leaves_nothing_to_infer():
    # Stream 13 waits for stream 20 by name, and for something without a name.
    dependencies = dependencies_of(
        *after_wait_without_record(ended=104),
        launch(0, 1, 4),
        kernel(10, 100, correlation=4, stream=20),
        record(2, 20),
        wait(5, 21, stream=13, wait_stream=20, wait_correlation=20),
    )

    assert awaited(dependencies) == {1: (7, False)}
    assert dependencies.links == EventLinks(1, 0, 1)


def test_activity_whose_launch_is_not_in_the_file_is_not_late():
    rows = [
        row
        for row in after_wait_without_record()
        if row.correlation != 2 or row.category == Category.KERNEL
    ]

    assert awaited(dependencies_of(*rows)) == {}


# Copies between devices, which delay the default stream of the other one without any wait.


def peer_copy(*, start, device=1):
    return [
        copy(10, 100, "Memcpy PtoP (Device -> Device)", correlation=1),
        kernel(start, start + 9, correlation=2, device=device, stream=20),
        launch(0, 1, 1, name="cudaMemcpyAsync"),
        launch(3, 4, 2),
    ]


def test_peer_copy_delays_the_other_device():
    dependencies = dependencies_of(*peer_copy(start=115))

    assert awaited(dependencies) == {1: (0, True)}
    assert event_edges(dependencies) == [(0, 1)]
    assert dependencies.links == EventLinks(0, 0, 0)


@pytest.mark.parametrize(
    "rows",
    [
        peer_copy(start=99),  # still copying
        peer_copy(start=140),  # over for too long
        peer_copy(start=115, device=0),  # the copy's own device
        # its stream worked in between, launched after the copy too
        [
            *peer_copy(start=115),
            launch(2, 3, 9),
            kernel(50, 98, correlation=9, device=1, stream=20),
        ],
        # the launch of the copy is not in the file
        [row for row in peer_copy(start=115) if row.name != "cudaMemcpyAsync"],
    ],
)
def test_peer_copy_that_does_not_explain_a_start(rows):
    assert awaited(dependencies_of(*rows)) == {}


# What must hold of every trace, with its records and without them.


def _without_records(rows):
    return [
        replace(row, wait_stream=ABSENT, wait_correlation=ABSENT)
        for row in rows
        if row.category != Category.CUDA_EVENT
    ]


def _without_streams(rows):
    """As PyTorch's own CUPTI collector writes them: a wait names its record, not the stream."""
    rows = [row for row in rows if row.category != Category.CUDA_EVENT]
    return [replace(row, wait_stream=ABSENT) for row in rows]


def _reached_ns(timeline, rows):
    """When an event recorded right after each row was reached: all before it had ended, too."""
    first_rows = [timeline.streams[i].first_row for i in timeline.stream_index[rows].tolist()]
    ranges = zip(first_rows, rows.tolist(), strict=True)
    ends = [timeline.end_ns[first : row + 1].max() for first, row in ranges]
    return np.array(ends, dtype=np.int64)


@examples(150)
@given(random_rows())
def test_no_source_runs_against_time_and_every_wait_is_counted_once(rows):
    for kept in (rows, _without_records(rows)):
        dependencies = graph(*scaled(kept))
        timeline = dependencies.host.timeline
        waited = np.flatnonzero(dependencies.binding.event_row != ABSENT)
        source = dependencies.binding.event_row[waited]
        waits = sum(row.name == "Stream Wait Event" for row in kept)

        assert (timeline.end_ns[source] <= timeline.start_ns[waited]).all()
        assert (timeline.stream_index[source] != timeline.stream_index[waited]).all()
        waits_for_nothing = dependencies.binding.event_row == ABSENT
        assert not dependencies.binding.event_is_inferred[waits_for_nothing].any()
        if any(row.category == Category.SYNC for row in kept):
            assert (
                dependencies.links.exact
                + dependencies.links.inferred
                + dependencies.links.unresolved
                == waits
            )
        if kept is not rows:
            assert dependencies.links.exact == 0
            assert dependencies.binding.event_is_inferred[waited].all()
            # a link and an unknown wait exclude each other
            inferred = timeline.event_id[dependencies.binding.event_is_inferred].tolist()
            assert not set(inferred) & set(after_unresolved(dependencies))
            late = timeline.start_ns[waited] - timeline.trace.end_ns[timeline.launch_id[waited]]
            assert (late > 0).all()
            assert (timeline.start_ns[waited] - _reached_ns(timeline, source) <= 35 * US).all()


@examples(60)
@given(random_rows())
def test_waits_are_the_same_at_the_latest_times(rows):
    for kept in (rows, _without_records(rows)):
        early, late = (graph(*x) for x in (scaled(kept), far_away(scaled(kept))))

        assert late.binding.event_row.tolist() == early.binding.event_row.tolist()
        assert after_unresolved(late) == after_unresolved(early)
        assert late.links == early.links


@st.composite
def synchronizing(draw):
    """Two streams that work and one that never does, recorded and made to wait again and again."""
    rows, records, at = [kernel(0, 1, correlation=1), launch(0, 1, 1)], [], 0
    for correlation in range(2, draw(st.integers(3, 24))):
        at += draw(st.integers(0, 2))
        stream = draw(st.sampled_from([7, 13, 20]))
        what = draw(st.sampled_from(["work", "work", "record", "wait", "wait"]))
        if what == "work":
            stream, start = draw(st.sampled_from([7, 7, 20])), at + draw(st.integers(0, 8))
            end = start + draw(st.integers(0, 5))
            rows.append(kernel(start, end, stream=stream, correlation=correlation))
            rows.append(launch(at, at + draw(st.integers(0, 1)), correlation))
        elif what == "record":
            records.append((correlation, stream))
            rows.append(call("cudaEventRecord", at, at, correlation=correlation))
            if draw(st.booleans()):
                reached, event = at + draw(st.integers(0, 8)), draw(st.integers(1, 2))
                rows.append(event_row(reached, correlation=correlation, event=event, stream=stream))
        else:
            of = draw(st.sampled_from(records)) if records and draw(st.booleans()) else None
            correlation_of, stream_of = of or (ABSENT, ABSENT)
            event = draw(st.sampled_from([ABSENT, ABSENT, 1, 2]))
            named = {"wait_correlation": correlation_of, "wait_stream": stream_of, "event": event}
            rows.append(call("cudaStreamWaitEvent", at, at, correlation=correlation))
            if draw(st.integers(0, 3)):
                rows.append(wait(at, correlation, stream=stream, **named))
    return rows


@st.composite
def handing_over(draw):
    """Two threads that record events on streams of two devices, one idle, and make them wait.

    Correlations are 2, 3, and so on, of one call after another.
    """
    rows, last_of, at = [], {}, 0
    streams = st.sampled_from([(0, 7), (0, 7), (0, 13), (1, 7), (0, 14)])
    for correlation in range(2, draw(st.integers(4, 30))):
        at += draw(st.integers(1, 2))
        thread = draw(st.sampled_from([MAIN, MAIN, MAIN, AUTOGRAD]))
        device, stream = draw(streams)
        what = draw(st.sampled_from(["work", "work", "record", "record", "wait", "wait", "sync"]))
        if what == "work":
            start = at + draw(st.integers(0, 8))
            end = start + draw(st.integers(0, 5))
            name = draw(st.sampled_from([D2D, D2D, "Memcpy PtoP (Device -> Device)"]))
            busy = 7 if stream == 14 else stream
            place = {"device": device, "stream": busy, "correlation": correlation}
            rows.append(copy(start, end, name, **place))
            rows.append(launch(at, at, correlation, thread=thread))
        elif what == "record":
            last_of[thread] = correlation
            rows.append(call("cudaEventRecord", at, at, correlation=correlation, thread=thread))
        elif what == "sync":
            name = "cudaStreamSynchronize"
            rows.append(call(name, at, at, correlation=correlation, thread=thread))
        elif last_of:
            record = last_of.get(thread) or next(iter(last_of.values()))
            rows.append(call("cudaStreamWaitEvent", at, at, correlation=correlation, thread=thread))
            named = {"wait_correlation": record, "event": draw(st.sampled_from([ABSENT, 1, 2]))}
            rows.append(wait(at, correlation, device=device, stream=stream, **named))
    return [kernel(0, 1, correlation=1), launch(0, 1, 1), *rows]


@pytest.mark.parametrize("unit", [2_500, 10_000])  # ns; within the limits of delays, and past them
@examples(150)
@given(random_rows() | synchronizing() | handing_over())
def test_waits_are_those_of_a_replay(unit, rows):
    for kept in (rows, _without_records(rows), _without_streams(rows)):
        in_ns = [replace(row, start=row.start * unit, end=row.end * unit) for row in kept]
        activities = timeline(*in_ns)
        waits, expected = waits_of(activities), Replay(in_ns, activities)

        by_wait = ~waits.is_peer_copy
        columns = (waits.row, waits.source_row, waits.is_inferred)
        pairs = zip(*(column[by_wait].tolist() for column in columns), strict=True)
        assert sorted(pairs) == sorted(expected.pairs)
        late = set(np.flatnonzero(waits.after_unresolved_wait).tolist())
        assert late == expected.after_unresolved_wait - set(waits.row[~by_wait].tolist())
        assert waits.exact_count == expected.exact_count
        by_calls = sum(wait.is_inferred for wait in expected.waits)
        assert waits.inferred_count == len(expected.inferred_waits) + by_calls


def test_wait_without_a_record_counts_though_another_one_reaches_back_further():
    """GIVEN stream 20 waits without a record, then for stream 13, which has waited before
    THEN what was recorded between the two waits without a record can be what it waited for."""
    dependencies = dependencies_of(
        kernel(2, 30, correlation=1),
        kernel(31, 40, stream=20, correlation=7),
        kernel(0, 1, stream=13, correlation=2),
        launch(0, 0, 2),
        launch(1, 2, 1),
        wait(5, 3, stream=13),
        record(8, 4),
        wait(10, 5, stream=20),
        record(11, 6),
        wait(12, 6, stream=20, wait_stream=13, wait_correlation=6),
        launch(13, 14, 7),
    )

    assert awaited(dependencies) == {1: (0, True)}


def test_waits_of_a_file_without_activities_are_unresolved():
    activities = timeline(
        record(2, 10), wait(4, 11, stream=20, wait_stream=7, wait_correlation=10), launch(5, 6, 1)
    )

    waits = waits_of(activities)

    assert len(waits.row) == len(waits.source_row) == len(waits.after_unresolved_wait) == 0
    assert (waits.exact_count, waits.inferred_count, waits.unresolved_count) == (0, 0, 1)
