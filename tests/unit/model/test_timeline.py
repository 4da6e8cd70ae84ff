from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.random_rows import random_rows
from tests.build.rows import (
    annotation,
    call,
    copy,
    kernel,
    launch,
    memset,
    operator,
    step,
    timeline,
    trace,
)
from tests.examples import examples
from tests.reference.ticks import TICK, Account, scaled
from tracelab.base.errors import UsageError
from tracelab.base.intervals import measure
from tracelab.model.activities import Stream
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import (
    Nesting,
    expand_ranges,
    first_around,
    groups_of,
    last_in_group,
    search_ranges,
)
from tracelab.model.timeline import build_timeline, only_launched
from tracelab.model.trace import ABSENT


def windows(activities):
    return [(window.step, window.start_ns, window.end_ns) for window in activities.windows]


@examples(60)
@given(random_rows())
def test_windows_and_steps_are_those_of_the_definition(rows):
    expected = Account(rows)
    activities = timeline(*scaled(rows))

    assert windows(activities) == [
        (window.step, window.start * TICK, window.end * TICK) for window in expected.windows
    ]
    for event, index in zip(
        activities.event_id.tolist(), activities.step_index.tolist(), strict=True
    ):
        step_event = None if index == ABSENT else activities.steps[index].event_id
        assert step_event == expected.step_of.get(event)
    assert all(window.length_ns >= 0 for window in activities.windows)
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(activities.windows[1:]))


@examples(40)
@given(random_rows())
def test_launch_is_the_outermost_call_with_the_correlation(rows):
    expected = Account(rows).launch
    activities = timeline(*scaled(rows))

    launches = dict(zip(activities.event_id.tolist(), activities.launch_id.tolist(), strict=True))
    assert launches == {i: ABSENT if j is None else j for i, j in expected.items()}


def test_activities_are_ordered_by_device_stream_and_start():
    # GIVEN activities in the file's order, which is none
    rows = [
        kernel(30, 40, device=1),
        kernel(20, 25, stream=13),
        copy(10, 20, stream=7),
        memset(0, 5, stream=13),
        operator("aten::mm", 0, 50),
        kernel(0, 8, stream=7),
    ]

    # WHEN
    activities = timeline(*rows)

    # THEN device 0 stream 7, device 0 stream 13, device 1
    assert activities.event_id.tolist() == [5, 2, 3, 1, 0]
    assert activities.streams == (Stream(0, 7, 0, 2), Stream(0, 13, 2, 4), Stream(1, 7, 4, 5))
    assert activities.stream_index.tolist() == [0, 0, 1, 1, 2]
    assert activities.device_numbers == (0, 1)
    assert activities.kind.tolist() == [
        Kind.COMPUTE,
        Kind.COPY,
        Kind.MEMSET,
        Kind.COMPUTE,
        Kind.COMPUTE,
    ]


def test_activities_that_start_too_early_on_their_stream_are_counted():
    # [2, 4) and [9, 11) start inside [0, 10); [20, 30) touches nothing and [30, 31) only touches.
    activities = timeline(
        kernel(0, 10), kernel(2, 4), kernel(9, 11), kernel(20, 30), kernel(30, 31)
    )
    other_streams = timeline(kernel(0, 10), kernel(2, 4, stream=13), kernel(3, 4, device=1))

    assert activities.overlapping_count == 2
    assert other_streams.overlapping_count == 0
    assert not activities.overlaps_previous.any()


@pytest.mark.parametrize(
    ("name", "early"),
    [
        ("cudaLaunchKernelExC", True),
        ("cudaLaunchKernelExC_ptsz", True),
        ("cuLaunchKernelEx", True),
        ("cuLaunchKernelEx_ptsz", True),
        ("cudaLaunchKernel", False),
        ("cuLaunchKernel", False),
        ("cudaLaunchCooperativeKernel", False),
        ("cudaMemcpyAsync", False),
    ],
)
def test_only_an_extended_launch_lets_a_kernel_begin_early(name, early):
    # GIVEN a kernel that starts at 18, 2 ns before the one before it ends at 20
    rows = [
        launch(0, 1, 1),
        launch(1, 2, 2, name=name),
        kernel(10, 20, correlation=1),
        kernel(18, 30, correlation=2),
    ]

    # WHEN
    activities = timeline(*rows)

    # THEN it is one or the other, and the GPU is busy from 10 to 30
    assert activities.overlaps_previous.tolist() == [False, early]
    assert activities.overlapping_count == (not early)
    assert measure(activities.busy()) == 20


