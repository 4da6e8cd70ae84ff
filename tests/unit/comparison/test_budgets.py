import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build.reports import report
from tests.figures import figures
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.comparison.budget_check import check
from tracelab.comparison.budgets import NAMES, BudgetResult, Budgets, parse_budgets, parse_toml
from tracelab.findings.finding import Finding, Where
from tracelab.measures.window_times import SteadyMetrics
from tracelab.model.graph import EventLinks
from tracelab.render.budgets import render_budgets
from tracelab.report.schema import (
    BlockingCallMetrics,
    DeviceMetrics,
    Job,
    OverlapMetrics,
    Provenance,
    TraceInfo,
    WindowMetrics,
)

MS = 1_000_000
DOCS = Path(__file__).parents[3] / "tracelab" / "docs"


def make_device(device=0, **figures):
    names = [x for x in DeviceMetrics.__struct_fields__ if x.endswith("_ns")]
    parts = {"streams": (), "bubbles": {}, "unknown_reasons": {}}
    return DeviceMetrics(**{"device": device, **dict.fromkeys(names, 0), **parts, **figures})


def make_window(*devices, rank=0, step=None, length_ns=100 * MS):
    return WindowMetrics(rank, step, 0, length_ns, devices or (make_device(),))


def make_steps(*lengths_ms, rank=0):
    return [
        make_window(rank=rank, step=i, length_ns=round(x * MS)) for i, x in enumerate(lengths_ms)
    ]


def make_trace(path, rank):
    links = EventLinks(0, 0, 0)
    return TraceInfo(path, rank, "filename", 1, 1, 1, {}, {}, {}, links, (), None)


def make_report(*windows, path="a.json", pattern="step", **parts):
    """Of one file, or of the ranks of a job."""
    windows = windows or (make_window(),)
    ranks = tuple(sorted({x.rank for x in windows}))
    parts = {"job": Job(ranks) if len(ranks) > 1 else None, **parts}
    return report(
        provenance=Provenance((path,), (), pattern, ()),
        traces=(make_trace(path, rank) for rank in ranks),
        windows=windows,
        **parts,
    )


def make_sync(count=1, *, rank=0, step=None, file="train.py", line=7):
    return BlockingCallMetrics(
        rank, step, "cudaStreamSynchronize", "stream", count, 9, 5, 0, None,
        "aten::item", None, "train", file, line,
    )  # fmt: skip


def make_finding(rule="TL101", severity="warning", *, rank=0, step=None, bound_ns=5, line=7):
    where = Where(1, file="train.py", line=line)
    return Finding(
        rule, f"title of {rule}", severity, rank, step, "x", 9, bound_ns, where, (), "fix"
    )


def one(report, before=None, step=None, **budgets):
    reports = report if isinstance(report, list) else [report]
    if before is not None:
        budgets["baseline"] = "before.json"
    [result] = check(Budgets(**budgets), reports, step=step, baseline=before)
    return result


