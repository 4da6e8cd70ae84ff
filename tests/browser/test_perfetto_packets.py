"""That Perfetto's own trace processor reads our packets, and those that our tests write."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.browser.viewers import Perfetto
from tests.build import collector_packets, cupti_collector
from tests.build.cupti_collector import Row, Window
from tests.build.perfetto import written
from tests.bundled_traces import FOLDER
from tests.unit.render.perfetto.test_packets import added, slices_of
from tracelab.read.reader import read_trace

CAPTURE = FOLDER / "prefetch_copy_stream_pageable.pt.trace.json.gz"


@pytest.fixture(scope="module")
def recorded() -> Window:
    return cupti_collector.collect(cupti_collector.load(CAPTURE))


@pytest.fixture(scope="module")
def files(tmp_path_factory, recorded) -> tuple[Path, Path]:
    """A trace of packets, and the same with our tracks."""
    folder = tmp_path_factory.mktemp("packets")
    packets = collector_packets.write(recorded, folder / "a.pftrace")
    written(packets, folder / "found.pftrace")
    return packets, folder / "found.pftrace"


def ours_in(opened: Perfetto) -> dict[str, list[tuple[int, int, str]]]:
    rows = opened.sql(
        "select track.name as row, slice.name, cast(slice.ts as text) as start, slice.dur "
        "from slice join track on slice.track_id = track.id "
        "where slice.category glob 'tracelab.*' order by slice.ts, slice.dur"
    )
    tracks = defaultdict(list)
    for row in rows:
        start_ns = int(row["start"])
        tracks[row["row"]].append((start_ns, start_ns + row["dur"], row["name"]))
    return dict(tracks)


def test_every_slice_of_ours_is_read_as_written(perfetto, files):
    packets, found = files
    expected = {row: sorted(slices) for row, slices in slices_of(added(packets, found)).items()}
    assert {row: sorted(slices) for row, slices in ours_in(perfetto(found)).items()} == expected


def own_slices(opened: Perfetto) -> list[dict]:
    return opened.sql(
        "select coalesce(category, '') as category, count(*) as slices, sum(dur) as length_ns "
        "from slice where coalesce(category, '') not glob 'tracelab.*' group by 1 order by 1"
    )


@pytest.mark.slow
def test_the_file_s_own_slices_are_read_as_before(perfetto, files):
    before, after = map(perfetto, files)
    assert own_slices(before) == own_slices(after)
    assert before.stats == after.stats


def test_what_our_tests_write_is_what_perfetto_reads(perfetto, files, recorded):
    """GIVEN a recording as our tests write it in packets, with our tracks
    THEN Perfetto finds every activity of the GPU, with its exact times."""
    [row] = perfetto(files[1]).sql(
        "select count(*) as activities, sum(dur) as length_ns from gpu_slice"
    )
    in_file = collector_packets.as_in_packets(recorded)
    activities = [x for y in collector_packets.STAGES for x in in_file.rows.get(y, ())]
    assert row == {
        "activities": len(activities),
        "length_ns": sum(x.end_ns - x.start_ns for x in activities),
    }


@pytest.mark.slow
def test_perfetto_pairs_calls_that_touch_by_time(perfetto, tmp_path):
    """GIVEN calls from 0 to 5, 5 to 9 and 9 to 11, written as PyTorch's collector does
    THEN tracelab reads their lengths, and Perfetto gives them each other's ends."""
    times = [(0, 5_000), (5_000, 9_000), (9_000, 11_000)]
    calls = [
        Row("cuda_runtime", f"call{i}", 100, 100, start, end, {"cbid": 1, "correlation": i})
        for i, (start, end) in enumerate(times)
    ]
    touching = Window({}, 1_763_880_000_000_000_000, [], {"cuda_runtime": calls})
    path = collector_packets.write(touching, tmp_path / "touching.pftrace")
    assert read_trace(path).duration_ns.tolist() == [5_000, 4_000, 2_000]
    rows = perfetto(path).sql("select name, dur from slice order by name")
    assert [row["dur"] for row in rows] != [5_000, 4_000, 2_000]
