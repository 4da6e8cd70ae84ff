"""The first screen: what it says, and that it is no longer than 25 lines."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from tests.build.report_rows import (
    MS,
    make_device,
    make_finding,
    make_report,
    make_steady,
    make_steps,
    make_trace,
    make_window,
)
from tests.bundled_traces import files_of, report_of
from tests.figures import figures
from tests.shared_traces import FOLDER, each_real_trace
from tracelab import analyze
from tracelab.model.steady import LeftOut
from tracelab.render.text.report import render_text, screen
from tracelab.render.text.sections import Tone
from tracelab.report.schema import Job, JobDecision, Note, Provenance, UnreadFile

MOST_LINES = 25


def lines_of(report, width=80):
    return [line.text.rstrip() for line in screen(report, width=width)]


def text_of(report, width=80):
    return "\n".join(lines_of(report, width))


def make_steady_report(*devices, findings=(), trace=None, windows=None, **figures):
    """A file of the steps 0, 1 and 2, of 10 ms each; 1 and 2 are steady."""
    return make_report(
        *(windows or make_steps([10, 10, 10])),
        steady=(make_steady(*devices, **figures),),
        findings=findings,
        traces=(trace or make_trace(),),
    )


class TestVerdict:
    def test_what_a_steady_step_takes_and_how_much_the_gpu_works(self, snapshot):
        device = make_device(busy_ns=16 * MS, idle_ns=4 * MS, bubbles={"host_busy": 4 * MS})
        report = make_steady_report(device, gpu_floor_ns=8 * MS)
        assert figures(lines_of(report)[3:6]) == ["10.00 ms", "2", "0", "80.0 %", "20.0 %", "2 %"]
        assert "CPU-bound (20.0 %)" in lines_of(report)[4]
        assert lines_of(report)[3:6] == snapshot

    def test_busy_and_idle_are_of_the_steps_together_and_add_up(self):
        # GIVEN a GPU that works 9.9 of 10 ms in the median step, and 19.011 of 20 ms in all
        device = make_device(busy_ns=19_011_000, idle_ns=989_000, bubbles={"input": 989_000})
        text = lines_of(make_steady_report(device, gpu_floor_ns=9_900_000))[4]
        # WHEN / THEN 95.055 and 4.945 % are 100.0 % as printed; so little is not worth a cause
        assert figures(text) == ["0", "95.1 %", "4.9 %"]

    def test_data_that_is_loaded_behind_a_blocking_call_is_the_loaders_cost(self, snapshot):
        device = make_device(
            busy_ns=14 * MS,
            idle_ns=6 * MS,
            idle_by_calls_ns=6 * MS,
            bubbles={"input": 5 * MS, "host_blocked": MS},
        )
        lines = lines_of(make_steady_report(device, gpu_floor_ns=7 * MS))
        assert {"2", "30.0 %"} <= {*figures(lines)}
        assert "data loading (25.0 %)" in "\n".join(lines)
        assert lines == snapshot

    def test_what_it_takes_without_the_profiler(self, snapshot):
        report = make_steady_report(unprofiled_step_ns=9_800_000)
        assert figures(lines_of(report)[3]) == ["10.00 ms", "2", "9.80 ms"]
        assert lines_of(report)[3] == snapshot

    def test_where_the_profiler_slows_a_step_shares_are_of_the_step_without_it(self, snapshot):
        # GIVEN two steps of 10 ms, 5 without the profiler, in which the GPU works 2 ms each
        device = make_device(busy_ns=4 * MS, idle_ns=16 * MS)
        report = make_steady_report(
            device,
            unprofiled_step_ns=5 * MS,
            unprofiled_ns=10 * MS,
            gpu_floor_ns=2 * MS,
            findings=(make_finding(bound_ns=MS),),
        )
        # WHEN / THEN the GPU works 2 of 5 ms, and the finding has 1 of 10 ms
        lines = lines_of(report)
        assert figures(lines[3]) == ["5.00 ms", "10.00 ms"]
        assert lines[3] == snapshot
        assert figures(lines[4])[:3] == ["0", "40.0 %", "60.0 %"]
        assert text_of(report) == snapshot
        assert [line[:14] for line in lines if line.startswith("1.")] == ["1. up to 10.0 "]

    def test_one_steady_step(self):
        report = make_steady_report(steps=(1,))
        assert lines_of(report)[3] == "The one steady step takes 10.00 ms."

    @pytest.mark.parametrize(
        ("figures", "before"),
        [
            ({}, "The only step takes 10.00 ms. "),
            ({"unprofiled_step_ns": 9_900_000}, "without the profiler, 9.90 ms. "),
            ({"unprofiled_step_ns": 11 * MS}, "without the profiler, 11.00 ms. "),
            ({"unprofiled_step_ns": 5 * MS, "unprofiled_ns": 5 * MS}, "10.00 ms with it. "),
        ],
    )
    def test_the_only_step_is_marked_whatever_else_is_known_of_it(self, figures, before):
        report = make_steady_report(steps=(1,), left_out=(LeftOut(1, "is cut"),), **figures)
        assert f"{before}It is cut." in text_of(report).replace("\n", " ")

    def test_without_steps_it_is_about_the_whole_trace(self, snapshot):
        report = make_report(findings=(make_finding(),))
        text = text_of(report)
        assert {"10.00 ms", "1", "40.0 %"} <= {*figures(text)}
        assert text == snapshot

    def test_without_steady_steps_too(self):
        assert "known to be steady" in text_of(make_report(*make_steps([5])))

    def test_the_step_that_was_asked_for(self, snapshot):
        report = make_report(make_window(step=7), steady=(make_steady(),))
        assert figures(lines_of(report)[3:5]) == [
            *("7", "10.00 ms", "10.00 ms", "0", "100 %", "0 %")
        ]
        assert lines_of(report)[3:5] == snapshot

    def test_of_several_gpus_the_busiest_decides(self):
        devices = [make_device(i, busy_ns=busy * MS) for i, busy in enumerate([10, 16, 5])]
        line = lines_of(make_steady_report(*devices))[4]
        assert line.startswith("GPU 1 is busy 80.0 %")
        assert "; GPU 0 50.0 % and GPU 2 25.0 %." in line

    def test_of_many_gpus_one_is_named(self):
        devices = [make_device(i, busy_ns=(20 - i) * MS) for i in range(8)]
        assert "; the other 7 GPUs less." in text_of(make_steady_report(*devices))

    def test_idle_that_blocking_calls_cause_and_the_rest_are_all_of_it(self, snapshot):
        device = make_device(busy_ns=14 * MS, idle_ns=6 * MS, idle_by_calls_ns=4 * MS)
        text = text_of(make_steady_report(device)).replace("\n", " ")
        assert {"2", "30.0 %", "20.0 %", "10.0 %"} <= {*figures(text)}
        assert text == snapshot

    def test_what_is_idle_for_another_cause_is_told_where_it_is_more(self, snapshot):
        # GIVEN 6 of 20 ms idle: 1 ms in and 0.5 ms after blocking calls, in which the host launched
        # ahead of the GPU no more, 4 ms of launches that no call delayed, and 0.5 ms of latency
        device = make_device(
            busy_ns=14 * MS,
            idle_ns=6 * MS,
            idle_by_calls_ns=3 * MS // 2,
            bubbles={"host_blocked": MS, "host_busy": 9 * MS // 2, "launch": MS // 2},
            bubbles_by_calls={"host_blocked": MS, "host_busy": MS // 2},
        )
        text = text_of(make_steady_report(device)).replace("\n", " ")
        assert "CPU-bound (20.0 %)" in text
        assert {"30.0 %", "7.5 %"} <= {*figures(text)}
        assert text == snapshot

    def test_what_is_not_overlapped(self, snapshot):
        device = make_device(busy_ns=20 * MS, exposed_comm_ns=8 * MS, exposed_copy_ns=MS)
        text = text_of(make_steady_report(device)).replace("\n", " ")
        assert {"40.0 %", "5.0 %", "2"} <= {*figures(text)}
        assert text == snapshot

    def test_steps_without_a_length_of_their_own(self, snapshot):
        assert (
            text_of(make_steady_report(step_ns=0, lengths_ns=(0, 20 * MS), end_ns=20 * MS))
            == snapshot
        )

    def test_a_gpu_that_did_nothing(self):
        device = make_device(busy_ns=0, idle_ns=20 * MS)
        assert "No GPU was busy." in lines_of(make_steady_report(device))


class TestFindings:
    def test_two_or_three_lines_each(self, snapshot):
        report = make_steady_report(findings=(make_finding(),))
        assert figures(lines_of(report)[6:10]) == ["1", "20.0 %"]
        assert lines_of(report)[8].split()[0] == "TL101"
        assert lines_of(report)[6:10] == snapshot

    def test_color_means_severity(self):
        findings = [make_finding(severity=x) for x in ("critical", "warning", "info")]
        shown = screen(make_steady_report(findings=findings), width=80)
        tones = [line.spans[0].tone for line in shown if line.text[1:3] == ". "]
        assert tones == [Tone.CRITICAL, Tone.WARNING, Tone.DIM]
        text = render_text(make_steady_report(findings=findings), width=80, color=True)
        assert "\x1b[31m1. up to" in text
        assert "\x1b[33m2. up to" in text

    def test_what_is_minor_is_counted(self):
        minor = make_finding(severity="info", bound_ns=1, cost_ns=1)
        lines = lines_of(make_steady_report(findings=(make_finding(), minor, minor)))
        assert lines[-2] == "Left out: 2 minor findings."
        assert lines[-1].endswith("tracelab explain TL101")

    def test_much_about_which_nothing_can_be_done_is_shown_as_that(self):
        # GIVEN communication of 5 of 20 ms, with nothing to run beside it
        finding = make_finding(
            "TL202", severity="info", bound_ns=0, title="it runs alone", fix="Communicate less."
        )
        lines = lines_of(make_steady_report(findings=(finding,)))
        # THEN its share is said, and not that nothing reaches 2 %
        assert "1. takes 25.0 %   it runs alone." in lines
        assert "   TL202          Communicate less." in lines
        assert not any("No finding" in line for line in lines)

    def test_at_most_five(self):
        findings = [make_finding(title=f"number {i}") for i in range(9)]
        lines = lines_of(make_steady_report(findings=findings))
        assert [line[0] for line in lines if ". up to" in line] == ["1", "2", "3", "4", "5"]
        assert "Left out: 4 minor findings." in lines

    def test_long_names_leave_room_for_what_happens(self):
        title = f"{'ncclDevKernel_' * 9} runs beside no compute"
        text = text_of(make_steady_report(findings=(make_finding(title=title),)))
        assert " ".join(text.split()).count("runs beside no") == 1


class TestFoot:
    def test_steps_that_are_not_steady(self):
        report = make_steady_report(left_out=(LeftOut(0, "holds a backlog"),))
        assert "Left out: step 0 (holds a backlog)." in lines_of(report)

    def test_many_steps_that_are_not_steady_are_counted(self):
        report = make_steady_report(left_out=tuple(LeftOut(i, "are cut") for i in range(10, 19)))
        assert "Left out: 9 steps (are cut)." in lines_of(report)

    def test_what_the_trace_lacks(self, snapshot):
        # GIVEN two things that the trace lacks, a loss that no rule tells, and the profiler's cost
        findings = [
            make_finding(rule, severity=severity, title=title, cause=title, bound_ns=0, cost_ns=0)
            for rule, severity, title in (
                ("TL903", "info", "No stacks"),
                ("TL905", "warning", "No launches"),
                ("TL910", "info", "profiler_overhead"),
            )
        ]
        trace = make_trace(losses={"repeated_steps": 3, "waits_without_record": 8})
        # WHEN / THEN the warning comes first, and the verdict tells what the profiler costs
        lines = lines_of(make_steady_report(findings=findings, trace=trace))
        assert figures(lines[-3]) == ["3"]
        assert lines[-3] == snapshot
        assert "profiler_overhead" not in "".join(lines)

    @pytest.mark.parametrize(("severity", "is_on_top"), [("warning", True), ("info", False)])
    def test_lost_work_that_spoils_the_figures_stands_below_them(self, severity, is_on_top):
        lost = make_finding("TL901", severity=severity, title="Work lost", cause="lost_work")
        lines = lines_of(make_steady_report(findings=[replace(lost, about="trace")]))
        assert ("Work lost (TL901)." in lines[:8]) == is_on_top
        assert sum("Work lost" in line for line in lines) == 1

    def test_files_that_could_not_be_used(self):
        unread = tuple(UnreadFile(f"{x}.json", "no trace") for x in "abc")
        report = make_report(provenance=Provenance(("run",), (), "", unread))
        assert "Not used (and 2 more files): a.json: no trace" in lines_of(report)

    def test_notes_of_the_window(self):
        notes = (Note(0, None, "This first."), Note(0, 2, "Of step 2."))
        lines = lines_of(replace(make_steady_report(), notes=notes))
        assert "This first." in lines
        assert "Of step 2." not in lines

    @pytest.mark.parametrize(("seen", "label"), [(1, "   1 of 2 steps"), (2, "")])
    def test_in_how_many_steps_a_finding_was_seen(self, seen, label):
        finding = replace(make_finding(), steps_seen=seen)
        lines = lines_of(make_steady_report(findings=(finding,)))
        assert lines[9] == label


class TestJob:
    def make_job(self, ranks=4, findings=(), **of_last):
        numbers = range(ranks)
        return make_report(
            *(window for rank in numbers for window in make_steps([10, 10, 10], rank=rank)),
            traces=tuple(make_trace(path=f"run/r{rank}.json", rank=rank) for rank in numbers),
            steady=tuple(
                make_steady(rank=rank, **(of_last if rank == ranks - 1 else {})) for rank in numbers
            ),
            findings=findings,
            job=Job(tuple(numbers)),
        )

    def test_one_verdict_and_one_table(self, snapshot):
        report = self.make_job(2, findings=(make_finding(rank=1),))
        assert figures(lines_of(report)) == [
            "1.2",
            "2",
            "10.00 ms",
            "100 %",
            "0",
            "10.00 ms",
            "100 %",
            "1",
            "10.00 ms",
            "100 %",
            "20.0 %",
            "1",
            "20.0 %",
            "1",
        ]
        largest = [line.split("%", 1)[1].strip() for line in lines_of(report)[6:8]]
        assert largest == ["-", "TL101 up to 20.0 %"]
        assert lines_of(report) == snapshot

    def test_a_rank_that_differs_is_named(self, snapshot):
        device = make_device(busy_ns=12 * MS, idle_ns=12 * MS)
        text = text_of(self.make_job(4, devices=(device,), step_ns=12 * MS, end_ns=24 * MS))
        assert {"3", "12.00 ms", "10.00 ms"} <= {*figures(text)}
        assert "10.00 ms (rank 0) to 12.00 ms (rank 3)" in text
        assert text == snapshot

    def test_steps_are_recorded_ones_though_the_profiler_slows_down_only_one_rank(self, snapshot):
        times = {"unprofiled_step_ns": 9 * MS}
        findings = (make_finding(rank=0), make_finding("TL102", rank=1))
        report = self.make_job(2, findings, step_ns=12 * MS, unprofiled_ns=18 * MS, **times)
        first = replace(report.tables["steady"][0], unprofiled_step_ns=9 * MS)
        tables = {**report.tables, "steady": (first, report.tables["steady"][1])}
        lines = lines_of(replace(report, tables=tables), width=100)
        assert figures(lines[2]) == ["10.00 ms", "0", "12.00 ms", "1", "9.00 ms"]
        assert lines[2] == snapshot
        assert [line.split()[2] for line in lines[6:8]] == ["10.00", "12.00"]
        assert figures(lines[9]) == ["1,"]
        assert lines[9] == snapshot

    def test_a_call_site_of_several_ranks_stands_once(self):
        findings = [make_finding(rank=rank, bound_ns=(1 + rank) * MS) for rank in range(4)]
        lines = lines_of(self.make_job(4, findings=findings))
        assert any(line.startswith("1. 5.0 to 20.0 %") for line in lines)
        assert any(line.startswith("   TL101, 4 ranks ") for line in lines)
        assert not any(line.startswith("Left out") for line in lines)

    def test_the_largest_comes_first_though_its_rank_has_shorter_steps(self, snapshot):
        small, large = make_finding(rank=1, bound_ns=1 * MS), make_finding(rank=0, bound_ns=9 * MS)
        other = make_finding("TL202", rank=1, bound_ns=3 * MS)
        job = self.make_job(2, findings=(large, other, small), step_ns=12 * MS, end_ns=24 * MS)
        lines = lines_of(job)
        assert figures([line for line in lines if line[1:3] == ". "]) == [
            "1",
            "4.2",
            "45.0 %",
            "2",
            "12.5 %",
        ]
        assert [line for line in lines if line[1:3] == ". "] == snapshot

    def test_a_share_that_is_nearly_the_same_on_all_ranks_is_one_figure(self):
        findings = [make_finding(rank=rank, bound_ns=(20 + rank) * MS // 5) for rank in range(4)]
        assert "1. up to 23.0 %" in text_of(self.make_job(4, findings=findings))

    def test_a_rank_with_several_findings_of_a_call_site_counts_with_its_largest(self):
        findings = [make_finding(bound_ns=x * MS) for x in (8, 1)]
        assert "1. up to 40.0 %" in text_of(self.make_job(2, findings=findings))

    @pytest.mark.parametrize("ranks", [8, 64, 1000])
    def test_any_number_of_ranks_fits(self, ranks):
        findings = [
            make_finding(f"TL10{i}", rank=rank, title=f"number {i} " * 20, fix="word " * 60)
            for rank in range(ranks)
            for i in (1, 2, 3)
        ]
        device = make_device(busy_ns=12 * MS, idle_ns=12 * MS)
        report = self.make_job(ranks, findings, devices=(device,))
        lines = lines_of(report)
        assert len(lines) <= MOST_LINES
        # the rank that differs has its row, however many there are
        assert any(line.split()[:2] == [str(ranks - 1), f"r{ranks - 1}"] for line in lines)
        assert any("1. up to" in line for line in lines)

    def test_files_that_are_no_job_are_each_on_their_own(self, snapshot):
        decision = JobDecision(is_job=False, why="both are rank 0", recordings=((0,), (1,)))
        report = make_report(
            make_window(rank=0),
            make_window(rank=1),
            traces=[make_trace(path=f"run/{x}.json", rank=i) for i, x in enumerate("ab")],
            provenance=Provenance(("run",), (), "", (), decision),
            findings=(make_finding(),),
        )
        assert figures(lines_of(report)[2:7]) == [
            "0",
            "10.00 ms",
            "100 %",
            "40.0 %",
            "10.00 ms",
            "100 %",
        ]
        assert "TL101 up to 40.0 %" in lines_of(report)[5]
        assert lines_of(report)[2:7] == snapshot

    def test_a_report_of_an_earlier_version_does_not_know(self, snapshot):
        traces = [make_trace(path=f"{x}.json", rank=i) for i, x in enumerate("ab")]
        report = make_report(make_window(rank=0), make_window(rank=1), traces=traces)
        assert text_of(report) == snapshot


def assert_is_a_screen(report):
    for width in (80, 100, 120):
        lines = render_text(report, width=width, color=False).splitlines()
        assert len(lines) <= MOST_LINES
        assert max(map(cell_len, lines)) <= width


def test_a_bundled_trace_fits(bundled_path):
    assert_is_a_screen(report_of(bundled_path))


def test_a_bundled_job_fits(bundled_job):
    assert_is_a_screen(report_of(*files_of(bundled_job)))


@each_real_trace
def test_every_real_trace_fits(real_trace):
    assert_is_a_screen(report_of(real_trace))


@pytest.mark.slow
def test_a_real_job_of_eight_ranks_fits():
    folder = FOLDER / "param_dlrm_8ranks"
    if not folder.exists():
        pytest.skip("the real traces are not here")
    report = analyze(folder)
    assert_is_a_screen(report)
    first = [line.split()[:1] for line in lines_of(report)]
    assert all([str(rank)] in first for rank in range(8))