class TestMaxIdle:
    @pytest.mark.parametrize(("idle_ns", "passes"), [(5 * MS, True), (5 * MS + 1, False)])
    def test_the_limit_itself_passes(self, idle_ns, passes):
        assert (
            one(make_report(make_window(make_device(idle_ns=idle_ns))), max_idle=5).passed == passes
        )

    def test_the_worst_device_is_told(self):
        window = make_window(make_device(0, idle_ns=3 * MS), make_device(1, idle_ns=8 * MS))
        result = one(make_report(window), max_idle=5)
        assert (result.measured, result.allowed, result.where) == ("8 %", "at most 5 %", "GPU 1")

    def test_what_is_just_broken_does_not_look_kept(self):
        window = make_window(make_device(idle_ns=5_001_000))
        assert one(make_report(window), max_idle=5).measured == "5.001 %"

    def test_a_window_without_length_is_kept(self):
        assert one(make_report(make_window(length_ns=0)), max_idle=0).passed

    def test_one_step(self):
        report = make_report(make_window(), make_window(make_device(idle_ns=9 * MS), step=3))
        assert one(report, max_idle=5).passed
        assert not one(report, max_idle=5, step=3).passed

    def test_every_rank_must_keep_it(self):
        worst = make_window(make_device(idle_ns=9 * MS), rank=1)
        assert one(make_report(make_window(), worst), max_idle=5).where == "rank 1, GPU 0"

    def test_reports_of_single_files_are_told_by_name(self):
        worst = make_report(make_window(make_device(idle_ns=9 * MS)), path="run/b.json")
        assert one([make_report(path="run/a.json"), worst], max_idle=5).where == "b, GPU 0"

    def test_files_that_are_not_one_job_are_told_by_name(self):
        # GIVEN two files of which nothing says that they are ranks of one job: their ranks are
        # places in a list
        idle = make_window(make_device(idle_ns=9 * MS), rank=1)
        both = make_report(make_window(), idle, job=None)
        traces = make_trace("run/a.pt.trace.json.gz", 0), make_trace("run/b.json", 1)
        # WHEN / THEN
        assert one(replace(both, traces=traces), max_idle=5).where == "b, GPU 0"


class TestMinOverlap:
    def make(self, comm_ns=10 * MS, overlap_ns=None, names=("kind:0/compute", "kind:0/comm")):
        device = make_device(compute_ns=50 * MS, comm_ns=comm_ns)
        if overlap_ns is None:
            return make_report(make_window(device))
        found = OverlapMetrics(0, None, *names, 50 * MS, comm_ns, overlap_ns)
        return make_report(make_window(device), overlaps=(found,))

    @pytest.mark.parametrize(("overlap_ms", "passes"), [(8, True), (7, False)])
    @pytest.mark.parametrize("order", [1, -1])
    def test_share_of_the_first_kind(self, overlap_ms, passes, order):
        names = ("kind:0/compute", "kind:0/comm")[::order]
        report = self.make(overlap_ns=overlap_ms * MS, names=names)
        result = one(report, min_overlap={("comm", "compute"): 80})
        assert (result.passed, result.measured) == (passes, f"{overlap_ms * 10} %")
        assert result.name == "min-overlap comm:compute"
        assert not one(report, min_overlap={("compute", "comm"): 80}).passed

    def test_silent_where_the_first_kind_did_not_run(self):
        result = one(self.make(comm_ns=0), min_overlap={("comm", "compute"): 80})
        assert result.passed
        assert result.where == "no comm ran"

    def test_nothing_together_fails(self):
        assert one(self.make(), min_overlap={("comm", "copy"): 80}).measured == "0 %"

    def test_the_worst_device_is_the_lowest(self):
        devices = (make_device(0, comm_ns=5), make_device(1, comm_ns=5), make_device(2))
        found = OverlapMetrics(0, None, "kind:0/compute", "kind:0/comm", 5, 5, 5)
        report = make_report(make_window(*devices), overlaps=(found,))
        assert one(report, min_overlap={("comm", "compute"): 0}).where == "GPU 1"


@pytest.mark.parametrize(("kind", "found"), [("comm", "3 %"), ("copy", "6 %")])
def test_max_exposed(kind, found):
    device = make_device(exposed_comm_ns=3 * MS, exposed_copy_ns=6 * MS)
    result = one(make_report(make_window(device)), max_exposed={kind: 4})
    assert (result.name, result.measured) == (f"max-exposed {kind}", found)
    assert result.passed == (kind == "comm")


