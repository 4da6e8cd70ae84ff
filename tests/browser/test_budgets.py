"""What a page may weigh and draw: bytes and rectangles are counted, nothing is timed.

`tests/benchmarks/page.py` measures pages of 500,000 activities and how soon they are drawn; what is
counted here says that these stay within their budgets.
"""

import json
import re

import pytest

from tests.browser.using import ready
from tests.build.analyses import page_part_of
from tests.build.repeated import as_rank, read, repeated, result_of
from tests.bundled_traces import FOLDER
from tracelab.analysis.reports import merge_results
from tracelab.base.options import DEFAULTS
from tracelab.outputs.page import save_page
from tracelab.render.html.detail import MAX_BYTES, MAX_BYTES_OF_JOB

KB, MB = 1_000, 1_000_000
OF_BASE64 = 4 / 3
COLUMNS = re.compile(r'id="timeline-columns">([^<]*)<')
LONGEST_SIDE_PX = 1_440
TIMES, STEPS_EACH = 12, 5  # of the capture of many steps
STEPS = TIMES * STEPS_EACH

COUNT_RECTANGLES = """() => {
  window.rectangles = 0;
  const plain = CanvasRenderingContext2D.prototype.fillRect;
  CanvasRenderingContext2D.prototype.fillRect = function (...box) {
    window.rectangles++;
    plain.apply(this, box);
  };
}"""
RECTANGLES = """([from, to]) => {
  window.rectangles = 0;
  tracelabTimeline.goTo(from, to);
  tracelabTimeline.paint();
  return window.rectangles;
}"""


def written(folder, name, times, ranks=1):
    """The page of a capture that is repeated, and how many activities it has."""
    path = FOLDER / f"{name}.pt.trace.json.gz"
    trace = read(path)
    results = []
    for rank in range(ranks):
        many = repeated(trace, times, seed=rank)
        many = as_rank(many, rank, ranks) if ranks > 1 else many
        results.append(result_of(many, path, lambda x: (len(x.timeline.event_id), page_part_of(x))))
    page = folder / f"{name}_{times}_{ranks}.html"
    report = merge_results(results, [str(path)], DEFAULTS)
    save_page(report, [result.more[1] for result in results], page)
    return page, sum(result.more[0] for result in results)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("budgets")


@pytest.fixture(scope="module")
def some_steps(folder):
    return written(folder, "train_step_sinful", 2)


@pytest.fixture(scope="module")
def many_steps(folder):
    return written(folder, "train_step_clean_plain", TIMES)


def without_columns(page):
    return len(COLUMNS.sub("", page.read_text()))


def test_a_capture_of_some_steps_can_be_mailed(some_steps):
    page, activities = some_steps
    assert 4_500 < activities < 5_500
    assert page.stat().st_size < 400 * KB


@pytest.mark.slow
def test_a_long_capture_stays_within_its_budget(many_steps):
    """The columns are cut to their budget, and the rest grows with the list of steps alone."""
    page, activities = many_steps
    assert activities > 15_000
    windows = re.search(r'"windows":(\[.*?\])', page.read_text())[1]
    of_a_step = len(windows) / len(json.loads(windows))
    rest = without_columns(page) + of_a_step * (500_000 / activities - 1) * STEPS
    assert MAX_BYTES * OF_BASE64 + rest < 3.5 * MB


@pytest.mark.slow
def test_a_job_of_eight_ranks_stays_within_its_budget(folder):
    page, _ = written(folder, "fsdp_prefetch_plain_rank0", 2, ranks=8)
    assert MAX_BYTES_OF_JOB * OF_BASE64 + without_columns(page) < 2 * MB


@pytest.mark.slow
def test_what_is_drawn_depends_on_pixels(open_page, some_steps, many_steps):
    """Of many activities in a pixel only their shares are drawn, a rectangle a pixel and kind."""
    drawn = []
    for path, _ in (some_steps, many_steps):
        page = ready(open_page(path))
        page.evaluate(COUNT_RECTANGLES)
        start, end = page.evaluate("tracelabTimeline.view")
        rows = page.evaluate("tracelabTimeline.rows.length")
        views = [(0, end * 10), *((start, start + (end - start) / 10**n) for n in range(5))]
        most = max(page.evaluate(RECTANGLES, view) for view in views)
        assert 0 < most < 3 * rows * LONGEST_SIDE_PX
        drawn.append(most / rows)
    few, many = drawn
    assert many < 2 * few
