"""What is read of arguments: of communication, of allocators, of products and of kernels."""

import numpy as np
import pytest

from tests.build.files import (
    HOST,
    US,
    complete_event,
    kernel,
    memory,
    text,
    trace as trace_of,
)
from tests.build.read_scene import read_bytes
from tests.unit.read.test_cache import assert_equal
from tracelab.model.trace import ABSENT, GroupText
from tracelab.read import reader
from tracelab.read.reader import read_trace, read_trace_in_chunks
from tracelab.read.streams import Source

ALL_TO_ALL = {
    "Collective name": "all_to_allv",
    "In msg nelems": 1_000,
    "Out msg nelems": 3_000,
    "Group size": 2,
    "dtype": "BFloat16",
    "In split size": "[400, 600]",
    "Process Group Name": "tp",
    "Process Group Description": "undefined",
    "Process Group Ranks": "[4, 6]",
    "Global rank start": 4,
    "Global rank stride": 2,
    "Seq": 17,
}
GROUP = GroupText(name="tp", ranks="[4, 6]", size=2, first_rank=4, rank_stride=2)


def said(trace):
    """Of each event with such arguments: name, group, sequence, peer, bytes in and out."""
    messages = trace.messages
    rows = [row for row in trace.message_row[:].tolist() if row != ABSENT]
    numbers = (messages.sequence, messages.peer_rank, messages.in_bytes, messages.out_bytes)
    return [
        (
            messages.names[messages.name_index[row]],
            messages.groups[messages.group_index[row]],
            *(int(column[row]) for column in numbers),
        )
        for row in rows
    ]


def operator(start, **arguments):
    return complete_event("record_param_comms", "cpu_op", start, start + 10, **arguments)


def read(folder, *events):
    return read_bytes(folder, text(events))


def test_arguments_are_those_of_operators_and_kernels(tmp_path):
    kernels = {key: value for key, value in ALL_TO_ALL.items() if "Global" not in key}
    trace = read(
        tmp_path,
        operator(0, **ALL_TO_ALL),
        kernel(20, 30, "ncclDevKernel_SendRecv", **kernels),
        kernel(40, 50),
        complete_event("aten::mm", "cpu_op", 60, 70, **ALL_TO_ALL),  # no such operator
    )

    assert said(trace) == [
        ("all_to_allv", GROUP, 17, ABSENT, 2_000, 6_000),
        ("all_to_allv", GROUP._replace(first_rank=-1, rank_stride=-1), 17, ABSENT, 2_000, 6_000),
    ]
    messages = trace.messages
    assert len(messages) == 2
    for column in (messages.name_index, messages.group_index, messages.sequence):
        assert column[trace.message_row[2:]].tolist() == [ABSENT, ABSENT]
        assert not column.flags.writeable


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"Src Rank": 3, "Rank": 1}, ("", "", ABSENT, 3, ABSENT, ABSENT)),
        ({"Dst Rank": 0}, ("", "", ABSENT, 0, ABSENT, ABSENT)),
        ({"Seq": "4242424242"}, ("", "", 4_242_424_242, ABSENT, ABSENT, ABSENT)),
        ({"Seq": -1}, ("", "", ABSENT, ABSENT, ABSENT, ABSENT)),
        (
            {"Collective name": "barrier", "In msg nelems": 0, "dtype": "Byte"},
            ("barrier", "", ABSENT, ABSENT, 0, ABSENT),
        ),
        (
            {"In msg nelems": 8, "Out msg nelems": "16", "dtype": "Float8_e4m3fn"},
            ("", "", ABSENT, ABSENT, 8, 16),
        ),
        ({"In msg nelems": 8, "dtype": "Nibble"}, ("", "", ABSENT, ABSENT, ABSENT, ABSENT)),
        ({"In msg nelems": 2**62, "dtype": "Long"}, ("", "", ABSENT, ABSENT, ABSENT, ABSENT)),
        ({"Process Group Ranks": [0, 1]}, ("", "[0, 1]", ABSENT, ABSENT, ABSENT, ABSENT)),
        ({"Collective name": {"a": [1]}}, ("{'a': [1]}", "", ABSENT, ABSENT, ABSENT, ABSENT)),
        ({"nested": {"b": {}}, "Seq": 3}, ("", "", 3, ABSENT, ABSENT, ABSENT)),
        ({"Seq": 3, "nested": {"b": {}}}, ("", "", 3, ABSENT, ABSENT, ABSENT)),
        ({"Seq": 3, "text": "}"}, ("", "", 3, ABSENT, ABSENT, ABSENT)),
        ({"Seq": None, "dtype": [], "Group size": {}}, ("", "", ABSENT, ABSENT, ABSENT, ABSENT)),
    ],
)
def test_each_argument_is_read_however_it_is_written(tmp_path, arguments, expected):
    trace = read(tmp_path, operator(0, **{"Collective name": "", **arguments}))

    [(name, group, *numbers)] = said(trace)
    assert (name, group.ranks, *numbers) == expected


def test_operators_without_such_arguments_have_no_row(tmp_path):
    trace = read(tmp_path, operator(0), operator(20, dtype="Float", **{"In msg nelems": 8}))

    assert len(trace.messages) == 0
    assert trace.message_row[:].tolist() == [ABSENT, ABSENT]
    assert trace.messages.in_bytes.tolist() == [ABSENT]