class TestMaxBlockingCalls:
    def test_calls_a_step_and_the_place_that_makes_most(self):
        syncs = (make_sync(2, line=3), make_sync(4), make_sync(1), make_sync(9, step=1))
        report = make_report(make_window(), *make_steps(1, 1), syncs=syncs)
        result = one(report, max_blocking_calls=3)
        assert (result.measured, result.passed) == ("3.5 a step", False)
        assert (result.file, result.line) == ("train.py", 7)
        text = "most, 5 of 7 in 2 steps: cudaStreamSynchronize in train (train.py:7)"
        assert result.where == text

    def test_without_steps_the_total(self):
        result = one(make_report(syncs=(make_sync(3),)), max_blocking_calls=2)
        assert (result.measured, result.allowed, result.passed) == ("3", "at most 2", False)

    def test_one_step(self):
        report = make_report(
            make_window(), *make_steps(1, 1), syncs=(make_sync(4), make_sync(4, step=1))
        )
        assert one(report, max_blocking_calls=3).passed
        assert one(report, max_blocking_calls=3, step=1).measured == "4 a step"

    def test_none(self):
        result = one(make_report(), max_blocking_calls=0)
        assert (result.passed, result.where, result.file) == (True, "", None)

    def test_a_call_at_no_known_place(self):
        sync = replace(make_sync(file=None, line=None), function=None, operator=None)
        result = one(make_report(syncs=(sync,)), max_blocking_calls=0)
        assert result.where == "most, 1 of 1: cudaStreamSynchronize"


class TestForbid:
    def test_a_prefix_covers_its_rules(self):
        report = make_report(findings=(make_finding("TL203"),))
        assert one(report, forbid=("TL1",)).passed
        assert not one(report, forbid=("TL2",)).passed
        assert not one(report, forbid=("TL203",)).passed

    def test_info_fails_nothing_and_is_told(self):
        # GIVEN findings for information only WHEN / THEN they do not look as if they were not there
        infos = (make_finding(severity="info"), make_finding("TL102", "info", bound_ns=9))
        result = one(make_report(findings=infos), forbid=("TL1",))
        assert (result.passed, result.measured, result.allowed) == (
            *(True, "2, info only", "none above info"),
        )
        assert result.where == "TL102, info: title of TL102: train.py:7 (and 1 more)"
        # AND where one is above info, the others are not counted
        result = one(make_report(findings=(*infos, make_finding())), forbid=("TL1",))
        assert (result.passed, result.measured) == (False, "1 finding")
        # AND of a rule that found nothing, that is said
        assert one(make_report(findings=infos), forbid=("TL3",)).measured == "no finding"

    def test_the_dearest_is_told(self):
        report = make_report(
            findings=(make_finding(), make_finding("TL102", "critical", bound_ns=50, line=9))
        )
        result = one(report, forbid=("TL1",))
        assert result.measured == "2 findings"
        assert result.where == "TL102, critical: title of TL102: train.py:9 (and 1 more)"
        assert (result.file, result.line) == ("train.py", 9)

    def test_findings_of_a_step_are_not_in_the_report_of_the_whole(self):
        report = make_report(make_window(), *make_steps(1), findings=(make_finding(),))
        with pytest.raises(UsageError, match="findings of the whole trace only"):
            one(report, forbid=("TL1",), step=0)
        alone = make_report(*make_steps(1), findings=(make_finding(step=0),))
        assert not one(alone, forbid=("TL1",), step=0).passed


