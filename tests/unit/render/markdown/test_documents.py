"""Comments: of a report, a difference and budgets."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.build.hostile import poisoned
from tests.build.report_rows import make_finding, make_report, make_steps
from tests.bundled_traces import FOLDER, files_of, report_of
from tracelab import analyze, compare
from tracelab.comparison.budget_check import check
from tracelab.comparison.budgets import BudgetResult, Budgets
from tracelab.findings.finding import Where
from tracelab.render.first_screen import first_screen
from tracelab.render.markdown import MAX_LETTERS, details, render_markdown
from tracelab.render.ranks import ranks_of_job
from tracelab.render.registry import render_as
from tracelab.render.text.screen import ranks_table

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table")
OURS = re.compile(
    r"<!-- tracelab (analyze|diff|check) -->\s*|</?(details|span|code)>\s*"
    r"|<details><summary>[\w ,]+</summary>\s*"
)


def capture(name):
    """The report of a capture, without the names of this machine's folders."""
    report = report_of(*files_of(name))
    traces = tuple(replace(x, path=Path(x.path).name) for x in report.traces)
    return replace(
        report, traces=traces, provenance=replace(report.provenance, paths=(f"{name}.json",))
    )


def require_safe(markdown):
    """Nothing but text and our own folding is in a comment."""
    for token in PARSER.parse(markdown):
        for part in [token, *(token.children or ())]:
            assert part.type not in ("link_open", "image", "fence", "code_block")
            if part.type in ("html_block", "html_inline"):
                assert OURS.fullmatch(part.content), part.content
    assert not re.search(r"^\s*::|##\[", markdown, re.MULTILINE)


@pytest.fixture(scope="module")
def sinful():
    return capture("train_step_sinful")


def test_comment_of_a_report(sinful, snapshot):
    assert render_as(sinful, "markdown") == snapshot


def test_comment_of_a_job(snapshot):
    assert render_as(capture("straggler_slow_loader"), "markdown") == snapshot


def test_ranks_of_a_job_are_those_of_the_first_screen():
    # Read as text, the rows of the comment are those of the screen.
    report = capture("straggler_slow_loader")
    rows = [
        [cell.strip().replace("\u00a0", " ") for cell in line.strip("|").split("|")]
        for line in render_as(report, "markdown").splitlines()
        if line.startswith("| ")
    ]
    _, *lines = ranks_table(ranks_of_job(report), 10, 100)
    assert [re.split(" {2,}", line.text.strip()) for line in lines] == rows
    assert [rank for rank, *_ in rows] == ["rank", "0", "1"]


def test_comment_of_files_that_are_not_one_job(snapshot):
    report = analyze([*files_of("two_streams_small"), *files_of("events_item")])
    assert render_as(report, "markdown") == snapshot


def test_comment_of_a_healthy_program(snapshot):
    assert render_as(capture("events_item"), ".md") == snapshot


def test_figures_are_those_of_the_first_screen(bundled_capture):
    report = capture(bundled_capture)
    said, comment = first_screen(report), render_markdown(report)
    for fact in said.facts:
        assert f"**{fact.label}**" in comment
    numbers = re.findall(r"^(\d+)\. \*\*", comment, re.MULTILINE)
    assert numbers == [str(item.number) for item in said.items]
    assert numbers == [str(i) for i in range(1, len(numbers) + 1)]  # GitHub counts itself
    require_safe(comment)


def test_comment_of_a_difference(sinful, snapshot):
    clean = capture("train_step_clean")
    assert "regression" in render_as(compare(clean, sinful), "markdown").splitlines()[2]
    assert render_as(compare(sinful, clean), "markdown") == snapshot


def test_comment_without_a_difference(sinful, snapshot):
    assert render_as(compare(sinful, sinful), "markdown").partition("<details>")[0] == snapshot


def test_comment_of_a_job_s_difference(snapshot):
    slow, even = capture("straggler_slow_loader"), capture("straggler_even")
    assert render_as(compare(slow, even), "markdown").partition("<details>")[0] == snapshot


def test_comment_of_budgets(sinful, snapshot):
    budgets = Budgets(max_idle=5, forbid=("TL1", "TL2"), max_exposed={"copy": 2})
    assert render_as(check(budgets, [sinful]), "markdown") == snapshot


def test_hostile_names_are_text(tmp_path):
    path = poisoned(FOLDER / "prefetch_copy_stream_synchronize.pt.trace.json.gz", tmp_path)
    report = analyze(path)
    require_safe(render_as(report, "markdown"))
    require_safe(render_as(compare(report, report), "markdown"))
    budgets = Budgets(max_idle=0, max_blocking_calls=0, forbid=("TL1",))
    require_safe(render_as(check(budgets, [report]), "markdown"))


def test_hostile_place_and_budget_are_text():
    nasty = "`a` | @octocat <img src=x>\n::error::b ##[error]c"
    where = Where(count=1, file=f"{nasty}.py", line=3, function=nasty, code=nasty)
    findings = [make_finding(title=nasty, fix=nasty, fix_short="", where=where)]
    require_safe(render_markdown(make_report(*make_steps([10, 10, 10]), findings=findings)))
    result = BudgetResult(nasty, nasty, nasty, passed=False, where=nasty, window=nasty)
    require_safe(render_as([result], "markdown"))


def test_comment_is_short_enough_for_github():
    findings = [make_finding(title="$" * 5_000, fix="$" * 50_000, fix_short="") for _ in range(200)]
    comment = render_markdown(make_report(*make_steps([10, 10, 10]), findings=findings))
    assert 20_000 < len(comment) < MAX_LETTERS
    assert "Next: `tracelab whatif" in comment or "Next: `tracelab explain" in comment
    require_safe(comment)


def test_nothing_to_fold_is_no_fold():
    assert details("nothing", ["", ""]) == ""
