"""A click on a finding shows its evidence: in one whole step, and so large that one sees it."""

import pytest

from tests.browser.using import ready, view
from tests.build.analyses import page_part_of
from tests.bundled_traces import FOLDER
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.options import Options
from tracelab.outputs.page import save_page
from tracelab.read.sources import find_sources

# Together they have most rules; the last three are jobs of two ranks.
CAPTURES = (
    "train_step_sinful",
    "events_item",
    "copies_pageable",
    "copies_memory_given_back",
    "graphs_read_behind",
    "data_parallel_data_parallel",
    "first_use_growing",
    "graphs_compiled_break",
    "accumulation_every_microbatch_rank0",
    "ddp_hook_default_stream_rank",
    "waiting_rank_uneven_rank",
    "fsdp_item_rank",
)
MIN_WIDTH_PX = 40
SEEN = """number => {
  const { findings, groups } = JSON.parse(document.getElementById("timeline-meta").textContent);
  const { group, marks } = findings.find((each) => each.number === number);
  const lanes = document.getElementById("lanes-scroll"), { xOf, rows } = tracelabTimeline;
  const right = document.getElementById("lanes").clientWidth;
  return marks.flatMap(([lane, start, end]) => {
    const { id } = groups[group].lanes[lane];
    const row = rows.find((each) => each.group === group && each.lane === id);
    const left = xOf(start), until = Math.min(xOf(end), right);
    const below = lanes.scrollTop + lanes.clientHeight;
    const isSeen = row && row.y >= lanes.scrollTop && row.y + row.height <= below;
    return isSeen && left >= 0 && left < right ? [until - left] : [];
  });
}"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    def made(name):
        paths = [str(path) for path in sorted(FOLDER.glob(f"{name}*.pt.trace.json.gz"))]
        results = [analyze_file(x, Options(), then=page_part_of) for x in find_sources(paths)]
        file = tmp_path_factory.mktemp("evidence") / f"{name}.html"
        report = merge_results(results, paths, Options())
        save_page(report, [result.more for result in results], file)
        return report, file

    return made


@pytest.mark.parametrize("name", CAPTURES)
def test_a_click_on_a_finding_shows_the_step_and_a_second_one_the_place(open_page, page_file, name):
    """The first click shows one steady step, or the step of the evidence, and no other one."""
    report, file = page_file(name)
    page = ready(open_page(file))
    meta = page.evaluate("JSON.parse(document.getElementById('timeline-meta').textContent)")
    found = {finding["number"]: finding for finding in meta["findings"]}
    entries = page.locator("#findings ol > li.finding")
    count = min(3, entries.count())
    assert count, name
    for entry in (entries.nth(i) for i in range(count)):
        number = int(entry.get_attribute("data-finding"))
        finding = found[number]
        assert report.findings[number - 1].about == "program"
        entry.locator("button.show").first.click()
        first, last = view(page)
        _, start, end = finding["marks"][0]
        assert first <= start <= end <= last
        steps = [x for x in meta["windows"] if x["start"] >= first and x["end"] <= last]
        assert len(steps) == 1
        assert steps[0]["steady"] or steps[0]["start"] <= start <= end <= steps[0]["end"]
        widths = page.evaluate(SEEN, number)
        assert widths
        if max(widths) < MIN_WIDTH_PX:
            entry.locator("button.show").first.click()
            assert max(page.evaluate(SEEN, number)) >= MIN_WIDTH_PX