def test_kernel_that_could_begin_early_and_did_not_is_none():
    # One touches the kernel before it; one has none before it.
    rows = [launch(0, 1, 1, name="cuLaunchKernelEx"), launch(1, 2, 2, name="cuLaunchKernelEx")]

    activities = timeline(*rows, kernel(10, 20, correlation=1), kernel(20, 30, correlation=2))

    assert activities.overlaps_previous.tolist() == [False, False]
    assert activities.overlapping_count == 0


def test_overlap_is_excused_by_the_launch_of_the_kernel_that_begins_early():
    # The first kernel may begin early; the second one, [18, 30), may not, and does.
    rows = [launch(0, 1, 1, name="cudaLaunchKernelExC"), launch(1, 2, 2)]

    activities = timeline(*rows, kernel(10, 20, correlation=1), kernel(18, 30, correlation=2))

    assert activities.overlapping_count == 1
    assert not activities.overlaps_previous.any()


@pytest.mark.parametrize(
    "graph_launch", ["cudaGraphLaunch", "cudaGraphLaunch_ptsz", "cuGraphLaunch", "hipGraphLaunch"]
)
def test_kernels_of_one_graph_replay_may_begin_early(graph_launch):
    # GIVEN a replay of two kernels that share [18, 20), and a second one that begins before it ends
    rows = [
        launch(0, 1, 1, name=graph_launch),
        launch(1, 2, 2, name=graph_launch),
        kernel(10, 20, correlation=1),
        kernel(18, 30, correlation=1),
        kernel(28, 40, correlation=2),
    ]

    # WHEN
    activities = timeline(*rows)

    # THEN only within the replay is it allowed
    assert activities.overlaps_previous.tolist() == [False, True, False]
    assert activities.overlapping_count == 1


def test_two_kernels_with_one_plain_launch_are_no_graph():
    # As where two processes share a file, and their correlations with it.
    rows = [launch(0, 1, 1), kernel(10, 20, correlation=1), kernel(18, 30, correlation=1)]

    assert timeline(*rows).overlapping_count == 1


def test_whole_trace_is_from_the_first_gpu_activity_to_the_end_of_the_last():
    # The host's events from 0 to 90 do not count.
    activities = timeline(
        operator("aten::mm", 0, 90), kernel(10, 60), kernel(20, 30, device=1), launch(1, 2, 5)
    )

    assert windows(activities) == [(None, 10, 60)]


def test_step_reaches_to_the_end_of_the_work_that_it_launched():
    # GIVEN two steps of 50 ns each on the host; the first one's work ends at 80, when the second
    # step has been running on the host for 30 ns, and the second one's work at 130
    rows = [
        step(1, 0, 50),
        launch(10, 12, 1),
        kernel(40, 80, correlation=1),
        step(2, 50, 100),
        launch(60, 62, 2),
        kernel(80, 130, correlation=2),
    ]

    # WHEN
    activities = timeline(*rows)

    # THEN
    assert windows(activities) == [(None, 40, 130), (1, 0, 80), (2, 80, 130)]
    assert activities.step_index.tolist() == [0, 1]


def test_step_is_at_least_as_long_as_the_host_took():
    # The work of step 1 ends at 30, the host's annotation at 50; between the steps lie 10 ns.
    rows = [step(1, 0, 50), launch(1, 2, 1), kernel(10, 30, correlation=1), step(2, 60, 70)]

    assert windows(timeline(*rows))[1:] == [(1, 0, 50), (2, 60, 70)]


def test_step_that_only_launches_what_ended_before_has_no_length():
    # Step 1's work ends at 200; step 2 (host 50 to 60) launches nothing: [200, 200).
    rows = [step(1, 0, 50), launch(1, 2, 1), kernel(10, 200, correlation=1), step(2, 50, 60)]

    assert windows(timeline(*rows))[1:] == [(1, 0, 200), (2, 200, 200)]


