"""The ranks of a job on the first screen: which, and how they spend a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.build import job_rows as jobs
from tests.build.report_rows import MS, make_device, make_job_report
from tests.figures import figures
from tracelab.render.ranks import ranks_of_job
from tracelab.render.text.screen import ranks_table
from tracelab.report.schema import STATED, JobDecision, Provenance

STEPS = (0, 1, 2)


def report_of(*times, **facts):
    return make_job_report(len(times), job=jobs.job(*times, **facts))


def table(report, most=25, width=80):
    """The lines below the empty one."""
    blank, *lines = [line.text.rstrip() for line in ranks_table(ranks_of_job(report), most, width)]
    assert blank == ""
    return lines


def ranks(lines):
    return [int(line.split()[0]) for line in lines]


def test_each_row_adds_up_to_a_step():
    # GIVEN 33.3 % of waiting, transferring and computing each
    times = [jobs.rank_times(x, STEPS, wait=3.33, transfer=3.33) for x in range(2)]
    lines = table(report_of(*times))
    assert lines[0].split() == [
        "rank",
        "step",
        "compute",
        "wait",
        "transfer",
        "idle",
        "waits",
        "for",
    ]
    # THEN they are 34, 33 and 33
    assert [figures(line)[2:] for line in lines[1:]] == [["34 %", "33 %", "33 %", "0 %"]] * 2


def test_time_between_two_steps_is_idle():
    # GIVEN steps of 9 ms that begin 10 ms apart
    times = [jobs.rank_times(x, STEPS, length=9) for x in range(2)]
    assert [figures(line)[-1] for line in table(report_of(*times))[1:]] == ["10 %"] * 2


@pytest.mark.parametrize(
    ("facts", "title"), [({"copy": 3}, "copies"), ({"unmatched": 2}, "unmatched")]
)
def test_what_some_ranks_do_has_a_column(facts, title):
    some = [jobs.rank_times(0, STEPS, **facts), jobs.rank_times(1, STEPS)]
    none = [jobs.rank_times(x, STEPS) for x in range(2)]
    with_it, without = table(report_of(*some)), table(report_of(*none))
    assert title in with_it[0]
    assert title not in without[0]
    [share] = {10 * x for x in facts.values()}
    assert f"{share} %" in with_it[1]


def test_columns_give_way_where_there_is_no_room():
    report = report_of(*[jobs.rank_times(x, STEPS, copy=3, unmatched=3) for x in range(2)])
    titles = [table(report, width=width)[0].split() for width in (80, 70, 60)]
    assert ["copies" in x for x in titles] == [True, False, False]
    assert ["transfer" in x for x in titles] == [True, True, False]
    assert all(len(line) <= 60 for line in table(report, width=60))


def test_of_many_ranks_the_straggler_whom_others_await_and_who_computes_least_are_there():
    # GIVEN 16 ranks: 3 is a straggler, all wait for 9, 12 computes least, 15 takes longer
    times = [
        jobs.rank_times(x, STEPS, wait=0 if x in (3, 9) else 6 if x == 12 else 4) for x in range(16)
    ]
    arrivals = [4.0] * 9 + [8.0] + [4.0] * 6
    waits = tuple(jobs.collective(*arrivals, end_ms=9, last=9, step=x) for x in STEPS)
    job = jobs.job(*times, stragglers=(jobs.straggler(3),), collectives=waits)
    report = make_job_report(16, job=job, step_ns=12 * MS)
    # WHEN
    lines = table(report, most=4)
    # THEN
    assert ranks(lines[1:5]) == [3, 9, 12, 15]
    assert any(figures(line) == ["12"] for line in lines)  # are left out


def test_ranks_that_are_unlike_most_are_named(snapshot):
    # GIVEN six ranks that compute for 9 of 10 ms; one for 6, and one for 9 of 12
    times = [jobs.rank_times(x, STEPS, wait=4 if x == 2 else 1) for x in range(8)]
    report = make_job_report(8, job=jobs.job(*times), step_ns=12 * MS)
    text = " ".join(table(report)[9:])
    assert figures(text.replace("(", "")) == [
        *("2", "60 %", "90 %"),
        *("7", "75 %", "90 %"),
    ]
    assert text == snapshot


def test_of_so_few_ranks_none_is_the_usual_one():
    times = [jobs.rank_times(x, STEPS, wait=4 * x) for x in range(2)]
    assert len(table(report_of(*times))) == 3


def test_without_the_times_of_the_job_it_says_how_busy_they_are():
    report = make_job_report(4, devices=(make_device(busy_ns=5 * MS, idle_ns=15 * MS),))
    lines = table(report)
    assert lines[0].split() == ["rank", "step", "GPU", "busy"]
    assert [figures(line)[-1] for line in lines[1:5]] == ["100 %"] * 3 + ["25 %"]
    assert figures(lines[5].replace("(", "")) == ["3", "25 %", "100 %"]


@pytest.mark.parametrize(("why", "named"), [(STATED, True), ("ranks", False)])
@pytest.mark.parametrize("width", [80, 100])
def test_files_that_the_caller_calls_a_job_are_named(why, named, width):
    report = report_of(*[jobs.rank_times(x, STEPS, copy=3) for x in range(2)])
    decision = JobDecision(is_job=True, why=why, recordings=((0, 1),))
    paths = ["run/" + "long_" * 9 + x for x in ("before.json", "after.json")]
    report = replace(
        report,
        provenance=Provenance(("run",), (), "", (), decision),
        traces=tuple(replace(x, path=y) for x, y in zip(report.traces, paths, strict=True)),
    )
    lines = table(report, width=width)
    assert max(map(len, lines)) <= width
    assert (lines[0].split()[1] == "file") == named
    assert any("before" in line for line in lines) == named
