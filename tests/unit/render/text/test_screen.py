"""The first screen as text: at most 25 lines, in which no fix and no command is cut."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from tests.build import job_rows as jobs
from tests.build.report_rows import (
    MS,
    NASTY,
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
from tracelab.findings.finding import Where
from tracelab.model.timeline import LeftOut
from tracelab.render.document import document_of
from tracelab.render.first_screen import first_screen
from tracelab.render.section import Tone
from tracelab.render.text.report import render_text
from tracelab.render.text.screen import MAX_LINES, _sizes, screen
from tracelab.report.finding_groups import put_groups_first
from tracelab.report.schema import JobDecision, Provenance

LONG_FIX = "Pin the memory and do not wait: `DataLoader(..., pin_memory=True)`. " * 6
MINOR = {"severity": "info", "bound_ns": 1, "cost_ns": 1}


def lines_of(report, width=80):
    return [line.text.rstrip() for line in screen(document_of(report), width=width)]


def text_of(report, width=80):
    return "\n".join(lines_of(report, width))


def numbers_of(lines):
    return [line[0] for line in lines if line[:1].isdigit() and line[1:3] == "  "]


def at_line(line, code="log.append(loss.item())", **figures):
    where = Where(1, function="train", file="src/train.py", line=line, call="item", code=code)
    return make_priced(2.2, 1.9, 2.4, where=where, **figures)


BUBBLES = {"host_blocked": 4 * MS, "host_busy": 2 * MS}


class TestKinds:
    """One screen of each kind."""

    def test_a_file(self, snapshot):
        report = make_steady_report(
            make_device(busy_ns=14 * MS, idle_ns=6 * MS, bubbles=BUBBLES),
            findings=(
                at_line(40),
                make_priced(0.3, 0, 0.5, "TL102", severity="warning", title="A copy"),
                make_finding("TL202", severity="info", bound_ns=0),
                make_finding("TL903", about="trace", title="No stacks", severity="info"),
                make_finding("TL205", **MINOR),
            ),
            savings=make_savings(2.4, 1.9, 2.8),
            unprofiled_step_ns=9 * MS,
            trace=make_trace(gpus={0: "NVIDIA H200"}, software={"torch": "2.11.0"}),
        )
        lines = lines_of(report)
        assert numbers_of(lines) == ["1", "2", "3"]
        assert lines == snapshot

    def test_a_healthy_program_gets_four_lines(self, snapshot):
        lines = lines_of(make_steady_report(findings=(make_finding(**MINOR),)))
        assert len([line for line in lines if line]) == 4
        assert lines == snapshot

    def test_idle_for_reasons_that_nobody_knows(self, snapshot):
        device = make_device(busy_ns=MS, idle_ns=9 * MS, bubbles={"unknown": 9 * MS})
        assert lines_of(make_report(make_window(device))) == snapshot

    def test_nothing_saves_much_though_the_gpu_is_idle(self, snapshot):
        device = make_device(busy_ns=14 * MS, idle_ns=6 * MS, bubbles=BUBBLES)
        lines = lines_of(make_steady_report(device, findings=(make_finding(**MINOR),)))
        assert lines == snapshot

    def test_a_trace_without_steps(self, snapshot):
        lines = lines_of(make_report(findings=(make_finding(),)))
        assert numbers_of(lines) == ["1"]
        assert lines == snapshot

    def test_a_job(self, snapshot):
        # GIVEN rank 1, which computes for 8 of 10 ms, and three that wait 4 ms for it
        times = [
            jobs.rank_times(x, steps=(0, 1, 2), transfer=1, idle=1, wait=0 if x == 1 else 4)
            for x in range(4)
        ]
        waits = tuple(jobs.collective(4, 8, 4, 4, end_ms=9, last=1, step=x) for x in range(3))
        job = jobs.job(*times, stragglers=(jobs.straggler(),), collectives=waits)
        findings = [make_finding(rank=rank) for rank in range(4)]
        lines = lines_of(put_groups_first(make_job_report(4, findings, job=job)))
        assert numbers_of(lines) == ["1"]
        assert lines == snapshot

    def test_a_healthy_job(self, snapshot):
        times = [jobs.rank_times(x, steps=(0, 1, 2), idle=0.2) for x in range(2)]
        assert lines_of(make_job_report(2, job=jobs.job(*times))) == snapshot

    def test_files_that_are_no_job(self, snapshot):
        decision = JobDecision(is_job=False, why="both are rank 0", recordings=((0,), (1,)))
        report = make_report(
            make_window(rank=0),
            make_window(rank=1),
            traces=[make_trace(path=f"run/{x}.json", rank=i) for i, x in enumerate("ab")],
            provenance=Provenance(("run",), (), "", (), decision),
            findings=(make_finding(),),
        )
        assert lines_of(report) == snapshot


class TestItems:
    def test_place_and_code_stand_in_the_second_column(self):
        lines = lines_of(make_steady_report(findings=(at_line(40),), savings=make_savings()))
        [line] = [line for line in lines if "train.py:40" in line]
        assert line.index("log.append") == 36

    @pytest.mark.parametrize(("letters", "is_beside"), [(44, True), (45, False)])
    def test_so_does_a_title_where_it_has_room(self, letters, is_beside):
        # GIVEN a title that fits, or does not, behind the 36 columns of 80
        title = "x" * letters
        lines = lines_of(make_steady_report(findings=(make_finding(title=title),)))
        [line] = [line for line in lines if title in line]
        assert line.startswith("1  ") == is_beside
        assert line.index(title) == (36 if is_beside else 3)

    def test_long_code_is_shortened_before_the_place(self):
        finding = at_line(40, code="x" * 100)
        for width in (80, 100):
            lines = lines_of(make_steady_report(findings=(finding,), savings=make_savings()), width)
            [line] = [line for line in lines if "train.py:40" in line]
            assert line.startswith("   train.py:40 in train  xxx")
            assert cell_len(line) == width

    @pytest.mark.parametrize("words", [" and the GPU", " 的的的"])
    def test_a_title_has_two_lines(self, words):
        finding = make_finding(title=f"`item` makes the CPU wait{words * 40}")
        lines = lines_of(make_steady_report(findings=(finding,)))
        first = next(i for i, line in enumerate(lines) if line.startswith("1  "))
        assert lines[first + 2].endswith("…")
        assert max(map(cell_len, lines)) <= 80

    def test_long_names_leave_room_for_what_happens(self):
        title = f"{'ncclDevKernel_' * 9} runs beside no compute"
        text = text_of(make_steady_report(findings=(make_finding(title=title),)))
        assert " ".join(text.split()).count("runs beside no") == 1

    @pytest.mark.parametrize("width", [80, 100, 160])
    def test_a_fix_is_never_cut(self, width):
        findings = [at_line(i, fix_short=f"{i}: {LONG_FIX}") for i in (40, 41, 42)]
        report = make_steady_report(findings=findings, savings=make_savings())
        words = " ".join(text_of(report, width).split())
        shown = [i for i in (40, 41, 42) if f"{i}: " in words]
        assert all(f"{i}: {LONG_FIX.strip()}" in words for i in shown)
        # What has no room is counted.
        assert shown
        assert ("more finding" in words) == (len(shown) < 3)

    def test_color_means_severity(self):
        findings = [make_finding(severity=x) for x in ("critical", "warning", "info")]
        shown = screen(document_of(make_steady_report(findings=findings)), width=80)
        tones = [line.spans[0].tone for line in shown if line.text[:3] in ("1  ", "2  ", "3  ")]
        assert tones == [Tone.CRITICAL, Tone.WARNING, Tone.DIM]
        text = render_text(make_steady_report(findings=findings), width=80, color=True)
        assert "\x1b[31m1  takes" in text
        assert "\x1b[33m2  takes" in text

    def test_nothing_harmful_is_printed(self):
        where = Where(1, function=NASTY, file=NASTY, line=4, code=NASTY)
        finding = make_finding(title=NASTY, fix_short=NASTY, where=where)
        text = text_of(make_steady_report(findings=(finding,), trace=make_trace(path=NASTY)))
        assert not {c for c in text if not c.isprintable() and c != "\n"}


class TestFoot:
    def test_what_is_left_out_is_counted(self, snapshot):
        findings = [make_finding(title=f"number {i}") for i in range(5)]
        findings += [make_finding(**MINOR)] * 3
        left_out = (LeftOut(0, "holds a backlog"),)
        lines = lines_of(make_steady_report(findings=findings, left_out=left_out))
        [line] = [line for line in lines if line.endswith("--full")]
        assert figures(line) == ["2", "3", "2 %", "1"]
        assert line == snapshot

    def test_a_command_is_not_torn_apart(self):
        findings = (make_priced(2, 1, 3, remedy="a-remedy-with-a-very-long-name"),)
        report = make_steady_report(findings=findings, savings=make_savings())
        lines = lines_of(report)
        commands = first_screen(report).next
        assert [sum(x in line for line in lines) for x in commands] == [1, 1, 1]
        assert max(map(len, lines)) <= 80
        assert lines[-1].startswith("      tracelab explain")

    def test_two_warnings_stand_below_the_facts_and_the_rest_is_counted(self):
        lacks = [
            make_finding(f"TL90{i}", severity="warning", about="trace", title=f"lack {i}")
            for i in (5, 6, 7)
        ]
        lines = lines_of(make_steady_report(findings=(make_finding(), *lacks)))
        assert [line for line in lines[2:6] if line.startswith("lack")] == [
            "lack 5 (TL905).",
            "lack 6 (TL906).",
        ]
        assert not any("lack 7" in line for line in lines)
        assert figures(next(line for line in lines if line.endswith("--full"))) == ["1"]


class TestSizes:
    def test_of_a_file_findings_give_up_the_lines_between_them_first(self):
        assert list(_sizes(2, 1)) == [
            (2, 0, False),
            (2, 0, True),
            (1, 0, False),
            (1, 0, True),
            (0, 0, False),
            (0, 0, True),
        ]

    def test_of_a_job_ranks_give_way_to_findings_but_for_three(self):
        sizes = list(_sizes(1, 5))
        assert sizes[:4] == [(1, 5, False), (1, 5, True), (1, 4, True), (1, 3, True)]
        assert sizes[4] == (0, 5, False)
        assert sizes[-1] == (0, 3, True)

    @pytest.mark.parametrize("ranks", [2, 64, 1000])
    def test_rows_are_no_more_than_ranks_or_lines(self, ranks):
        rows = {rows for _, rows, _ in _sizes(3, ranks)}
        assert (min(rows), max(rows)) == (min(ranks, 3), min(ranks, MAX_LINES))


class TestRoom:
    @pytest.mark.parametrize("ranks", [2, 8, 64, 300])
    @pytest.mark.parametrize("width", [80, 120])
    def test_three_findings_and_any_number_of_ranks_fit(self, ranks, width):
        # GIVEN three places on all ranks, and a last rank that does less than the others
        findings = [
            make_finding(f"TL10{i}", rank=rank, title=f"number {i}", fix_short="word " * 30)
            for rank in range(ranks)
            for i in (1, 2, 3)
        ]
        device = make_device(busy_ns=12 * MS, idle_ns=8 * MS)
        report = make_job_report(ranks, findings, devices=(device,))
        # WHEN
        lines = lines_of(put_groups_first(report), width)
        # THEN all three are there, and the rank that is unlike the others
        assert len(lines) <= MAX_LINES
        assert max(map(cell_len, lines)) <= width
        assert numbers_of(lines) == ["1", "2", "3"]
        assert any(line.split()[:1] == [str(ranks - 1)] for line in lines)

    def test_long_findings_give_way_to_three_ranks(self):
        findings = [at_line(i, fix_short=f"{i}: {LONG_FIX}", rank=0) for i in (40, 41, 42)]
        lines = lines_of(put_groups_first(make_job_report(64, findings)))
        assert len(lines) <= MAX_LINES
        assert 1 <= len(numbers_of(lines)) < 3
        assert len([line for line in lines if line.split()[:1] and line.strip()[0].isdigit()]) >= 3

    def test_a_finding_less_leaves_room_for_ranks(self):
        for count in (0, 1, 2):
            findings = [make_finding(f"TL10{i}", title=f"number {i}") for i in range(count)]
            lines = lines_of(make_job_report(64, findings))
            assert len(lines) in (MAX_LINES - 1, MAX_LINES)

    def test_without_what_it_replaces_a_report_of_before_fits_too(self):
        # GIVEN a report without savings, short fixes or prices
        findings = [make_finding(fix=LONG_FIX, fix_short="") for _ in range(4)]
        lines = lines_of(replace(make_steady_report(findings=findings), savings=()))
        assert len(lines) <= MAX_LINES
        assert numbers_of(lines) == ["1", "2", "3"]