class TestSteps:
    @pytest.mark.parametrize(("limit", "passes"), [(20, True), (19.9, False)])
    def test_the_median_counts(self, limit, passes, snapshot):
        result = one(make_report(make_window(), *make_steps(10, 90, 20)), max_step_ms=limit)
        assert (result.measured, result.passed) == ("20 ms", passes)
        assert figures(result.where) == ["3"]
        assert result.where == snapshot

    def test_the_slowest_rank_counts(self):
        windows = [x for r in (0, 1) for x in (make_window(rank=r), *make_steps(5 + r, rank=r))]
        assert one(make_report(*windows), max_step_ms=5.5).where == (
            "rank 1, 1 step, none known to be steady"
        )

    def test_without_steps_it_cannot_be_said(self):
        with pytest.raises(UsageError, match="needs steps"):
            one(make_report(), max_step_ms=5)

    def regression(self, now, then, limit=5.0):
        reports = [make_report(make_window(), *make_steps(*x)) for x in (now, then)]
        return one(reports[0], reports[1], max_regression=limit)

    @pytest.mark.parametrize(("length", "passes"), [(105, True), (106, False), (50, True)])
    def test_single_steps_have_no_spread(self, length, passes):
        result = self.regression([length], [100])
        assert result.passed == passes
        assert result.measured == f"{length - 100:+d} %"

    def test_a_difference_inside_the_spread_is_kept_and_told(self):
        # GIVEN medians of 100 and 110, and an interquartile range of 12 before
        result = self.regression([110, 110, 110], [88, 94, 100, 106, 112])
        assert result.passed
        assert "within the spread of the steps (12.00 ms)" in result.where
        # AND one of 8: the difference is outside
        result = self.regression([110, 110, 110], [92, 96, 100, 104, 108])
        assert not result.passed
        assert "spread" not in result.where

    def test_the_spread_is_not_told_where_the_limit_is_kept(self):
        assert "spread" not in self.regression([101, 101], [50, 150]).where

    def test_a_rank_is_compared_with_itself(self):
        def job(*lengths):
            ranks = enumerate(lengths)
            return make_report(
                *(x for r, n in ranks for x in (make_window(rank=r), *make_steps(n, rank=r)))
            )

        now, then = job(10, 20), job(10, 15)
        result = one(now, then, max_regression=5)
        assert (result.measured, result.where.split(",")[0]) == ("+33.3 %", "rank 1")
        # AND with all of the baseline where that has no such rank
        assert one(job(10, 20), job(16), max_regression=30).measured == "+25 %"

    def test_a_baseline_without_length(self):
        assert self.regression([0], [0]).passed
        assert self.regression([1], [0]).measured == "+inf %"

    def test_steps_of_another_sort_are_not_compared(self):
        steps = make_steps(1)
        with pytest.raises(UsageError, match="only the same steps can be compared"):
            one(
                make_report(make_window(), *steps),
                make_report(make_window(), *steps, pattern="epoch"),
                max_regression=5,
            )

    def test_steps_found_by_another_name_are_not_compared(self):
        steps = make_steps(1)
        marked, found = (make_report(make_window(), *steps, path=path) for path in ("a", "b"))
        found = replace(found, traces=(replace(found.traces[0], step_pattern="^execute_"),))
        with pytest.raises(UsageError, match=r"steps are '\^execute_', but those of .* 'step'"):
            one(found, marked, max_regression=5)
        assert one(found, found, max_regression=5).passed

    def test_a_baseline_without_steps(self):
        with pytest.raises(UsageError, match=r"the baseline a\.json: max-regression needs steps"):
            one(make_report(make_window(), *make_steps(1)), make_report(), max_regression=5)


def make_steady(*devices, steps=(1, 2), lengths_ms=(10, 10), base_ms=None, **figures):
    """Steady steps that follow each other from 0."""
    total_ns = round(sum(lengths_ms) * MS)
    defaults = {
        "step_ns": total_ns // len(steps),
        "lengths_ns": tuple(round(x * MS) for x in lengths_ms),
        "unprofiled_step_ns": None,
        "gpu_floor_ns": 0,
        "device": 0,
        "left_out": (),
        "basis": "profiled",
        "baseline_error": None,
        "not_replayed": None,
        "devices": devices or (make_device(),),
        "unprofiled_ns": base_ms and round(base_ms * MS),
    }
    return SteadyMetrics(0, None, steps, 0, total_ns, **defaults | figures)


