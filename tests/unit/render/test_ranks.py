"""What the text says of a job: its verdict, how its ranks spend a step, its tables."""

from dataclasses import replace

import pytest

from tests.build import job_rows as jobs
from tests.build.report_rows import (
    MS,
    make_finding,
    make_report,
    make_steady,
    make_steps,
    make_trace,
    section_of,
    sections_of,
)
from tests.figures import figures
from tracelab.job.merge import Unmatched
from tracelab.render.ranks import job_sentences, rank_shares

PER_STEP = "Pipeline, per step"


def report_of(job, **parts):
    """The report of a job with the steps 0, 1 and 2 of 10 ms; 1 and 2 are steady."""
    return make_report(
        *(window for rank in job.ranks for window in make_steps([10, 10, 10], rank=rank)),
        traces=tuple(make_trace(path=f"run/rank{rank}.json", rank=rank) for rank in job.ranks),
        steady=tuple(make_steady(rank=rank) for rank in job.ranks),
        job=job,
        **parts,
    )


def verdict_of(job):
    report = report_of(job)
    return job_sentences(report, rank_shares(report))


# Rank 1 computes for 8 of 10 ms, the others for 4 and wait 4 for it.
FOUR = tuple(
    jobs.rank_times(rank, steps=(0, 1, 2), transfer=1, idle=1, wait=0 if rank == 1 else 4)
    for rank in range(4)
)
WAITS = tuple(jobs.collective(4, 8, 4, 4, end_ms=9, last=1, step=step) for step in (0, 1, 2))


class TestShares:
    def test_of_the_steady_steps(self):
        first = jobs.rank_step(0, 0, length=90, idle=90)
        steps = (first, jobs.rank_step(1, 90, wait=2), jobs.rank_step(2, 100, wait=4))
        [shares] = rank_shares(report_of(jobs.job(jobs.RankTimes(0, steps))))
        assert (shares.step_ns, shares.length_ns) == (10 * MS, 20 * MS)
        assert (shares.percents["wait"], shares.percents["idle"]) == (30, 0)

    def test_of_one_step_that_was_chosen(self):
        # Of the two steady steps only one is told: the time of the other one is not idle.
        [shares] = rank_shares(report_of(jobs.job(jobs.rank_times(0, steps=(2,), wait=4))))
        assert (shares.step_ns, shares.length_ns) == (10 * MS, 10 * MS)
        assert (shares.percents["wait"], shares.percents["idle"]) == (40, 0)

    def test_the_rank_that_is_awaited_most(self):
        shares = rank_shares(report_of(jobs.job(*FOUR, collectives=WAITS)))
        assert [x.waits_for_text for x in shares] == ["rank 1", "-", "rank 1", "rank 1"]

    def test_no_rank_is_awaited_more_than_all_others_together(self):
        waits = [
            jobs.collective(*(8 if rank == last else 4 for rank in range(4)), end_ms=9, last=last)
            for last in (1, 2)
        ]
        shares = rank_shares(report_of(jobs.job(*FOUR, collectives=tuple(waits))))
        assert shares[0].waits_for_text == "several"

    def test_only_waits_of_steady_steps_count(self):
        early = jobs.collective(0, 8, 8, 99, end_ms=100, last=3, step=0)
        shares = rank_shares(report_of(jobs.job(*FOUR, collectives=(early, *WAITS))))
        assert shares[0].waits_for == 1


