"""What the trace itself lacks: each rule speaks on a minimal trace, and only where it must."""

import pytest

from tests.build.files import (
    event,
    kernel,
    launch,
    python,
    record,
    step,
    sync,
    text,
    thread_name,
    write,
)
from tracelab import Options, analyze
from tracelab.findings.finding import INFO, WARNING
from tracelab.findings.registry import RULES

SYNC_CALL = event("cudaStreamSynchronize", "cuda_runtime", 4, 40, correlation=8)
PROFILERS_OWN = event("cudaDeviceSynchronize", "cuda_runtime", 300, 5)


def clean():
    """A file that lacks nothing: two launched kernels in a row and a Python function."""
    return [
        python("train.py(3): step", 0, 200),
        launch(1, 2, 1),
        kernel("gemm", 10, 90, correlation=1),
        launch(5, 2, 2),
        kernel("gemm", 100, 100, correlation=2),
    ]


def about(*paths, options=None):
    """What is said of the trace: rule, severity and count."""
    report = analyze(list(paths), options) if options else analyze(list(paths))
    return [(x.rule, x.severity, x.where.count) for x in report.findings if x.about == "trace"]


@pytest.fixture
def told(tmp_path):
    """What is said of the trace of some events."""

    def tell(*events, **keys):
        return about(write(tmp_path / "hand.json", events, **keys))

    return tell


def test_nothing_is_said_of_a_file_that_lacks_nothing(told):
    assert told(*clean()) == []


def test_findings_about_the_trace_are_known_by_their_rule(tmp_path):
    report = analyze(write(tmp_path / "t.json", clean()[1:]))

    assert [(x.rule, x.about) for x in report.findings] == [("TL903", "trace")]
    assert [x.id for x in RULES if x.about == "trace"] == [f"TL9{i:02d}" for i in range(1, 11)]


def test_it_is_said_of_a_single_step_as_well(tmp_path):
    path = write(tmp_path / "t.json", [step(1, 0, 200), *clean()[1:]])

    assert about(path) == [("TL903", INFO, 1)]
    assert about(path, options=Options(step=1)) == [("TL903", INFO, 1)]


# TL901: damage.


def test_broken_off_file_is_damaged(tmp_path):
    path = tmp_path / "cut.json"
    path.write_bytes(text([*clean(), kernel("lost", 300, 5)])[:-40])

    assert about(str(path)) == [("TL901", WARNING, 1)]


def test_every_event_that_was_left_out_counts_as_damage(told):
    nameless = {key: value for key, value in kernel("k", 300, 5).items() if key != "name"}
    odd = kernel("k", 300, 5) | {"ph": "?"}

    assert told(*clean(), nameless, odd, odd) == [("TL901", WARNING, 3)]


def test_damage_that_was_mended_is_only_mentioned(tmp_path):
    path = tmp_path / "nan.json"
    events = clean()
    events[2]["args"]["occupancy"] = 12345
    path.write_bytes(text(events).replace(b"12345", b"nan"))

    assert about(str(path)) == [("TL901", INFO, 1)]


# TL902: waits without rows of CUPTI.


def test_waits_without_sync_rows(told):
    wait = event("cudaStreamWaitEvent", "cuda_runtime", 8, 1, correlation=9)

    # What the stream waited for is unresolved, too.
    assert told(*clean(), SYNC_CALL, wait, PROFILERS_OWN) == [
        ("TL902", INFO, 2),
        ("TL904", INFO, 1),
    ]


def test_synchronize_inside_another_is_one_wait(told):
    inner = event("cuStreamSynchronize", "cuda_driver", 5, 38)

    assert told(*clean(), SYNC_CALL, inner) == [("TL902", INFO, 1)]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [PROFILERS_OWN],
        [SYNC_CALL, sync("Stream Sync", 4, 40, stream=7, correlation=8)],
        [SYNC_CALL | {"tid": 9}, thread_name("pt_nccl_watchdg", tid=9)],
        [event("cudaEventQuery", "cuda_runtime", 8, 1)],
    ],
    ids=["no waits", "the profiler's own", "with its row", "watchdog", "nobody waits"],
)
def test_no_word_of_sync_rows_where_none_are_missing(told, more):
    assert told(*clean(), *more) == []


# TL903: no Python.


def test_no_python_functions(told):
    assert told(*clean()[1:]) == [("TL903", INFO, 1)]


# TL904: waits that name no record.


def waiting(*, record_correlation):
    """A stream wait, after a record of stream 7 at 3, for what stream 13 is given then."""
    return [
        event("cudaEventRecord", "cuda_runtime", 3, 1, correlation=20),
        record(100, 5, 20),
        event("cudaStreamWaitEvent", "cuda_runtime", 8, 1, correlation=21),
        sync(
            "Stream Wait Event",
            8,
            0,
            stream=13,
            correlation=21,
            wait_stream=7 if record_correlation != -1 else -1,
            wait_correlation=record_correlation,
        ),
    ]


def test_wait_that_names_its_record_is_resolved(told):
    assert told(*clean(), *waiting(record_correlation=20)) == []


def test_wait_that_names_nothing_is_not(told):
    assert told(*clean(), *waiting(record_correlation=-1)) == [("TL904", INFO, 1)]


# TL905: activities without a launch.


