"""What the page's timeline measures in a browser is what the report says, to the nanosecond."""

import pytest

from tests.build.analyses import page_part_of
from tests.build.files import write
from tests.build.graph_rows import replayed
from tests.bundled_traces import FOLDER
from tests.figures import figures
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.options import Options
from tracelab.outputs.page import save_page
from tracelab.read.sources import find_sources
from tracelab.render.html import detail

FILES = ("train_step_sinful", "events_item", "ddp_hook_side_stream_rank0")
BUSY = "([id, from, to, group]) => tracelabTimeline.busy(id, from, to, group)"


@pytest.fixture
def open_report(open_page, tmp_path):
    """The report of some bundled files, and its page, opened."""

    def opened(*names):
        paths = [str(FOLDER / f"{name}.pt.trace.json.gz") for name in names]
        results = [analyze_file(x, Options(), then=page_part_of) for x in find_sources(paths)]
        report = merge_results(results, paths, Options())
        file = tmp_path / "page.html"
        save_page(report, [result.more for result in results], file)
        page = open_page(file)
        page.evaluate("tracelabTimeline.ready")
        return report, page

    return opened


def test_what_is_cut_is_measured_from_its_bins(open_report, monkeypatch):
    for name, number in (("MAX_BYTES", 18_000), ("_MIN_BINS", 16), ("_MAX_BINS_OF_ALL_LANES", 100)):
        monkeypatch.setattr(detail, name, number)
    report, page = open_report("train_step_sinful")
    start, end, low, high = page.evaluate(
        """() => {
          const {start, end, groups} = JSON.parse(
            document.getElementById("timeline-meta").textContent);
          return [start, end, ...groups[0].detail];
        }"""
    )
    in_detail = page.evaluate(BUSY, ["idle:0", low, high, 0])
    everywhere = page.evaluate(BUSY, ["idle:0", start, end, 0])
    assert (in_detail["exact"], everywhere["exact"]) == (True, False)
    whole, first = report.windows[:2]
    idle = {kind: ns for kind, ns in everywhere["kinds"].items() if kind != "edge"}
    bubbles = without_zeros(whole.devices[0].bubbles)
    assert {*idle} == {*bubbles}
    # Before the window of the whole trace is what the first step does before any GPU work.
    before = {kind: idle[kind] - ns for kind, ns in bubbles.items()}
    assert min(before.values()) >= -1
    assert sum(before.values()) == pytest.approx(whole.start_ns - first.start_ns, abs=1)
    steps = [x for x in report.windows[1:] if x.start_ns >= low and x.end_ns <= high]
    assert steps
    for step in steps:
        measured = page.evaluate(BUSY, ["idle:0", step.start_ns, step.end_ns, 0])
        assert measured["kinds"] == without_zeros(step.devices[0].bubbles)


def without_zeros(times_ns):
    return {kind: time_ns for kind, time_ns in times_ns.items() if time_ns}


@pytest.mark.parametrize("name", FILES)
def test_sums_of_every_lane_in_every_window_are_those_of_the_report(open_report, name):
    report, page = open_report(name)
    lanes = {row["lane"] for row in page.evaluate("tracelabTimeline.rows")}

    def kinds(lane, window):
        measured = page.evaluate(BUSY, [lane, window.start_ns, window.end_ns, 0])
        assert measured["exact"]
        assert measured["ns"] == sum(measured["kinds"].values())
        return measured["kinds"]

    for window in report.windows:
        for device in window.devices:
            number = device.device
            assert kinds(f"idle:{number}", window) == without_zeros(device.bubbles)
            if f"exposed:{number}" in lanes:
                assert kinds(f"exposed:{number}", window) == without_zeros(
                    {"exposed_comm": device.exposed_comm_ns, "exposed_copy": device.exposed_copy_ns}
                )
            for stream in device.streams:
                busy_ns = sum(kinds(f"stream:{number}/{stream.stream}", window).values())
                assert busy_ns == stream.busy_ns
    path = kinds("path", report.windows[0])
    assert path == without_zeros(report.critical_path[0].by_kind)


def test_steps_of_all_ranks_are_where_the_job_says(open_report):
    report, page = open_report("ddp_hook_no_hook_rank0", "ddp_hook_no_hook_rank1")
    for group, times in enumerate(report.job.per_rank):
        for step in times.steps:
            measured = page.evaluate(BUSY, ["steps", step.start_ns, step.end_ns, group])
            assert measured["ns"] == step.end_ns - step.start_ns
            idle = page.evaluate(BUSY, [f"idle:{group}", step.start_ns, step.end_ns, group])
            # The clocks drift by some nanoseconds in a step.
            assert abs(idle["ns"] - step.idle_ns) <= 1e-4 * (step.end_ns - step.start_ns)


def test_streams_of_graphs_are_one_row(open_page, tmp_path, snapshot):
    """GIVEN 300 streams with two nodes of a graph each
    THEN one row has them, its busy time is exact, and what the mouse is on names its stream."""
    path = str(write(tmp_path / "replays.json", replayed(replays=2)))
    results = [analyze_file(x, Options(), then=page_part_of) for x in find_sources([path])]
    report = merge_results(results, [path], Options())
    file = tmp_path / "page.html"
    save_page(report, [result.more for result in results], file)
    page = open_page(file)
    page.evaluate("tracelabTimeline.ready")
    rows = page.evaluate("tracelabTimeline.rows")
    streams = [row["lane"] for row in rows if row["lane"].startswith("stream:")]
    assert streams == ["stream:0/7", "stream:0/8", "stream:0/graphs"]
    whole = report.windows[0]
    measured = page.evaluate(BUSY, ["stream:0/graphs", whole.start_ns, whole.end_ns, 0])
    assert measured == {"ns": 803_000, "kinds": {"compute": 803_000}, "exact": True}
    described = page.evaluate("tracelabTimeline.describe('stream:0/graphs', 3, 0)")
    assert figures(described["facts"]["on"]) == ["0", "103,", "0", "300"]
    assert described["facts"]["on"] == snapshot
    # The fourth node lies in the fourth of six levels: only there the mouse is on it.
    begun = report.windows[1].start_ns + 42_000 + 1_500
    page.evaluate(f"tracelabTimeline.goTo({begun - 10_000}, {begun + 10_000})")
    page.evaluate("tracelabTimeline.paint()")
    row = next(x for x in page.evaluate("tracelabTimeline.rows") if x["lane"] == streams[-1])
    box = page.locator("#lanes").bounding_box()
    x = box["x"] + page.evaluate(f"tracelabTimeline.xOf({begun + 1_000})")
    for level, name in ((3, "stream 103"), (0, "stream 100")):
        y = box["y"] + row["y"] + 2 + (row["height"] - 4) * (level + 0.5) / 6
        page.mouse.move(x, y)
        assert name in page.inner_text("#details")