class TestSteadySteps:
    """A trace of three steps (0 to 2) of which the first holds work from before the recording."""

    def make(self, *, lengths_ms=(90, 10, 10), devices=((), (), ()), **parts):
        steps = (
            make_window(*of_step, step=number, length_ns=round(length_ms * MS))
            for number, (length_ms, of_step) in enumerate(zip(lengths_ms, devices, strict=True))
        )
        whole = make_window(
            make_device(idle_ns=80 * MS, exposed_comm_ns=60 * MS, copy_ns=40 * MS),
            length_ns=round(sum(lengths_ms) * MS),
        )
        return make_report(whole, *steps, **parts)

    def test_shares_are_of_the_steady_window(self):
        steady = make_steady(make_device(idle_ns=1 * MS, exposed_comm_ns=2 * MS))
        report = self.make(steady=(steady,))
        # 1 of 20 ms and 2 of 20 ms; of the whole trace 80 and 60 of 110
        result = one(report, max_idle=5)
        assert (result.measured, result.window) == ("5 %", "2 steady steps of 3")
        assert one(report, max_exposed={"comm": 9}).measured == "10 %"
        # AND a step that is asked for is measured alone
        assert one(report, max_idle=5, step=0).window == "step 0"

    def test_without_steady_steps_they_are_of_the_whole_trace(self, snapshot):
        result = one(self.make(), max_idle=5)
        assert figures((result.measured, result.window)) == ["72.7 %"]
        assert (result.measured, result.window) == snapshot

    def test_overlap_is_summed_over_the_steady_steps(self):
        # GIVEN 2 of 4 ms and 1 of 2 ms overlapped in the steady steps, and all of 30 ms before
        device = [(make_device(copy_ns=ms * MS, compute_ns=9 * MS),) for ms in (30, 4, 2)]
        kinds = "kind:0/compute", "kind:0/copy"
        pairs = [
            OverlapMetrics(0, step, *kinds, 9 * MS, copy_ms * MS, both_ms * MS)
            for step, copy_ms, both_ms in ((None, 36, 33), (0, 30, 30), (1, 4, 2), (2, 2, 1))
        ]
        report = self.make(devices=device, overlaps=pairs, steady=(make_steady(),))
        # WHEN / THEN
        result = one(report, min_overlap={("copy", "compute"): 80})
        assert (result.measured, result.passed) == ("50 %", False)
        assert result.window == "2 steady steps of 3"

    def test_calls_are_those_of_the_steady_steps(self, snapshot):
        # GIVEN 9 calls in the step that is not steady, 3 in those that are, 2 in none
        syncs = [
            make_sync(count, step=step, line=line)
            for step, count, line in ((None, 14, 7), (0, 9, 7), (1, 1, 8), (2, 2, 8))
        ]
        report = self.make(syncs=syncs, steady=(make_steady(),))
        # WHEN / THEN
        result = one(report, max_blocking_calls=1)
        assert (result.measured, result.passed, result.line) == ("1.5 a step", False, 8)
        assert figures(result.where) == ["3", "3", "2", "2"]
        assert result.where == snapshot

    def test_the_idle_of_a_call_before_the_step_is_no_call(self):
        syncs = [make_sync(1), make_sync(1, step=0), make_sync(0, step=1)]
        result = one(self.make(syncs=syncs, steady=(make_steady(),)), max_blocking_calls=0)
        assert (result.passed, result.measured, result.where) == (True, "0 a step", "")

    def test_the_median_is_that_of_the_steady_steps(self):
        report = self.make(lengths_ms=(90, 10, 12), steady=(make_steady(),))
        result = one(report, max_step_ms=11)
        assert (result.measured, result.passed) == ("11 ms", True)
        assert result.where == "median of 2 steady steps of 3"

    def test_steady_steps_are_compared_on_both_sides(self, snapshot):
        now = self.make(lengths_ms=(10, 20.5, 21.5), steady=(make_steady(),))
        then = self.make(lengths_ms=(80, 20, 20), steady=(make_steady(),))
        result = one(now, then, max_regression=4)
        # 21 ms against 20 ms; of all steps it would be 20.5 against 20
        assert (result.measured, result.passed) == ("+5 %", False)
        assert figures(result.where) == ["21.00 ms", "3", "20.00 ms", "3"]
        assert result.where == snapshot

    def test_what_the_profiler_slowed_is_said(self):
        # GIVEN steady steps of 20 ms that take 10 ms without the profiler
        device = make_device(idle_ns=15 * MS, exposed_copy_ns=1 * MS)
        steady = make_steady(device, base_ms=10, unprofiled_step_ns=5 * MS)
        report = self.make(steady=(steady,))
        # WHEN / THEN: idle is of the one, exposed copies, which do not shrink, of the other
        idle, copies = (one(report, max_idle=5), one(report, max_exposed={"copy": 5}))
        assert (idle.measured, idle.where) == ("75 %", "GPU 0, of the time with the profiler")
        assert copies.measured == "10 %"
        assert copies.where == "GPU 0, of the time without the profiler"
        assert one(report, max_step_ms=5).where.endswith("of 3, 5.00 ms without the profiler")

    def test_findings_are_of_the_whole_file(self):
        assert one(self.make(steady=(make_steady(),)), forbid=("TL",)).window == ""


