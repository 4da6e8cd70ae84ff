"""What a page's timeline says is what the report says, nanosecond by nanosecond."""

from __future__ import annotations

import gzip
import json
import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given

from tests.build.analyses import analysis_of, page_part_of
from tests.build.files import write
from tests.build.graph_rows import replayed
from tests.build.graphs import COPY, capture, replay
from tests.build.random_rows import random_rows
from tests.build.rows import call, kernel, launch, operator, python, step
from tests.bundled_traces import FOLDER
from tests.examples import examples
from tests.reference.page_lanes import read_lanes
from tracelab.analysis.analysis import analyze_source
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.options import Options
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.outputs.scene_of_job import scenes_of_report
from tracelab.read.sources import find_sources
from tracelab.render.html import (
    detail,
    timeline_data as timeline_data_module,
)
from tracelab.render.html.timeline_data import timeline_data
from tracelab.render.scene import Lane

S = 1_000_000_000
BUNDLED = ("train_step_sinful", "events_item", "ddp_hook_side_stream_rank0", "copies_own_stream")


@cache
def bundled(name):
    [source] = find_sources([str(FOLDER / f"{name}.pt.trace.json.gz")])
    return analyze_source(source)


def timeline_of(report, scenes):
    return timeline_data(report, scenes_of_report(report, scenes))


def page_of(analysis):
    """The timeline of a page of one file, and its lanes by id, read back."""
    data = timeline_of(analysis.report, [scene_of_file(analysis)])
    [lanes] = read_lanes(data)
    return data, {lane.meta["id"]: lane for lane in lanes}


def without_zeros(times_ns):
    return {kind: time_ns for kind, time_ns in times_ns.items() if time_ns}


def assert_like_report(analysis):
    """Every sum of the lanes in a window is that of the report."""
    _, lanes = page_of(analysis)
    report = analysis.report
    for window in report.windows:
        within = window.start_ns, window.end_ns
        for device in window.devices:
            number = device.device
            assert lanes[f"idle:{number}"].by_kind(*within) == without_zeros(device.bubbles)
            has_exposed = f"exposed:{number}" in lanes
            exposed = lanes[f"exposed:{number}"].by_kind(*within) if has_exposed else {}
            assert exposed.get("exposed_comm", 0) == device.exposed_comm_ns
            assert exposed.get("exposed_copy", 0) == device.exposed_copy_ns
            for stream in device.streams:
                lane = lanes[f"stream:{number}/{stream.stream}"]
                assert lane.busy_ns(*within) == stream.busy_ns
    first = report.windows[0]
    path = lanes["path"].by_kind(first.start_ns, first.end_ns)
    assert path == without_zeros(report.critical_path[0].by_kind)


# --- sums ---


@pytest.mark.parametrize("name", BUNDLED)
def test_sums_of_real_lanes_are_those_of_the_report(name):
    assert_like_report(bundled(name))


def test_sums_of_one_step_are_those_of_its_report():
    [source] = find_sources([str(FOLDER / "events_item.pt.trace.json.gz")])
    analysis = analyze_source(source, Options(step=4))
    assert_like_report(analysis)
    data, lanes = page_of(analysis)
    [window] = analysis.windows
    assert [x["label"] for x in data.meta["windows"]] == ["step 4"]
    for lane in lanes.values():
        if lane.meta["type"] != "host":  # what launched its work may have come before it
            assert min(lane.columns["end"]) >= window.start_ns
            assert max(lane.columns["start"]) < window.end_ns


@given(random_rows())
@examples(30)
def test_sums_of_random_lanes_are_those_of_the_report(rows):
    assert_like_report(analysis_of(*rows))


def test_overlap_on_one_stream_counts_once():
    # Two nodes of one graph launch: from 10 to 30 and from 20 to 40 in one stream.
    rows = (
        launch(0, 5, 1, name="cudaGraphLaunch"),
        kernel(10, 30, correlation=1),
        kernel(20, 40, correlation=1),
    )
    analysis = analysis_of(*rows)
    assert_like_report(analysis)
    _, lanes = page_of(analysis)
    stream = lanes["stream:0/7"]
    assert (stream.columns["start"], stream.columns["end"]) == ([10, 20], [30, 40])
    assert stream.busy_ns(0, 40) == 30


