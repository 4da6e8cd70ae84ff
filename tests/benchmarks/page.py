"""How large pages are, how soon they are drawn and how fast they zoom.

``python -m tests.benchmarks.page`` repeats bundled captures with jitter until they have 5,000 and
500,000 activities on the GPU, and 60,000 on each of eight ranks, writes their pages and opens each
several times in a headless Chromium from disk. "Drawn" is since the page was asked for; a zoom is
the whole work of one key, with the pixels read back, over random places and depths.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.conftest import EXECUTABLES, VIEWPORT
from tests.build.analyses import page_part_of
from tests.build.repeated import as_rank, read, repeated, result_of
from tracelab.analysis.reports import FileResult, merge_results
from tracelab.base.options import DEFAULTS
from tracelab.outputs.page import save_page

TRACES = Path(__file__).parents[2] / "traces"
STACKS = TRACES / "train_step_sinful.pt.trace.json.gz"
PLAIN = TRACES / "train_step_clean_plain.pt.trace.json.gz"
RANK = TRACES / "fsdp_prefetch_plain_rank0.pt.trace.json.gz"
RANKS = 8

ZOOMS = """count => {
  const {view, goTo, paint} = tracelabTimeline, [start, end] = view, took = [];
  const surface = document.getElementById("lanes").getContext("2d");
  let random = 1;
  const next = () => (random = (random * 48271) % 2147483647) / 2147483647;
  for (let i = 0; i < count; i++) {
    const length = (end - start) * Math.pow(1e-4, next());
    const from = start + next() * (end - start - length);
    const begun = performance.now();
    goTo(from, from + length);
    paint();
    surface.getImageData(0, 0, 1, 1);
    took.push(performance.now() - begun);
  }
  return took;
}"""


@dataclass(frozen=True)
class Case:
    """A page to write: captures repeated until there are so many activities."""

    label: str
    path: Path
    activities: int
    ranks: int = 1

    def results(self) -> list[FileResult]:
        trace = read(self.path)
        first = result_of(trace, self.path, lambda analysis: len(analysis.timeline.event_id))
        times = max(1, round(self.activities / self.ranks / first.more))
        return [self._result(repeated(trace, times, seed=rank), rank) for rank in range(self.ranks)]

    def _result(self, trace: Any, rank: int) -> FileResult:
        one = as_rank(trace, rank, self.ranks) if self.ranks > 1 else trace
        return result_of(
            one, self.path, lambda x: (len(x.timeline.event_id), page_part_of(x)), DEFAULTS
        )


CASES = (
    Case("a capture of some steps, with stacks", STACKS, 5_000),
    Case("a long capture, without", PLAIN, 500_000),
    Case(f"a job of {RANKS} ranks", RANK, 480_000, RANKS),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--zooms", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="folder for the pages")
    arguments = parser.parse_args()
    executable = next(filter(None, map(shutil.which, EXECUTABLES)))
    print(
        "| | activities | file | bytes each | made in | drawn after | zoom: median | longest |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable)
        for number, case in enumerate(CASES):
            path = (arguments.keep or Path(scratch)) / f"page_{number}.html"
            activities, seconds = write(case, path)
            size = path.stat().st_size
            drawn, zooms = measure(browser, path, arguments.rounds, arguments.zooms)
            print(
                f"| {case.label} | {activities:,} | {size / 1e3:,.0f} KB | {size / activities:.1f} "
                f"| {seconds:.1f} s | {statistics.median(drawn) / 1e3:.2f} s "
                f"| {statistics.median(zooms):.1f} ms | {max(zooms):.0f} ms |",
                flush=True,
            )
        browser.close()


def write(case: Case, path: Path) -> tuple[int, float]:
    """Write the page of a case; returns its activities, and the seconds without the analysis."""
    results = case.results()
    report = merge_results(results, [str(case.path)], DEFAULTS)
    begun = time.perf_counter()
    save_page(report, [result.more[1] for result in results], path)
    return sum(result.more[0] for result in results), time.perf_counter() - begun


def measure(
    browser: Any, path: Path, rounds: int, zooms: int
) -> tuple[Sequence[float], Sequence[float]]:
    """Milliseconds until it was drawn, for each round, and of each zoom."""
    drawn, took = [], []
    for _ in range(rounds):
        page = browser.new_page(viewport=VIEWPORT)
        page.goto(path.resolve().as_uri())
        page.evaluate("tracelabTimeline.ready")
        drawn.append(page.evaluate("tracelabTimeline.timings.drawn"))
        took += page.evaluate(ZOOMS, zooms)
        page.close()
    return drawn, took


if __name__ == "__main__":
    main()
