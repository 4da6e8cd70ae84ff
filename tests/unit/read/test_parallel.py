"""A file that is read in chunks is the same trace as one that is read in one go."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, strategies as st

from tests.build.files import US, kernel, operator, text
from tests.examples import examples
from tests.unit.read.test_cache import assert_equal
from tracelab.base.errors import UnreadableInputError
from tracelab.read import reader
from tracelab.read.json import array as json_array
from tracelab.read.reader import read_trace, read_trace_in_chunks
from tracelab.read.streams import Source, watched

TRACES = Path(__file__).parents[3] / "traces"


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(reader, "CHUNK_BYTES", 1 << 17)
    monkeypatch.setattr(reader, "_GLANCE_BYTES", 1 << 12)


def source_of(path) -> Source:
    return Source(str(path), None, named=True)


def read_both(path, processes=2):
    """The trace in one go, and in chunks; and whether it was read in chunks indeed."""
    source = source_of(path)
    with mock.patch.object(reader, "read_trace", side_effect=read_trace) as whole:
        cut = read_trace_in_chunks(source, processes)
    return read_trace(source), cut, not whole.called


@pytest.mark.parametrize(
    "name",
    [
        "fsdp_item_rank0.pt.trace.json.gz",  # threads are named at its end, metadata on both sides
        "two_models_pipelined_item.pt.trace.json.gz",
        "train_step_clean.pt.trace.json.gz",
    ],
)
def test_a_real_trace_is_the_same(tmp_path, name):
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.decompress((TRACES / name).read_bytes()))
    assert path.stat().st_size > 20 * reader.CHUNK_BYTES
    whole, cut, in_chunks = read_both(path)
    assert in_chunks
    assert_equal(whole, cut)
    assert any(thread.name for thread in cut.threads)


@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"separators": (",", ":")}])
def test_other_layouts_are_the_same(tmp_path, options):
    real = gzip.decompress((TRACES / "events_item.pt.trace.json.gz").read_bytes())
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(json.loads(real), **options))
    whole, cut, in_chunks = read_both(path)
    assert in_chunks
    assert_equal(whole, cut)


def test_begin_and_end_in_different_parts_find_each_other(tmp_path):
    events = [{"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 0}]
    events += [operator(f"o{i}", 10 * i * US, (10 * i + 5) * US) for i in range(6000)]
    # In the last part: other threads' events lie between those of the second pair.
    events += [{"ph": "B", "name": "late", "pid": 1, "tid": 2, "ts": 99_000}]
    events += [operator("between", 99_000 * US, 99_001 * US)]
    events += [{"ph": "E", "pid": 1, "tid": 2, "ts": 99_500}]
    events += [{"ph": "E", "pid": 1, "tid": 1, "ts": 100_000}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    whole, cut, in_chunks = read_both(path)
    assert in_chunks
    assert_equal(whole, cut)
    assert whole.name_of(0) == "outer"
    assert int(whole.duration_ns[0]) == 100_000_000
    assert [cut.name_of(i) for i in range(len(cut))][-2:] == ["late", "between"]


def many(*last, count=6000):
    return text([*(operator(f"o{i}", 10 * i * US, (10 * i + 5) * US) for i in range(count)), *last])


def test_what_only_looks_like_a_gap_is_noticed(tmp_path):
    """GIVEN lists of objects in every event, so that most gaps are within one
    THEN the file is read in one go."""
    nested = ", ".join('{"a": 1}' for _ in range(2000))
    event = f'{{"ph": "X", "name": "a", "ts": %d, "dur": 1, "args": {{"list": [{nested}]}}}}'
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [{", ".join(event % i for i in range(60))}]}}')
    whole, cut, in_chunks = read_both(path)
    assert not in_chunks
    assert_equal(whole, cut)
    assert len(cut) == 60


@pytest.mark.parametrize(
    "fault", ["cut off", "an event", "bare nan", "the end", "float times", "float times of pairs"]
)
def test_a_damaged_file_is_read_in_one_go(tmp_path, fault):
    content = {
        "cut off": lambda: many()[:-500],
        "an event": lambda: many().replace(b'"name": "o3000"', b'"name": o3000'),
        "bare nan": lambda: many().replace(b'"name": "o3000"', b'"name": "o3000", "a": nan'),
        "the end": lambda: many() + b"garbage",
        "float times of pairs": lambda: many(
            {"ph": "B", "name": "b", "ts": 99999999999999.125},
            {"ph": "E", "ts": 99999999999999.5},
        ),
        "float times": lambda: many().replace(b'"ts": ', b'"ts": 99999999999999.'),
    }[fault]()
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    whole, cut, in_chunks = read_both(path)
    assert not in_chunks
    assert_equal(whole, cut)


def test_losses_of_events_are_counted_in_parts_as_well(tmp_path):
    content = many().replace(b'"dur": 5', b'"dur": -5', 100).replace(b'"ph": "X"', b'"ph": "?"', 7)
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    whole, cut, in_chunks = read_both(path)
    assert in_chunks
    assert_equal(whole, cut)
    assert dict(cut.losses) == {"negative_durations": 93, "unknown_phases": 7}


@examples(25)
@given(st.integers(300, 5000), st.integers(100, 4000), st.integers(10, 500), st.booleans())
def test_wherever_it_is_cut(tmp_path_factory, chunk_bytes, glance_bytes, piece_bytes, is_bare):
    events = [
        operator(f"o{i}", 10 * i * US, (10 * i + 5) * US)
        if i % 3
        else kernel(10 * i * US, (10 * i + 5) * US, f"k{i}")
        for i in range(60)
    ]
    content = text(events)
    if is_bare:
        content = b"[" + content.partition(b"[")[2].rpartition(b"]")[0] + b"]"
    path = tmp_path_factory.getbasetemp() / "cut.json"
    path.write_bytes(content)
    with (
        mock.patch.object(reader, "CHUNK_BYTES", chunk_bytes),
        mock.patch.object(reader, "_GLANCE_BYTES", glance_bytes),
        mock.patch.object(json_array, "PIECE_BYTES", piece_bytes),
    ):
        whole, cut, _ = read_both(path)
    assert_equal(whole, cut)


@pytest.mark.parametrize("processes", [1, 2])
def test_small_and_packed_files_and_pipes_are_read_in_one_go(tmp_path, processes):
    small, packed = tmp_path / "small.json", tmp_path / "packed.json.gz"
    small.write_bytes(many(count=10))
    packed.write_bytes(
        gzip.compress(os.urandom(1 << 21)) if processes == 1 else gzip.compress(many())
    )
    assert not read_both(small, processes)[2]
    if processes == 2:
        assert not read_both(packed, processes)[2]
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(small.read_bytes())
    assert len(read_trace_in_chunks(source_of(f"/dev/fd/{reading}"), processes)) == 10
    os.close(reading)


@pytest.mark.parametrize(("chunks", "cut"), [(3, False), (4, True)])
def test_fewer_than_four_chunks_are_not_worth_the_processes(tmp_path, chunks, cut):
    path = tmp_path / "trace.json"
    an_event = len(many(count=2_000)) - len(many(count=1_999))
    path.write_bytes(many(count=int((chunks - 0.5) * reader.CHUNK_BYTES / an_event)))
    assert read_both(path)[2] == cut


def test_what_is_no_trace_says_so(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"rows": [{"a": i} for i in range(100_000)]}))
    with pytest.raises(UnreadableInputError, match='this JSON has no "traceEvents" list'):
        read_trace_in_chunks(source_of(path), 2)
    with pytest.raises(UnreadableInputError, match="no such file"):
        read_trace_in_chunks(source_of(tmp_path / "none.json"), 2)


def test_a_process_that_dies_does_not_matter(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_bytes(many())

    this_process, read_columns = os.getpid(), reader.read_columns

    def die(*arguments):
        if os.getpid() != this_process:
            os._exit(9)  # as the system does where memory is short
        return read_columns(*arguments)

    monkeypatch.setattr(reader, "read_columns", die)
    assert_equal(read_trace_in_chunks(source_of(path), 2), read_trace(source_of(path)))


def test_every_byte_is_told_once(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(many())
    reads = []
    with watched(reads.append):
        read_trace_in_chunks(source_of(path), 2)
    assert len(reads) > 4
    assert 0 <= path.stat().st_size - sum(reads) < 100  # the gaps belong to no chunk