@pytest.mark.parametrize(("length", "severity"), [(9, INFO), (10, WARNING)])
def test_activities_without_a_launch(told, length, severity):
    # Beside 190 us with a launch, 10 us are 5 % of the whole.
    alone = kernel("early", 0, length, correlation=77)

    assert told(*clean(), alone) == [("TL905", severity, 1)]


# TL906: activities of a stream that overlap.


def test_activities_of_a_stream_that_overlap(told):
    early = [launch(6, 1, 3), kernel("next", 190, 20, correlation=3)]

    assert told(*clean(), *early) == [("TL906", INFO, 1)]


@pytest.mark.parametrize("name", ["cudaLaunchKernelExC", "cuLaunchKernelEx_ptsz"])
def test_kernel_that_its_launch_lets_begin_early(tmp_path, name):
    # GIVEN a kernel from 190 to 210 us, while the one before it in its stream ends at 200
    early = [launch(6, 1, 3, name=name), kernel("next", 190, 20, correlation=3)]
    path = write(tmp_path / "t.json", [*clean(), *early])

    # WHEN
    report = analyze(path)

    # THEN nothing is lost, and 10 to 210 us is busy time, counted once
    assert about(path) == []
    assert report.traces[0].losses == {}
    (device,) = report.windows[0].devices
    assert (device.busy_ns, device.idle_ns) == (200_000, 0)
    assert [x.total_ns for x in report.critical_path] == [200_000]


def test_activities_of_two_streams_may_overlap(told):
    beside = [launch(6, 1, 3), kernel("next", 190, 20, correlation=3, stream=13)]

    assert told(*clean(), *beside) == []


# TL907: clocks.


@pytest.mark.parametrize(("launched", "said"), [(200, []), (200.001, [("TL907", WARNING, 1)])])
def test_activity_that_begins_before_its_launch(told, launched, said):
    # It begins at 200.
    rows = [launch(launched, 1, 3), kernel("next", 200, 20, correlation=3)]

    assert told(*clean(), *rows) == said


# TL908: times that cannot be.


def test_negative_and_absurd_times(told):
    negative = kernel("k", 300, 5) | {"dur": -1}
    absurd = kernel("k", 300, 5) | {"dur": 1e300}

    assert told(*clean(), negative, absurd) == [("TL908", WARNING, 2)]


# TL909: other ranks.


def of_rank(rank, size):
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": size}}


@pytest.mark.parametrize(("size", "said"), [(1, []), (2, [("TL909", INFO, 2)])])
def test_one_rank_of_several(told, size, said):
    assert told(*clean(), before=of_rank(0, size)) == said


def test_other_ranks_are_missed_until_all_are_there(tmp_path):
    paths = [write(tmp_path / f"r{i}.json", clean(), before=of_rank(i, 3)) for i in range(3)]

    assert about(*paths[:2]) == [("TL909", INFO, 3)] * 2
    assert about(*paths) == []


@pytest.mark.parametrize("size", ["two", None, 2.0])
def test_number_of_ranks_that_is_none(told, size):
    assert told(*clean(), before=of_rank(0, size)) == []


# TL910: the profiler's own cost.


@pytest.mark.parametrize(
    ("unprofiled_ms", "said"),
    [
        (0.3, []),
        (0.264, []),
        (0.263, [("TL910", INFO, 1)]),
        ("0.1", [("TL910", INFO, 1)]),
        (0, []),
        (-1, []),
        ("soon", []),
        ("nan", []),
        ("inf", []),
        (None, []),
    ],
)
def test_a_window_that_is_a_tenth_longer_than_without_the_profiler(told, unprofiled_ms, said):
    # 290 us, in which the GPU waits for the host for 100: 10 % more than 263.6.
    rows = [
        python("train.py(3): step", 0, 300),
        launch(1, 2, 1),
        kernel("gemm", 10, 90, correlation=1),
        launch(190, 2, 2),
        kernel("gemm", 200, 100, correlation=2),
        step(1, 0, 300),
    ]
    assert told(*rows, before={"tracelab": {"unprofiled_step_ms": unprofiled_ms}}) == said


def test_the_profiler_is_not_blamed_for_one_slow_step(told):
    # GIVEN three steps of 100 us, and a fourth in which Python takes 900
    times = (0, 100, 200, 300)
    rows = [
        python("train.py(3): step", 0, 1_300),
        *(row for i, t in enumerate(times) for row in (step(i, t, 100), launch(t, 2, i + 1))),
        *(kernel("gemm", t + 2, 90, correlation=i + 1) for i, t in enumerate(times)),
        step(4, 400, 900),
        launch(1_200, 2, 5),
        kernel("gemm", 1_202, 90, correlation=5),
    ]
    assert told(*rows, before={"tracelab": {"unprofiled_step_ms": 0.1}}) == []
    # 5 steps of 100 us, where half of it is the profiler's
    assert told(*rows, before={"tracelab": {"unprofiled_step_ms": 0.05}}) == [("TL910", INFO, 1)]


def test_the_profiler_is_not_blamed_where_the_gpu_did_not_wait_for_the_host(told):
    assert told(*clean(), step(1, 0, 200), before={"tracelab": {"unprofiled_step_ms": 0.1}}) == []


def test_file_without_steps_has_no_step_to_compare(told):
    assert told(*clean(), before={"tracelab": {"unprofiled_step_ms": 0.01}}) == []


def test_capture_that_says_something_else_has_no_time_to_compare(told):
    assert told(*clean(), step(1, 0, 250), before={"tracelab": "0.2"}) == []
