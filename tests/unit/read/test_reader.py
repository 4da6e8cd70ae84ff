"""From a file to a trace: every layout, cut and damaged files, what is refused, arguments."""

from __future__ import annotations

import gc
import gzip
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.files import (
    LAYOUTS,
    US,
    damaged,
    kernel,
    operator,
    read,
    text,
    thread_name,
    trace as trace_of,
    write,
)
from tests.build.read_scene import SCENE, assert_equal, read_bytes
from tests.examples import examples
from tests.shared_traces import each_real_trace
from tracelab.base.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.model.losses import LOSSES
from tracelab.read.json import array as json_array
from tracelab.read.reader import read_arguments, read_trace
from tracelab.read.streams import Source


@pytest.mark.slow
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


@pytest.mark.slow
@each_real_trace
def test_real_traces_survive_being_saved_again_and_being_cut(tmp_path, real_trace):
    """GIVEN a real trace, minified by another tool, and the first half of that file
    THEN the columns are equal, and those of the half are their beginning."""
    expected = read(real_trace)
    with gzip.open(real_trace) as stream:
        content = json.dumps(json.load(stream), separators=(",", ":")).encode()
    assert_equal(read_bytes(tmp_path, content), expected)
    half = read_bytes(tmp_path, content[: len(content) // 2])
    assert half.losses["truncated"] == 1
    assert {*half.losses} <= {"truncated", "arrows_without_end"}  # which end in the other half
    assert 0 < len(half) < len(expected)
    starts = half.start_ns + half.origin_ns
    assert starts.tolist() == (expected.start_ns + expected.origin_ns)[: len(half)].tolist()
    assert half.correlation[:].tolist() == expected.correlation[: len(half)].tolist()


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
        (b'{"traceEvents": [{"ph": ', "none of its events can be read"),
        (b"[oops]", "none of its events can be read"),
        (b'{"trace', "it ends before the first event, or is not valid JSON"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (
            gzip.compress(b"{}", mtime=0)[:15],
            "the compressed data is damaged before the first event",
        ),
        (b"\x1f\x8b", "the compressed data is damaged before the first event"),
        (b"\n\x02\x40\x05", "the trace holds no complete event"),
        (b'\n{2y\n\x06\x08\x06\x10"traceEvents": [', "the trace holds no complete event"),
        (
            gzip.compress(gzip.compress(b"\n[\x40\x05\x50\x01", mtime=0), mtime=0),
            "the trace holds no complete event (truncated: 1)",
        ),
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
        assert set(trace.losses) <= set(LOSSES)
        assert all(count > 0 for count in trace.losses.values())
        assert (trace.duration_ns >= 0).all()
        assert trace.start_ns.min() == 0
        assert (np.diff(trace.file_index) > 0).all()
        return
    assert said.startswith(str(folder / "bytes.json") + ": ")
    assert "\n" not in said


@examples(200)
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


@examples(500)
@given(mutations, st.sampled_from([64, 200, 1 << 19]))
def test_mutations_raise_nothing_else(scratch, mutations, piece_bytes):
    """GIVEN a small trace with a few wrong bytes
    THEN it is read with its losses counted, or refused."""
    with mock.patch.object(json_array, "PIECE_BYTES", piece_bytes):
        survives(scratch, damaged(SMALL, mutations))


@examples(300)
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


@pytest.mark.slow
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
        assert str(caught.value) == f"{tmp_path}: holds 2 traces; name one"


def test_the_collector_is_left_as_it_was(tmp_path):
    path = write(tmp_path / "a.json", SCENE)
    for switch, expected in ((gc.disable, False), (gc.enable, True)):
        switch()
        read(path)
        assert gc.isenabled() == expected
        with pytest.raises(UnreadableInputError):
            read_bytes(tmp_path, b"hello")
        assert gc.isenabled() == expected


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
