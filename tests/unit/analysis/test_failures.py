"""A bug that one file shows costs a table or a rule, and is told; the rest of the report stays."""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace

import pytest
from msgspec.structs import force_setattr

from tests.build.files import US, annotation, kernel, launch, write
from tests.bundled_traces import FOLDER
from tracelab import analyze
from tracelab.analysis import analysis
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.errors import CrashError
from tracelab.base.options import Options
from tracelab.findings.registry import RULES
from tracelab.measures import window_times
from tracelab.measures.measure import Measure
from tracelab.measures.overlap import OverlapMetrics
from tracelab.measures.registry import MEASURES
from tracelab.read.sources import find_sources
from tracelab.render.registry import render_as
from tracelab.report import build

MS = 1000 * US
OPTIONS = Options(cache=False)
_TOLD = "1 of the parts of the analysis failed"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Copies of bundled traces: reports of the traces themselves are shared by all tests."""
    folder = tmp_path_factory.mktemp("traces")
    for name in ("events_item", "straggler_even_rank0", "straggler_even_rank1"):
        shutil.copy(FOLDER / f"{name}.pt.trace.json.gz", folder)
    return folder


@pytest.fixture(scope="module")
def trace(folder):
    return folder / "events_item.pt.trace.json.gz"


@pytest.fixture(scope="module")
def job(folder):
    return [folder / f"straggler_even_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]


@pytest.fixture(scope="module")
def whole(trace):
    return analyze(trace, OPTIONS)


# Traces that had crashed the analysis, found by mutants and reduced to a few events.


def overlapping():
    """Two kernels of one stream at the same time, the first much longer than its step."""
    return [
        annotation("ProfilerStep#4", 0, 423 * US),
        annotation("ProfilerStep#5", 442 * US, 836 * US),
        launch(394 * US, 398 * US, 1),
        kernel(70 * MS, 1_748 * MS, correlation=1),
        launch(538 * US, 543 * US, 2),
        kernel(84 * MS, 84 * MS + US, correlation=2),
    ]


def steps_of_two_threads():
    """The second step is on another thread, and the first one's thread launches in it."""
    return [
        annotation("ProfilerStep#4", 0, 21 * MS),
        annotation("ProfilerStep#5", 21 * MS, 44 * MS, tid=7),
        launch(38 * MS, 38 * MS + 9 * US, 1),
        kernel(38 * MS + 20 * US, 38 * MS + 180 * US, correlation=1),
        launch(38 * MS + 200 * US, 38 * MS + 210 * US, 2),
        kernel(38 * MS + 220 * US, 38 * MS + 320 * US, correlation=2),
    ]


def steps_of_no_length():
    return [
        *(annotation(f"ProfilerStep#{i}", at, at) for i, at in enumerate((0, 4 * MS, 7 * MS))),
        launch(4 * MS + 180 * US, 4 * MS + 180 * US, 1),
        kernel(4 * MS + 200 * US, 4 * MS + 200 * US, correlation=1),
    ]


def huge_group():
    """Collectives of more ranks than an int64 of their latency holds."""
    group = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2.0**53}
    events = [annotation("ProfilerStep#0", 0, 300 * US)]
    for i in range(6):
        begin = 50 * i * US
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        events += [
            launch(begin, begin + US, i + 1),
            kernel(begin + 2 * US, begin + 9 * US, name, correlation=i + 1, **group),
        ]
    return events


@pytest.mark.parametrize(
    ("events", "timed_ms", "why"),
    [
        (overlapping, "1", "take no time"),
        (steps_of_two_threads, "27.085", "99 % shorter"),
        (steps_of_no_length, "3", None),
        (huge_group, "1", None),
    ],
)
def test_a_damaged_trace_has_a_whole_report(tmp_path, events, timed_ms, why):
    recorder = {f"unprofiled_{x}": timed_ms for x in ("step_ms", "host_step_ms")}
    recorder["unprofiled_block_steps"] = "2"
    path = write(tmp_path / "t.json", events(), before={"tracelab": recorder})

    report = analyze(path, OPTIONS)

    assert "failed_parts" not in report.traces[0].losses
    [savings] = report.savings
    assert savings.not_replayed is None if why is None else why in savings.not_replayed


# Bugs that a test makes.


def broken(function):
    @functools.wraps(function)  # the names of its parameters say what it gets
    def breaks(*_arguments, **_options):
        raise ZeroDivisionError("a bug")

    return breaks


@pytest.fixture
def break_field():
    """Break a function that a record holds, until the test is over."""
    kept = []

    def break_one(record, name):
        kept.append((record, name, getattr(record, name)))
        force_setattr(record, name, broken(getattr(record, name)))

    yield break_one
    for record, name, value in kept:
        force_setattr(record, name, value)


def failed_parts(report):
    """The parts that the losses name, each with what was raised."""
    names = [x.name for one in report.traces for x in one.loss_names]
    count = sum(one.losses.get("failed_parts", 0) for one in report.traces)
    assert len(names) == count
    return dict(name.split(": ") for name in names)


@pytest.mark.parametrize("measure", [x for x in MEASURES if x is not window_times.WINDOWS])
def test_a_bug_in_a_measure_costs_its_table_alone(break_field, trace, whole, measure):
    break_field(measure, "rows")

    report = analyze(trace, OPTIONS)

    [(part, error)] = failed_parts(report).items()
    assert part == measure.key
    assert error.startswith("ZeroDivisionError at ")
    assert report.tables[measure.key] == ()
    for other in MEASURES:
        if other is not measure:
            assert report.tables[other.key] == whole.tables[other.key]
    assert report.findings == whole.findings
    assert report.savings == whole.savings
    look = {"width": 80, "color": False}
    assert _TOLD in render_as(report, "text", **look)
    assert f"`{part}: {error}`"[:50] in render_as(report, "text", full=True, **look).replace(
        "\n     ", " "
    )


