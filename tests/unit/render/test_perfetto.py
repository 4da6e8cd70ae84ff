"""The tracks in a written file are the figures of the report; its own events stay as they are."""

import json
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import tracelab
from tests.build import files
from tests.build.files import US
from tests.build.perfetto import (
    events_of,
    is_ours,
    names_of_threads,
    nanoseconds,
    require_figures,
    tracks_in,
    written,
)
from tests.bundled_traces import FOLDER
from tests.shared_traces import path_of
from tracelab.analysis.analysis import Analysis, analyze_source
from tracelab.base.errors import OutputError
from tracelab.base.options import Options
from tracelab.outputs.output import Request
from tracelab.outputs.perfetto import TRACE, PerfettoPart, part_of_perfetto
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.read.reader import read_trace
from tracelab.render.perfetto import (
    free_process,
    lanes,
    microseconds,
    perfetto_ns,
    slice_times,
)
from tracelab.report.glossary import CAUSES

BUNDLED = [
    "train_step_sinful",
    "prefetch_copy_stream_pageable",
    "ddp_hook_side_stream_rank0",
    "peer_copy_chain",
    "launches_graph",
    "pipeline_1f1b_few_rank0",
]
WIDE = 4  # number of the finding of train_step_sinful whose evidence fills most of its time
REAL = ["hta_simple_add", "tracelens_mi300_resnet_ddp8", "segment_anything_fast_amg"]


def bundled(name: str) -> str:
    return str(FOLDER / f"{name}.pt.trace.json.gz")


def require_own_events(path: str, out: Path) -> list:
    """The file's own events stand in the new one, unchanged and in order; those of ours."""
    before, after = events_of(path), events_of(out)
    assert after[: len(before)] == before
    return after[len(before) :]


@pytest.mark.parametrize("name", [pytest.param(BUNDLED[0], marks=pytest.mark.slow), *BUNDLED[1:]])
def test_tracks_are_the_figures_of_the_report(name, tmp_path):
    report = written(bundled(name), out := tmp_path / "out.json.gz")
    ours = require_own_events(bundled(name), out)
    origin_ns = read_trace(bundled(name)).origin_ns
    require_figures(tracks_in(ours), report, origin_ns, report.traces[0].rank)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.slow
def test_tracks_of_other_peoples_traces(name, tmp_path):
    path = path_of(name)
    report = written(path, out := tmp_path / "out.json")
    ours = require_own_events(path, out)
    origin_ns = read_trace(path).origin_ns
    if origin_ns < 2**43 * 1000:
        require_figures(tracks_in(ours), report, origin_ns, report.traces[0].rank)
    assert any(map(is_ours, ours))


def test_no_two_slices_of_a_row_overlap(tmp_path):
    written(bundled("train_step_sinful"), out := tmp_path / "out.json")
    rows: dict = {}
    for event in events_of(out):
        if is_ours(event) and event["ph"] == "X":
            start_ns = nanoseconds(event["ts"])
            end_ns = start_ns + nanoseconds(event["dur"])
            rows.setdefault((event["pid"], event["tid"]), []).append((start_ns, end_ns))
    assert len(rows) == 13
    for slices in rows.values():
        slices.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(slices))


def test_our_process_is_new_and_says_rank_and_gpu(tmp_path):
    path = bundled("ddp_hook_side_stream_rank0")
    written(path, out := tmp_path / "out.json")
    ours = require_own_events(path, out)
    taken = {number for event in events_of(path) for number in (event.get("pid"), event.get("tid"))}
    [process] = {event["pid"] for event in ours if event["ph"] in "XMC"}
    threads = {event["tid"] for event in ours if event["ph"] == "X"}
    assert not taken & {process, *threads}
    assert all(0 < number < 2**32 for number in (process, *threads))
    [name] = [x["args"]["name"] for x in ours if x["name"] == "process_name"]
    assert name == "tracelab: rank 0 GPU 0"


def test_arrows_lead_from_a_finding_to_what_it_cites(tmp_path):
    report = written(bundled("train_step_sinful"), out := tmp_path / "out.json")
    events = events_of(out)
    trace = read_trace(bundled("train_step_sinful"))
    cited = [
        (
            str(event["pid"]),
            str(event["tid"]),
            nanoseconds(event["ts"]) - trace.origin_ns,
        )
        for event in events
        if event["ph"] == "f" and event["cat"] == "tracelab.evidence"
    ]
    assert cited == [
        (thread.process, thread.thread, int(trace.start_ns[event_id]))
        for number, finding in enumerate(report.findings, 1)
        if number != WIDE
        for event_id in finding.evidence
        for thread in [trace.threads[int(trace.thread_index[event_id])]]
    ]
    rows = names_of_threads(events)
    starts = {
        (event["pid"], event["tid"], event["ts"])
        for event in events
        if is_ours(event) and event["ph"] == "X"
    }
    begun = [x for x in events if x["ph"] == "s" and x["cat"] == "tracelab.evidence"]
    assert len(begun) == len(cited)
    for event in begun:
        assert (event["pid"], event["tid"], event["ts"]) in starts
        assert rows[event["pid"], event["tid"]][0].isdigit()


