"""Garbage costs what its length costs: the work is counted, which no noise of a machine changes."""

from __future__ import annotations

import io
from unittest import mock

import pytest

from tracelab.base.errors import UnreadableInputError
from tracelab.read.json import array as json_array, damage as json_text
from tracelab.read.json.array import ArrayReader
from tracelab.read.json.events import decode, is_event

EVENT = b'{"ph": "X", "name": "a", "ts": 1, "dur": 1}'
GARBAGE = [
    b'}, {"ph',
    b", {",
    b"}",
    b', {"a":[1',
    b'"name": "',
    b', {"name": "',
    b', {"name": "x", "ph": ',
    b"]",
    b"], ",
    b', {"ph": "',
    b"\0",
    b", ",
    b"\\",
    b"[",
    b'{"a":',
    b', {"ph": nan',
    b', {"ph": "X", "a": tru}',
    b', {"ph": "X", "args": {"x": 1}',
    b', {"a": {}, {',
    b'}, {"ph": "X", "name": "',
    b", {}}",
    b"} ",
    b'{"traceEvents":[',
    b', {"traceEvents":[{"ph":"X"}',
    b'\xff, {"ph\xff',
    b'\\"',
    b', {"a":[1,' * 64 + b'{"a":"' + b"\\x" * 4_000 + b"},{" * 9,
    b'"traceEvents": [{}, ',
]


class Work:
    """How many bytes the functions that look at text were given."""

    def __init__(self) -> None:
        self.bytes = 0

    def counted(self, function):
        def look(text, *more):
            self.bytes += len(text)
            return function(text, *more)

        return look


def work_on(content: bytes) -> int:
    """Bytes that are decoded, scanned or mended while something is read."""
    work = Work()
    scan, value_at = json_text._scan, json_text._value_at
    with (
        mock.patch.object(json_text, "_scan", work.counted(scan)),
        mock.patch.object(json_text, "_value_at", work.counted(value_at)),
        mock.patch.object(json_text, "mend", work.counted(json_text.mend)),
        mock.patch.object(json_array, "mend", work.counted(json_array.mend)),
        mock.patch.object(json_array, "breaks_off", work.counted(json_array.breaks_off)),
        mock.patch.object(json_text, "breaks_off", work.counted(json_text.breaks_off)),
        mock.patch.object(json_array.orjson, "loads", work.counted(json_array.orjson.loads)),
    ):
        reader = ArrayReader(
            io.BytesIO(content), "t.json", "traceEvents", work.counted(decode), is_event
        )
        try:
            for _ in reader:
                pass
        except UnreadableInputError:
            pass
    return work.bytes


@pytest.mark.parametrize("before", [b'{"traceEvents": [' + EVENT, b'{"a": 1'])
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: repr(garbage[:40]))
def test_work_on_garbage_is_linear(monkeypatch, garbage, before):
    """GIVEN garbage that fools every cut WHEN there is four times as much
    THEN the work is about four times that, not sixteen."""
    monkeypatch.setattr(json_array, "PIECE_BYTES", 4_096)
    small, large = (work_on(before + garbage * (size // len(garbage))) for size in (2**14, 2**16))
    assert large < 8 * small


def test_damaged_events_after_many_others_are_still_passed_over():
    """GIVEN a hundred thousand broken events between good ones THEN the good ones are there."""
    content = b'{"traceEvents": [' + EVENT + b', {"ph' * 100_000 + b"}, " + EVENT + b"]}"
    reader = ArrayReader(io.BytesIO(content), "t.json", "traceEvents", decode, is_event)
    assert sum(map(len, reader)) == 2
    assert reader.losses["unparsable_events"] >= 1


def test_a_long_whole_event_after_little_damage_is_read():
    long = b'{"ph": "X", "name": "%b", "ts": 1, "dur": 1}' % (b"x" * 300_000)
    content = b'{"traceEvents": [' + b", ".join([EVENT, b"{oops}", long, EVENT]) + b"]}"
    reader = ArrayReader(io.BytesIO(content), "t.json", "traceEvents", decode, is_event)
    assert sum(map(len, reader)) == 3
    assert dict(+reader.losses) == {"unparsable_events": 1}


def test_nested_lists_of_the_same_name_hide_no_event():
    """GIVEN 100,000 nested lists that are called as the events are THEN the outer one is found."""
    nested = b'{"x": [' + b", ".join([b'{"traceEvents": []}'] * 100_000) + b"]"
    reader = ArrayReader(
        io.BytesIO(nested + b', "traceEvents": [' + EVENT + b"]}"),
        "t.json",
        "traceEvents",
        decode,
        is_event,
    )
    assert sum(map(len, reader)) == 1
    assert dict(+reader.losses) == {}
    assert len(reader.metadata["x"]) == 100_000


@pytest.mark.parametrize("before", [b"[", b'{"traceEvents": ['])
def test_a_list_of_millions_of_numbers_is_no_trace(before):
    """GIVEN a data set, which is JSON, too THEN nobody decodes it to find that out."""
    content = before + b"1," * 3_000_000 + b"1]"
    with mock.patch.object(json_array, "orjson") as library:
        reader = ArrayReader(io.BytesIO(content), "t.json", "traceEvents", decode, is_event)
        reader._read_metadata = lambda _: True
        with pytest.raises(UnreadableInputError, match="a list of something other than events"):
            list(reader)
    assert not library.loads.called