class TestText:
    """The figures of the table are those of one window, which is named once."""

    def lines(self, *results):
        text = render_budgets(results, width=80, color=False)
        assert max(map(len, text.splitlines())) <= 80
        return text.splitlines()

    def test_one_window(self):
        idle = BudgetResult("max-idle", "6 %", "at most 5 %", False, "GPU 0", window="2 steps")
        lines = self.lines(idle, replace(idle, name="max-exposed copy", passed=True))
        assert lines[2:] == [
            "max-idle            6 %  at most 5 %  FAILED  GPU 0",
            "max-exposed copy    6 %  at most 5 %  passed  GPU 0",
            "",
            "Measured over 2 steps.",
            "",
            "1 of 2 budgets FAILED.",
        ]

    def test_several_windows_and_long_places(self, snapshot):
        idle = BudgetResult("max-idle", "6 %", "at most 7 %", True, "GPU 0", window="2 steps")
        long = "TL101, info: `item` in train (examples/some_folder/train.py:84) makes the host wait"
        forbid = BudgetResult("forbid TL101", "1, info only", "none above info", True, long)
        whole = replace(
            idle, name="max-exposed copy", window="the whole trace (no step is known to be steady)"
        )
        assert figures(self.lines(idle, whole, forbid)[2:]) == [
            "6 %",
            "7 %",
            "0,",
            "2",
            "6 %",
            "7 %",
            "1,",
            "0,",
            "3",
        ]
        assert self.lines(idle, whole, forbid)[2:] == snapshot


class TestWindows:
    def test_an_unknown_step(self):
        with pytest.raises(UsageError, match="no step 7; the file's steps are: 0 to 1"):
            one(make_report(make_window(), *make_steps(1, 1)), max_idle=5, step=7)

    def test_a_report_of_one_step_has_no_whole(self):
        with pytest.raises(UsageError, match=r"only step 0: select it with `step`$"):
            one(make_report(*make_steps(1)), max_idle=5)

    def test_a_report_of_nothing(self):
        with pytest.raises(UnreadableInputError):
            one(replace(make_report(), traces=()), max_idle=5)