def test_times_beyond_32_bits_are_exact():
    rows = (
        step(1, 0, 30 * S),
        launch(1, 5, 1),
        kernel(10, 6 * S, correlation=1),
        launch(11 * S, 11 * S + 5, 2),
        kernel(11 * S + 10, 11 * S + 12, correlation=2),
        call("cudaDeviceSynchronize", 11 * S + 20, 20 * S, correlation=3),
        launch(20 * S + 10, 20 * S + 15, 4),
        kernel(20 * S + 20, 20 * S + 22, correlation=4),
    )
    analysis = analysis_of(*rows)
    assert_like_report(analysis)
    data, lanes = page_of(analysis)
    assert lanes["stream:0/7"].columns["start"] == [10, 11 * S + 10, 20 * S + 20]
    assert lanes["stream:0/7"].meta["escapes"] == {
        "gap": [[1, 5 * S + 10], [2, 9 * S + 8]],
        "dur": [[0, 6 * S - 10]],
    }
    # The third kernel would have followed as soon without the call: it cost what it blocked.
    host = lanes["host:0"]
    assert host.columns["kind"] == ["launch_call", "launch_call", "blocking", "launch_call"]
    assert host.columns["cost"][2] == 9 * S - 20
    assert host.meta["escapes"]["cost"] == [[2, 9 * S - 20]]
    assert json.loads(json.dumps(data.meta)) == data.meta


# --- what is said of each ---


def test_an_activity_says_its_name_operator_launch_and_what_it_waited_for(snapshot):
    rows = (
        operator("aten::mm", 0, 9),
        launch(2, 4, 1),
        kernel(10, 20, "void gemm<int>(float*)", correlation=1),
        launch(5, 6, 2),
        kernel(21, 30, "void gemm<int>(float*)", correlation=2),
        kernel(40, 50, "unlaunched"),
    )
    data, lanes = page_of(analysis_of(*rows))
    names, short = data.meta["names"], data.meta["short"]
    columns = lanes["stream:0/7"].columns
    assert [names[x] for x in columns["name"]] == ["void gemm<int>(float*)"] * 2 + ["unlaunched"]
    assert [short[x] for x in columns["name"]] == ["gemm", "gemm", ""]
    assert [x if x is None else names[x] for x in columns["op"]] == ["aten::mm", "aten::mm", None]
    assert columns["call"] == [0, 1, None]
    assert data.meta["reasons"][columns["why"][1]] == snapshot
    assert columns["source"][1] == 0
    assert lanes["host:0"].columns["start"] == [2, 5]
    assert lanes["idle:0"].columns["row"] == [1, 2]


def test_a_blocking_call_says_its_line_cost_and_what_it_waited_for():
    analysis = bundled("events_item")
    data, lanes = page_of(analysis)
    names = data.meta["names"]
    [host] = [
        x for key, x in lanes.items() if key.startswith("host") and "blocking" in x.columns["kind"]
    ]
    calls = [
        {key: host.columns[key][i] for key in ("name", "line", "cost", "row")}
        for i, kind in enumerate(host.columns["kind"])
        if kind == "blocking"
    ]
    costs = analysis.blocking_calls
    assert [x["cost"] for x in calls] == costs.caused_idle_ns.tolist()
    assert {names[x["line"]] for x in calls} == {
        f"{site.file}:{site.line} · {site.function}" for site in costs.call_sites
    }
    awaited = [analysis.timeline.event_id[x["row"]] for x in calls if x["row"] is not None]
    assert awaited == [x for x in costs.awaited_id.tolist() if x >= 0]


def test_names_are_seen_whole_or_cut_and_hold_nothing_that_is_not_seen():
    evil = "gemm\u202e</script>\x1b[31m"
    rows = (launch(0, 1, 1), kernel(10, 20, evil, correlation=1), kernel(30, 40, "x" * 5000))
    data, _ = page_of(analysis_of(*rows))
    assert "gemm\\u202e</script>\\u001b[31m" in data.meta["names"]
    assert max(map(len, data.meta["names"])) == 300


