"""Packets of Perfetto as JSON: what each becomes, and what is left of damaged ones.

`tests/golden/test_torch_writers.py` reads what PyTorch wrote.
"""

import contextlib
import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.build.packets import (
    BASE_NS,
    SLICE,
    TIME,
    TRACK,
    begin,
    end,
    file_of,
    kernel,
    message,
    varint,
)
from tracelab.base.errors import TracelabError
from tracelab.read import packets
from tracelab.read.packets import json_stream
from tracelab.read.reader import read_trace

WRITTEN = Path(__file__).parents[2] / "data/torch_2.15/cuspy_lanes.pftrace.gz"
CONTENT = gzip.decompress(WRITTEN.read_bytes())


def text_of(content):
    return json_stream(io.BufferedReader(io.BytesIO(content)), bool).read()


def events_of(*of_file):
    """The events of packets, but for those that name threads."""
    events = json.loads(text_of(file_of(*of_file)))["traceEvents"]
    return [event for event in events if event["ph"] != "M"]


def read(tmp_path, content):
    path = tmp_path / "step.pftrace"
    path.write_bytes(content)
    return read_trace(path)


def losses_of(trace):
    return {loss: count for loss, count in trace.losses.items() if count}


def test_a_slice_is_an_event_of_its_thread():
    values = {"External id": 7, "neg": -3, "half": 0.5, "yes": True, "dims": [[2, 3], []], "a": {}}
    [event] = events_of(begin(1_250, **values), end(4_000))
    assert event == {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 4211,
        "tid": 4212,
        "ts": 1.25,
        "dur": 2.75,
        "args": values | {"a": []},  # what is empty has no type
    }


def test_threads_have_their_names_and_times_their_base():
    trace = json.loads(text_of(file_of()))
    assert trace["baseTimeNanoseconds"] == BASE_NS
    named = {"ph": "M", "name": "thread_name", "pid": 4211, "tid": 4212}
    assert named | {"args": {"name": "pt_main"}} in trace["traceEvents"]


def test_ends_belong_to_begins_by_their_places():
    """GIVEN slices that touch, and two groups of them."""
    first = [begin(0), begin(5), begin(9), end(5), end(9), end(11)]
    events = events_of(*first, begin(20), begin(30), end(40), end(35))
    spans = [(event["ts"] * 1000, event["dur"] * 1000) for event in events]
    assert spans == [(0, 5), (5, 4), (9, 2), (20, 20), (30, 5)]


@pytest.mark.parametrize("group", [[begin(0), begin(1), end(2)], [begin(0), end(2), end(3)]])
def test_what_begins_or_ends_alone_is_a_loss(tmp_path, group):
    trace = read(tmp_path, file_of(*group, kernel(0, 9)))
    assert losses_of(trace) == {"unmatched_begin_end": 1}
    assert sorted(trace.duration_ns.tolist()) == [2, 9]


def test_work_of_a_gpu_is_in_its_stream():
    arguments = {"context id": "1", "bytes": "64", "process_id": "4211", "name": "branch"}
    [event] = events_of(kernel(1_000, 500, **arguments))
    assert event == {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "pid": 0,
        "tid": 7,
        "ts": 1.0,
        "dur": 0.5,
        "args": {
            "device": 0,
            "context": 1,
            "stream": 7,
            "original_stream": 7,
            "correlation": 5,
            "bytes": 64,
            "name": "branch",
        },
    }


def test_packets_of_a_kind_that_is_new_are_counted(tmp_path):
    trace = read(tmp_path, file_of({TIME: 1, 99: {1: 2}}, kernel(0, 9)))
    assert losses_of(trace) == {"unknown_phases": 1}


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x5a\xff",  # a field that breaks off
        b"\x58" + b"\xff" * 20,  # a number without an end
        b"\x0b\x0c",  # of a type that nobody writes
        message({TIME: 1, SLICE: {9: 1}}),  # no track
        message({TIME: 1, SLICE: 5}),
        message({SLICE: {9: 1, 11: 2, 10: 1}}),  # no time
        message({TIME: 1, SLICE: {9: 1, 11: 2, 10: 77}}),  # no such name
        message({TRACK: {1: 5, 4: 7}}),
        message({TIME: 1, SLICE: {9: 1, 11: 2, 10: 1, 4: {10: "x" * (1 << 20)}}}),
    ],
)
def test_a_damaged_packet_is_left_out_and_counted(tmp_path, damaged):
    trace = read(tmp_path, file_of(damaged, begin(3), end(4), kernel(0, 9)))
    assert losses_of(trace) == {"unparsable_events": 1}
    assert sorted(trace.name_of(i) for i in range(len(trace))) == ["aten::mm", "gemm"]


def test_damage_among_slices_leaves_them_to_be_joined_by_time(tmp_path):
    """GIVEN a begin that cannot be read, so that the places of the ends are not known."""
    trace = read(tmp_path, file_of(begin(0), b"\x5a\xff", begin(5), end(8), end(10)))
    assert sorted(trace.duration_ns.tolist()) == [3, 10]
    assert losses_of(trace) == {"unparsable_events": 1}


def test_names_may_be_any_bytes():
    track = {TRACK: {1: 9, 5: 1, 4: {1: 4211, 2: 9, 5: b'\xff\x00\n"'}}}
    trace = json.loads(text_of(file_of(track)))
    assert trace["traceEvents"][-1]["args"]["name"] == '\ufffd\x00\n"'


def test_deep_annotations_are_damage(tmp_path):
    value = {6: "x"}
    for _ in range(500):
        value = message({12: value})
    deep = {TIME: BASE_NS, SLICE: {9: 1, 11: 2, 10: 1, 4: value}}
    assert losses_of(read(tmp_path, file_of(deep, kernel(0, 9))))


@pytest.mark.parametrize(
    "length", [varint(0), varint(1 << 27), varint(1 << 69), b"\xff" * 12, b"\xff"]
)
def test_a_packet_of_an_absurd_length_ends_the_file(tmp_path, length):
    content = file_of(kernel(0, 9)) + b"\n" + length
    assert losses_of(read(tmp_path, content)) == {"truncated": 1}


def test_a_file_that_breaks_off_says_so(tmp_path):
    trace = read(tmp_path, CONTENT[:-7])
    assert trace.losses["truncated"] == 1


def test_packets_of_something_else_are_no_trace(tmp_path):
    with pytest.raises(TracelabError, match=r"no complete event"):
        read(tmp_path, file_of({TIME: 1, 9: {1: 2}}))


@given(st.data())
def test_any_damage_gives_a_trace_or_a_sentence(tmp_path_factory, data):
    content = bytearray(CONTENT)
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(content)))
    folder = tmp_path_factory.mktemp("damaged")
    with contextlib.suppress(TracelabError):
        assert len(read(folder, b"\n" + content[1:cut])) <= 400


def test_memory_stays_bounded(monkeypatch):
    """GIVEN a group of slices that is larger than what may be kept in memory."""
    monkeypatch.setattr(packets, "_MAX_BYTES_IN_MEMORY", 1 << 16)
    numbers = range(2_000)
    text = "a long text " * 100
    group = [begin(x, text=text) for x in numbers] + [end(x + 1) for x in numbers]
    source = json_stream(io.BufferedReader(io.BytesIO(file_of(*group))), bool)
    tracemalloc.start()
    length = 0
    while block := source.read1(1 << 16):
        length += len(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert length > 2_000 * len(text)
    assert peak < 500_000
