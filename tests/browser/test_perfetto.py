"""That Perfetto's own trace processor and catapult read our tracks as they are meant.

Every slice is read with the name, the times and the row that were written, the file's own slices
are read, and dropped, as they were without ours, and both ends of the arrows are found.
"""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.browser.viewers import Perfetto
from tests.build.perfetto import (
    events_of,
    is_ours,
    require_figures,
    tracks_in,
    written,
)
from tests.bundled_traces import FOLDER
from tests.shared_traces import path_of
from tracelab.read.reader import read_trace
from tracelab.render.perfetto import perfetto_ns
from tracelab.report.schema import Report

OWN = "slice.category glob 'tracelab.*'"


def bundled(name: str) -> str:
    return str(FOLDER / f"{name}.pt.trace.json.gz")


# Short; with dropped slices of its own; one rank of two; with times since 1970; of an AMD GPU.
TRACES = {
    "prefetch": lambda: bundled("prefetch_copy_stream_pageable"),
    "train_step": lambda: bundled("train_step_sinful"),
    "ddp_rank1": lambda: bundled("ddp_hook_side_stream_rank1"),
    "since_1970": lambda: path_of("hta_simple_add"),
    "amd": lambda: path_of("tracelens_mi300x_normalization"),
}


def some(*names: str) -> list[object]:
    """Parameters of these traces; by default the short one is looked at."""
    return [pytest.param(x, marks=() if x == "prefetch" else pytest.mark.slow) for x in names]


@pytest.fixture(scope="module", params=some(*TRACES))
def exported(request, tmp_path_factory) -> tuple[str, Path, Report]:
    """A trace, the same with our tracks, and its report."""
    path = TRACES[request.param]()
    out = tmp_path_factory.mktemp("perfetto") / f"{request.param}.json.gz"
    return path, out, written(path, out)


def slices_of(opened: Perfetto) -> dict[str, list[tuple[int, int, str]]]:
    """Our slices by the name of their row: start and end in ns, and name."""
    rows = opened.sql(
        "select thread.name as row, slice.name, cast(slice.ts as text) as start, slice.dur "
        "from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) "
        f"where {OWN} order by slice.ts, slice.dur"
    )
    tracks = defaultdict(list)
    for row in rows:
        start_ns = int(row["start"])
        tracks[row["row"]].append((start_ns, start_ns + row["dur"], row["name"]))
    return dict(tracks)


def in_order(tracks: dict[str, list[tuple[int, int, str]]]) -> dict[str, list]:
    """The same, the slices of each row sorted."""
    return {name: sorted(slices) for name, slices in tracks.items()}


def test_every_slice_of_ours_is_read_as_written(perfetto, exported):
    _, out, _ = exported
    assert in_order(slices_of(perfetto(out))) == in_order(tracks_in(events_of(out)))


# Times since 1970 are read up to 256 ns off, those of the file as well.
@pytest.mark.parametrize(
    "exported", some("prefetch", "train_step", "ddp_rank1", "amd"), indirect=True
)
def test_tracks_are_the_figures_of_the_report(perfetto, exported):
    path, out, report = exported
    origin_ns = read_trace(path).origin_ns
    require_figures(slices_of(perfetto(out)), report, origin_ns, report.traces[0].rank)


def own_slices(opened: Perfetto) -> list[dict]:
    """How many slices of the file itself there are, and how long, by category."""
    return opened.sql(
        "select coalesce(category, '') as category, count(*) as slices, sum(dur) as length_ns "
        "from slice where coalesce(category, '') not glob 'tracelab.*' group by 1 order by 1"
    )


def test_slices_of_the_file_are_read_and_dropped_as_before(perfetto, exported):
    path, out, _ = exported
    before, after = perfetto(path), perfetto(out)
    assert own_slices(before) == own_slices(after)
    assert before.stats == after.stats


def test_no_arrow_of_ours_is_lost_but_to_a_slice_that_is(perfetto, exported):
    path, out, _ = exported
    starts = Counter(x["cat"] for x in events_of(out) if is_ours(x) and x["ph"] == "s")
    count = "select count(*) as count from flow"
    unbound = "select sum(value) as count from stats where name like 'flow%'"
    found, lost = (
        after - before
        for query in (count, unbound)
        for before, after in [[perfetto(x).sql(query)[0]["count"] for x in (path, out)]]
    )
    assert found + lost == starts.total()
    dropped = perfetto(path).stats.get("slice_drop_overlapping_complete_event", 0)
    assert lost <= 2 * dropped
    of_findings = "slice on flow.slice_out = slice.id where slice.category = 'tracelab.finding'"
    [row] = perfetto(out).sql(f"select count(*) as count from flow join {of_findings}")
    assert row["count"] == starts["tracelab.evidence"]


def test_arrows_of_findings_end_at_what_they_cite(perfetto, exported):
    _, out, _ = exported
    ends = perfetto(out).sql(
        "select cast(target.ts as text) as start from flow "
        "join slice on flow.slice_out = slice.id join slice target on flow.slice_in = target.id "
        "where slice.category = 'tracelab.finding'"
    )
    cited = Counter(
        perfetto_ns(str(event["ts"]))
        for event in events_of(out)
        if event.get("cat") == "tracelab.evidence" and event["ph"] == "f"
    )
    assert Counter(int(end["start"]) for end in ends) == cited


def test_our_process_has_its_name_and_counters(perfetto, exported):
    _, out, report = exported
    [process] = perfetto(out).sql("select pid, name, upid from process where name glob 'tracelab*'")
    gpus = [device.device for device in report.windows[0].devices]
    assert process["name"].endswith(f"GPU{'s' * (len(gpus) > 1)} {', '.join(map(str, gpus))}")
    counters = perfetto(out).sql(
        "select name, count(*) as count from counter join process_counter_track as track "
        f"on counter.track_id = track.id where upid = {process['upid']} group by 1 order by 1"
    )
    written_counts = Counter(
        f"{event['name']} streams"
        for event in events_of(out)
        if event["ph"] == "C" and event["pid"] == process["pid"]
    )
    assert {row["name"]: row["count"] for row in counters} == dict(written_counts)
    assert len(counters) == len(gpus)


@pytest.mark.slow
@pytest.mark.parametrize(
    "exported", some("prefetch", "train_step", "ddp_rank1", "since_1970"), indirect=True
)
def test_catapult_shows_the_same(catapult, exported):
    path, out, _ = exported
    before, after = catapult(path), catapult(out)
    [ours] = [x for x in after.processes if x["name"].startswith("tracelab")]
    assert [x for x in after.processes if x is not ours] == before.processes
    assert after.processes[0] is ours
    shown = {row["name"]: row["slices"] for row in ours["threads"] if row["slices"]}
    slices = tracks_in(events_of(out))
    assert shown == {name: len(rows) for name, rows in slices.items()}
    assert [row["name"] for row in ours["threads"] if row["slices"]] == list(slices)
    arrows = sum(is_ours(x) and x["ph"] == "s" for x in events_of(out))
    assert after.flows - before.flows == arrows
    assert after.warnings == before.warnings


@pytest.mark.slow
def test_the_events_of_one_step_open(perfetto, tmp_path):
    path = bundled("train_step_sinful")
    report = written(path, out := tmp_path / "out.json", step=4)
    opened = perfetto(out)
    read = slices_of(opened)
    assert in_order(read) == in_order(tracks_in(events_of(out)))
    require_figures(read, report, read_trace(path).origin_ns, 0)
    [row] = opened.sql("select count(*) as count from slice where category = 'kernel'")
    assert 300 < row["count"] < 500