def test_evidence_that_fills_the_window_is_shown_by_its_longest_idle_times(tmp_path):
    path = bundled("train_step_sinful")
    report = written(path, out := tmp_path / "out.json")
    finding = report.findings[WIDE - 1]
    slices = [x for x in events_of(out) if x.get("args", {}).get("finding", "")[:2] == f"{WIDE}."]
    assert len(slices) == 20
    assert {x["args"]["shown"].split(" places")[0] for x in slices} == {"20 of 1,486"}
    assert "cudaLaunchKernel" in {x["args"]["cites"] for x in slices}
    trace, origin_ns = read_trace(path), read_trace(path).origin_ns
    evidence = list(finding.evidence)
    cited = [*zip(trace.start_ns[evidence].tolist(), trace.end_ns[evidence].tolist(), strict=True)]
    idle = tracks_in(events_of(out))["GPU 0 idle by cause"]
    for x in slices:
        start_ns = nanoseconds(x["ts"])
        end_ns = start_ns + nanoseconds(x["dur"])
        assert any(a <= start_ns - origin_ns < end_ns - origin_ns <= b for a, b in cited)
        causes = {name for a, b, name in idle if a < end_ns and start_ns < b}
        assert causes <= {CAUSES.names["launch"], CAUSES.names["host_busy"]}


def test_a_slice_of_a_finding_says_what_it_is_about(tmp_path):
    report = written(bundled("events_item"), out := tmp_path / "out.json")
    first = next(x for x in events_of(out) if x.get("cat") == "tracelab.finding")
    finding = report.findings[0]
    assert first["name"] == "TL101 host_sync"
    arguments = first["args"]
    assert arguments["finding"] == f"1. {finding.title}"
    assert arguments["where"] == "`item` in read_a_value (workloads/events.py:65)"
    assert arguments["cites"] == "cudaStreamSynchronize"
    assert arguments["price"].startswith("saves ")
    assert (arguments["cost_ns"], arguments["saves_ns"]) == (finding.cost_ns, finding.saves_ns)
    assert arguments["fix"] == finding.fix


def test_arrows_follow_the_critical_path(tmp_path):
    path = tmp_path / "in.json"
    files.write(
        path,
        [
            files.launch(0, 2 * US, 1),
            files.launch(3 * US, 4 * US, 2),
            files.kernel(5 * US, 20 * US, "first", correlation=1),
            files.kernel(20 * US, 50 * US, "second", correlation=2),
        ],
    )
    written(path, out := tmp_path / "out.json")
    arrows = [x for x in events_of(out) if x.get("cat") == "tracelab.critical_path" and "id" in x]
    assert [(x["ph"], x["pid"], x["tid"], x["ts"]) for x in arrows] == [
        ("s", 0, 7, "5.000"),
        ("f", 0, 7, "20.000"),
    ]


def test_an_arrow_to_a_call_that_waits_leads_forward(tmp_path):
    path = tmp_path / "in.json"
    files.write(
        path,
        [
            files.launch(0, 2 * US, 1),
            files.kernel(8 * US, 20 * US, "awaited", correlation=1),
            files.call("cudaDeviceSynchronize", 5 * US, 24 * US),
            files.launch(26 * US, 28 * US, 2),
            files.kernel(30 * US, 50 * US, "next", correlation=2),
        ],
    )
    written(path, out := tmp_path / "out.json")
    arrows = [x for x in events_of(out) if x.get("cat") == "tracelab.critical_path" and "id" in x]
    assert [(x["ph"], x["pid"], x["tid"], x["ts"]) for x in arrows] == [
        ("s", 0, 7, "8.000"),
        ("f", files.HOST, files.HOST, "8.000"),  # where the call, which began before, waits
        ("s", files.HOST, files.HOST, "5.000"),
        ("f", 0, 7, "30.000"),
    ]


@pytest.mark.parametrize("name", ["train_step_sinful", "ddp_hook_side_stream_rank0"])
def test_no_arrow_leads_back_in_time(name, tmp_path):
    written(bundled(name), out := tmp_path / "out.json")
    begun = {}
    for event in events_of(out):
        if is_ours(event) and event["ph"] == "s":
            begun[event["id"]] = nanoseconds(event["ts"])
        elif is_ours(event) and event["ph"] == "f":
            assert begun.pop(event["id"]) <= nanoseconds(event["ts"])
    assert begun == {}


