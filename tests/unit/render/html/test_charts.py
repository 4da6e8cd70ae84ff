"""The page's charts: they tile the time that they show, and say what the tables say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.build import job_rows as jobs
from tests.build.report_rows import MS, make_device, make_steady_report
from tests.bundled_traces import files_of, report_of
from tracelab.measures.overlap import OverlapMetrics
from tracelab.render.html.charts import (
    bar_of,
    bars_of_ranks,
    job_charts,
    overlap_charts,
    parts_of,
    step_chart,
)
from tracelab.report.views import ranks_of

ONE_FILE = ("train_step_sinful", "data_parallel_data_parallel", "copies_one_stream", "events_item")
JOB = "ddp_hook_side_stream"


@cache
def ranks(name):
    return ranks_of(report_of(*files_of(name)))


@pytest.mark.parametrize("name", [*ONE_FILE, JOB])
def test_bars_are_whole_percents_and_columns_the_length_of_their_step(name):
    for rank in ranks(name):
        bar = bar_of(rank)
        assert sum(part.size for part in bar.parts) == 100
        assert all(part.size > 0 for part in bar.parts)
        for view in rank.views:
            for device in view.window.devices:
                assert sum(part.size for part in parts_of(device)) == view.length_ns


def test_a_bar_by_hand():
    # GIVEN 20 ms: 13 ms busy, of them 1 ms in copies alone; 4.9 and 2.1 ms idle by two causes
    device = make_device(
        busy_ns=13 * MS,
        idle_ns=7 * MS,
        compute_ns=12 * MS,
        exposed_copy_ns=MS,
        bubbles={"host_blocked": 4_900_000, "host_busy": 2_100_000},
    )
    [rank] = ranks_of(make_steady_report(device))
    # THEN they are 65, 60 and 5, 24.5 and 10.5 %; of 35 % a half goes to the larger cause
    assert [(part.kind, part.size) for part in bar_of(rank).parts] == [
        ("compute", 60),
        ("exposed_copy", 5),
        ("host_blocked", 25),
        ("host_busy", 10),
    ]


def test_a_bar_of_a_gpu_that_is_hardly_idle_has_no_causes():
    time_ns = {"busy_ns": 19_800_000, "compute_ns": 19_800_000, "idle_ns": 200_000}
    device = make_device(**time_ns, bubbles={"launch": 200_000})
    [rank] = ranks_of(make_steady_report(device))
    assert [(part.name, part.size) for part in bar_of(rank).parts] == [("compute", 99), ("idle", 1)]


def test_bars_of_ranks_tile_their_steps():
    bars = bars_of_ranks(report_of(*files_of(JOB)))
    assert [bar.name for bar in bars] == ["rank 0", "rank 1"]
    for bar in bars:
        assert sum(part.size for part in bar.parts) == 100


@pytest.mark.parametrize("name", ONE_FILE)
def test_columns_are_as_high_as_their_steps_are_long(name):
    [rank] = ranks(name)
    chart = step_chart(rank)
    assert chart.longest_ns == max(view.length_ns for view in rank.steps)
    columns = [(number, sum(part.size for part in parts)) for number, _, parts in chart.columns]
    assert columns == [(view.step, view.length_ns) for view in rank.steps]
    assert [label for _, label, _ in chart.columns] == [str(view.step) for view in rank.steps]


def test_one_step_is_no_chart():
    [rank] = ranks("events_item")
    assert step_chart(rank) is not None
    assert step_chart(replace(rank, steps=rank.steps[:1])) is None


def test_many_steps_of_a_job_share_columns():
    report = report_of(*files_of(JOB))
    compute = job_charts(report)[0]
    assert [name for name, _ in compute.rows] == ["rank 0", "rank 1"]
    times = report.job.per_rank[1].steps[2]
    share = times.compute_ns / (times.end_ns - times.start_ns)
    assert compute.rows[1][1][2].text == f"{100 * share:.0f}"
    assert all(np.isfinite(float(cell.strength)) for _, cells in compute.rows for cell in cells)


def heat_maps(*ranks):
    """What stands in the cells of each heat map of a job, from above."""
    report = replace(report_of(*files_of(JOB)), job=jobs.job(*ranks))
    return {
        chart.title: [[cell.text for cell in cells] for _, cells in chart.rows]
        for chart in job_charts(report)
    }


def test_shares_of_each_step_of_a_job():
    ranks = (
        jobs.rank_times(0, wait=4, transfer=1, idle=1),
        jobs.rank_times(1, transfer=1, idle=1),
    )
    assert heat_maps(*ranks) == {
        "Compute": [["40", "40"], ["80", "80"]],
        "Wait for other ranks": [["40", "40"], ["0", "0"]],
        "Transfer": [["10", "10"], ["10", "10"]],
        "Idle": [["10", "10"], ["10", "10"]],
    }


def test_copies_have_a_heat_map_where_there_are_some():
    assert "Copies" in heat_maps(jobs.rank_times(0, copy=0.2), jobs.rank_times(1))


def test_a_step_that_a_rank_lacks_is_empty():
    ranks = (jobs.rank_times(0, steps=(1, 2)), jobs.rank_times(1, steps=(2,)))
    first, second = heat_maps(*ranks)["Compute"]
    assert (first[0] != "", second[0]) == (True, "")


def test_overlap_by_hand():
    # GIVEN copies that ran for 300 ns, 240 ns of them with compute, which ran for 1,200 ns
    pairs = [
        OverlapMetrics(0, None, "kind:0/compute", "kind:0/copy", 1_200, 300, 240),
        OverlapMetrics(0, None, "stream:0/7", "stream:0/13", 1_200, 300, 0),
    ]
    kinds, streams = overlap_charts(pairs, several=False)
    # THEN 20 % of the compute overlapped with copies, and 80 % of the copies with compute
    assert [[cell.text for cell in cells] for _, cells in kinds.rows] == [["", "20"], ["80", ""]]
    assert kinds.rows[1][1][0].title == (
        "240 ns of the 300 ns of copy (80.0 %) overlapped with compute"
    )
    assert [name for name, _ in streams.rows] == ["stream 7", "stream 13"]
    assert streams.rows[0][1][1].text == "0"
    assert not overlap_charts(pairs[:0], several=False)