def test_steps_that_are_not_steady_say_why():
    analysis = bundled("train_step_sinful")
    data, lanes = page_of(analysis)
    steady = [analysis.timeline.steps[i].number for i in analysis.timeline.steady.indices]
    assert [int(x["label"].split()[1]) for x in data.meta["windows"] if x["steady"]] == steady
    assert len(lanes["steps"].columns["start"]) == len(analysis.timeline.steps)


# --- findings ---


def test_findings_mark_what_they_cite_in_its_lane():
    analysis = bundled("train_step_sinful")
    data, _ = page_of(analysis)
    trace = analysis.timeline.trace
    lanes = data.meta["groups"][0]["lanes"]
    for number, finding in enumerate(analysis.report.findings, 1):
        [shown] = [x for x in data.meta["findings"] if x["number"] == number]
        lane_of = {(start, end): lane for lane, start, end in shown["marks"]}
        assert len(shown["marks"]) == len(finding.evidence)
        for event_id in finding.evidence:
            lane = lane_of[int(trace.start_ns[event_id]), int(trace.end_ns[event_id])]
            is_activity = event_id in analysis.timeline.event_id
            assert lanes[lane]["type"] == ("stream" if is_activity else "host")


def test_a_finding_is_seen_in_the_step_that_holds_the_worst_of_it_and_then_close():
    analysis = bundled("train_step_sinful")
    data, _ = page_of(analysis)
    costs, trace = analysis.blocking_calls, analysis.timeline.trace
    cost_of = dict(zip(costs.calls.event_id.tolist(), costs.caused_idle_ns.tolist(), strict=True))
    steady = [(x["start"], x["end"]) for x in data.meta["windows"] if x["steady"]]
    [shown] = [x for x in data.meta["findings"] if x["number"] == 1]
    evidence = analysis.report.findings[0].evidence
    worst = max(evidence, key=lambda event_id: cost_of.get(event_id, 0))
    start, end = int(trace.start_ns[worst]), int(trace.end_ns[worst])
    assert shown["marks"][0][1:] == [start, end]
    assert tuple(shown["view"]) in steady
    assert shown["view"][0] <= start < end <= shown["view"][1]
    assert shown["place"][0] < start < end < shown["place"][1]
    for finding in data.meta["findings"]:
        _, start, end = finding["marks"][0]
        first, last = finding["place"]
        assert (end - start) / (last - first) >= 1 / 9


def test_without_steps_a_finding_is_seen_with_the_time_around_it(tmp_path):
    content = json.loads(gzip.decompress((FOLDER / "events_item.pt.trace.json.gz").read_bytes()))
    content["traceEvents"] = [
        x for x in content["traceEvents"] if not str(x.get("name")).startswith("ProfilerStep")
    ]
    (tmp_path / "stepless.json").write_text(json.dumps(content))
    [source] = find_sources([str(tmp_path / "stepless.json")])
    data, _ = page_of(analyze_source(source))
    assert data.meta["windows"] == []
    shown = next(x for x in data.meta["findings"] if x["marks"])
    _, start, end = shown["marks"][0]
    first, last = shown["view"]
    assert data.meta["start"] <= first <= start < end <= last <= data.meta["end"]
    assert last - first <= 21 * (end - start)


def test_a_finding_of_a_job_is_seen_with_the_wait_for_it():
    report, data, _ = job_of("waiting_rank_uneven_rank")
    [number] = [i for i, x in enumerate(report.findings, 1) if x.rule == "TL304"]
    [shown] = [x for x in data.meta["findings"] if x["number"] == number]
    assert shown["group"] == 1
    _, start, end = shown["marks"][0]
    [waited] = [
        x for x in report.job.collectives if abs(x.arrival_ns[1] - start) < 100 and x.last_rank == 1
    ]
    assert shown["view"][0] < waited.arrival_ns[0] < start < end < shown["view"][1]
    assert waited.arrival_ns[0] < shown["place"][0] < start < end < shown["place"][1]


# --- several files ---


