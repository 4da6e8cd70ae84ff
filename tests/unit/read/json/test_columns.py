"""What each column holds, from files of all ages and makers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.build import files
from tests.build.files import (
    US,
    complete_event,
    copy,
    event_row,
    kernel,
    launch,
    memset,
    operator,
    sync_row,
    thread_name,
    trace as trace_of,
    write,
)
from tests.build.read_scene import ARRAYS, SCENE
from tracelab import analyze
from tracelab.base.errors import UnreadableInputError
from tracelab.model.trace import ABSENT, Category, SparseColumn, Thread
from tracelab.read.json.columns import find_endless
from tracelab.read.reader import read_trace

S = 1_000_000_000


def test_columns_say_what_the_file_says(tmp_path):
    """GIVEN one event of each kind
    THEN each column is as worked out by hand."""
    trace = trace_of(
        tmp_path,
        launch(10 * US, 11_500, 3),
        kernel(12 * US, 16 * US, "k", device=1, stream=7, correlation=3),
        copy(20 * US, 21 * US, device=1, stream=8, correlation=4, bytes=4096),
        memset(22 * US, 23 * US, device=1, stream=8, correlation=5),
        sync_row(
            "Stream Wait Event",
            23 * US,
            23_500,
            device=1,
            stream=8,
            correlation=6,
            wait_stream=7,
            wait_correlation=3,
            event=21,
        ),
        sync_row("Context Sync", 24 * US, 24_500, device=1, correlation=7),
        event_row(25 * US, correlation=8, event=22, device=1, stream=7),
        operator("aten::mm", 9 * US, 39 * US),
        complete_event(
            "triton", "cpu_op", 9 * US, 39 * US, stream=7, device=0, correlation=3
        ),  # no GPU work
    )
    expected = {
        "start_ns": [1000, 3000, 11000, 13000, 14000, 15000, 16000, 0, 0],
        "duration_ns": [1500, 4000, 1000, 1000, 500, 500, 1, 30000, 30000],
        "category": [3, 0, 1, 2, 9, 9, 10, 5, 5],
        "device_number": [-1, 1, 1, 1, 1, 1, 1, -1, -1],
        "stream_number": [-1, 7, 8, 8, 8, -1, 7, -1, -1],
        "correlation": [3, 3, 4, 5, 6, 7, 8, -1, -1],
        "wait_stream_number": [-1, -1, -1, -1, 7, -1, -1, -1, -1],
        "wait_correlation": [-1, -1, -1, -1, 3, -1, -1, -1, -1],
        "cuda_event_number": [-1, -1, -1, -1, 21, -1, 22, -1, -1],
        "copied_bytes": [-1, -1, 4096, -1, -1, -1, -1, -1, -1],
        "file_index": list(range(9)),
    }
    assert {name: getattr(trace, name)[:].tolist() for name in expected} == expected
    assert trace.origin_ns == 9000
    assert [trace.name_of(i) for i in (0, 1, 7)] == ["cudaLaunchKernel", "k", "aten::mm"]
    assert [trace.threads[i].process for i in trace.thread_index] == ["100"] + ["1"] * 6 + [
        "100"
    ] * 2


def test_columns_are_frozen_and_typed(tmp_path):
    trace = trace_of(tmp_path, *SCENE)
    for name in ARRAYS:
        column = getattr(trace, name)
        assert len(column) == len(trace) == 5
        is_sparse = isinstance(column, SparseColumn)
        for array in (column.value_index, column.values) if is_sparse else (column,):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
    types = {"category": "int8", "name_index": "int32", "thread_index": "int32"}
    types |= {"device_number": "int32", "message_row": "int32", "file_index": "int32"}
    assert {n: getattr(trace, n)[:].dtype.name for n in ARRAYS} == {
        n: types.get(n, "int64") for n in ARRAYS
    }
    with pytest.raises(TypeError):
        trace.losses["truncated"] = 1
    with pytest.raises(TypeError):
        trace.metadata["a"] = 1


def test_a_sparse_column_reads_and_compares_like_an_array(tmp_path):
    trace = trace_of(tmp_path, *SCENE)
    for name in ARRAYS:
        column = getattr(trace, name)
        plain = np.asarray(column)
        assert len(column) == len(plain) == 5
        assert (column == plain[0]).tolist() == (plain == plain[0]).tolist()
        assert (column != plain[0]).tolist() == (plain != plain[0]).tolist()
        assert column[[3, 1]].tolist() == plain[[3, 1]].tolist()
        assert column[plain > 0].tolist() == plain[plain > 0].tolist()
        assert int(column[2]) == int(plain[2])


@pytest.mark.parametrize(
    ("cat", "expected"),
    [
        ("Kernel", Category.KERNEL),
        ("Memcpy", Category.MEMCPY),
        ("Memset", Category.MEMSET),
        ("Runtime", Category.RUNTIME),
        ("Operator", Category.OPERATOR),
        ("cuda_runtime", Category.RUNTIME),
        ("cuda_driver", Category.DRIVER),
        ("hip_runtime", Category.RUNTIME),
        ("hip_driver", Category.DRIVER),
        ("gpu_memcpy", Category.MEMCPY),
        ("gpu_memset", Category.MEMSET),
        ("gpu_user_annotation", Category.GPU_ANNOTATION),
        ("user_annotation", Category.ANNOTATION),
        ("python_function", Category.PYTHON),
        ("cpu_op", Category.OPERATOR),
        ("cuda_sync", Category.SYNC),
        ("cuda_event", Category.CUDA_EVENT),
        ("Driver", Category.DRIVER),
        ("xpu_runtime", Category.RUNTIME),
        ("xpu_driver", Category.DRIVER),
        ("mtia_runtime", Category.RUNTIME),
        ("mtia_ccp_events", Category.KERNEL),
        ("mlu_runtime", Category.RUNTIME),
        ("mlu_memcpy", Category.MEMCPY),
        ("mlu_memset", Category.MEMSET),
        ("privateuse1_runtime", Category.RUNTIME),
        ("privateuse1_driver", Category.DRIVER),
        ("overhead", Category.OVERHEAD),
        ("Trace", Category.OVERHEAD),
        ("", Category.OTHER),
        ("something new", Category.OTHER),
        (None, Category.OTHER),
        (7, Category.OTHER),
        (["kernel"], Category.OTHER),
    ],
)
def test_categories_of_all_ages(tmp_path, cat, expected):
    trace = trace_of(tmp_path, kernel(US, 3 * US, "k") | {"cat": cat})
    assert trace.category.tolist() == [expected]
    event_without = kernel(US, 3 * US, "k")
    del event_without["cat"]
    assert trace_of(tmp_path, event_without).category.tolist() == [Category.OTHER]


@pytest.mark.parametrize(
    ("args", "lane"),
    [
        ({"device": 2, "stream": 7}, (2, 7)),
        ({"device": 2, "stream": "7"}, (2, 7)),
        ({"device": "2", "stream": "stream 7"}, (2, 7)),
        ({"device": 2.0, "stream": 7.0}, (2, 7)),
        ({"device": 2, "stream": 2**40}, (2, 2**40)),
        # a peer copy: the device whose engine copies
        ({"fromDevice": 0, "inDevice": 1, "toDevice": 1, "stream": 7}, (1, 7)),
        ({"device": None, "inDevice": 1, "stream": 7}, (1, 7)),
        # what the arguments do not say, the row of the picture says
        ({"stream": 7}, (4, 7)),
        ({"device": 2}, (2, 9)),
        ({}, (4, 9)),
        (None, (4, 9)),
        ([1], (4, 9)),
        ({"device": -1, "stream": -1}, (4, 9)),
        ({"device": True, "stream": "none"}, (4, 9)),
        ({"device": 2**31, "stream": 2**63}, (None, 9)),
    ],
)
def test_where_a_gpu_activity_ran(tmp_path, args, lane):
    got_events = [kernel(US, 3 * US, "k") | {"pid": 4, "tid": "stream 9", "args": args}]
    trace = trace_of(tmp_path, *got_events, operator("keeps the trace readable", 0, US))
    if lane[0] is None:
        assert dict(trace.losses) == {"activities_without_lane": 1}
    else:
        assert (trace.device_number[0], trace.stream_number[0]) == lane


def test_an_activity_without_args_and_lane_is_counted(tmp_path):
    nowhere = kernel(US, 3 * US, "k") | {"pid": "Spans", "tid": "PyTorch Profiler"}
    del nowhere["args"]
    trace = trace_of(tmp_path, nowhere, operator("o", 0, US))
    assert len(trace) == 1
    assert dict(trace.losses) == {"activities_without_lane": 1}


def test_threads_are_words_or_numbers_of_any_sign(tmp_path):
    """GIVEN threads named by numbers, words, nothing and lists
    THEN each is one thread, whichever way it is written."""
    names = [(100, 100), ("100", "100"), (-(2**31), 5), ("Spans", ""), (None, None), ([1], {})]
    trace = trace_of(
        tmp_path,
        *(operator("o", US, 3 * US) | {"pid": pid, "tid": tid} for pid, tid in names),
        thread_name("main", pid="100", tid=100),
        thread_name("odd", pid=-(2**31), tid="5"),
        thread_name("unused", pid=1, tid=1),
        {"ph": "M", "name": "thread_name", "pid": "Spans", "tid": ""},
        {"ph": "M", "name": "process_name", "pid": "Spans", "tid": "", "args": {"name": "x"}},
    )
    assert trace.threads == (
        Thread("100", "100", "main"),
        Thread("-2147483648", "5", "odd"),
        Thread("Spans", "", ""),
        Thread("", "", ""),
        Thread("[1]", "{}", ""),
    )
    assert trace.thread_index.tolist() == [0, 0, 1, 2, 3, 4]


def test_names_that_are_no_strings_stand_as_text(tmp_path):
    names = ["7", 7, ["a"], {"b": 1}, True, "7"]
    trace = trace_of(
        tmp_path,
        *(operator("o", i * US, (i + 2) * US) | {"name": name} for i, name in enumerate(names)),
    )
    assert [trace.name_of(i) for i in range(6)] == ["7", "7", "['a']", "{'b': 1}", "True", "7"]
    assert trace.name_index[0] == trace.name_index[1] == trace.name_index[5]


def half(phase: str, name: str, time_us: float | None, tid: int = 1, **args: Any) -> dict[str, Any]:
    """A begin or an end event."""
    fields = {"ph": phase, "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "args": args}
    return fields if time_us is None else fields | {"ts": time_us}


def test_begin_and_end_events_become_complete_ones(tmp_path):
    """GIVEN nested pairs on two threads, out of order in the file
    THEN an end closes the latest open begin of its thread."""
    trace = trace_of(
        tmp_path,
        half("B", "outer", 4359759616840.125, correlation=1),  # 0
        half("B", "inner", 4359759616841),  # 1
        half("B", "other", 4359759616841.5, tid=2),  # 2
        half("E", "", 4359759616842.001),  # 3: inner
        half("E", "outer", 4359759616850.5),  # 4: outer
        operator("complete", 4_359_759_616_843 * US, 4_359_759_616_844 * US),  # 5
        half("E", "", 4359759616841.75, tid=2),  # 6: other
        half("B", "late in the file", 4359759616840, tid=3),  # 7
        half("E", "late in the file", 4359759616840, tid=3),  # 8: nothing long
    )
    assert [trace.name_of(i) for i in range(len(trace))] == [
        "outer",
        "inner",
        "other",
        "complete",
        "late in the file",
    ]
    assert trace.file_index.tolist() == [0, 1, 2, 5, 7]
    assert trace.start_ns.tolist() == [125, 1000, 1500, 3000, 0]
    assert trace.duration_ns.tolist() == [10375, 1001, 250, 1000, 0]
    assert trace.category.tolist() == [Category.OPERATOR] * 5
    assert not trace.losses
    assert trace.objects == 9


def test_begin_and_end_events_of_the_gpu_have_lanes(tmp_path):
    begin = half("B", "k", 1, device=2, stream=7) | {"cat": "kernel"}
    trace = trace_of(tmp_path, begin, half("E", "k", 5, correlation=3))
    assert (trace.device_number[0], trace.stream_number[0], trace.correlation[0]) == (2, 7, 3)


def test_halves_without_a_partner_are_counted(tmp_path):
    trace = trace_of(
        tmp_path,
        half("E", "never begun", 1),
        half("B", "never ended", 2),
        half("B", "a", 3, tid=2),
        half("E", "other thread", 4, tid=3),
        half("E", "a", 5, tid=2),
        half("B", "no time", None),
        half("E", "no time", 1e300),
    )
    assert [trace.name_of(i) for i in range(len(trace))] == ["a"]
    assert dict(trace.losses) == {"unmatched_begin_end": 5}


def test_a_negative_number_is_absent_and_zero_is_not(tmp_path):
    trace = trace_of(
        tmp_path, launch(US, 3 * US, 0), launch(2 * US, 4 * US, -5), operator("o", US, 2 * US)
    )
    assert trace.correlation[:].tolist() == [0, ABSENT, ABSENT]


def test_a_name_of_megabytes_is_kept_as_far_as_anybody_reads_it(tmp_path):
    trace = trace_of(tmp_path, operator("o" * 70_000, US, 2 * US), operator("p", US, 2 * US))
    assert list(map(len, trace.strings)) == [65_536, 1]


def test_phases_that_are_no_work_are_no_loss(tmp_path):
    # All of the trace event format but complete events, begins and ends.
    others = [{"ph": phase, "name": "x", "ts": 1} for phase in "bneSTpFstfiIMNODPCRrVvc(){}="]
    assert not trace_of(tmp_path, operator("o", 0, US), *others).losses
    losses = trace_of(tmp_path, operator("o", 0, US), *others, {"ph": "?"}, {"ph": "Y"}).losses
    assert dict(losses) == {"unknown_phases": 2}


def test_collectives_say_how_much_they_move(tmp_path):
    size = {"In msg nelems": 1_000, "dtype": "BFloat16", "Process Group Name": "3"}
    size["Collective name"] = "allreduce"
    trace = trace_of(
        tmp_path,
        kernel(0, 10, "ncclDevKernel_AllReduce", **size),
        complete_event("record_param_comms", "cpu_op", 0, 10, **{**size, "In msg nelems": "7"}),
        kernel(20, 30, "ncclDevKernel_AllReduce", **{**size, "dtype": "Nibble"}),
        kernel(40, 50),
        complete_event("aten::mm", "cpu_op", 0, 10, **size),
    )

    messages, row = trace.messages, trace.message_row[:]
    assert messages.in_bytes[row].tolist() == [2_000, 14, -1, -1, -1]
    names = [messages.groups[index].name for index in messages.group_index[row[:3]]]
    assert names == ["3", "3", "3"]


class TestDurations:
    def test_no_sum_of_them_overflows(self, tmp_path):
        """GIVEN 4,000 calls of 2^42 us, whose sum is beyond int64
        THEN they are left out and told, and the rest is as it is without them."""
        long = 2**42 * US
        good = [launch(0, US, 1), kernel(2 * US, 4 * US, correlation=1), operator("o", 0, US)]
        bad = [
            files.call("cudaDeviceSynchronize", i * US, i * US + long, correlation=10 + i)
            for i in range(4_000)
        ]
        report = analyze(write(tmp_path / "a.json", [*good, *bad]))
        assert report.traces[0].losses["absurd_times"] == 4_000
        assert report.traces[0].events == 3
        assert all(row.blocked_ns >= 0 for row in report.syncs)
        alone = analyze(write(tmp_path / "b.json", good))
        assert report.windows == alone.windows

    @pytest.mark.parametrize(("count", "lost"), [(1_152, 0), (1_153, 1_153)])
    def test_together_they_are_less_than_2_62_ns(self, tmp_path, count, lost):
        # 1,152 times 4 million seconds are 4.608e18 ns, once more is 4.612e18; 2^62 is 4.6117e18.
        good = [launch(0, US, 1), kernel(2 * US, 4 * US, correlation=1)]
        long = [operator("o", i * US, i * US + 4_000_000 * S) for i in range(count)]
        losses = read_trace(write(tmp_path / "a.json", [*good, *long])).losses
        assert losses.get("absurd_times", 0) == lost

    def test_nothing_but_such_events_is_no_trace(self, tmp_path):
        long = 2**42 * US
        bad = [kernel(i * US, i * US + long, correlation=i) for i in range(4_000)]
        with pytest.raises(UnreadableInputError, match=r"no complete event \(absurd_times: 4000\)"):
            read_trace(write(tmp_path / "a.json", bad))

    def test_a_few_long_ones_are_no_loss(self, tmp_path):
        long = 2**42 * US
        events = [launch(0, US, 1), kernel(2 * US, 4 * US), operator("o", 0, long)]
        assert not read_trace(write(tmp_path / "a.json", events)).losses


# --- Python functions whose end the profiler missed ---


@pytest.mark.parametrize(
    ("functions", "endless"),
    [
        ([(0, 100, 0), (10, 50, 0), (20, 40, 0), (50, 100, 0)], []),
        # `apply` began in the second function, and seems to run until after the third.
        ([(0, 100, 0), (10, 50, 0), (20, 95, 0), (60, 90, 0)], [2]),
        # One in it is as long; the next function ends after both, and is none of them.
        ([(0, 100, 0), (10, 50, 0), (20, 80, 0), (30, 75, 0), (60, 90, 0)], [2, 3]),
        # Another thread.
        ([(0, 50, 0), (10, 90, 1)], []),
        # What touches is not inside.
        ([(0, 50, 0), (50, 90, 0)], []),
    ],
    ids=["nested", "outlasts", "one in another", "another thread", "one after another"],
)
def test_functions_that_outlast_the_one_they_began_in(functions, endless):
    start_ns, end_ns, thread = np.array(functions, dtype=np.int64).T
    assert find_endless(start_ns, end_ns, thread.astype(np.int32)).tolist() == endless


def test_no_functions():
    nothing = np.zeros(0, dtype=np.int64)
    assert find_endless(nothing, nothing, nothing.astype(np.int32)).tolist() == []
