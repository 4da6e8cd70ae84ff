"""What is said first of a report, as data: which findings, their numbers, and what comes next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.build import job_rows as jobs
from tests.build.report_rows import (
    MS,
    make_device,
    make_finding,
    make_job_report,
    make_priced,
    make_report,
    make_savings,
    make_steady_report,
    make_trace,
    make_window,
)
from tests.figures import figures
from tracelab.findings.finding import ASIDE, MAX_SHORT_LETTERS, REST, Where
from tracelab.model.timeline import LeftOut
from tracelab.render.first_screen import first_screen, short_fix
from tracelab.render.text.hints import RECORD
from tracelab.report.finding_groups import put_groups_first
from tracelab.report.schema import Note, Provenance, UnreadFile

MINOR = {"severity": "info", "bound_ns": 1, "cost_ns": 1}


def items_of(report):
    return first_screen(report).items


def test_the_first_three_findings_are_numbered_as_everywhere():
    findings = [make_finding(title=f"number {i}") for i in range(5)]
    said = first_screen(make_steady_report(findings=(*findings, make_finding(**MINOR))))
    assert [(x.number, x.finding) for x in said.items] == list(enumerate(findings[:3], start=1))
    assert (said.more, said.minor) == (2, 1)


def test_what_is_of_no_typical_step_is_a_note_and_no_finding():
    stall = make_finding("TL306", role=ASIDE, title="A pause")
    said = first_screen(make_steady_report(findings=(make_finding(), stall)))
    assert ([x.finding.rule for x in said.items], said.minor) == (["TL101"], 0)
    assert [note.rule for note in said.notes] == ["TL306"]


def test_an_item_is_price_title_place_code_and_fix():
    where = Where(1, function="train", file="src/train.py", line=40, call="item", code="x.item()")
    finding = make_priced(2, 1, 3, where=where, fix_short="Read it later.", fix="Or never.")
    [item] = items_of(make_steady_report(findings=(finding,), savings=make_savings()))
    assert (item.title, item.place, item.code) == (
        finding.title,
        "train.py:40 in train",
        "x.item()",
    )
    assert (item.fix, item.on) == ("Read it later.", "")
    assert figures(item.price.replace("(", "")) == ["20 %", "10", "30", "2.00 ms"]


def test_what_comes_after_other_fixes_says_so():
    rest = make_priced(2, 1, 3, role=REST, title="The CPU is late")
    [item] = items_of(make_steady_report(findings=(rest,), savings=make_savings()))
    assert item.title == rest.shown_title != rest.title


def test_a_place_that_the_title_names_is_not_said_twice():
    here = {"where": Where(1, operator="aten::to")}
    findings = (
        make_finding(title="`aten::to` copies pageable memory", **here),
        make_finding(title="A copy of pageable memory", **here),
    )
    assert [x.place for x in items_of(make_steady_report(findings=findings))] == [
        "",
        "in `aten::to`",
    ]


def test_without_a_short_fix_as_many_whole_sentences_as_have_room():
    def shortened(fix):
        return short_fix(make_finding(fix=fix, fix_short=""))

    first, second, third = "word " * 12 + "end.", "`code(a, b)`. Then: 1.5 of it.", "More " * 30
    assert shortened(f"{first} {second} {third}") == f"{first} {second}"
    assert shortened("word " * 60) == "word " * 60  # is not torn apart
    assert shortened("A b. " * 90) == ("A b. " * 32).rstrip()  # 32 times 5 letters are 160
    assert MAX_SHORT_LETTERS == 160


class TestNext:
    @pytest.mark.parametrize("is_priced", [True, False])
    def test_of_the_first_finding(self, is_priced, snapshot):
        finding = make_priced(2, 1, 3, remedy="empty-cache") if is_priced else make_finding("TL202")
        report = make_steady_report(findings=(finding, make_finding()), savings=make_savings())
        commands = first_screen(report).next
        assert any("whatif" in x for x in commands) == is_priced
        assert commands[-1].split()[-1] == ("empty-cache" if is_priced else "TL202")
        assert commands == snapshot

    def test_without_steps_they_are_recorded_first(self):
        assert first_screen(make_report(findings=(make_finding(),))).next == (RECORD,)

    def test_without_a_finding_nothing_comes_next(self):
        assert first_screen(make_steady_report()).next == ()


class TestWithoutFindings:
    def said(self, *devices, **figures):
        return first_screen(make_steady_report(*devices, **figures))

    @pytest.mark.parametrize(("idle_ms", "is_healthy"), [(1, True), (2, False)])
    def test_a_gpu_that_is_idle_for_a_tenth_is_not_healthy(self, idle_ms, is_healthy, snapshot):
        device = make_device(
            busy_ns=(20 - idle_ms) * MS, idle_ns=idle_ms * MS, bubbles={"launch": idle_ms * MS}
        )
        said = self.said(device, findings=(make_finding(**MINOR),))
        assert (said.is_healthy, said.items, said.minor) == (is_healthy, (), 1)
        assert figures(said.answer) == ["2 %"]
        assert said.answer == snapshot

    def test_where_no_gpu_worked_nothing_is_known(self):
        for device in (make_device(busy_ns=0), make_device(busy_ns=0, idle_ns=20 * MS)):
            assert not first_screen(make_report(make_window(device))).is_healthy

    def test_idle_for_reasons_that_the_file_does_not_say(self, snapshot):
        device = make_device(busy_ns=10 * MS, idle_ns=10 * MS, bubbles={"unknown": 10 * MS})
        assert self.said(device).answer == snapshot

    def test_a_finding_needs_no_answer(self):
        said = self.said(findings=(make_finding(),))
        assert (said.answer, said.is_healthy) == ("", False)

    @pytest.mark.parametrize(("wait_ms", "is_healthy"), [(0.9, True), (1.1, False)])
    def test_a_job_is_healthy_where_all_ranks_compute(self, wait_ms, is_healthy):
        times = [jobs.rank_times(x, steps=(0, 1, 2), wait=wait_ms * x) for x in range(2)]
        said = first_screen(make_job_report(2, job=jobs.job(*times)))
        assert said.is_healthy == is_healthy
        assert figures(said.answer) == ["2 %"]

    def test_nothing_is_promised_without_a_finding(self):
        assert "Fixes" not in {fact.label for fact in self.said(savings=make_savings()).facts}


class TestJob:
    @pytest.mark.parametrize(
        ("on", "ranks", "words"),
        [((0, 1), 2, "all ranks"), ((3,), 4, "rank 3"), ((0, 3), 4, "ranks 0, 3")],
    )
    def test_a_place_is_said_once_with_its_ranks(self, on, ranks, words):
        findings = [make_finding(rank=rank) for rank in on]
        [item] = items_of(put_groups_first(make_job_report(ranks, findings)))
        assert (item.number, item.on) == (1, words)

    def test_many_ranks_are_counted(self):
        findings = [make_finding(rank=rank) for rank in range(5)]
        [item] = items_of(put_groups_first(make_job_report(8, findings)))
        assert figures(item.on) == ["5", "8"]

    def test_numbers_go_from_one_without_gaps(self):
        # GIVEN two places on four ranks each, as the ranks' reports have them
        findings = [
            make_finding(rule, rank=rank, bound_ns=ns)
            for rank in range(4)
            for rule, ns in (("TL101", 2 * MS), ("TL202", 3 * MS + rank))
        ]
        said = first_screen(put_groups_first(make_job_report(4, findings)))
        # THEN the most expensive place is first, with its most expensive rank
        found = [(x.number, x.finding.rule, x.finding.rank) for x in said.items]
        assert found == [(1, "TL202", 3), (2, "TL101", 0)]

    def test_it_is_named_after_the_folder_of_its_files(self):
        report = make_job_report(2)
        assert first_screen(report).name == "run"
        assert first_screen(report).about == ("2 ranks", "3 steps")
        apart = [replace(x, path=f"{x.rank}/a.json") for x in report.traces]
        assert figures(first_screen(replace(report, traces=tuple(apart))).name) == ["2"]


def test_a_file_says_its_rank_and_machine():
    facts = {"gpus": {0: "H200", 1: "H200", 2: "A100"}, "software": {"torch": "2.7.0"}}
    trace = make_trace(**facts, rank=3, rank_source="metadata")
    about = first_screen(make_steady_report(trace=replace(trace, rank=0))).about
    assert about[0] == "rank 0"
    assert {"2 x H200", "A100", "3 steps"} <= {*about}
    unknown = replace(trace, rank=0, rank_source="position")
    assert first_screen(make_steady_report(trace=unknown)).about[0] == "2 x H200"


class TestNotes:
    def texts(self, report):
        return [note.text for note in first_screen(report).notes]

    def test_what_the_analysis_could_not_do_and_steps_that_do_not_count(self):
        notes = (Note(0, None, "This first."), Note(0, 2, "Of step 2."))
        left_out = (LeftOut(0, "holds a backlog"),)
        texts = self.texts(replace(make_steady_report(left_out=left_out), notes=notes))
        assert texts[0] == "This first"
        assert figures(texts[1].replace("(", "")) == ["0"]
        assert len(texts) == 2

    def test_many_steps_are_counted(self):
        left_out = tuple(LeftOut(i, "are cut") for i in range(10, 19))
        [text] = self.texts(make_steady_report(left_out=left_out))
        assert figures(text) == ["9"]

    def test_files_that_were_not_used_come_first(self):
        unread = tuple(UnreadFile(f"{x}.json", "no trace") for x in "abc")
        lack = make_finding("TL905", severity="warning", about="trace", title="No launches")
        report = make_report(
            provenance=Provenance(("run",), (), "", unread), findings=(make_finding(), lack)
        )
        assert [x.rule for x in first_screen(report).notes] == [None, "TL905"]