class TestParsing:
    def test_the_documents_example_has_every_budget(self):
        text = re.search(r"```toml\n(.*?)```", (DOCS / "compare.md").read_text(), re.S)[1]
        assert parse_toml(text, "x", at_top=False) == Budgets(
            max_idle=5,
            min_overlap={("comm", "compute"): 80, ("copy", "compute"): 90},
            max_exposed={"comm": 5, "copy": 2},
            max_blocking_calls=0,
            forbid=("TL101", "TL2"),
            max_step_ms=25,
            max_regression=5,
            baseline="report.json",
        )

    @pytest.mark.parametrize("kind", ["comm", "copy", "memset"])
    def test_overlap_is_of_any_two_kinds(self, kind):
        assert parse_budgets({"min-overlap": {f"{kind}:compute": 80}}, "x") == Budgets(
            min_overlap={(kind, "compute"): 80}
        )

    def test_at_the_top_level_only_where_that_is_meant(self):
        assert parse_toml("max-idle = 5", "x", at_top=True) == Budgets(max_idle=5)
        assert parse_toml("[project]\nname = 'x'", "x", at_top=False) is None

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("max-idle", "this is not a valid TOML file"),
            ("[tool.ruff]", r"no \[tool.tracelab.check\]"),
            ("tool.tracelab.check = 3", "a table of budgets"),
            ("max-idle = 1\n[tool.tracelab.check]", "max-idle is outside"),
            (
                "max_idle = 1",
                "there is no budget 'max_idle'; the budgets are: max-idle, min-overlap",
            ),
            ("max-idle = '5'", "max-idle takes a number from 0 to 100, not '5'"),
            ("max-idle = true", "not True"),
            ("max-idle = -1", "not -1"),
            ("max-idle = 101", "not 101"),
            ("max-step-ms = nan", "a number of at least 0, not nan"),
            ("max-step-ms = inf", "not inf"),
            (f"max-step-ms = 1{'0' * 400}", "a number of at least 0"),
            ("min-overlap = 80", "a table of percentages"),
            ("min-overlap = {comm = 80}", "two kinds, such as comm:compute"),
            ("min-overlap = {'comm:comm' = 80}", "not 'comm:comm'"),
            ("min-overlap = {'comm:compute' = 180}", "min-overlap comm:compute takes"),
            ("max-exposed = {compute = 1}", "comm or copy, not 'compute'"),
            ("forbid = 'TL1'", "a list of rules"),
            ("forbid = ['TL7']", "no rule 'TL7'; the rules are: TL101"),
            ("forbid = ['']", "no rule ''"),
            ("baseline = 3", "takes a file name"),
            (f"max-idle = {'9' * 5000}", "this is not a valid TOML file"),
            (f"max-idle = 0x{'f' * 5000}", "not a number of thousands of digits"),
            (f"max-idle = {'[' * 5000}", "this is not a valid TOML file"),
            (f"forbid = ['{'x' * 5000}']", "no rule 'xxxxx"),
        ],
    )
    def test_what_makes_no_sense_is_a_sentence_with_the_file(self, text, words):
        with pytest.raises(UsageError, match=words) as found:
            parse_toml(text, "budgets.toml", at_top=True)
        assert str(found.value).startswith("budgets.toml: ")
        assert len(str(found.value)) < 400

    def test_every_name_is_a_budget(self):
        assert set(NAMES) == {x.replace("_", "-") for x in Budgets.__struct_fields__}

    def test_rules_in_any_case(self):
        assert parse_budgets({"forbid": ["tl101"]}, "x").forbid == ("TL101",)

    def test_the_later_wins(self):
        first = Budgets(max_idle=5, max_step_ms=3, max_exposed={"comm": 1, "copy": 2},
                        forbid=("TL1",), baseline="a")  # fmt: skip
        second = Budgets(max_idle=0, max_exposed={"copy": 9}, forbid=("TL2", "TL1"), baseline="b")
        assert first.updated(second) == Budgets(
            max_idle=0,
            max_step_ms=3,
            max_exposed={"comm": 1, "copy": 9},
            forbid=("TL1", "TL2"),
            baseline="b",
        )

    @pytest.mark.parametrize(
        ("budgets", "words"),
        [
            (Budgets(), "no budget is given.* the budgets are: max-idle"),
            (Budgets(baseline="x"), "a baseline needs max-regression"),
            (Budgets(max_regression=5), "needs a baseline"),
            (Budgets(max_regression=5, baseline="x"), "needs a baseline"),
        ],
    )
    def test_what_cannot_be_checked(self, budgets, words):
        with pytest.raises(UsageError, match=words):
            check(budgets, [make_report(make_window(), *make_steps(1))])
