"""Facts about a step: its length, what its GPUs do, why they do not, and what the fixes save."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import figures as read
from tests.build import job_rows as jobs
from tests.build.report_rows import (
    MS,
    make_device,
    make_finding,
    make_job_report,
    make_report,
    make_savings,
    make_steady,
    make_steady_report,
    make_steps,
    make_trace,
    make_window,
)
from tracelab.findings.rules.exposed_time import PEER_WAIT
from tracelab.model.timeline import LeftOut
from tracelab.render.first_screen import facts_of, gpu_facts, length_of
from tracelab.report.schema import Job
from tracelab.report.views import ranks_of


def figures(text):
    """The figures of a text, those in brackets as well."""
    return read.figures(text.replace("(", ""))


def facts(report):
    [rank] = ranks_of(report)
    return {fact.label: fact.text for fact in facts_of(report, [rank])}


def length(report):
    return length_of(ranks_of(report)[:1])


def gpus(*devices, **figures):
    [rank] = ranks_of(make_steady_report(*devices, **figures))
    return [(fact.label, fact.text) for fact in gpu_facts(rank)]


class TestLength:
    def test_of_steady_steps_with_the_profiler(self, snapshot):
        assert figures(length(make_steady_report())) == ["10.0 ms", "2"]
        assert length(make_steady_report()) == snapshot

    @pytest.mark.parametrize(
        ("unprofiled_ns", "figures_"),
        [
            (9 * MS, ["9.00 ms", "10.0", "2"]),
            (900_000, ["900 µs", "10.0 ms", "2"]),  # another unit is said
        ],
    )
    def test_without_the_profiler_comes_first(self, unprofiled_ns, figures_):
        report = make_steady_report(unprofiled_step_ns=unprofiled_ns)
        assert figures(length(report)) == figures_

    def test_of_a_job_that_was_replayed_it_is_the_jobs(self):
        savings = make_savings(step_ns=12 * MS, is_of_job=True)
        assert length(make_steady_report(savings=savings)).startswith("12.0 ms")

    @pytest.mark.parametrize(
        "timed", [{}, {"unprofiled_step_ns": 9 * MS}, {"unprofiled_step_ns": 11 * MS}]
    )
    def test_the_only_step_says_what_is_wrong_with_it(self, timed):
        report = make_steady_report(steps=(1,), left_out=(LeftOut(1, "is cut"),), **timed)
        assert "the only step; it is cut" in length(report)

    def test_one_of_several(self, snapshot):
        assert length(make_steady_report(steps=(1,))) == snapshot

    def test_without_steady_steps_it_is_the_trace(self, snapshot):
        no_steps, unsteady = make_report(), make_report(*make_steps([5]))
        assert list(facts(no_steps)) == list(facts(unsteady)) == ["Trace", "GPU 0"]
        assert [length(no_steps), length(unsteady)] == snapshot

    def test_the_step_that_was_asked_for(self, snapshot):
        report = make_report(make_window(step=7), steady=(make_steady(),))
        assert list(facts(report)) == ["Step 7", "GPU 0"]
        assert figures(length(report)) == ["10.0 ms", "10.0 ms"]
        assert length(report) == snapshot


class TestGpus:
    def test_busy_and_idle_are_the_whole_and_causes_are_idle(self, snapshot):
        bubbles = {"host_blocked": 4 * MS, "host_busy": MS, "launch": 600_000, "graph": 400_000}
        device = make_device(busy_ns=14 * MS, idle_ns=6 * MS, bubbles=bubbles)
        [(label, text)] = gpus(device)
        # THEN 20, 5, 3 and 2 % are 30, of which the three largest have names
        assert label == "GPU 0"
        assert figures(text) == ["70 %", "30 %", "20 %", "5 %", "3 %", "2 %"]
        assert text == snapshot

    def test_what_is_less_than_the_three_largest_causes_is_one(self):
        bubbles = {"host_blocked": 3 * MS, "host_busy": 2 * MS, "launch": MS}
        bubbles |= {"graph": 600_000, "edge": 400_000}
        [(_, text)] = gpus(make_device(busy_ns=13 * MS, idle_ns=7 * MS, bubbles=bubbles))
        assert figures(text)[1:] == ["35 %", "15 %", "10 %", "5 %", "5 %"]
        assert text.endswith("other 5 %")

    def test_no_name_where_it_is_little_or_says_nothing_about_the_program(self):
        # GIVEN 10 % in blocking calls, 6 % beyond the GPU's first and last activity, 1 % launched
        bubbles = {"host_blocked": 2 * MS, "edge": 1_200_000, "launch": 200_000}
        [(_, text)] = gpus(make_device(busy_ns=16_600_000, idle_ns=3_400_000, bubbles=bubbles))
        assert figures(text)[1:] == ["17 %", "10 %", "7 %"]
        assert text.endswith("other 7 %")
        # THEN a sum of such causes alone is not said
        device = make_device(busy_ns=18 * MS, idle_ns=2 * MS, bubbles={"edge": 2 * MS})
        assert figures(gpus(device)[0][1]) == ["90 %", "10 %"]

    def test_so_little_has_no_cause(self):
        # GIVEN 1.5 % idle
        device = make_device(busy_ns=19_700_000, idle_ns=300_000, bubbles={"launch": 300_000})
        # THEN it is 98.5 and 1.5: what is left of 100 goes to the first
        assert figures(gpus(device)[0][1]) == ["99 %", "1 %"]

    def test_a_gpu_that_hardly_worked_is_not_one_that_did_not(self):
        assert "<1 %" in gpus(make_device(busy_ns=1_000, idle_ns=20 * MS))[0][1]
        [(label, text)] = gpus(make_device(busy_ns=0, idle_ns=20 * MS))
        assert (label, figures(text)) == ("GPU", [])

    def test_what_a_busy_gpu_does_besides_computing(self, snapshot):
        # GIVEN 8 of 20 ms of communication that nothing overlaps, 3 of them a wait for a peer,
        # and 1 of copies
        device = make_device(busy_ns=20 * MS, exposed_comm_ns=8 * MS, exposed_copy_ns=MS)
        [(_, plain)] = gpus(device)
        wait = make_finding("TL304", cause=PEER_WAIT, cost_ns=3 * MS)
        [(_, waiting)] = gpus(device, findings=(wait,))
        assert figures(plain) == ["100 %", "40 %", "5 %", "0 %"]
        assert figures(waiting) == ["100 %", "15 %", "25 %", "5 %", "0 %"]
        assert [plain, waiting] == snapshot

    def test_all_gpus_have_shares_of_one_length(self):
        # GIVEN 8 and 4 of 20 ms busy with the profiler, which makes it 10 ms longer
        devices = (make_device(busy_ns=8 * MS), make_device(device=1, busy_ns=4 * MS))
        texts = gpus(*devices, unprofiled_ns=10 * MS)
        # THEN both are of 10 ms
        assert [(label, figures(text)[0]) for label, text in texts] == [
            ("GPU 0", "80 %"),
            ("GPU 1", "40 %"),
        ]

    def test_of_several_the_busiest_decides(self):
        devices = [make_device(i, busy_ns=busy * MS) for i, busy in enumerate([10, 16, 5])]
        assert [(label, figures(text)[0]) for label, text in gpus(*devices)] == [
            ("GPU 1", "80 %"),
            ("GPU 0", "50 %"),
            ("GPU 2", "25 %"),
        ]

    def test_many_others_are_counted(self):
        devices = [make_device(i, busy_ns=(20 - i) * MS) for i in range(8)]
        found = gpus(*devices)
        assert [label for label, _ in found] == ["GPU 0", "Others"]
        assert figures(found[1][1]) == ["7"]


class TestFixes:
    def test_what_is_left_is_the_step_less_the_saving(self, snapshot):
        # GIVEN 4 (3 to 5) of 10 ms, and a step that is printed as 9 ms
        report = make_steady_report(savings=make_savings(4, 3, 5), unprofiled_step_ns=9 * MS)
        # THEN 40 % of 9 ms are saved
        assert figures(facts(report)["Fixes"]) == ["9.00", "5.40 ms", "40 %", "30", "50"]
        assert facts(report)["Fixes"] == snapshot

    @pytest.mark.parametrize(
        ("saved", "figures_"),
        [
            ((9.5, 9.5, 9.5), ["10.0 ms", "500 µs", "95 %"]),  # no interval, and another unit
            ((0.5, 0, 0.54), ["10.0", "9.50 ms", "5 %", "0", "5"]),
            ((0.04, 0, 0.04), None),  # 0.4 % is not told
            ((0, 0, 0), None),
        ],
    )
    def test_intervals_and_what_is_too_little(self, saved, figures_):
        found = facts(make_steady_report(savings=make_savings(*saved))).get("Fixes")
        assert found is None if figures_ is None else figures(found) == figures_

    def test_one_change_is_no_several(self):
        one, two = (make_savings(edits=edits) for edits in (("load=0",), ("load=0", "queues")))
        texts = [facts(make_steady_report(savings=x))["Fixes"] for x in (one, two)]
        assert ["together" in text for text in texts] == [False, True]

    def test_why_nothing_is_predicted(self, snapshot):
        why = "The file has no calls that launch its GPU work."
        savings = make_savings(None, None, None, edits=(), step_ns=None, not_replayed=why)
        assert facts(make_steady_report(savings=savings))["Fixes"] == snapshot

    def test_nothing_is_said_without_a_finding(self):
        report = make_steady_report(savings=make_savings())
        facts = facts_of(report, ranks_of(report), with_savings=False)
        assert "Fixes" not in {x.label for x in facts}


class TestJob:
    def said(self, report):
        return [(x.label, x.text) for x in facts_of(report, ranks_of(report))]

    def test_ranks_that_take_as_long_have_one_length(self, snapshot):
        [(label, text)] = self.said(make_job_report(4, step_ns=10_900_000))
        assert (label, figures(text)) == ("Step", ["10.9 ms", "2"])
        assert text == snapshot

    def test_the_fastest_and_the_slowest_where_they_differ(self):
        [(_, text)] = self.said(make_job_report(4, step_ns=12 * MS))
        assert figures(text) == ["10.0 ms", "0", "12.0 ms", "3", "2"]

    def test_without_the_profiler_where_all_ranks_were_timed(self):
        report = make_job_report(2, unprofiled_step_ns=9_500_000)
        [(_, one_timed)] = self.said(report)
        first, second = report.tables["steady"]
        timed = (replace(first, unprofiled_step_ns=9_600_000), second)
        [(_, both_timed)] = self.said(replace(report, tables={**report.tables, "steady": timed}))
        assert "while profiled" in one_timed
        assert figures(one_timed) == ["10.0 ms", "2"]
        assert figures(both_timed) == ["9.60 ms", "10.0", "2"]

    @pytest.mark.parametrize(("step", "label"), [(None, "Trace"), (7, "Step 7")])
    def test_without_steady_steps_it_is_the_trace_or_the_step_that_was_asked_for(
        self, step, label, snapshot
    ):
        windows = [make_window(rank=rank, step=step) for rank in range(2)]
        traces = [make_trace(rank=rank) for rank in range(2)]
        [(found, text)] = self.said(make_report(*windows, traces=traces, job=Job((0, 1))))
        assert (found, figures(text)) == (label, ["10.0 ms"])
        assert text == snapshot

    def test_who_makes_others_wait_and_what_the_replay_saves(self):
        # GIVEN a job of 12 ms that was replayed, and a rank that makes the others wait
        times = [jobs.rank_times(rank, steps=(0, 1, 2)) for rank in range(2)]
        job = jobs.job(*times, stragglers=(jobs.straggler(1, waiting=(0,)),))
        savings = make_savings(3, 2, 4, step_ns=12 * MS, is_of_job=True)
        report = replace(make_job_report(2, job=job), savings=(savings,))
        # THEN there is one length of the step: the job's, of which 3 ms are 25 %
        labels, texts = zip(*self.said(report), strict=True)
        assert labels == ("Step", "Ranks", "Fixes")
        assert figures(texts[1])[:3] == ["1", "0", "2.40 ms"]
        assert figures(texts[2]) == ["12.0", "9.00 ms", "25 %", "17", "33"]