def test_activity_without_a_launch_in_the_file_belongs_to_no_step():
    # It runs inside the step's time, but who launched it is not known.
    activities = timeline(step(1, 0, 50), kernel(10, 90, correlation=1), launch(20, 21, 2))

    assert activities.launch_id.tolist() == [ABSENT]
    assert activities.step_index.tolist() == [ABSENT]
    assert windows(activities) == [(None, 10, 90), (1, 0, 50)]


def test_correlation_that_is_absent_is_no_correlation():
    activities = timeline(kernel(10, 90), call("cudaLaunchKernel", 0, 5))

    assert activities.launch_id.tolist() == [ABSENT]


def test_launch_from_another_thread_counts_for_the_step_that_holds_it():
    rows = [step(1, 0, 50), launch(10, 12, 1, thread=1), kernel(20, 30, correlation=1)]

    assert timeline(*rows).step_index.tolist() == [0]


def test_work_launched_between_two_steps_belongs_to_neither():
    # A launch at 50 is after [0, 50) and before [60, 90).
    rows = [step(1, 0, 50), launch(50, 51, 1), kernel(52, 58, correlation=1), step(2, 60, 90)]

    assert timeline(*rows).step_index.tolist() == [ABSENT]


def test_of_steps_that_overlap_the_first_one_counts_the_work():
    # GIVEN two annotations that share [20, 50), and a launch at 30 whose work ends at 80
    rows = [step(1, 0, 50), step(2, 20, 70), launch(30, 31, 1), kernel(40, 80, correlation=1)]

    # WHEN
    activities = timeline(*rows)

    # THEN its window is that of step 1, and step 2 is what is left of its host time: nothing
    assert windows(activities)[1:] == [(1, 0, 80), (2, 80, 80)]
    assert activities.step_index.tolist() == [0]


def test_nested_driver_call_does_not_hide_the_runtime_call():
    # GIVEN a file that lists the driver's call inside the runtime's before that
    rows = [
        call("cuLaunchKernel", 11, 14, correlation=1),
        call("cudaLaunchKernel", 10, 15, correlation=1),
        kernel(20, 30, correlation=1),
    ]

    # THEN the runtime call launched
    assert timeline(*rows).launch_id.tolist() == [1]


def test_every_node_of_a_graph_replay_has_the_same_launch():
    activities = timeline(
        call("cudaGraphLaunch", 0, 5, correlation=1),
        kernel(10, 20, correlation=1),
        kernel(22, 30, correlation=1, stream=13),
    )

    assert activities.launch_id.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [(r"^train_step#\d+$", [7, 9]), (r"^iteration$", [0, 1]), (r"nothing", [])],
)
def test_any_annotation_can_be_the_step(pattern, numbers):
    # Its number is the one after "#", else its index.
    rows = [
        kernel(0, 100),
        annotation("train_step#7", 0, 10),
        operator("train_step#9", 20, 30),
        annotation("iteration", 40, 50),
        annotation("iteration", 60, 70),
    ]

    activities = timeline(*rows, step_pattern=pattern)

    assert [x.number for x in activities.steps] == numbers


def test_bad_patterns_are_wrong_usage():
    rows = trace(kernel(0, 10))

    with pytest.raises(UsageError, match=r"'\(' is not a valid regular expression"):
        build_timeline(rows, step_pattern="(")
    with pytest.raises(UsageError, match=r"'\*' is not a valid regular expression"):
        build_timeline(rows, comm_patterns=["*"])


def test_comm_pattern_adds_to_the_known_names():
    activities = build_timeline(
        trace(kernel(0, 10, "my_ring"), kernel(10, 20, "ncclKernel"), kernel(20, 30, "gemm")),
        comm_patterns=["^my_"],
    )

    assert activities.kind.tolist() == [Kind.COMM, Kind.COMM, Kind.COMPUTE]


def test_only_launched_leaves_the_rest_out():
    activities = only_launched(
        timeline(
            kernel(0, 10, correlation=1),
            step(1, 0, 90),
            launch(12, 13, 2),
            kernel(20, 30, correlation=2),
        )
    )

    assert activities.event_id.tolist() == [3]
    assert windows(activities) == [(None, 20, 30)]


def test_timeline_without_gpu_activities_can_be_built():
    activities = timeline(operator("aten::mm", 0, 10), launch(2, 3, 1))

    assert (len(activities.event_id), activities.streams, activities.device_numbers) == (0, (), ())