def test_name_of_the_key_elsewhere_does_no_harm(tmp_path):
    trace = read(
        tmp_path,
        complete_event("Collective name", "cpu_op", 0, 10),
        operator(20, **{"text": "Collective name", "Collective name": "allreduce", "Seq": 4}),
        operator(40, **{"other": "Collective name"}),
        {"ph": "M", "name": "Collective name"},
    )

    assert [(name, sequence) for name, _, sequence, *_ in said(trace)] == [("allreduce", 4)]


def test_rows_follow_their_events_past_those_that_are_lost(tmp_path):
    """GIVEN a begin and an end event, which are joined last, and a kernel that is of no stream
    THEN every other event keeps its own arguments."""
    begin = {**operator(5 * US, **{"Collective name": "first", "Seq": 1}), "ph": "B"}
    begin.pop("dur")
    end = {**begin, "ph": "E", "ts": begin["ts"] + 3, "args": {"correlation": 1}}
    lost = kernel(20, 30, **{"Collective name": "lost"})
    lost["args"].pop("stream")
    lost["tid"] = "x"
    trace = read(tmp_path, begin, end, lost, operator(40, **{"Collective name": "second"}))

    assert [(name, sequence) for name, _, sequence, *_ in said(trace)] == [
        ("first", 1),
        ("second", ABSENT),
    ]


def test_file_that_is_read_in_chunks_has_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(reader, "_GLANCE_BYTES", 1 << 10)
    names = ("allreduce", "broadcast", "send")
    events = [
        operator(
            100 * i * US,
            **{
                **ALL_TO_ALL,
                "Collective name": names[i // 7 % 3],
                "Process Group Name": str(i // 100),
                "Seq": i,
            },
        )
        for i in range(400)
    ]
    path = tmp_path / "large.json"
    path.write_bytes(text(events))
    source = Source(str(path), None, named=True)

    whole, cut = read_trace(source), read_trace_in_chunks(source, 2)
    assert_equal(whole, cut)
    assert np.array_equal(whole.messages.sequence, [*range(400), ABSENT])


def test_what_allocators_held_is_read_by_time(tmp_path):
    """GIVEN readings of two GPUs and of the host, out of order, and one without a time
    THEN they are there by time since the first event."""
    trace = trace_of(
        tmp_path,
        memory(30 * US, 1024, 4096),
        kernel(10 * US, 40 * US),
        memory(20 * US, 512, 2048, device=1),
        memory(25 * US, 64, 0, device=-1),
        {**memory(26 * US, 7, 7), "ts": "soon"},
    )
    readings = trace.memory
    assert readings.time_ns.tolist() == [10 * US, 15 * US, 20 * US]
    assert readings.device_number.tolist() == [1, ABSENT, 0]
    assert readings.allocated_bytes.tolist() == [512, 64, 1024]
    assert readings.reserved_bytes.tolist() == [2048, 0, 4096]
    assert {trace.threads[i].thread for i in readings.thread_index.tolist()} == {str(HOST)}


SHAPES = {
    "Input Dims": [[2, 3], [3, 4]],
    "Input type": ["float", "float"],
    "Concrete Inputs": ["", ""],
}
WRITTEN = '[[[2,3],[3,4]],["float","float"],["",""]]'


def inputs_of(trace):
    """The inputs of each event, as JSON without spaces; "" of one without."""
    inputs = trace.operator_inputs
    index = inputs.text_index[trace.operator_input_row[:]].tolist()
    return ["" if i == ABSENT else "".join(inputs.texts[i].split()) for i in index]


def product(start, name="aten::mm", **arguments):
    return complete_event(name, "cpu_op", start, start + 10, **arguments)


def test_inputs_are_those_of_operators_that_multiply(tmp_path):
    trace = read(
        tmp_path,
        product(0, **SHAPES),
        product(20),
        product(40, "aten::add", **SHAPES),
        product(60, **SHAPES | {"Input Dims": [[1] * 5_000]}),
        product(80, **{"Input Dims": "x"}),
        product(100, **SHAPES),
        kernel(120, 130, **SHAPES),
    )
    written = [WRITTEN, "", "", "", '["x",null,null]', WRITTEN, ""]
    assert inputs_of(trace) == written
    assert len(trace.operator_inputs.texts) == 2


def test_inputs_of_files_that_must_be_read_event_by_event(tmp_path):
    """GIVEN an event with an unusual type, so that events are decoded in another way."""
    unusual = complete_event("odd", "cpu_op", 200, 210) | {"pid": [1]}
    trace = read(tmp_path, product(0, **SHAPES), unusual)
    assert inputs_of(trace) == [WRITTEN, ""]


def test_inputs_of_operators_that_begin_and_end_apart(tmp_path):
    begin = product(0, **SHAPES) | {"ph": "B"}
    end = {**begin, "ph": "E", "ts": begin["ts"] + 1, "args": {}}
    assert inputs_of(read(tmp_path, begin, end, kernel(120, 130))) == [WRITTEN, ""]


def test_occupancy_is_that_of_kernels(tmp_path):
    key = "est. achieved occupancy %"
    trace = read(tmp_path, kernel(0, 10, **{key: 42}), kernel(20, 30), product(40, **{key: 42}))
    assert trace.occupancy_percent[:].tolist() == [42, ABSENT, ABSENT]
