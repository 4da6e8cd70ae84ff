"""What is to be known about a trace: each once, warnings first."""

from __future__ import annotations

import pytest

from tests.build.report_rows import make_finding, make_report, make_trace
from tests.figures import figures
from tracelab.findings.finding import ASIDE
from tracelab.findings.rules.trace_quality import INFLATED
from tracelab.render.notes import asides, notes_of, unread
from tracelab.report.schema import Provenance, UnreadFile
from tracelab.report.views import ranks_of


def lack(rule, severity="info", **figures):
    return make_finding(rule, severity=severity, about="trace", **figures)


def test_warnings_come_first_and_each_is_there_once():
    findings = [
        lack("TL903", title="No stacks", cause="no_stacks"),
        lack("TL905", "warning", title="No launches", cause="no_launches"),
        lack("TL905", "warning", title="No launches", cause="no_launches", rank=1),
        make_finding(),
    ]
    notes = notes_of(findings, [make_trace()])
    assert [(x.rule, x.text, x.is_warning) for x in notes] == [
        ("TL905", "No launches", True),
        ("TL903", "No stacks", False),
    ]


def test_what_the_profiler_costs_stands_beside_the_step():
    assert notes_of([lack("TL910", cause="profiler_overhead")], []) == []
    [note] = notes_of([lack("TL910", cause=INFLATED, title="of the rule")], [])
    assert note.is_warning
    assert note.text != "of the rule"


@pytest.mark.parametrize(
    ("bound_ns", "cost_ns", "is_warning"),
    [(0, 999_999, False), (0, 1_000_000, True), (999_999, 2_000_000, False), (1_000_000, 0, True)],
)
def test_what_is_of_no_typical_step_is_told_as_that(bound_ns, cost_ns, is_warning, snapshot):
    # A tenth of 10 ms shows in the shares of idle time; the share is that of its price.
    finding = make_finding(
        "TL306", role=ASIDE, title="The CPU pauses", bound_ns=bound_ns, cost_ns=cost_ns
    )
    [note] = asides(ranks_of(make_report(findings=(finding,))))
    assert (note.rule, note.is_warning) == ("TL306", is_warning)
    assert note.text == snapshot


def test_a_stall_that_a_remedy_knows_is_told_with_its_fix():
    finding = make_finding(
        "TL306", role=ASIDE, title="Workers start", remedy="workers", fix_short="Keep the workers."
    )
    [note] = asides(ranks_of(make_report(findings=(finding,))))
    assert note.text.endswith(" of the time; keep the workers")


def test_a_loss_that_no_rule_tells_is_counted_over_all_files():
    traces = [make_trace(losses={"repeated_steps": 3, "waits_without_record": 8})] * 2
    [note] = notes_of([], traces)
    assert figures(note.text) == ["6"]
    assert note.rule is None


def test_a_platform_that_rules_were_not_made_for_is_a_warning(snapshot):
    notes = notes_of([], [make_trace(platform="XPU"), make_trace(platform="XPU")])
    assert [x.is_warning for x in notes] == [True]
    assert notes[0].text == snapshot


@pytest.mark.parametrize(("files", "figures_"), [(1, []), (2, ["1"]), (3, ["2"])])
def test_of_files_that_were_not_used_the_first_is_named(files, figures_):
    failed = tuple(UnreadFile(f"{x}.json", "no trace.") for x in "abc"[:files])
    [note] = unread(Provenance(("run",), (), "", failed))
    assert note.is_warning
    assert note.text.endswith("a.json: no trace")
    assert figures(note.text.replace("(", "")) == figures_


def test_a_reason_that_names_its_file_does_so_once():
    [note] = unread(Provenance(("run",), (), "", (UnreadFile("a.json", "a.json is empty"),)))
    assert note.text.count("a.json") == 1
    assert unread(Provenance(("run",), (), "", ())) == []