def test_selections():
    activities = timeline(kernel(0, 10), copy(5, 20, stream=13), kernel(30, 40, device=1))

    assert activities.select(device=0).tolist() == [True, True, False]
    assert activities.select(kind=Kind.COMPUTE).tolist() == [True, False, True]
    assert activities.select(device=1, kind=Kind.COPY).tolist() == [False, False, False]
    busy = activities.busy(activities.select(device=0))
    assert (busy.starts.tolist(), busy.ends.tolist()) == ([0], [20])


# Looking things up by group.

_GROUPS = st.lists(st.tuples(st.integers(ABSENT, 4), st.integers(0, 9)), max_size=30)


@examples(200)
@given(_GROUPS)
def test_each_value_but_absent_comes_once_with_its_indexes(entries):
    values = np.array([group for group, _ in entries], dtype=np.int64)

    groups = [(value, index.tolist()) for value, index in groups_of(values)]

    assert groups == [
        (value, [i for i, x in enumerate(values.tolist()) if x == value])
        for value in sorted(set(values.tolist()) - {ABSENT})
    ]


@pytest.mark.parametrize("side", ["left", "right"])
@examples(200)
@given(_GROUPS, _GROUPS)
def test_last_in_group_is_the_last_entry_of_the_group_that_comes_before(side, entries, queries):
    entries.sort()
    group, key, query_group, query_key = (
        np.array([x[column] for x in rows], dtype=np.int64)
        for rows in (entries, queries)
        for column in (0, 1)
    )

    last_index = last_in_group(group, key, query_group, query_key, side)

    assert last_index.tolist() == [
        max(
            (
                i
                for i, (number, at) in enumerate(entries)
                if number == wanted != ABSENT
                and (at < moment or (at == moment and side == "right"))
            ),
            default=ABSENT,
        )
        for wanted, moment in queries
    ]


def test_last_in_group_of_the_greatest_number():
    greatest = np.iinfo(np.int64).max
    group, key = np.array([1, greatest]), np.array([0, 0])

    assert last_in_group(group, key, np.array([greatest]), np.array([9])).tolist() == [1]


@pytest.mark.parametrize("side", ["left", "right"])
@examples(200)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=9), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 10)), max_size=20),
)
def test_each_search_is_in_its_own_range(side, ranges, queries):
    key = np.array([x for range_ in ranges for x in sorted(range_)], dtype=np.int64)
    bounds = np.cumsum([0, *map(len, ranges)])
    index = np.array([number % len(ranges) for number, _ in queries], dtype=np.intp)
    wanted = np.array([x for _, x in queries], dtype=np.int64)

    found = search_ranges(key, bounds[index], bounds[index + 1], wanted, side)

    assert found.tolist() == [
        first + np.searchsorted(key[first:end], x, side)
        for first, end, x in zip(bounds[index], bounds[index + 1], wanted, strict=True)
    ]


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12),
    st.lists(st.integers(-1, 45), max_size=12),
)
def test_first_around_is_the_first_interval_that_holds_a_moment(intervals, moments):
    starts, lengths = np.array(intervals, dtype=np.int64).reshape(-1, 2).T

    found = first_around(starts, starts + lengths, np.array(moments, dtype=np.int64))

    assert found.tolist() == [
        next((i for i, (x, length) in enumerate(intervals) if x <= at < x + length), ABSENT)
        for at in moments
    ]


def test_each_member_of_ranges():
    first, end = np.array([3, 5, 9, 0]), np.array([5, 5, 7, 1])

    range_index, member = expand_ranges(first, end)

    assert (range_index.tolist(), member.tolist()) == ([0, 0, 3], [3, 4, 0])


def test_the_innermost_entry_among_very_many_threads():
    """A number for thread and moment together takes more than 32 bits."""
    count = 50_000
    start_ns = np.arange(count) * 10
    trace = SimpleNamespace(
        threads=range(count),
        thread_index=np.arange(count, dtype=np.int32),
        start_ns=start_ns,
        end_ns=start_ns + 9,
    )

    innermost = Nesting(trace, np.arange(count)).innermost(np.arange(count))

    assert innermost.tolist() == list(range(count))