def test_processes_are_written_as_the_file_has_them(tmp_path):
    path = tmp_path / "in.json"
    gpu = {"pid": "0", "tid": "stream 7"}
    files.write(
        path,
        [
            files.launch(0, 2 * US, 1),
            files.kernel(5 * US, 20 * US, "first", correlation=1) | gpu,
            files.kernel(20 * US, 50 * US, "second") | gpu,
        ],
    )
    written(path, out := tmp_path / "out.json")
    arrows = [x for x in events_of(out) if x.get("cat") == "tracelab.critical_path" and "id" in x]
    assert {(x["pid"], x["tid"]) for x in arrows} == {("0", "stream 7")}


def test_texts_beyond_ascii_are_not_escaped(tmp_path):
    path = tmp_path / "in.json"
    files.write(path, [files.kernel(0, US, "größe_𝄞\u202e\x1b[31m"), files.kernel(2 * US, 3 * US)])
    written(path, out := tmp_path / "out.json")
    ours = out.read_text("utf-8").partition("process_name")[2]
    assert "größe_𝄞[31m" in ours
    assert "\\u" not in ours


def test_the_counter_counts_busy_streams(tmp_path):
    path = tmp_path / "in.json"
    files.write(
        path,
        [
            files.kernel(0, 10 * US),
            files.kernel(10 * US, 20 * US),
            files.kernel(5 * US, 15 * US, stream=20),
            files.kernel(30 * US, 40 * US, stream=20),
        ],
    )
    written(path, out := tmp_path / "out.json")
    values = [
        (event["name"], event["ts"], event["args"])
        for event in events_of(out)
        if event["ph"] == "C"
    ]
    assert values == [
        ("GPU 0 busy", "0.000", {"streams": 1}),
        ("GPU 0 busy", "5.000", {"streams": 2}),
        ("GPU 0 busy", "15.000", {"streams": 1}),
        ("GPU 0 busy", "20.000", {"streams": 0}),
        ("GPU 0 busy", "30.000", {"streams": 1}),
        ("GPU 0 busy", "40.000", {"streams": 0}),
    ]


def test_a_file_that_breaks_off_says_so(tmp_path):
    path = tmp_path / "in.json"
    files.write(path, [files.kernel(0, US), files.kernel(2 * US, 3 * US), files.kernel(4, 5)])
    path.write_bytes(path.read_bytes()[:-60])
    written(path, out := tmp_path / "out.json")
    assert [name for _, _, name in tracks_in(events_of(out))["Notes"]] == ["the file is truncated"]


def test_scenes_travel_between_processes():
    source = tracelab.read.sources.one_source(bundled("events_item"))
    scene = scene_of_file(analyze_source(source))
    again = pickle.loads(pickle.dumps(scene))
    assert [lane.label for lane in again.lanes] == [lane.label for lane in scene.lanes]


def reduced(analysis: Analysis) -> PerfettoPart:
    return part_of_perfetto(analysis, scene_of_file(analysis))


def test_the_ranks_of_a_job_are_numbered_as_one_report(tmp_path):
    paths = [bundled(f"straggler_slow_loader_rank{rank}") for rank in (0, 1)]
    options = Options(cache=False)
    sources = tracelab.read.sources.find_sources(paths)
    results = [tracelab.analysis.reports.analyze_file(x, options, then=reduced) for x in sources]
    report = tracelab.analysis.reports.merge_results(results, paths, options)
    assert report.job is not None
    outs = TRACE.write(report, results, Request(tmp_path / "out.json", 2))
    for path, out, rank in zip(paths, outs, (0, 1), strict=True):
        ours = require_own_events(path, out)
        origin_ns = read_trace(path).origin_ns
        require_figures(tracks_in(ours), report, origin_ns, rank)
        [name] = [x["args"]["name"] for x in ours if x["name"] == "process_name"]
        assert name == f"tracelab: rank {rank} GPU {rank}"


def test_a_finding_of_the_job_is_where_others_waited(tmp_path):
    paths = [bundled(f"straggler_more_work_rank{rank}") for rank in (0, 1)]
    options = Options(cache=False)
    sources = tracelab.read.sources.find_sources(paths)
    results = [tracelab.analysis.reports.analyze_file(x, options, then=reduced) for x in sources]
    report = tracelab.analysis.reports.merge_results(results, paths, options)
    [finding] = [x for x in report.findings if x.rule == "TL304"]
    outs = TRACE.write(report, results, Request(tmp_path / "out.json", 2))
    number = report.findings.index(finding) + 1
    tracks = tracks_in(events_of(outs[finding.rank]))
    [slices] = [y for name, y in tracks.items() if name.startswith(f"{number} ")]
    trace = read_trace(paths[finding.rank])
    cited_ns = sorted(int(trace.start_ns[i]) + trace.origin_ns for i in finding.evidence)
    assert [start for start, _, _ in slices] == cited_ns


