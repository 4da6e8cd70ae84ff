from itertools import combinations

from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import comm, copy, graph, kernel, memset
from tests.examples import examples
from tests.reference.ticks import TICK, Account, scaled
from tracelab.measures.overlap import (
    DeviceTime,
    OverlapMetrics,
    StreamTime,
    device_times,
    overlaps,
)
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window


def _within(ticks, window):
    return {t for t in ticks if window.start <= t < window.end}


def _expected_device(account, device, window):
    """One device in one window, in ticks, from sets of ticks."""
    compute, communication, copies, memsets = (
        _within(account.busy(account.of(device, kind)), window) for kind in Kind
    )
    busy = compute | communication | copies | memsets
    rows = account.rows
    streams = {rows[i].stream: [] for i in account.of(device)}
    for i in account.of(device):
        streams[rows[i].stream].append(i)
    return {
        "device": device,
        "busy_ns": len(busy),
        "idle_ns": window.end - window.start - len(busy),
        "compute_ns": len(compute),
        "comm_ns": len(communication),
        "copy_ns": len(copies),
        "memset_ns": len(memsets),
        "exposed_comm_ns": len(communication - compute),
        "exposed_copy_ns": len(copies - compute - communication),
        "comm_compute_overlap_ns": len(communication & compute),
        "copy_compute_overlap_ns": len(copies & compute),
        "streams": {
            stream: (
                len(_within(account.busy(rows_of_stream), window)),
                sum(
                    rows[i].start < window.end
                    and (rows[i].end > window.start or rows[i].start >= window.start)
                    for i in rows_of_stream
                ),
            )
            for stream, rows_of_stream in streams.items()
        },
    }


@examples(60)
@given(random_rows())
def test_device_times_are_those_of_the_definition(rows):
    account, made_graph = Account(rows), graph(*scaled(rows))

    measured = device_times(made_graph)

    for window, devices in zip(account.windows, measured, strict=True):
        assert [x.device for x in devices] == account.devices
        for time in devices:
            expected = _expected_device(account, time.device, window)
            streams = expected.pop("streams")
            assert {x.stream: (x.busy_ns // TICK, x.activities) for x in time.streams} == streams
            for name, ticks in expected.items():
                value = getattr(time, name)
                assert value == (ticks if name == "device" else ticks * TICK)


def _expected_overlaps(account, window):
    """Every pair of selections of one sort, in ticks."""
    rows = account.rows
    kinds = [
        {
            f"kind:{device}/{kind.name.lower()}": account.busy(account.of(device, kind))
            for kind in Kind
        }
        for device in account.devices
    ]
    streams = sorted({(rows[i].device, rows[i].stream) for i in account.activities})
    streams = {
        f"stream:{device}/{stream}": account.busy(
            [i for i in account.of(device) if rows[i].stream == stream]
        )
        for device, stream in streams
    }
    devices = {f"device:{x}": account.busy(account.of(x)) for x in account.devices}
    for group in (*kinds, streams, devices):
        inside = {name: _within(ticks, window) for name, ticks in group.items()}
        for a, b in combinations(inside, 2):
            if inside[a] and inside[b]:
                yield a, b, len(inside[a]), len(inside[b]), len(inside[a] & inside[b])


@examples(60)
@given(random_rows())
def test_overlaps_are_those_of_the_definition(rows):
    account, made_graph = Account(rows), graph(*scaled(rows))

    measured = overlaps(made_graph)

    pairs = [(x.a, x.b, x.a_ns // TICK, x.b_ns // TICK, x.overlap_ns // TICK) for x in measured]
    expected = [list(_expected_overlaps(account, window)) for window in account.windows]
    assert pairs == [pair for of_window in expected for pair in of_window]
    steps = [window.step for window in made_graph.host.timeline.windows]
    counts = zip(steps, map(len, expected), strict=True)
    assert [x.step for x in measured] == [step for step, count in counts for _ in range(count)]


def test_one_device_by_hand():
    # GIVEN, per stream:
    #   7   compute [0, 40)          [70, 80)
    #   13         comm [30, 60)   memset [62, 65)
    #   20  copy [10, 20), [50, 70)
    made_graph = graph(
        kernel(0, 40),
        kernel(70, 80),
        comm(30, 60, stream=13),
        memset(62, 65, stream=13),
        copy(10, 20, stream=20),
        copy(50, 70, stream=20),
    )

    # WHEN it is measured in [0, 100)
    ((time,),) = device_times(made_graph, [Window(None, 0, 100)])

    # THEN all of [0, 80) is busy; communication is bare from 40 to 60; the first copy is overlapped
    # with compute, the second by communication until 60 and bare from 60 to 70
    assert time == DeviceTime(
        device=0,
        busy_ns=80,
        idle_ns=20,
        compute_ns=50,
        comm_ns=30,
        copy_ns=30,
        memset_ns=3,
        exposed_comm_ns=20,
        exposed_copy_ns=10,
        comm_compute_overlap_ns=10,
        copy_compute_overlap_ns=10,
        streams=(StreamTime(7, 50, 2), StreamTime(13, 33, 2), StreamTime(20, 30, 2)),
    )


def test_touching_activities_do_not_overlap():
    made_graph = graph(kernel(0, 10), comm(10, 20, stream=13))

    kinds, streams = overlaps(made_graph)

    assert kinds == OverlapMetrics(0, None, "kind:0/compute", "kind:0/comm", 10, 10, 0)
    assert streams == OverlapMetrics(0, None, "stream:0/7", "stream:0/13", 10, 10, 0)


def test_devices_and_streams_of_different_devices():
    # Device 0 is busy in [0, 10) and [20, 30), device 1 in [5, 25): they share [5, 10) and [20,
    # 25).
    made_graph = graph(kernel(0, 10), kernel(20, 30), kernel(5, 25, device=1, stream=9))

    pairs = overlaps(made_graph)

    assert pairs == (
        OverlapMetrics(0, None, "stream:0/7", "stream:1/9", 20, 20, 10),
        OverlapMetrics(0, None, "device:0", "device:1", 20, 20, 10),
    )


def test_pair_of_which_one_side_did_nothing_in_the_window_is_left_out():
    made_graph = graph(kernel(0, 10), kernel(50, 60, stream=13))

    assert overlaps(made_graph, [Window(1, 0, 40)]) == ()


def test_activities_of_one_stream_at_once_count_once():
    # [0, 10) and [5, 15) on one stream: 15 ns busy, not 20.
    made_graph = graph(kernel(0, 10), kernel(5, 15))

    ((time,),) = device_times(made_graph)

    assert (time.busy_ns, time.compute_ns) == (15, 15)
    assert time.streams == (StreamTime(7, 15, 2),)


def test_activity_of_no_length_is_seen_in_the_one_window_that_holds_its_moment():
    made_graph = graph(kernel(10, 10), kernel(0, 5))

    before, after = device_times(made_graph, [Window(1, 0, 10), Window(2, 10, 20)])

    assert before[0].streams == (StreamTime(7, 5, 1),)
    assert after[0].streams == (StreamTime(7, 0, 1),)