@cache
def job_of(*names):
    """The report of two ranks, or of other files, and their timeline, as data and read back."""
    files = [path for name in names for path in sorted(FOLDER.glob(f"{name}*.gz"))]
    paths = list(map(str, files))
    results = [analyze_file(x, Options(), then=scene_of_file) for x in find_sources(paths)]
    report = merge_results(results, paths, Options())
    data = timeline_of(report, [result.more for result in results])
    return report, data, read_lanes(data)


def test_ranks_of_a_job_are_on_its_clock():
    report, data, groups = job_of("ddp_hook_no_hook_rank")
    assert [x["label"] for x in data.meta["groups"]] == ["rank 0", "rank 1"]
    for group, times in zip(groups, report.job.per_rank, strict=True):
        lanes = {lane.meta["id"]: lane for lane in group}
        steps, idle = lanes["steps"].columns, lanes[f"idle:{times.rank}"]
        assert steps["start"] == [x.start_ns for x in times.steps]
        assert steps["end"] == [x.end_ns for x in times.steps]
        for x in times.steps:  # the clocks drift
            assert idle.busy_ns(x.start_ns, x.end_ns) == pytest.approx(x.idle_ns, abs=50)


def test_ranks_say_which_waits_least_and_their_file_and_times_begin_at_0():
    _, data, _ = job_of("waiting_rank_uneven_rank")
    groups = data.meta["groups"]
    assert [group["pace"] for group in groups] == ["fastest", "slowest"]  # rank 0 waits
    names = [f"waiting_rank_uneven_rank{rank}" for rank in range(2)]
    assert [group["file"] for group in groups] == names
    assert data.meta["zero"] == data.meta["start"] != 0
    data, _ = page_of(bundled("events_item"))
    assert data.meta["zero"] == 0


def test_waits_of_a_rank_are_those_of_the_job():
    report, _, groups = job_of("waiting_rank_uneven_rank")
    for rank, group in enumerate(groups):
        [lane] = [lane for lane in group if lane.meta["id"] == "wait"]
        assert lane.meta["summary"]
        waited = sum(x.wait_ns[x.ranks.index(rank)] for x in report.job.collectives)
        rows = zip(*(lane.columns[x] for x in ("start", "end", "kind")), strict=True)
        assert sum(end - start for start, end, kind in rows if kind == "wait") == waited


def test_files_that_are_no_job_have_a_clock_each():
    report, data, groups = job_of("events_item", "events_wait.")
    assert report.job is None
    assert "a clock of its own" in data.meta["note"]
    assert [x["label"].partition(".")[0] for x in data.meta["groups"]] == [
        "events_item",
        "events_wait",
    ]
    for (index, group), trace in zip(enumerate(groups), report.traces, strict=True):
        [idle] = [lane for lane in group if lane.meta["id"] == "idle:0"]
        for window in report.windows:
            if window.rank == trace.rank:
                assert idle.busy_ns(window.start_ns, window.end_ns) == window.devices[0].idle_ns
        labels = {x["label"] for x in data.meta["windows"] if x["group"] == index}
        assert len(labels) == len([x for x in report.windows if x.rank == trace.rank]) - 1


def test_of_too_many_files_those_without_room_are_named(monkeypatch):
    monkeypatch.setattr(timeline_data_module, "_MAX_GROUPS", 1)
    _, data, groups = job_of.__wrapped__("waiting_rank_uneven_rank")
    assert len(groups) == 1
    assert data.meta["groups"][0]["label"] == "rank 1"  # for which the other one waits
    assert "Not shown: 1 of 2 files: rank 0." in data.meta["note"]
    assert {x["group"] for x in data.meta["findings"]} == {0}


def test_a_moment_is_shown_with_some_time():
    # GIVEN a single activity without a length, of which no launch is known
    data, lanes = page_of(analysis_of(kernel(1000, 1000)))
    # THEN there is time to draw
    assert data.meta["end"] == data.meta["start"] + 1
    assert lanes["stream:0/7"].meta["count"] == 1


def test_a_part_can_be_sent_from_process_to_process():
    part = page_part_of(bundled("events_item"))
    again = pickle.loads(pickle.dumps(part))
    assert [lane.start_ns.tolist() for lane in again.scene.lanes] == [
        lane.start_ns.tolist() for lane in part.scene.lanes
    ]
    assert (again.causal, again.whatif) == (part.causal, part.whatif)
    assert part.causal[0].by == "all"
    assert {row.by for row in part.causal} == {"all", "line"}
    assert len(part.whatif.predictions) == 1