class TestVerdict:
    def test_who_makes_the_others_wait_comes_first(self, snapshot):
        assert figures(verdict_of(jobs.job(*FOUR, stragglers=(jobs.straggler(),)))) == [
            "1",
            "3",
            "2.40 ms",
            "1.5",
        ]
        assert verdict_of(jobs.job(*FOUR, stragglers=(jobs.straggler(),))) == snapshot

    def test_what_a_wait_costs_the_job_where_that_is_less(self, snapshot):
        slow = replace(jobs.straggler(cost_ms=1.8), wait_ns=(2_400_000, 2_500_000, 2_600_000))
        [sentence] = verdict_of(jobs.job(*FOUR, stragglers=(slow,)))
        assert {"2.40 ms", "1.80 ms"} <= {*figures(sentence)}
        assert sentence == snapshot

    def test_ranks_that_are_late_in_turns(self, snapshot):
        why = "has the most work in some steps, and other ranks in others (rank 1 in 3 of 4 steps)"
        slow = jobs.straggler(cause="uneven_work", why=why)
        assert figures(verdict_of(jobs.job(*FOUR, stragglers=(slow,)))) == [
            "2.40 ms",
            "1",
            "1",
            "3",
            "4",
        ]
        assert verdict_of(jobs.job(*FOUR, stragglers=(slow,))) == snapshot

    @pytest.mark.parametrize(
        ("waiting", "words"),
        [((0,), "rank 0 wait"), ((0, 2), "ranks 0 and 2 wait")],
    )
    def test_few_that_wait_are_named(self, waiting, words):
        assert (
            words in verdict_of(jobs.job(*FOUR, stragglers=(jobs.straggler(waiting=waiting),)))[0]
        )

    def test_of_many_stragglers_two_are_told(self, snapshot):
        many = tuple(jobs.straggler(rank, cost_ms=4 - rank) for rank in range(4))
        sentences = verdict_of(jobs.job(*FOUR, stragglers=many))
        assert figures(sentences[2]) == ["2", "2.00 ms"]
        assert sentences[2] == snapshot

    def test_nobody_makes_the_others_wait(self, snapshot):
        even = [jobs.rank_times(rank, steps=(1, 2), wait=0.2, transfer=1) for rank in range(2)]
        assert figures(verdict_of(jobs.job(*even))) == ["0", "2 %", "10 %", "0"]
        assert verdict_of(jobs.job(*even)) == snapshot

    def test_they_wait_but_for_nobody_in_particular(self, snapshot):
        assert figures(verdict_of(jobs.job(*FOUR))) == ["0", "40 %", "10 %", "0"]
        assert verdict_of(jobs.job(*FOUR)) == snapshot

    def test_in_the_only_step_they_wait_as_the_recordings_did_not_begin_together(self):
        times = [
            jobs.RankTimes(rank, (jobs.rank_step(1, rank, wait=4 - 4 * rank),)) for rank in range(2)
        ]
        behind = jobs.collective(2, 8, end_ms=9, last=1, cause="recording_start")
        sentences = verdict_of(jobs.job(*times, collectives=(behind,)))
        assert sentences[1] == "The recordings did not begin together."
        late = replace(behind, cause="late_launch")
        assert len(verdict_of(jobs.job(*times, collectives=(late,)))) == 1

    def test_of_several_steps_the_first_collective_says_nothing_of_the_others(self):
        behind = jobs.collective(2, 8, 8, 8, end_ms=9, last=1, cause="recording_start")
        sentences = verdict_of(jobs.job(*FOUR, collectives=(behind,)))
        assert [figures(x) for x in sentences] == [["0", "40 %", "1"], ["10 %", "0"]]

    def test_beside_a_straggler_nothing_is_said_of_waits(self):
        assert len(verdict_of(jobs.job(*FOUR, stragglers=(jobs.straggler(),)))) == 1

    def test_a_straggler_that_costs_the_job_nothing_is_none(self):
        # GIVEN a rank whose balance saves 1 % of what another one waits for it
        slow = jobs.straggler(1, waiting=(0, 2, 3))
        saves = make_finding("TL304", rank=1, saves_ns=24_000)
        report = report_of(jobs.job(*FOUR, stragglers=(slow,)), findings=(saves,))
        # THEN only the waits are told
        sentences = job_sentences(report, rank_shares(report))
        assert [figures(x) for x in sentences] == [["0", "40 %"], ["10 %", "0"]]

    def test_a_pipeline_has_its_bubble_beside_the_theory(self, snapshot):
        assert figures(verdict_of(jobs.job(*FOUR, pipeline=jobs.pipeline()))) == [
            "4",
            "4",
            "51.0 %",
            "42.9 %",
            "40.0 %",
            "8.0 %",
            "3.0 %",
        ]
        assert "(1F1B)" in verdict_of(jobs.job(*FOUR, pipeline=jobs.pipeline()))[0]
        assert verdict_of(jobs.job(*FOUR, pipeline=jobs.pipeline())) == snapshot

    @pytest.mark.parametrize(
        ("parts", "shares"),
        [
            ((0.4, 0.02, 0.03, 0.04, 0.02), ["40.0 %", "4.0 %", "3.0 %", "2.0 %", "2.0 %"]),
            ((0.41, 0.005, 0.085, 0.007, 0.003), ["41.0 %", "8.5 %", "1.5 %"]),
            ((0.4295, 0.08, 0, 0.0005, 0), ["43.0 %", "8.0 %"]),
            ((0, 0, 0.08, 0.42, 0.01), ["42.0 %", "8.0 %", "1.0 %"]),
            ((0.505, 0.003, 0.002, 0, 0), []),  # the schedule's own alone
        ],
    )
    def test_the_parts_of_a_bubble_add_up_to_it(self, parts, shares, snapshot):
        pipeline = jobs.pipeline(parts=jobs.BubbleParts(*parts))
        [sentence] = verdict_of(jobs.job(*FOUR, pipeline=pipeline))
        # after the stages, the microbatches, the bubble and that of the theory
        assert figures(sentence)[2:4] == ["51.0 %", "42.9 %"]
        assert figures(sentence)[4:] == shares
        assert sentence == snapshot

    def test_a_pipeline_of_an_unknown_schedule(self, snapshot):
        unknown = jobs.pipeline(
            schedule="unknown",
            microbatches=None,
            why="no file of rank 4",
            measured_bubble=None,
            theory_bubble=None,
            parts=None,
            per_stage=(),
        )
        assert figures(verdict_of(jobs.job(*FOUR, pipeline=unknown))) == ["4", "4"]
        assert verdict_of(jobs.job(*FOUR, pipeline=unknown)) == snapshot

    @pytest.mark.parametrize("size", [2, 128, None])
    def test_ranks_without_a_file_are_told_first(self, size):
        job = jobs.job(*FOUR[:2])
        report = report_of(job)
        traces = tuple(replace(x, world_size=size) for x in report.traces)
        sentences = job_sentences(replace(report, traces=traces), rank_shares(report))
        assert sentences[0].startswith("2 of 128 ranks") == (size == 128)

    def test_of_a_job_without_steps_only_stragglers_are_told(self, snapshot):
        times = (jobs.RankTimes(0, ()), jobs.RankTimes(1, ()))
        assert verdict_of(jobs.job(*times)) == []
        slow = jobs.straggler(waiting=(0,), steps=0, steps_seen=0)
        assert figures(verdict_of(jobs.job(*times, stragglers=(slow,)))) == [
            "1",
            "0",
            "2.40 ms",
            "1.5",
        ]
        assert "(24.0 % of" in verdict_of(jobs.job(*times, stragglers=(slow,)))[0]
        assert verdict_of(jobs.job(*times, stragglers=(slow,))) == snapshot