def test_the_input_is_never_written(tmp_path):
    path = tmp_path / "in.json"
    files.write(path, [files.kernel(0, US), files.kernel(2 * US, 3 * US)])
    content = path.read_bytes()
    with pytest.raises(OutputError, match="it is an input"):
        written(path, path)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(OutputError, match="it is an input"):
        written(path, link)
    assert path.read_bytes() == content


def test_tracks_can_be_put_into_a_file_that_has_some(tmp_path):
    written(bundled("events_item"), first := tmp_path / "first.json")
    written(first, second := tmp_path / "second.json")
    before, after = events_of(first), events_of(second)
    assert after[: len(before)] == before
    ids = [x["id"] for x in after if x["ph"] == "s" and is_ours(x)]
    assert len(ids) == len(set(ids))
    assert len({x["pid"] for x in after if is_ours(x) and x["ph"] == "X"}) == 2
    assert json.loads(second.read_bytes())


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=20)


@given(spans)
def test_no_two_of_a_lane_overlap_and_none_is_missing(pairs):
    start_ns = np.array([start for start, _ in pairs], dtype=np.int64)
    end_ns = np.array([start + length for start, length in pairs], dtype=np.int64)
    found = list(lanes(start_ns, end_ns))
    assert sorted(index for lane in found for index in lane.tolist()) == list(range(len(pairs)))
    for lane in found:
        assert all(end_ns[a] <= start_ns[b] for a, b in pairwise(lane.tolist()))


@given(spans)
def test_there_are_as_few_lanes_as_can_be(pairs):
    start_ns = np.array([start for start, _ in pairs], dtype=np.int64)
    end_ns = np.array([start + 1 + length for start, length in pairs], dtype=np.int64)
    at_once = [int(((start_ns <= t) & (t < end_ns)).sum()) for t in range(42)]
    assert len(list(lanes(start_ns, end_ns))) == max(1, *at_once)


ids = st.integers(-(2**31), 2**34) | st.sampled_from(["Spans", None, 1.5])


@given(st.lists(st.tuples(ids, ids)), st.integers(0, 2000))
def test_a_free_process_and_its_threads_are_free_and_fit(taken, rows):
    process = free_process(taken, rows)
    numbers = {one % 2**32 for pair in taken for one in pair if isinstance(one, int)}
    ours = range(process, process + rows + 1)
    assert process > 0
    assert ours[-1] < 2**32
    assert numbers.isdisjoint(ours)


EXACT = st.integers(-(2**43) * 1000 + 1, 2**43 * 1000 - 1)
SINCE_1970 = st.integers(2**43 * 1000, 2**52 * 1000)


@given(EXACT)
@example(4_359_759_616_840_547)
@example(2**43 * 1000 - 1)
@example(-1)
def test_every_nanosecond_of_a_hundred_days_is_read_back(time_ns):
    assert perfetto_ns(microseconds(time_ns)) == time_ns


@given(EXACT, st.integers(0, 10**12))
def test_the_end_of_a_slice_is_exact_as_well(start_ns, length_ns):
    if start_ns + length_ns < 2**43 * 1000:
        start, duration = slice_times(start_ns, start_ns + length_ns)
        assert perfetto_ns(start) + perfetto_ns(duration) == start_ns + length_ns


@given(
    EXACT | SINCE_1970 | st.integers(2**43 * 1000 - 3000, 2**43 * 1000 + 3000),
    st.lists(st.integers(0, 3000), min_size=2),
)
def test_slices_that_touch_do_so_however_coarsely_their_times_are_read(start_ns, lengths_ns):
    bounds = [start_ns]
    for length_ns in lengths_ns:
        bounds.append(bounds[-1] + length_ns)
    read = [
        (perfetto_ns(start), perfetto_ns(start) + perfetto_ns(duration))
        for start, duration in (slice_times(*pair) for pair in pairwise(bounds))
    ]
    assert all(start <= end for start, end in read)
    assert all(end == start for (_, end), (start, _) in pairwise(read))


@given(SINCE_1970)
def test_times_since_1970_are_the_digits_of_the_file(time_ns):
    whole, rest = divmod(time_ns, 1000)
    assert microseconds(time_ns) == f"{whole}.{rest:03d}"
    assert abs(perfetto_ns(microseconds(time_ns)) - time_ns) <= 512


@pytest.mark.parametrize(
    ("text", "read_ns"),
    [
        ("5", 5000),
        ("1e3", 1_000_000),
        ("0.0005", 1),  # halves are rounded away from zero
        ("-0.0005", -1),
        ("1694039969476590.000", 1694039969476590_000),  # whole numbers are multiplied as integers
        ("1740461679470630.547", 1740461679470630_400),
    ],
)
def test_what_perfetto_makes_of_a_number(text, read_ns):
    assert perfetto_ns(text) == read_ns