def test_without_windows_there_is_no_report(break_field, trace):
    break_field(window_times.WINDOWS, "rows")
    with pytest.raises(ZeroDivisionError):
        analyze(trace, OPTIONS)


def test_a_bug_in_a_rule_costs_its_findings_alone(break_field, trace, whole):
    [rule] = [x for x in RULES if x.id == "TL101"]
    assert [x.rule for x in whole.findings] == ["TL101", "TL205"]
    break_field(rule, "find")

    report = analyze(trace, OPTIONS)

    assert list(failed_parts(report)) == ["TL101"]
    assert "TL101" not in [x.rule for x in report.findings]
    assert "TL205" in [x.rule for x in report.findings]
    assert report.tables == whole.tables


@pytest.mark.parametrize("name", ["find_baseline", "Sites"])
def test_a_bug_in_the_replay_costs_the_savings_alone(monkeypatch, trace, whole, name):
    monkeypatch.setattr(analysis, name, broken(getattr(analysis, name)))

    report = analyze(trace, OPTIONS)

    assert list(failed_parts(report)) == ["replay"]
    assert [(x.rule, x.saves_ns) for x in report.findings] == [("TL101", None), ("TL205", None)]
    assert report.windows == whole.windows
    assert report.savings[0].saves_ns is None


def test_a_bug_in_prices_costs_the_savings_alone(monkeypatch, trace, whole):
    real = analysis.price_findings
    calls = []

    def fails_once(*arguments):
        calls.append(arguments)
        return broken(real)() if len(calls) == 1 else real(*arguments)

    monkeypatch.setattr(analysis, "price_findings", fails_once)

    report = analyze(trace, OPTIONS)

    assert list(failed_parts(report)) == ["savings"]
    assert "replay failed" in report.savings[0].not_replayed
    assert report.tables == whole.tables


@pytest.mark.parametrize("name", ["host_clock", "what_ran", "few_blocks", "add_surroundings"])
def test_any_other_bug_leaves_findings(monkeypatch, trace, whole, name):
    monkeypatch.setattr(analysis, name, broken(getattr(analysis, name)))

    report = analyze(trace, OPTIONS)

    assert failed_parts(report)
    assert [x.rule for x in report.findings] == [x.rule for x in whole.findings]
    assert report.windows == whole.windows


def test_a_bug_in_a_measure_of_the_user_is_raised(trace):
    mine = Measure("mine", OverlapMetrics, broken(lambda: ()))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        analyze(trace, OPTIONS, measures=(*MEASURES, mine))


def test_a_bug_in_what_joins_ranks_leaves_their_reports(monkeypatch, job):
    whole = analyze(job, OPTIONS)
    monkeypatch.setattr(build, "merge", broken(build.merge))

    report = analyze(job, OPTIONS)

    assert list(failed_parts(report)) == ["job"]
    assert report.tables == whole.tables
    assert report.job.ranks == (0, 1)
    assert not report.job.collectives
    assert _TOLD in render_as(report, "text", width=80, color=False)


def test_a_table_that_one_rank_lacks_makes_no_other_do_more(monkeypatch, job):
    [kernels] = [x for x in MEASURES if x.key == "kernels"]
    seen = []
    real = build.merge
    monkeypatch.setattr(build, "merge", lambda *given: seen.append(given[1]) or real(*given))
    results = [analyze_file(x, OPTIONS) for x in find_sources(list(map(str, job)))]
    report = results[1].report
    lost = replace(report.traces[0], losses={"failed_parts": 1})
    tables = {**report.tables, kernels.key: ()}
    results[1] = replace(results[1], report=replace(report, traces=(lost,), tables=tables))

    merged = merge_results(results, (), OPTIONS)

    assert [*seen[0]] == ["windows"]
    assert merged.job.per_rank


def test_a_file_on_which_all_fails_is_left_out(monkeypatch, job):
    real = analysis.Analysis.open
    monkeypatch.setattr(
        analysis.Analysis, "open", lambda x: broken(real)() if "rank1" in x.source.path else real(x)
    )

    report = analyze(job, OPTIONS)

    [left_out] = report.provenance.unread
    assert "which is a bug (ZeroDivisionError at " in left_out.reason
    assert [x.rank for x in report.traces] == [0]
    with pytest.raises(CrashError) as raised:
        merge_results([analyze_file(find_sources([str(job[1])])[0], OPTIONS)], (), OPTIONS)
    assert raised.value.exit_code == 70


# What a command says.


def test_a_command_says_what_failed_and_ends_well(break_field, tracelab, trace):
    break_field(MEASURES[-1], "rows")

    ran = tracelab("analyze", trace, "--no-cache")

    assert ran.code == 0
    assert _TOLD in ran.out


def test_a_check_in_which_a_rule_failed_does_not_pass(break_field, tracelab, trace):
    [rule] = [x for x in RULES if x.id == "TL101"]
    break_field(rule, "find")

    ran = tracelab("check", trace, "--forbid", "TL101", "--no-cache")

    assert ran.code == 3
    assert "a bug in tracelab cost" in ran.err


def test_a_report_in_which_a_table_failed_is_not_compared(break_field, tracelab, trace):
    break_field(MEASURES[-1], "rows")

    ran = tracelab("diff", trace, trace, "--no-cache")

    assert ran.code == 3
    assert "not compared, as a bug" in ran.err