class TestTables:
    JOB = jobs.job(
        *FOUR,
        stragglers=(jobs.straggler(),),
        collectives=(*WAITS, jobs.collective(1, 1, end_ms=2, operation="broadcast", group="1")),
    )

    def test_the_full_text_has_the_machine_and_how_long_a_step_takes(self):
        report = report_of(self.JOB)
        named = {"software": {"torch": "2.7.0"}}
        traces = tuple(replace(x, **named) for x in report.traces)
        first, verdict, *_ = sections_of(replace(report, traces=traces))
        assert first.lines[-1] == "PyTorch 2.7.0"
        assert verdict.lines[0].startswith("Step: 10.0 ms")

    def test_what_the_host_column_of_a_pipeline_is(self, snapshot):
        section = section_of(report_of(jobs.job(*FOUR, pipeline=jobs.pipeline())), PER_STEP)
        assert section.columns[-1].title == "CPU"
        assert section.notes == snapshot

    def test_that_nothing_was_matched_is_said_and_counted(self, snapshot):
        times = (jobs.rank_times(0, unmatched=2), jobs.rank_times(1))
        job = jobs.job(
            *times, unmatched=(Unmatched(0, 4, "4 not in the recordings of the others"),)
        )
        assert verdict_of(job) == snapshot
        assert any(
            "4 not in the recordings" in x for x in section_of(report_of(job), "Collectives").notes
        )

    def test_critical_path_by_rank_and_kind_and_what_it_consists_of(self, snapshot):
        path = jobs.critical_path(
            jobs.segment(1, "compute", 15, "void gemm<4>(int)", call="mm", operator="aten::mm"),
            jobs.segment(0, "host", 4, "next", function="train", file="train.py"),
            jobs.segment(0, "comm", 0.999, "all_reduce"),
            jobs.segment(0, "queue", 0.001),
        )
        section = section_of(
            report_of(jobs.job(*FOUR, critical_path=path)), "Critical path of the job"
        )
        assert figures(section.lines) == [
            "2",
            "10.00 ms",
            "75.0 %",
            "1,",
            "25.0 %",
            "0",
            "75.0 %",
            "20.0 %",
            "5.0 %",
            "<0.1 %",
        ]
        assert section.lines == snapshot
        assert section.rows == (
            ("1", "compute", "75.0 %", "7.50 ms", "gemm", "`mm`"),
            ("0", "CPU", "20.0 %", "2.00 ms", "next", "`next` in train (train.py)"),
            ("0", "comm", "5.0 %", "499.5 µs", "all_reduce", ""),
        )
        assert section.notes == ("… and 1 row more (all of them in --json).",)

    def test_critical_path_of_many_ranks_and_without_steps(self, snapshot):
        segments = [jobs.segment(rank, "compute", 10 - rank) for rank in range(7)]
        path = jobs.critical_path(*segments, steps=())
        section = section_of(
            report_of(jobs.job(*FOUR, critical_path=path)), "Critical path of the job"
        )
        assert figures(section.lines[0]) == [
            "49.00 ms",
            "20.4 %",
            "0,",
            "18.4 %",
            "1,",
            "16.3 %",
            "2,",
            "14.3 %",
            "3,",
            "3",
        ]
        assert section.lines[0] == snapshot
        assert [column.title for column in section.columns][3] == "time"

    def test_communication_with_ranks_without_a_file_has_a_column(self):
        times = tuple(jobs.rank_times(x, (0, 1, 2), unmatched=2, transfer=1) for x in range(2))
        report = report_of(jobs.job(*times))
        section = section_of(report, "How the ranks spend a steady step")
        assert [x.title for x in section.columns][4:6] == ["transfer", "unmatched"]
        assert section.rows[0][2:6] == ("70 %", "0 %", "10 %", "20 %")

    def test_ranks(self):
        section = section_of(report_of(self.JOB), "How the ranks spend a steady step")
        assert [column.title for column in section.columns][-3:] == [
            "transfer",
            "idle",
            "waits for",
        ]
        assert section.rows[1] == ("1", "10.0 ms", "80 %", "0 %", "10 %", "10 %", "-")

    def test_of_many_ranks_those_that_wait_and_the_straggler(self):
        times = [
            jobs.rank_times(rank, steps=(0, 1, 2), wait=3 if rank > 50 else 0) for rank in range(64)
        ]
        job = jobs.job(*times, stragglers=(jobs.straggler(7),))
        section = section_of(report_of(job), "How the ranks spend a steady step")
        numbers = [int(row[0]) for row in section.rows]
        assert len(numbers) == 24
        assert {7, *range(51, 64)} <= set(numbers)
        assert section.notes[0] == "… and 40 more ranks"

    def test_collectives_by_group_operation_and_size(self):
        section = section_of(report_of(self.JOB), "Collectives")
        assert section.rows == (
            (
                "0",
                "all_reduce",
                "1 MiB",
                "3",
                "4.00 ms",
                "4.00 ms",
                "1.00 ms",
                "-",
                "-",
                "rank 1: more work",
            ),
            (
                "1",
                "broadcast",
                "1 MiB",
                "1",
                "0",
                "0",
                "1.00 ms",
                "-",
                "-",
                "all within the error of the clocks",
            ),
        )

    def test_collectives_of_other_sizes_are_apart(self):
        sizes = (1_000, 1_023, 1_024)
        several = tuple(jobs.collective(1, 2, end_ms=3, message_bytes=x) for x in sizes)
        section = section_of(report_of(jobs.job(*FOUR, collectives=several)), "Collectives")
        assert [row[2:4] for row in section.rows] == [("1,011 B", "2"), ("1 KiB", "1")]

    def test_bandwidths_are_medians(self):
        several = tuple(
            jobs.collective(1, 2, end_ms=3, algorithm_gbps=x, bus_gbps=2 * x) for x in (1, 2, 90)
        )
        section = section_of(report_of(jobs.job(*FOUR, collectives=several)), "Collectives")
        assert section.rows[0][7:9] == ("2.0", "4.0")

    def test_clocks(self, snapshot):
        shifted = jobs.clock(1, offset_ns=-2 * MS, drift_ppm=12.5, residual_ns=9_000)
        clocks = jobs.Alignment(9_000, 0, (jobs.clock(0, basis="reference"), shifted))
        job = jobs.job(*FOUR[:2], alignment=clocks)
        section = section_of(report_of(job), "Clocks")
        assert figures(section.lines) == ["0", "9.00 µs"]
        assert section.lines == snapshot
        assert section.rows[1] == (
            "1",
            "-2.00 ms",
            "+12.50 ppm",
            "20",
            "9.00 µs",
            "collectives",
        )

    def test_pipeline_per_stage(self):
        late = jobs.stage(3, steady_ns=5 * MS, host_microbatch_ns=800_000, bubble=0.5)
        pipeline = jobs.pipeline(per_stage=(*map(jobs.stage, range(3)), late))
        report = report_of(jobs.job(*FOUR, pipeline=pipeline))
        shares = section_of(report, "Pipeline, shares of the schedule").rows
        assert shares[0] == (
            "0",
            "0",
            "60.0 %",
            "30.0 %",
            "10.0 %",
            "0 %",
            "0 %",
            "0 %",
            "0 %",
            "40.0 %",
        )
        phases = section_of(report, PER_STEP).rows
        assert phases[3] == (
            "3",
            "3",
            "2.00 ms",
            "1.00 ms",
            "2.50 ms",
            "0",
            "2.00 ms",
            "1.00 ms",
            "750.0 µs",
            "800.0 µs",
        )

    def test_several_pipelines_are_numbered(self):
        stages = tuple(replace(jobs.stage(x), pipeline=n) for n in (0, 1) for x in (0, 1))
        pipeline = jobs.pipeline(2, pipelines=2, per_stage=stages)
        report = report_of(jobs.job(*FOUR, pipeline=pipeline))
        section = section_of(report, "Pipeline, shares of the schedule")
        assert [row[:2] for row in section.rows] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
