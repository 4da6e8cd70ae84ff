"""The host's time without the profiler, row by row, against what was timed without it."""

from __future__ import annotations

import pytest

from tests.bundled_traces import FOLDER
from tracelab.analysis.analysis import analyze_source
from tracelab.read.sources import find_sources


@pytest.mark.parametrize(
    "name",
    [
        "train_step_clean",
        "inline_loader_numpy",
        "pipeline_1f1b_many_rank0",
        "optimizers_one_by_one",
        "reads_actions_checked",
    ],
)
def test_rows_add_up_to_what_the_host_took_without_the_profiler(name):
    [source] = find_sources([str(FOLDER / f"{name}.pt.trace.json.gz")])
    analysis = analyze_source(source)
    measured_ns = analysis.timeline.trace.info.unprofiled_host_step_ns

    for key in ("operators", "phases", "lines", "modules"):
        if rows := analysis.report.tables[key]:
            in_rows_ns = sum(row.host_unprofiled_ns for row in rows)
            assert in_rows_ns == pytest.approx(measured_ns, rel=0.005)
