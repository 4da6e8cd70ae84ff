"""Perfetto traces with our tracks: the file's own bytes, and packets that say what JSON would."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

import tracelab
from tests.build import collector_packets, cupti_collector
from tests.build.perfetto import events_of, tracks_in, written
from tests.bundled_traces import FOLDER
from tracelab.base.errors import UsageError
from tracelab.read.reader import read_trace

LAST_NS = 2**64 - 1  # that a packet can say
CAPTURE = FOLDER / "prefetch_copy_stream_pageable.pt.trace.json.gz"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    """One recording as packets, and as JSON."""
    folder = tmp_path_factory.mktemp("formats")
    recorded = cupti_collector.collect(cupti_collector.load(CAPTURE))
    as_json = cupti_collector.chrome(collector_packets.as_in_packets(recorded))
    in_order = collector_packets.in_order_of_packets(as_json)
    return (
        collector_packets.write(recorded, folder / "a.pftrace"),
        cupti_collector.write(in_order, folder / "a.json"),
    )


def unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def added(path: Path, out: Path) -> list:
    """The packets after those of the file, whose bytes are as they were."""
    own, content = unpacked(path), unpacked(out)
    assert content.startswith(own)
    return list(protos.Trace.FromString(content[len(own) :]).packet)


def slices_of(packets: list) -> dict[str, list[tuple[int, int, str]]]:
    """The slices by the name of their row: start and end in ns, and name."""
    names = {
        x.track_descriptor.uuid: x.track_descriptor.name
        for x in packets
        if x.HasField("track_descriptor")
    }
    events = [x for x in packets if x.track_event.type in (1, 2)]
    rows = defaultdict(list)
    for begin, end in zip(events[::2], events[1::2], strict=True):
        assert (begin.track_event.type, end.track_event.type) == (1, 2)
        assert begin.track_event.track_uuid == end.track_event.track_uuid
        row = rows[names[begin.track_event.track_uuid]]
        row.append((begin.timestamp, end.timestamp, begin.track_event.name))
    return dict(rows)


@pytest.mark.parametrize("name", ["found.pftrace", "found.pftrace.gz"])
def test_the_tracks_are_those_that_json_gets(tmp_path, files, name):
    """GIVEN one recording in both formats
    WHEN each is written with our tracks
    THEN they have the same rows with the same slices, here in nanoseconds since 1970."""
    packets, as_json = files
    written(packets, tmp_path / name)
    written(as_json, tmp_path / "found.json")
    base_ns = read_trace(packets).info.clock_base_ns
    found = slices_of(added(packets, tmp_path / name))
    expected = tracks_in(events_of(tmp_path / "found.json"))
    assert len(found) > 4
    assert {row: sorted(slices) for row, slices in found.items()} == {
        row: sorted((start + base_ns, end + base_ns, text) for start, end, text in slices)
        for row, slices in expected.items()
    }
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_rows_are_in_order_and_slices_say_more(tmp_path, files):
    written(files[0], tmp_path / "found.pftrace")
    packets = added(files[0], tmp_path / "found.pftrace")
    tracks = [x.track_descriptor for x in packets if x.HasField("track_descriptor")]
    assert tracks[0].process.process_name == "tracelab: GPU 0"
    assert [track.sibling_order_rank for track in tracks] == list(range(len(tracks)))
    assert {track.parent_uuid for track in tracks[1:]} == {tracks[0].uuid}
    assert [track.name for track in tracks if track.HasField("counter")] == ["GPU 0 busy streams"]
    finding = next(x.track_event for x in packets if x.track_event.categories)
    assert finding.categories == ["tracelab.finding"]
    assert {"finding", "fix", "rule"} <= {x.name for x in finding.debug_annotations}


def test_a_trace_with_tracks_is_read_again(tmp_path, files):
    """GIVEN a trace with our tracks
    THEN its own events are read as before, and nothing of ours is a loss."""
    written(files[0], tmp_path / "found.pftrace")
    before, after = read_trace(files[0]), read_trace(tmp_path / "found.pftrace")
    own = len(before) - 1
    assert before.start_ns.tolist() == after.start_ns.tolist()[: own + 1]
    assert after.loss_names == before.loss_names


def test_tracks_that_are_added_twice_are_different_ones(tmp_path, files):
    """Slices of two tracks with one uuid would be in one row."""
    once, twice = tmp_path / "once.pftrace", tmp_path / "twice.pftrace"
    written(files[0], once)
    written(once, twice)
    first, second = (
        {x.track_descriptor.uuid for x in packets if x.HasField("track_descriptor")}
        for packets in (added(files[0], once), added(once, twice))
    )
    assert len(first) == len(second) > 4
    assert not first & second


def test_times_beyond_what_a_packet_can_say_are_cut(tmp_path, files):
    """GIVEN a trace whose last work on the GPU ends after the last moment of a packet's clock
    THEN it gets its tracks, which end in that moment."""
    trace = protos.Trace.FromString(unpacked(files[0]))
    on_gpu = [x for x in trace.packet if x.HasField("gpu_render_stage_event")]
    late_ns = LAST_NS - max(x.timestamp for x in on_gpu)
    for packet in trace.packet:
        if packet.timestamp:
            packet.timestamp = min(packet.timestamp + late_ns, LAST_NS)
    late = tmp_path / "late.pftrace"
    late.write_bytes(trace.SerializeToString())
    written(late, tmp_path / "found.pftrace")
    rows = slices_of(added(late, tmp_path / "found.pftrace"))
    assert max(end_ns for row in rows.values() for _, end_ns, _ in row) == LAST_NS


def test_a_truncated_trace_gets_its_tracks_after_what_is_whole(tmp_path, files):
    content = unpacked(files[0])
    cut = tmp_path / "cut.pftrace"
    cut.write_bytes(content[:-7])
    written(cut, tmp_path / "found.pftrace")
    found = protos.Trace.FromString((tmp_path / "found.pftrace").read_bytes())
    assert "the file is truncated" in {x.track_event.name for x in found.packet}


@pytest.mark.parametrize(
    ("file", "name", "message"),
    [
        (0, "found.json", r"is a Perfetto trace.* \.pftrace\b"),
        (1, "found.pftrace", r"is JSON.* \.json or \.json\.gz\b"),
    ],
)
def test_a_name_of_the_other_format_is_refused(tmp_path, files, file, name, message):
    with pytest.raises(UsageError, match=message):
        tracelab.write_perfetto(files[file], tmp_path / name)
    assert not (tmp_path / name).exists()