def test_streams_of_graphs_share_a_lane(tmp_path):
    """GIVEN 300 streams with two nodes each THEN one lane has them, at the levels that overlap."""
    [source] = find_sources([str(write(tmp_path / "replays.json", replayed(replays=2)))])
    analysis = analyze_source(source)
    data, lanes = page_of(analysis)
    streams = [name for name in lanes if name.startswith("stream:")]
    assert streams == ["stream:0/7", "stream:0/8", "stream:0/graphs"]
    shared = lanes["stream:0/graphs"]
    assert shared.meta["label"] == "GPU 0: 300 streams of CUDA graphs"
    assert (len(shared.meta["streams"]), shared.meta["levels"]) == (300, 6)
    # The union of both replays, each 401.5 us long.
    assert shared.busy_ns(data.meta["start"], data.meta["end"]) == 803_000
    columns = shared.columns
    rows = zip(columns["start"], columns["end"], columns["level"], columns["stream"], strict=True)
    trace = analysis.timeline.trace
    known = {
        (int(trace.start_ns[i]), int(trace.stream_number[i]))
        for i in analysis.timeline.event_id.tolist()
    }
    free_from = [0] * 6
    for start, end, level, stream in rows:
        assert start >= free_from[level]
        free_from[level] = end
        assert (start, shared.meta["streams"][stream]) in known


def test_what_refers_to_a_node_of_a_shared_lane_finds_it(tmp_path):
    """The rows of a page are those of its lanes, one after another, in whatever order they run."""
    [source] = find_sources([str(write(tmp_path / "replays.json", replayed(replays=2)))])
    analysis = analyze_source(source)
    _, lanes = page_of(analysis)
    starts = [
        start
        for name, lane in lanes.items()
        if name.startswith("stream:")
        for start in lane.columns["start"]
    ]
    idle = lanes["idle:0"].columns
    idle_until = dict(zip(idle["row"], idle["end"], strict=True))  # the last part before each row
    idle_until.pop(None, None)
    assert len(idle_until) > 2
    assert all(starts[row] == end for row, end in idle_until.items())


# --- what fits ---


