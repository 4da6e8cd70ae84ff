"""The first screen of every capture, read as a person reads it: its figures belong together.

What is printed is parsed again: one step, whose savings are shares of it, parts that add up,
findings numbered 1 to n with a whole fix, commands that can be copied, and the figures of the JSON.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import pytest
from rich.cells import cell_len

from tests.bundled_traces import files_of, report_of
from tests.checks import failures
from tests.shared_traces import FOLDER, each_real_trace
from tracelab import draw
from tracelab.base.safe_text import clean
from tracelab.findings.fixes import choose_fixes
from tracelab.render.first_screen import FirstScreen, first_screen
from tracelab.render.html.charts import bar_of, bars_of_ranks
from tracelab.render.text.report import render_text
from tracelab.report.glossary import CAUSES
from tracelab.report.schema import Report
from tracelab.report.views import ranks_of

WIDTH, MAX_LINES, MAX_ITEMS = 80, 25, 3
UNITS_NS = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
TIME = r"(\d+(?:\.\d+)?)(?: ([mµn]?s))?"
ITEM = re.compile(r"(\d)  (?:saves|takes|at most) ", re.MULTILINE)


@dataclass(frozen=True)
class Printed:
    """A first screen, as data and as text at 80 columns."""

    report: Report

    @cached_property
    def said(self) -> FirstScreen:
        return first_screen(self.report)

    @cached_property
    def text(self) -> str:
        return render_text(self.report, width=WIDTH, color=False)

    @cached_property
    def words(self) -> str:
        return " ".join(self.text.split())

    @cached_property
    def headlines(self):
        return json.loads(self.report.to_json())["headline"]

    def fact(self, label):
        return next((fact.text for fact in self.said.facts if fact.label == label), "")


def percents(text):
    """Every percentage in a text as a share; less than one of them is none."""
    return [0 if less else int(number) / 100 for less, number in re.findall(r"(<?)(\d+) %", text)]


def time_of(text):
    """The first time in a text in ns, and half of its last digit, by which it may be wrong."""
    number, unit = re.search(TIME + r"\b", text).groups()
    unit = unit or re.search(r"[mµn]?s\b", text).group()
    decimals = len(number.partition(".")[2])
    return float(number) * UNITS_NS[unit], UNITS_NS[unit] / 2 / 10**decimals


def computing(text):
    """How much of a step each rank computes by the table of ranks, 0 to 1."""
    rows = re.findall(r"^ +(\d+) .*?(\d+) %", text, re.MULTILINE)
    return {f"rank {number}": int(percents) / 100 for number, percents in rows}


def texts_of(figure):
    """The texts next to the lanes of a picture."""
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def lines_fit(printed):
    for width in (WIDTH, 100, 120):
        lines = render_text(printed.report, width=width, color=False).splitlines()
        assert len(lines) <= MAX_LINES
        assert max(map(cell_len, lines)) <= width


def busy_and_idle_are_the_whole_and_causes_are_idle(printed):
    for fact in printed.said.facts:
        busy, _, idle = fact.text.partition(", idle ")
        if not idle:
            continue
        [busy_share, *_] = percents(busy)
        idle_share, *causes = percents(idle)
        assert busy_share + idle_share == pytest.approx(1)
        assert not causes or sum(causes) == pytest.approx(idle_share)


def fixes_leave_what_they_do_not_save(printed):
    fixes = printed.fact("Fixes")
    if " -> " not in fixes:
        return
    before, after = fixes.split(" -> ")
    unit = "" if before[-1:] == "s" else re.search(r"[mµn]?s\b", after).group()
    before_ns, before_error = time_of(f"{before} {unit}")
    after_ns, after_error = time_of(after)
    [share] = percents(fixes)
    error_ns = before_error + after_error + 0.005 * before_ns
    assert after_ns == pytest.approx(before_ns * (1 - share), abs=error_ns + 1)


def the_step_has_one_length(printed):
    step = next(x.text for x in printed.said.facts if x.label.startswith(("Step", "Trace")))
    length = re.match(rf"(?:.* to )?({TIME})", step)[1]
    before, arrow, after = printed.fact("Fixes").partition(" -> ")
    if arrow:
        unit = re.search(r"[mµn]?s\b", before + after).group()
        assert length in (before, f"{before} {unit}")
    for of in re.findall(rf"of ({TIME}) a step", printed.words):
        assert of[0] == length
    for item in printed.said.items:
        [*_, last] = item.price.split(", in ")[0].split(", ")
        if not item.price.startswith("saves") or "%" in last:
            continue
        saved_ns, error_ns = time_of(last)
        step_ns, step_error = time_of(length)
        off_ns = 0.006 * step_ns + error_ns + step_error
        assert saved_ns == pytest.approx(percents(item.price)[0] * step_ns, abs=off_ns)


def no_saving_exceeds_what_all_save(printed):
    shares = printed.headlines[0]["saves_share"] if len(printed.headlines) == 1 else None
    if shares is not None:
        for item in printed.said.items:
            if item.price.startswith("saves"):
                assert percents(item.price)[0] <= shares + 0.011


def findings_are_numbered_from_one(printed):
    assert [x.number for x in printed.said.items] == list(range(1, len(printed.said.items) + 1))
    shown = ITEM.findall(printed.text)
    assert shown == [str(i + 1) for i in range(len(shown))]
    assert len(printed.said.items) <= MAX_ITEMS
    assert shown or not printed.said.items


def a_fix_is_whole(printed):
    for item in printed.said.items[: len(ITEM.findall(printed.text))]:
        assert "…" not in item.fix
        # A name that is longer than a line is continued in the next one.
        assert "".join(clean(item.fix).split()) in "".join(printed.words.split())


def commands_stand_on_one_line(printed):
    lines = printed.text.splitlines()
    for command in printed.said.next:
        assert sum(command in line for line in lines) == 1


def figures_are_those_of_the_json(printed):
    if len(printed.headlines) != 1:
        return
    [of_json] = printed.headlines
    text = printed.fact(f"GPU {of_json['device']}")
    if text:
        assert percents(text)[0] == pytest.approx(of_json["busy_share"])
        idle = text.partition(", idle ")[2]
        assert percents(idle)[0] == pytest.approx(of_json["idle_share"])
        for cause, share in of_json["causes"].items():
            named = re.search(rf"{CAUSES.name_of(cause)}s? (\d+) %", idle)
            assert named is None or int(named[1]) / 100 == pytest.approx(share)
    if " -> " in printed.fact("Fixes"):
        assert percents(printed.fact("Fixes")) == [pytest.approx(of_json["saves_share"])]


def whatif_numbers_mean_the_same_findings(printed):
    for item in printed.said.items:
        [fix] = choose_fixes(printed.report.findings, (str(item.number),), ())
        assert [printed.report.findings[i] for i in fix.findings] == [item.finding]


def page_has_the_shares_of_the_screen(printed):
    ranks = ranks_of(printed.report)
    bars = bars_of_ranks(printed.report) if printed.report.job else map(bar_of, ranks)
    bars = [bar for bar in bars if bar.parts]
    shown = [{part.name: part.size / 100 for part in bar.parts} for bar in bars]
    for of_bar in shown:
        assert sum(of_bar.values()) == pytest.approx(1)
    if printed.report.job is not None:
        drawn = {bar.name: x["compute"] for bar, x in zip(bars, shown, strict=True)}
        table = computing(printed.text)
        assert table
        assert table == {name: share for name, share in drawn.items() if name in table}
        busy_shares = {f"rank {x['rank']}": x["busy_share"] for x in printed.headlines}
        slowed = {f"rank {x.trace.rank}" for x in ranks if x.main.scope.is_slowed}
        for bar, x in zip(bars, shown, strict=True):
            busy = 1 - x.get("idle", 0)  # a table compares the ranks as they were recorded
            assert bar.name in slowed or busy == pytest.approx(busy_shares[bar.name])
        return
    for bar, headline in zip(shown, printed.headlines, strict=True):
        idle = {name.removeprefix("idle: "): x for name, x in bar.items() if "idle" in name}
        assert sum(idle.values()) == pytest.approx(headline["idle_share"])
        said = printed.fact(f"GPU {headline['device']}")
        for name, share in (bar | idle).items():
            [*_, of_screen] = re.findall(rf"[ (]{re.escape(name)} (\d+) %", said) or [None]
            assert of_screen is None or int(of_screen) == round(100 * share)
        causes = percents(said.partition(", idle ")[2])[1:]
        assert not causes or causes == pytest.approx(list(idle.values()))


EXPECTATIONS = (
    lines_fit,
    busy_and_idle_are_the_whole_and_causes_are_idle,
    fixes_leave_what_they_do_not_save,
    the_step_has_one_length,
    no_saving_exceeds_what_all_save,
    findings_are_numbered_from_one,
    a_fix_is_whole,
    commands_stand_on_one_line,
    figures_are_those_of_the_json,
    whatif_numbers_mean_the_same_findings,
    page_has_the_shares_of_the_screen,
)


def test_figures_of_a_capture_belong_together(bundled_capture):
    assert failures(EXPECTATIONS, Printed(report_of(*files_of(bundled_capture)))) == []


@pytest.mark.parametrize(
    "name", ["train_step_sinful", "events_wait", "data_parallel_data_parallel"]
)
def test_picture_of_a_file_has_the_shares_of_its_first_screen(name):
    printed = Printed(report_of(*files_of(name)))
    texts = texts_of(draw(files_of(name)).figure)
    drawn = {gpu: busy for gpu, busy in pairwise(texts) if gpu.startswith("GPU ")}
    gpus = [x for x in printed.said.facts if x.label.startswith("GPU ")]
    assert drawn == {x.label: re.match(r"busy \S+ %", x.text)[0] for x in gpus}
    assert sum(text.endswith(" %") for text in texts) == len(drawn)


def test_picture_of_a_job_has_the_shares_of_its_table_of_ranks():
    files = files_of("ddp_hook_side_stream")
    printed = Printed(report_of(*files))
    rows = re.findall(r"^ +(\d) +\S+ ms +(\d+ %) +(\d+ %)", printed.text, re.MULTILINE)
    assert len(rows) == len(files)
    texts = texts_of(draw(files).figure)
    shares = [f"{compute} / {wait}" for _, compute, wait in rows]
    assert [text for text in texts if text.endswith(" %")] == shares


@pytest.mark.slow
def test_figures_of_a_real_job_belong_together():
    folder = FOLDER / "param_dlrm_8ranks"
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    printed = Printed(report_of(*sorted(folder.glob("*.json.gz"))))
    assert failures(EXPECTATIONS, printed) == []
    assert "more ranks" in printed.text


@each_real_trace
def test_figures_of_a_real_trace_belong_together(real_trace):
    assert failures(EXPECTATIONS, Printed(report_of(real_trace))) == []
