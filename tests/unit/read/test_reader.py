"""From a file to columns: exact times, every layout and age of the format, every loss counted."""

from __future__ import annotations

import gc
import gzip
import json
import random
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.build.files import (
    LAYOUTS,
    US,
    annotation,
    complete_event,
    copy,
    damaged,
    event_row,
    kernel,
    launch,
    memset,
    operator,
    read,
    sync_row,
    text,
    thread_name,
    trace as trace_of,
    write,
)
from tests.real_traces import each_real_trace
from tracelab.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.model.losses import LOSSES_BY_NAME
from tracelab.model.trace import ABSENT, Category, SparseColumn, Thread, Trace
from tracelab.read import json_array
from tracelab.read.reader import read_arguments, read_blocks_per_sm, read_trace
from tracelab.read.streams import Source

ARRAYS = (
    "start_ns",
    "duration_ns",
    "category",
    "name_index",
    "thread_index",
    "device_number",
    "stream_number",
    "correlation",
    "wait_stream_number",
    "wait_correlation",
    "cuda_event_number",
    "file_index",
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder for the examples of a property, which come too often for a folder each."""
    return tmp_path_factory.mktemp("chrome")


def read_bytes(folder: Path, content: bytes) -> Trace:
    path = folder / "bytes.json"
    path.write_bytes(content)
    return read(path)


def assert_equal(one: Trace, other: Trace) -> None:
    assert {name: getattr(one, name)[:].tolist() for name in ARRAYS} == {
        name: getattr(other, name)[:].tolist() for name in ARRAYS
    }
    for name in ("origin_ns", "strings", "threads", "objects"):
        assert getattr(one, name) == getattr(other, name)
    assert dict(one.losses) == dict(other.losses)


# --- exact time -----------------------------------------------------------------------------


def as_three_decimals(ns: int) -> str:
    return f"{Decimal(ns).scaleb(-3):.3f}"


def as_trimmed(ns: int) -> str:
    whole = as_three_decimals(ns).rstrip("0")
    return whole + "0" if whole.endswith(".") else whole


def as_integer_if_whole(ns: int) -> str:
    return str(ns // 1000) if ns % 1000 == 0 else as_three_decimals(ns)


def as_string(ns: int) -> str:
    return f'"{as_three_decimals(ns)}"'


def as_exponent(ns: int) -> str:
    return f"{Decimal(ns):e}".replace("e", "E") if ns == 0 else f"{Decimal(ns).scaleb(-3):E}"


WRITINGS = (as_three_decimals, as_trimmed, as_integer_if_whole, as_string, as_exponent)
EPOCH_NS = 1_740_461_679_470_630_547  # a profile of 2025 in the clock of the world
BOOT_NS = 4_359_759_616_840_547  # one in the clock of the machine
EDGE_NS = 2**43 * 1000


@settings(derandomize=True, deadline=None, max_examples=250)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**10)
            | st.integers(BOOT_NS, BOOT_NS + 10**9)
            | st.integers(EDGE_NS - 3000, EDGE_NS + 3000)
            | st.integers(EPOCH_NS, EPOCH_NS + 10**9),
            st.integers(0, 10**6) | st.integers(0, 10**15),
            st.sampled_from(WRITINGS),
            st.sampled_from(WRITINGS),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_times_are_exact_however_they_are_written(scratch, times):
    """GIVEN nanoseconds written as microseconds in any way
    THEN exactly these nanoseconds are read."""
    events = ",".join(
        f'{{"ph":"X","name":"a","ts":{write_start(start)},"dur":{write_dur(duration)}}}'
        for start, duration, write_start, write_dur in times
    )
    trace = read_bytes(scratch, f"[{events}]".encode())
    assert (trace.start_ns + trace.origin_ns).tolist() == [start for start, *_ in times]
    assert trace.duration_ns.tolist() == [duration for _, duration, *_ in times]
    assert trace.origin_ns == min(start for start, *_ in times)
    assert not trace.losses


def test_touching_activities_touch(tmp_path):
    # 1365627949885.185 + 3.072 = 1365627949888.257
    trace = trace_of(
        tmp_path,
        kernel(1_365_627_949_885_185, 1_365_627_949_888_257, "a"),
        kernel(1_365_627_949_888_257, 1_365_627_949_889_257, "b"),
    )
    assert trace.end_ns[0] == trace.start_ns[1] == 3072


def test_more_than_three_decimals_round_to_the_nearest_nanosecond(tmp_path):
    content = (
        b'[{"ph":"X","name":"a","ts":1.0004,"dur":0.0006},{"ph":"X","name":"a","ts":%s,"dur":1}]'
    )
    for first in (b"2", b"1740461679470630.5474"):  # the second makes all be read by their digits
        trace = read_bytes(tmp_path, content % first)
        assert trace.start_ns[0] + trace.origin_ns == 1000
        assert trace.duration_ns.tolist() == [1, 1000]
    assert trace.start_ns[1] + trace.origin_ns == 1740461679470630547


@each_real_trace
def test_times_of_real_traces_equal_their_digits(real_trace):
    """GIVEN a real trace
    WHEN its text is decoded with decimal numbers, by the standard library
    THEN every start and duration is the same, to the nanosecond."""
    with gzip.open(real_trace) as stream:
        events = json.load(stream, parse_float=Decimal, parse_int=Decimal)["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    trace = read(real_trace)
    assert not trace.losses
    assert trace.objects == len(events)
    assert (trace.start_ns + trace.origin_ns).tolist() == [e["ts"] * 1000 for e in complete]
    assert trace.duration_ns.tolist() == [e["dur"] * 1000 for e in complete]
    assert [trace.strings[i] for i in trace.name_index] == [e["name"] for e in complete]
    assert [trace.threads[i].thread for i in trace.thread_index] == [
        str(e["tid"]) for e in complete
    ]
    assert [events[i] for i in trace.file_index] == complete


@each_real_trace
def test_real_traces_survive_being_saved_again_and_being_cut(tmp_path, real_trace):
    """GIVEN a real trace, minified by another tool, and the first half of that file
    THEN the columns are equal, and those of the half are their beginning."""
    expected = read(real_trace)
    with gzip.open(real_trace) as stream:
        content = json.dumps(json.load(stream), separators=(",", ":")).encode()
    assert_equal(read_bytes(tmp_path, content), expected)
    half = read_bytes(tmp_path, content[: len(content) // 2])
    assert dict(half.losses) == {"truncated": 1}
    assert 0 < len(half) < len(expected)
    starts = half.start_ns + half.origin_ns
    assert starts.tolist() == (expected.start_ns + expected.origin_ns)[: len(half)].tolist()
    assert half.correlation[:].tolist() == expected.correlation[: len(half)].tolist()


# --- layouts --------------------------------------------------------------------------------

SCENE = [
    thread_name("main"),
    annotation("ProfilerStep#1", 4_359_759_616_840_547, 4_359_759_616_940_797),
    operator("aten::mm é", 4_359_759_616_841_500, 4_359_759_616_851_500),
    launch(4_359_759_616_842 * US, 4_359_759_616_847_001, 17),
    kernel(
        4_359_759_616_850_125,
        4_359_759_616_870_125,
        "k<}, {>",
        correlation=17,
        shape=[{"ph": "X"}, {"a": "]}"}],
    ),
    {"ph": "s", "id": 17, "pid": 0, "tid": 7, "ts": 4359759616842, "cat": "ac2g", "name": "ac2g"},
    copy(4_359_759_616_870_125, 4_359_759_616_873_125, stream=20, bytes=4096),
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 4359759616999},
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_layouts_give_equal_columns(tmp_path, layout, name):
    """GIVEN the same events in another layout, with metadata around them, cut anywhere
    THEN the columns are equal."""
    expected = trace_of(tmp_path, *SCENE)
    before, after = {"note": '"traceEvents": ['}, {"distributedInfo": {"rank": 3}}
    path = write(tmp_path / name, SCENE, layout=layout, before=before, after=after)
    for piece_bytes in (64, 301, 4096, 1 << 19):
        with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
            assert_equal(read(path), expected)


def test_the_order_of_keys_means_nothing(tmp_path):
    expected = trace_of(tmp_path, *SCENE)
    shuffle = random.Random(5)
    for _ in range(20):
        events = [dict(shuffle.sample(list(e.items()), len(e))) for e in SCENE]
        assert_equal(trace_of(tmp_path, *events), expected)


def test_the_last_of_duplicate_keys_counts(tmp_path):
    content = b'[{"ph":"X","name":"a","name":"b","ts":1,"ts":5,"dur":2,"dur":3}]'
    trace = read_bytes(tmp_path, content)
    assert (trace.name_of(0), trace.origin_ns, trace.duration_ns.tolist()) == ("b", 5000, [3000])


def test_columns_say_what_the_file_says(tmp_path):
    """GIVEN one event of each kind
    THEN each column is as worked out by hand."""
    trace = trace_of(
        tmp_path,
        launch(10 * US, 11_500, 3),
        kernel(12 * US, 16 * US, "k", device=1, stream=7, correlation=3),
        copy(20 * US, 21 * US, device=1, stream=8, correlation=4),
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
    types |= {"device_number": "int32", "file_index": "int32"}
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


# --- ages and makers ------------------------------------------------------------------------


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


def test_pairs_far_beyond_a_floats_precision_are_exact(tmp_path):
    content = (
        b'[{"ph":"B","name":"a","pid":1,"tid":1,"ts":1740461679470630.547},'
        b'{"ph":"E","name":"a","pid":1,"tid":1,"ts":1740461679470630.548}]'
    )
    trace = read_bytes(tmp_path, content)
    assert trace.origin_ns == 1740461679470630547
    assert trace.duration_ns.tolist() == [1]


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


# --- losses ---------------------------------------------------------------------------------

GOOD = json.dumps(operator("good", US, 3 * US))
# The text of an event that is left out, and the one loss that it counts as.
LEFT_OUT = {
    "garbage": ("{oops}", "unparsable_events"),
    "cut": ('{"ph": "X", "name": "a", "ts', "unparsable_events"),
    "too_deep": ('{"ph": "X", "args": ' + "[" * 2000 + "]" * 2000 + "}", "unparsable_events"),
    "infinite": (GOOD.replace('"ts": 1', '"ts": 1e999'), "absurd_times"),
    "no_name": ('{"ph": "X", "ts": 1, "dur": 2}', "incomplete_events"),
    "no_ts": ('{"ph": "X", "name": "a", "dur": 2}', "incomplete_events"),
    "no_dur": ('{"ph": "X", "name": "a", "ts": 2}', "incomplete_events"),
    "null_name": (GOOD.replace('"good"', "null"), "incomplete_events"),
    "null_ts": (GOOD.replace('"ts": 1', '"ts": null'), "incomplete_events"),
    "null_dur": (GOOD.replace('"dur": 2', '"dur": null'), "incomplete_events"),
    "negative": (GOOD.replace('"dur": 2', '"dur": -0.001'), "negative_durations"),
    "negative_text": (GOOD.replace('"dur": 2', '"dur": "-5"'), "negative_durations"),
    "wrapped_counter": (GOOD.replace('"dur": 2', '"dur": 1.8e16'), "absurd_times"),
    "wrapped_integer": (GOOD.replace('"dur": 2', '"dur": 18446744073709551615'), "absurd_times"),
    "wrapped_negative": (GOOD.replace('"dur": 2', '"dur": -1.8e16'), "absurd_times"),
    "huge_time": (GOOD.replace('"ts": 1', '"ts": 1e300'), "absurd_times"),
    "huge_integer": (GOOD.replace('"ts": 1', '"ts": ' + "9" * 400), "absurd_times"),
    "large_integer": (GOOD.replace('"ts": 1', '"ts": ' + "9" * 30), "absurd_times"),
    "far_time": (GOOD.replace('"ts": 1', f'"ts": {2**52 + 1}'), "absurd_times"),
    "no_number": (GOOD.replace('"ts": 1', '"ts": "soon"'), "absurd_times"),
    "nan_text": (GOOD.replace('"ts": 1', '"ts": "NaN"'), "absurd_times"),
    "wild_text": (GOOD.replace('"ts": 1', '"ts": "1e999999999999999999999"'), "absurd_times"),
    "true": (GOOD.replace('"ts": 1', '"ts": true'), "absurd_times"),
    "list": (GOOD.replace('"ts": 1', '"ts": [1]'), "absurd_times"),
    "huge_and_negative": (
        GOOD.replace('"ts": 1', '"ts": 1e300').replace('"dur": 2', '"dur": -2'),
        "absurd_times",
    ),
    "no_lane": (
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}',
        "activities_without_lane",
    ),
    "negative_without_lane": (
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -2}',
        "negative_durations",
    ),
    "no_phase": ('{"name": "a", "ts": 1, "dur": 2}', "unknown_phases"),
    "phase": (GOOD.replace('"X"', '"Y"'), "unknown_phases"),
    "phases": (GOOD.replace('"X"', '"XX"'), "unknown_phases"),
    "phase_list": (GOOD.replace('"X"', '["X"]'), "unknown_phases"),
    "phase_null": (GOOD.replace('"X"', "null"), "unknown_phases"),
    "a_number": ("17", "unknown_phases"),
    "a_null": ("null", "unknown_phases"),
    "a_list": ('[{"ph": "X"}]', "unknown_phases"),
    "end": ('{"ph": "E", "ts": 1, "pid": 77, "tid": 1}', "unmatched_begin_end"),
    "begin": ('{"ph": "B", "ts": 1, "pid": 78, "tid": 1}', "unmatched_begin_end"),
}
MENDED = {
    "nan": '{"ph": "X", "name": "a", "ts": 1, "dur": 2, "args": {"x": nan}}',
    "quotes": '{"ph": "X", "name": "a "b" c", "pid": 1, "ts": 1, "dur": 2}',
    "utf8": '{"ph": "X", "name": "\udcff", "pid": 1, "ts": 1, "dur": 2}',
}
OTHERS = {
    "metadata": '{"ph": "M", "name": "process_name", "args": {"name": "x"}}',
    "flow": '{"ph": "s", "id": 1, "ts": 1}',
    "instant": '{"ph": "i", "name": "i", "ts": 1}',
    "counter": '{"ph": "C", "name": "c", "ts": 1}',
}


@pytest.mark.parametrize("fault", LEFT_OUT)
def test_each_loss_is_counted_once_under_its_name(tmp_path, fault):
    """GIVEN a good event, a faulty one and a good one
    THEN the good ones are there, and the fault is counted exactly once."""
    bad, loss = LEFT_OUT[fault]
    trace = read_bytes(tmp_path, f"[{GOOD}, {bad}, {GOOD}]".encode())
    assert dict(trace.losses) == {loss: 1}
    assert loss in LOSSES_BY_NAME
    assert trace.name_index.tolist() == [trace.name_index[0]] * 2
    assert trace.start_ns.tolist() == [0, 0]
    assert trace.objects == (2 if loss == "unparsable_events" else 3)


# Right behind damage, what has no phase looks like a part of the damaged event.
KINDS = sorted({"good", *LEFT_OUT, *MENDED, *OTHERS} - {"no_phase", "a_number", "a_null", "a_list"})


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from(KINDS), max_size=20),
    st.sampled_from([", ", ",\n", ","]),
    st.integers(1, 500) | st.just(1 << 19),
)
def test_nothing_is_dropped_silently(scratch, kinds, separator, piece_bytes):
    """GIVEN events with any faults, in any order
    THEN events kept, counted losses and events of other phases add up."""
    texts = {"good": GOOD} | {k: bad for k, (bad, _) in LEFT_OUT.items()} | MENDED | OTHERS
    array = separator.join([GOOD, *(texts[kind] for kind in kinds), GOOD])
    with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
        trace = read_bytes(
            scratch, f'{{"traceEvents": [{array}]}}'.encode("utf-8", "surrogateescape")
        )
    losses = dict(trace.losses)
    assert losses.pop("repairs", 0) == sum(kind in MENDED for kind in kinds)
    assert len(trace) == 2 + sum(kind == "good" or kind in MENDED for kind in kinds)
    expected = [LEFT_OUT[kind][1] for kind in kinds if kind in LEFT_OUT]
    assert losses == {loss: expected.count(loss) for loss in expected}
    others = sum(kind in OTHERS for kind in kinds)
    assert trace.objects == len(kinds) + 2 - expected.count("unparsable_events")
    assert len(trace) + others + len(expected) == len(kinds) + 2


def test_a_file_cut_anywhere_is_a_prefix_or_refused(tmp_path):
    """GIVEN a file cut at every byte
    THEN it is refused, or its events are a prefix and the cut is counted."""
    events = [
        thread_name("main"),
        *(kernel(10 * i * US, (10 * i + 5.5) * US, f"k{i}") for i in range(4)),
    ]
    content = text(events, before={"a": [1]}, after={"distributedInfo": {"rank": 3}}).rstrip()
    whole = read_bytes(tmp_path, content)
    assert not whole.losses
    kept = []
    for end in range(len(content)):
        try:
            trace = read_bytes(tmp_path, content[:end])
        except UnreadableInputError:
            kept.append(0)
            continue
        assert dict(trace.losses) == {"truncated": 1}
        assert trace.start_ns.tolist() == whole.start_ns[: len(trace)].tolist()
        assert trace.correlation[:].tolist() == whole.correlation[: len(trace)].tolist()
        kept.append(len(trace))
    assert kept == sorted(kept)
    assert set(kept) == {0, 1, 2, 3, 4}


def test_a_compressed_file_cut_anywhere_is_a_prefix_or_refused(tmp_path):
    content = gzip.compress(
        text([kernel(10 * i * US, (10 * i + 5.5) * US, f"k{i * i * 7919}") for i in range(30)])
    )
    for end in range(0, len(content), 3):
        try:
            trace = read_bytes(tmp_path, content[:end])
        except UnreadableInputError:
            continue
        assert dict(trace.losses) == {"truncated": 1}
        assert trace.start_ns.tolist() == [10000 * i for i in range(len(trace))]
    assert len(trace) == 30


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"hello", "neither a JSON object nor a list"),
        (b"12", "neither a JSON object nor a list"),
        (b'"traceEvents"', "neither a JSON object nor a list"),
        (b"{}", 'this JSON has no "traceEvents" list'),
        (b'{"traceEvents": {}}', 'this JSON has no "traceEvents" list'),
        (b'{"traceEvents": []}', "the trace holds no complete event"),
        (b"[]", "the trace holds no complete event"),
        (b"[1, 2, null]", "the trace holds no complete event"),
        (b'[{"ph": "M", "name": "thread_name"}]', "the trace holds no complete event"),
        (b'[{"ph": "X", "name": "a", "ts": 1, "dur": -1}]', "the trace holds no complete event"),
        (b'{"traceEvents": [', "the trace holds no complete event"),
        (b'{"traceEvents": [{"ph": ', "no event in it can be read"),
        (b"[oops]", "no event in it can be read"),
        (b'{"trace', "it ends before the first event, or is not valid JSON"),
        (gzip.compress(b""), "the file is empty"),
        (gzip.compress(b"{}")[:15], "the compressed data is damaged before the first event"),
        (b"\x1f\x8b", "the compressed data is damaged before the first event"),
        (b"\x1f\x8bhello, this is no gzip", "the compressed data is damaged"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(tmp_path, content, reason):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableInputError) as caught:
        read(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: {reason}")
    assert said.count(str(path)) == 1
    assert "\n" not in said
    with pytest.raises(UnreadableInputError) if "complete" not in reason else mock.MagicMock():
        read_arguments(Source(str(path), None, True), [0])


def test_a_missing_file_is_refused(tmp_path):
    path = str(tmp_path / "missing.json")
    for read_it in (read_trace, lambda source: read_arguments(source, [0])):
        with pytest.raises(UnreadableInputError) as caught:
            read_it(Source(path, None, True))
        assert str(caught.value) == f"{path}: no such file"


def survives(folder: Path, content: bytes) -> None:
    """Whatever the bytes are, they are refused with a sentence or read soundly."""
    try:
        trace = read_bytes(folder, content)
    except TracelabError as error:
        said = str(error)
    else:
        assert len(trace) > 0
        assert set(trace.losses) <= set(LOSSES_BY_NAME)
        assert all(count > 0 for count in trace.losses.values())
        assert (trace.duration_ns >= 0).all()
        assert trace.start_ns.min() == 0
        assert (np.diff(trace.file_index) > 0).all()
        return
    assert said.startswith(str(folder / "bytes.json") + ": ")
    assert "\n" not in said


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.sampled_from([b"", b"{", b"[", b'{"traceEvents": [', b'[{"ph":"X",']), st.binary(max_size=80)
)
def test_random_bytes_raise_nothing_else(scratch, head, tail):
    survives(scratch, head + tail)


SMALL = text(SCENE, before={"a": [1]}, after={"distributedInfo": {"rank": 3}})
mutations = st.lists(
    st.tuples(
        st.sampled_from(["delete", "insert", "flip", "cut", "double"]),
        st.integers(0, len(SMALL) - 1),
        st.sampled_from(b'{}[]",:\\0-en \n\x00\xff') | st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(mutations, st.sampled_from([64, 200, 1 << 19]))
def test_mutations_raise_nothing_else(scratch, mutations, piece_bytes):
    """GIVEN a small trace with a few wrong bytes
    THEN it is read with its losses counted, or refused."""
    with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
        survives(scratch, damaged(SMALL, mutations))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers(-(2**64), 2**64)
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.sampled_from(
                    ["X", "B", "E", "kernel", "cuda_sync", "7", "9" * 5000, "stream 3"]
                )
                | st.text(max_size=4),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(
                        st.sampled_from(["device", "stream", "correlation", "name", "event_id"]),
                        inner,
                    )
                ),
                max_leaves=4,
            ),
        )
        | st.builds(
            lambda spoiled: kernel(US, 3 * US, "k") | spoiled,
            st.dictionaries(
                st.sampled_from(["ph", "pid", "tid", "ts", "dur", "args"]),
                st.sampled_from(["X", "B", "E", None, [], {}, -1, 1e18, 2**63, "9" * 5000, "7"]),
                max_size=2,
            ),
        ),
        max_size=6,
    )
)
def test_any_values_under_the_known_keys_raise_nothing_else(scratch, events):
    survives(scratch, json.dumps(events).encode())


def test_times_at_the_ends_of_their_range_do_not_wrap(tmp_path):
    last = 2**52
    trace = trace_of(
        tmp_path,
        operator("a", (-last) * US, (-last + 2**43 - 1) * US),
        operator("b", last * US, (last + 2**43 - 1) * US),
    )
    assert not trace.losses
    assert trace.origin_ns == -last * 1000
    assert trace.end_ns.tolist() == [(2**43 - 1) * 1000, (2 * last + 2**43 - 1) * 1000]


# --- the rest -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "after", "expected"),
    [
        ("a.json", {"distributedInfo": {"rank": 3, "world_size": 8}}, (3, "metadata")),
        ("rank5.json", {"distributedInfo": {"rank": 3}}, (3, "metadata")),
        ("rank5.json", {"distributedInfo": {"rank": 0, "world_size": 2}}, (0, "metadata")),
        # Alone in its job it is rank 0 in any case: the name may count independent replicas.
        ("rank5.json", {"distributedInfo": {"rank": 0, "world_size": 1}}, (5, "filename")),
        ("a.json", {"distributedInfo": {"rank": 0, "world_size": 1}}, (0, "metadata")),
        ("rank5.json", {"distributedInfo": {}}, (5, "filename")),
        ("rank5.json", {"distributedInfo": {"rank": None}}, (5, "filename")),
        ("rank5.json", {"distributedInfo": [1]}, (5, "filename")),
        ("rank5.json", {}, (5, "filename")),
        ("a.json", {}, (None, "none")),
    ],
)
def test_rank_comes_from_the_metadata_or_the_name(tmp_path, name, after, expected):
    trace = read(write(tmp_path / name, SCENE, after=after))
    assert (trace.info.rank, trace.info.rank_source) == expected
    assert dict(trace.metadata) == after


def test_arguments_of_a_few_events(tmp_path):
    """GIVEN a trace with damage before its end
    WHEN the arguments of some of its events are asked for by `Trace.file_index`
    THEN they are those of the file, in pieces of any size."""
    without, odd = operator("without", 50 * US, 51 * US), operator("odd", 51 * US, 52 * US)
    del without["args"]
    odd["args"] = [1]
    events = [
        *SCENE,
        *(kernel((100 + i) * US, (i + 101) * US, f"k{i}", grid=[i, 1, 1]) for i in range(30)),
        without,
        odd,
    ]
    texts = [json.dumps(e) for e in events]
    texts.insert(9, "{oops}")
    texts.insert(20, '{"ph": "X", "name": "mended", "ts": 1, "dur": 1, "args": {"x": nan}}')
    path = tmp_path / "a.json"
    path.write_text("[" + ",\n".join(texts) + "]")
    for piece_bytes in (64, 1000, 1 << 19):
        with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
            trace = read(path)
            by_name = {trace.name_of(i): int(trace.file_index[i]) for i in range(len(trace))}
            names = ["k0", "k29", "k<}, {>", "without", "odd", "mended"]
            source = Source(str(path), None, True)
            arguments = read_arguments(source, [by_name[name] for name in names])
        assert {name: arguments[by_name[name]] for name in names} == {
            "k0": {"device": 0, "stream": 7, "correlation": 0, "grid": [0, 1, 1]},
            "k29": {"device": 0, "stream": 7, "correlation": 0, "grid": [29, 1, 1]},
            "k<}, {>": SCENE[4]["args"],
            "without": {},
            "odd": {},
            "mended": {"x": None},
        }
    assert read_arguments(source, []) == {}
    assert read_arguments(source, [10**9]) == {}


@each_real_trace
def test_arguments_of_real_traces(real_trace):
    source = Source(str(real_trace), None, True)
    trace = read_trace(source)
    chosen = range(0, len(trace), 997)
    with gzip.open(real_trace) as stream:
        events = json.load(stream)["traceEvents"]
    file_indices = [int(trace.file_index[i]) for i in chosen]
    assert read_arguments(source, file_indices) == {
        file_index: events[file_index].get("args", {}) for file_index in file_indices
    }


def test_blocks_per_multiprocessor_where_the_file_says_how_many(tmp_path):
    counts = [2.5, 3, None, "4"]
    kernels = [
        kernel(i * US, (i + 1) * US, f"k{i}", **{"blocks per SM": x}) for i, x in enumerate(counts)
    ]
    path = write(tmp_path / "a.json", [*kernels, kernel(9 * US, 10 * US, "without")])
    source = Source(path, None, True)
    assert read_blocks_per_sm(source, range(5)) == {0: 2.5, 1: 3.0}
    assert read_blocks_per_sm(source, [4]) == {}


def test_a_path_of_any_form_is_read(tmp_path):
    """GIVEN a path as text, as a `Path` or as a `Source`, of a file or of a folder of one
    THEN the same trace is read, and the same arguments."""
    path = write(tmp_path / "a_rank3.json", SCENE)
    for form in (path, Path(path), tmp_path, str(tmp_path), Source(path, 3, named=True)):
        trace = read_trace(form)
        assert (trace.path, trace.info.rank, len(trace)) == (path, 3, 5)
        assert read_arguments(form, [4]) == {4: SCENE[4]["args"]}


def test_a_folder_of_several_traces_is_not_one(tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path / name, SCENE)
    for read_it in (read_trace, lambda path: read_arguments(path, [0])):
        with pytest.raises(UsageError) as caught:
            read_it(tmp_path)
        assert str(caught.value) == f"{tmp_path}: the folder holds 2 files; name one"


def test_the_collector_is_left_as_it_was(tmp_path):
    path = write(tmp_path / "a.json", SCENE)
    for switch, expected in ((gc.disable, False), (gc.enable, True)):
        switch()
        read(path)
        assert gc.isenabled() == expected
        with pytest.raises(UnreadableInputError):
            read_bytes(tmp_path, b"hello")
        assert gc.isenabled() == expected


def test_a_negative_number_is_absent_and_zero_is_not(tmp_path):
    trace = trace_of(
        tmp_path, launch(US, 3 * US, 0), launch(2 * US, 4 * US, -5), operator("o", US, 2 * US)
    )
    assert trace.correlation[:].tolist() == [0, ABSENT, ABSENT]


@pytest.mark.parametrize("key", ["ts", "dur", "stream", "device", "correlation"])
def test_one_long_text_among_numbers_takes_no_more_memory_than_it_has(tmp_path, key):
    """GIVEN a text of 100,000 letters where a number should be, among 3,000 events
    THEN reading it takes no array that is as wide for every event."""
    events = [kernel(10 * i * US, (10 * i + 5.5) * US, f"k{i}") for i in range(3000)]
    event = json.loads(text([kernel(US, 3 * US, "wide")]))["traceEvents"][0]
    (event if key in event else event["args"])[key] = "7" * 100_000
    tracemalloc.start()
    trace = read_bytes(tmp_path, text([*events, event]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(trace) >= 3000
    assert peak < 50e6