def assert_binned(lane, whole):
    """The bins of a lane are what all of it has in each."""
    bins = lane.meta["bins"]
    length = bins["end"] - bins["start"]
    edges = [bins["start"] + i * length // bins["count"] for i in range(bins["count"] + 1)]
    for kind in lane.meta["kinds"]:
        expected = [whole.busy_ns(*edges[i : i + 2], [kind]) for i in (0, bins["count"] // 2)]
        assert [lane.bins[kind][i] for i in (0, bins["count"] // 2)] == expected
        assert sum(lane.bins[kind]) == whole.busy_ns(bins["start"], bins["end"], [kind])


def assert_named(lane, whole, within, length):
    """A lane of names has all that is in some time, and elsewhere what is longer than a bin."""
    assert not lane.bins
    spans = zip(*(whole.columns[x] for x in ("start", "end", "name")), strict=True)
    assert list(zip(*(lane.columns[x] for x in ("start", "end", "name")), strict=True)) == [
        (start, end, name)
        for start, end, name in spans
        if (end >= within[0] and start < within[1]) or end - start > length / 16
    ]


def test_what_does_not_fit_is_there_in_some_steps_and_in_bins_elsewhere(monkeypatch):
    most_bytes = 15_000
    analysis = bundled("train_step_sinful")
    _, all_lanes = page_of(analysis)
    monkeypatch.setattr(detail, "MAX_BYTES", most_bytes)
    monkeypatch.setattr(detail, "_MIN_BINS", 16)
    monkeypatch.setattr(detail, "_MAX_BINS_OF_ALL_LANES", 100)
    data, lanes = page_of(analysis)
    assert len(data.columns) <= most_bytes
    assert "too much" in data.meta["note"]
    [group] = data.meta["groups"]
    start, end = group["detail"]
    assert start in [x["start"] for x in data.meta["windows"]]
    assert end in [x["end"] for x in data.meta["windows"]]
    for key, lane in lanes.items():
        everything = all_lanes[key]
        if lane.meta["type"] == "steps":
            assert not lane.bins
            assert lane.columns["start"] == everything.columns["start"]
        elif lane.meta["type"] in {"phase", "module", "operator"}:
            assert_named(lane, everything, (start, end), data.meta["end"] - data.meta["start"])
        else:
            assert lane.by_kind(*group["detail"]) == everything.by_kind(*group["detail"])
            assert lane.meta["count"] < everything.meta["count"]
            assert_binned(lane, everything)
    # What is known of an activity in the detail leads to the same as before.
    kept, every = lanes["stream:0/7"].columns, all_lanes["stream:0/7"].columns
    host, every_host = lanes["host:1"], all_lanes["host:1"]
    inside = [
        i for i, x in enumerate(kept["start"]) if group["detail"][0] <= x < group["detail"][1]
    ]
    before = every["start"].index(kept["start"][inside[0]])
    for n, i in enumerate(inside[1:], 1):
        source, whole = kept["source"][i], every["source"][before + n]
        assert source is None or source - i == whole - before - n
        assert kept["line"][i] == every["line"][before + n]
        assert kept["call"][i] is not None
    assert {*host.columns["start"]} <= {*every_host.columns["start"]}


def test_a_number_over_time_is_exact_in_the_detail_and_the_highest_elsewhere(monkeypatch):
    monkeypatch.setattr(detail, "MAX_BYTES", 15_000)
    monkeypatch.setattr(detail, "_MIN_BINS", 16)
    monkeypatch.setattr(detail, "_MAX_BINS_OF_ALL_LANES", 100)
    analysis, rng = bundled("train_step_sinful"), np.random.default_rng(36)
    scene = scene_of_file(analysis)
    start_ns = np.sort(rng.integers(scene.start_ns, scene.end_ns, 3000))
    counter = Lane(
        id="counter:0/memory",
        label="GPU 0 memory",
        device=0,
        kinds=("counter",),
        start_ns=start_ns,
        end_ns=np.append(start_ns[1:], scene.end_ns),
        kind=np.zeros(3000, dtype=np.uint8),
        more={"value": rng.integers(0, 2**40, 3000)},
        unit="bytes",
    )
    data = timeline_of(analysis.report, [replace(scene, lanes=(*scene.lanes, counter))])
    [group], [lanes] = data.meta["groups"], read_lanes(data)
    low, high = group["detail"]
    [lane] = [lane for lane in lanes if lane.meta["id"] == counter.id]
    [binned] = [lane.meta["bins"] for lane in lanes if lane.meta["id"] == "idle:0"]
    length = (binned["end"] - binned["start"]) // binned["count"]
    expected = {}
    for start, end, value in zip(start_ns, counter.end_ns, counter.more["value"], strict=True):
        is_fine = end >= low and start < high
        part = (1, start) if is_fine else (0, (start - binned["start"]) // length, start >= high)
        expected[part] = max(expected.get(part, 0), int(value))
    assert lane.columns["value"] == [
        expected[part]
        for part in sorted(expected, key=lambda part: starts_of(part, binned, length))
    ]
    assert len(lane.columns["value"]) < 3000


def starts_of(part, binned, length):
    """When a part of a number over time begins: a value of the detail, or a bin."""
    return part[1] if part[0] else binned["start"] + part[1] * length + length * part[2] // 2


def test_an_activity_of_a_graph_says_where_it_was_captured(snapshot):
    rows = (
        python("model.py(7): forward", 0, 90),
        *capture(0, ["a", COPY]),
        *replay(100, ["a", COPY]),
        launch(200, 202, 1),
        kernel(210, 220, correlation=1),
    )
    data, lanes = page_of(analysis_of(*rows))
    names = data.meta["names"]
    captured = lanes["stream:0/7"].columns["captured"]
    assert [x if x is None else names[x] for x in captured] == snapshot


def test_without_graphs_no_lane_has_a_column_for_them():
    _, lanes = page_of(analysis_of(launch(0, 2, 1), kernel(10, 20, correlation=1)))
    assert "captured" not in lanes["stream:0/7"].columns
