import gzip
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.figures import figures
from tracelab.base.safe_text import escape_commands
from tracelab.comparison.budgets import BudgetResult
from tracelab.render.budgets import github_annotations, junit_xml

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "traces"
WAITS = TRACES / "prefetch_copy_stream_synchronize.pt.trace.json.gz"
GOOD = TRACES / "prefetch_copy_stream_pinned.pt.trace.json.gz"
WORKFLOW = ROOT / "tracelab" / "docs" / "reference" / "github_actions_example.yml"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def rows(out):
    """Budget to "passed" or "FAILED" of the table."""
    found = re.findall(r"^(m\S+(?: \w+(?::\w+)?)?|forbid \w+)  .*?(passed|FAILED)", out, re.M)
    return dict(found)


@pytest.fixture
def saved(tracelab, tmp_path):
    """Reports of the good trace and of the one that waits."""
    for trace, name in ((GOOD, "good.json"), (WAITS, "waits.json")):
        tracelab("analyze", trace, "--json", tmp_path / name)
    return tmp_path


def test_a_good_step_keeps_its_budgets(tracelab):
    ran = tracelab("check", GOOD, "--max-blocking-calls", "0", "--forbid", "TL101")
    assert (ran.code, ran.err) == (0, "")
    assert rows(ran.out) == {"max-blocking-calls": "passed", "forbid TL101": "passed"}


def test_a_blocking_call_breaks_them_and_is_named(tracelab):
    ran = tracelab("check", WAITS, "--max-blocking-calls", "0", "--forbid", "TL101")
    assert (ran.code, ran.err) == (1, "")
    assert rows(ran.out) == {"max-blocking-calls": "FAILED", "forbid TL101": "FAILED"}
    assert "1 a step" in ran.out
    assert "workloads/prefetch.py" in ran.out
    assert "2 of 2 budgets FAILED." in ran.out


def test_every_budget_as_a_flag(tracelab):
    ran = tracelab(
        *("check", WAITS, "--max-idle", "5", "--max-step-ms", "100", "--max-exposed", "copy=2"),
        *("--max-exposed", "comm=0", "--min-overlap", "copy:compute=80"),
        *("--min-overlap", "comm:compute=80", "--max-regression", "5", "--baseline", GOOD),
    )
    assert rows(ran.out) == {
        "max-idle": "FAILED",
        "min-overlap copy:compute": "passed",
        "min-overlap comm:compute": "passed",
        "max-exposed copy": "FAILED",
        "max-exposed comm": "passed",
        "max-step-ms": "passed",
        "max-regression": "FAILED",
    }
    assert "no comm ran" in ran.out


@pytest.mark.parametrize("name", ["waits.json", "waits.json.gz"])
def test_a_saved_report_says_the_same_as_its_trace(tracelab, saved, name):
    content = (saved / "waits.json").read_bytes()
    (saved / "waits.json.gz").write_bytes(gzip.compress(content))
    flags = ("--max-idle", "5", "--forbid", "TL", "--max-blocking-calls", "0")
    ran, of_trace = (tracelab("check", x, *flags) for x in (saved / name, WAITS))
    assert ran == of_trace
    assert ran.code == 1


def test_one_step(tracelab, saved):
    ran = tracelab("check", WAITS, "--step", "3", "--max-blocking-calls", "0.5", "--forbid", "TL1")
    assert ran.code == 1
    assert "1 a step" in ran.out
    ran = tracelab("check", WAITS, "--step", "9", "--max-idle", "5")
    assert (ran.code, "2 to 6" in ran.err) == (2, True)
    ran = tracelab("check", saved / "waits.json", "--step", "3", "--forbid", "TL1")
    assert (ran.code, "whole trace only" in ran.err) == (2, True)
    assert tracelab("check", saved / "waits.json", "--step", "3", "--max-idle", "90").code == 0


def test_patterns_reach_the_trace_and_are_refused_for_reports(tracelab, saved):
    ran = tracelab("check", GOOD, "--comm-pattern", "gemm", "--max-exposed", "comm=1")
    assert ran.code == 1
    ran = tracelab("check", GOOD, "--step-on", "^nothing$", "--max-step-ms", "100")
    assert (ran.code, "^nothing$" in ran.err) == (2, True)
    for flags in (("--comm-pattern", "gemm"), ("--step-on", "x")):
        ran = tracelab("check", saved / "good.json", *flags, "--max-idle", "50")
        assert (ran.code, flags[0] in ran.err) == (2, True)


@pytest.mark.parametrize("before", [GOOD, "good.json"])
def test_baseline_is_a_trace_or_a_report(tracelab, saved, before):
    flags = ("--baseline", before, "--max-regression")
    ran = tracelab("check", WAITS, *flags, "5")
    assert (ran.code, "+11" in ran.out) == (1, True)
    assert tracelab("check", saved / "waits.json", *flags, "50").code == 0
    assert tracelab("check", GOOD, *flags, "0").code == 0


def test_a_difference_inside_the_spread_is_kept(tracelab, saved):
    # GIVEN a baseline whose steps differ much among themselves
    report = json.loads((saved / "good.json").read_text())
    for i, window in enumerate(report["windows"][1:]):
        window["end_ns"] += (i - 2) * 600_000
    (saved / "noisy.json").write_text(json.dumps(report))
    # WHEN / THEN
    ran = tracelab("check", WAITS, "--baseline", "noisy.json", "--max-regression", "5")
    assert ran.code == 0
    assert "within the spread" in " ".join(ran.out.split())


def test_every_rank_must_keep_them(tracelab, snapshot):
    ran = tracelab("check", GOOD, WAITS, "--max-blocking-calls", "0")
    assert ran.code == 1
    # Two recordings of one GPU each: they are not ranks, so the file is named.
    text = " ".join(ran.out.split())
    assert {"5"} <= {*figures(text)}
    assert text == snapshot


def test_it_says_what_analyze_says_of_the_steady_steps(tracelab):
    """The whole trace begins after the first step does: 4.2 % of it are idle."""
    ran = tracelab("check", TRACES / "events_item.pt.trace.json.gz", "--max-idle", "5")
    assert (ran.code, " 6.0 % " in ran.out) == (1, True)
    assert "Measured over 5 steady steps." in ran.out
    screen = tracelab("analyze", TRACES / "events_item.pt.trace.json.gz").out
    assert "idle 6 %" in " ".join(screen.split())


@pytest.mark.parametrize(
    ("trace", "rule"), [("train_step_sinful", "TL101"), ("hiccup_once", "TL306")]
)
def test_what_is_there_for_information_only_is_said(tracelab, trace, rule):
    ran = tracelab("check", TRACES / f"{trace}.pt.trace.json.gz", "--forbid", rule)
    assert (ran.code, "no finding" in ran.out) == (0, False)
    assert re.search(r"\d, info only  none above info  passed", ran.out)
    assert f"forbid {rule}: {rule}, info: " in ran.out


def test_ranks_of_a_job_are_told_by_rank(tracelab):
    ranks = [TRACES / f"fsdp_item_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
    assert "rank 0, GPU 0" in tracelab("check", *ranks, "--max-idle", "1").out


def test_a_job_is_a_baseline_and_several_reports_are_none(tracelab, saved):
    folder = saved / "before"
    folder.mkdir()
    for i, trace in enumerate((WAITS, GOOD)):
        shutil.copy(trace, folder / f"rank{i}.pt.trace.json.gz")
    flags = ("--max-regression", "5", "--baseline")
    # A trace that names no rank is the first: rank 0 of the baseline is the one that waits.
    assert tracelab("check", WAITS, *flags, folder).code == 0
    for file in folder.iterdir():
        file.unlink()
    shutil.copy(saved / "good.json", folder)
    shutil.copy(saved / "waits.json", folder)
    ran = tracelab("check", WAITS, *flags, folder)
    assert (ran.code, "is a saved report" in ran.err) == (2, True)


def test_what_a_saved_report_left_out_is_told(tracelab, saved):
    report = json.loads((saved / "good.json").read_text())
    report["provenance"]["unread"] = [{"path": "r1.json", "reason": "r1.json: is empty"}]
    (saved / "part.json").write_text(json.dumps(report))
    ran = tracelab("check", saved / "part.json", "--max-idle", "50")
    assert (ran.code, "r1.json: is empty" in ran.err) == (0, True)


def test_traces_and_reports_together(tracelab, saved):
    ran = tracelab("check", GOOD, saved / "waits.json", "--max-blocking-calls", "0")
    assert ran.code == 1


class TestFiles:
    def test_pyproject_above_the_current_folder(self, tracelab, tmp_path, monkeypatch):
        # GIVEN budgets above a folder whose own pyproject.toml has none
        (tmp_path / "pyproject.toml").write_text("[tool.tracelab.check]\nmax-idle = 5\n")
        inner = tmp_path / "a" / "b"
        inner.mkdir(parents=True)
        (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
        monkeypatch.chdir(inner)
        # WHEN / THEN
        assert tracelab("check", WAITS).code == 1
        assert tracelab("check", GOOD).code == 0
        # AND flags win
        assert tracelab("check", WAITS, "--max-idle", "50").code == 0

    @pytest.mark.parametrize("head", ["", "[tool.tracelab.check]\n"])
    def test_named_file_with_a_baseline_beside_it(self, tracelab, saved, head):
        folder = saved / "ci"
        folder.mkdir()
        shutil.copy(saved / "good.json", folder / "before.json")
        budgets = folder / "budgets.toml"
        budgets.write_text(f'{head}baseline = "before.json"\nmax-regression = 5\n')
        ran = tracelab("check", WAITS, "--budgets", budgets)
        assert (ran.code, rows(ran.out)) == (1, {"max-regression": "FAILED"})

    @pytest.mark.parametrize("url", ["http://169.254.169.254/a.json?t=1", "//host/a.json"])
    def test_only_a_flag_names_a_baseline_on_another_host(self, tracelab, saved, url):
        """GIVEN a repository's file that would have a CI machine ask a host of its network."""
        content = f'[tool.tracelab.check]\nbaseline = "{url}"\nmax-regression = 5\n'
        (saved / "pyproject.toml").write_text(content)
        ran = tracelab("check", WAITS)
        assert (ran.code, ran.out) == (2, "")
        assert "only --baseline may name a file of another host" in ran.err
        assert "t=1" not in ran.err
        assert tracelab("check", WAITS, "--baseline", "good.json").code == 1

    def test_named_file_takes_the_place_of_pyproject(self, tracelab, tmp_path):
        (tmp_path / "pyproject.toml").write_text("[tool.tracelab.check]\nmax-idle = 0\n")
        (tmp_path / "x.toml").write_text("forbid = ['TL101']")
        assert rows(tracelab("check", GOOD, "--budgets", "x.toml").out) == {
            "forbid TL101": "passed"
        }

    @pytest.mark.parametrize("content", [None, b"max-idle = 'a'", b"\xff", b"max-idel = 5", b"["])
    def test_a_file_that_makes_no_sense_is_wrong_usage(self, tracelab, tmp_path, content):
        if content is not None:
            (tmp_path / "x.toml").write_bytes(content)
        ran = tracelab("check", GOOD, "--budgets", "x.toml")
        assert (ran.code, ran.out) == (2, "")
        assert "x.toml" in ran.err
        assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "the budgets are: max-idle, min-overlap, max-exposed, max-blocking-calls, forbid"),
        (("--max-idle", "-1"), "0 to 100"),
        (("--max-idle", "nan"), "0 to 100"),
        (("--max-idle", "few"), "Invalid value for '--max-idle'"),
        (("--min-overlap", "80"), "comm:compute=80"),
        (("--max-exposed", "gemm=5"), "comm or copy"),
        (("--forbid", "TL7"), "TL101"),
        (("--max-regression", "5"), "baseline"),
        (("--baseline", GOOD), "max-regression"),
        (("--max-idle", "5", "--format", "html"), "html"),
    ],
)
def test_wrong_usage(tracelab, flags, words):
    ran = tracelab("check", GOOD, *flags)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


@pytest.mark.parametrize(
    "content", [b"", b"hello", b'{"schema": "tracelab.report/9"}', b'{"a": 1}', b"\x1f\x8bxx"]
)
def test_unreadable_input(tracelab, tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    for flags in (("x.json",), (GOOD, "--baseline", "x.json", "--max-regression", "5")):
        ran = tracelab("check", *flags, "--max-idle", "50")
        assert (ran.code, ran.out) == (3, "")
        assert "x.json" in ran.err
        assert len(ran.err.splitlines()) == 1


def test_missing_input(tracelab):
    assert tracelab("check", "none.json", "--max-idle", "5").code == 3


@pytest.mark.parametrize(("name", "code"), [("bad.pt.trace.json", 3), ("notes.json", 0)])
def test_a_rank_of_a_folder_that_cannot_be_read_is_not_passed_over(tracelab, tmp_path, name, code):
    folder = tmp_path / "ranks"
    folder.mkdir()
    shutil.copy(GOOD, folder / ("a.pt.trace.json.gz" if code else "a.json.gz"))
    (folder / name).write_text("{}")
    ran = tracelab("check", folder, "--max-idle", "50")
    assert ran.code == code
    assert rows(ran.out) == {"max-idle": "passed"}
    assert f"left out: {folder / name}" in ran.err


def test_what_a_damaged_trace_lacks_is_told(tracelab, tmp_path):
    content = gzip.decompress(GOOD.read_bytes())
    (tmp_path / "cut.json").write_bytes(content[: len(content) * 9 // 10])
    ran = tracelab("check", "cut.json", "--max-idle", "100")
    assert ran.code == 0
    assert "cut.json: TL9" in ran.err


class TestGithub:
    def test_annotations_then_the_table(self, tracelab, snapshot):
        flags = ("--max-blocking-calls", "0", "--max-idle", "5", "--max-step-ms", "100")
        ran = tracelab("check", WAITS, *flags, "--format", "github")
        assert ran.code == 1
        idle, calls, *table = ran.out.splitlines()
        # Of the steady steps; of the whole trace, which begins with its first activity, 6.8 %.
        assert figures(idle) == ["9.2", "25,", "5", "25", "0,", "5"]
        assert idle == snapshot
        assert calls.startswith(
            "::error title=tracelab%3A max-blocking-calls,file=workloads/prefetch.py"
        )
        assert "\n".join(table) + "\n" == tracelab("check", WAITS, *flags).out

    def test_nothing_broken_is_no_annotation(self, tracelab):
        ran = tracelab("check", GOOD, "--max-idle", "5", "--format", "github")
        assert (ran.code, "::" in ran.out) == (0, False)

    def test_escapes(self, snapshot):
        result = BudgetResult("x", "5 %", "1", False, "a\r\nb::c,d", "C:\\x,y%\n.py", 7)
        assert figures(github_annotations([result])) == ["25", "7", "5", "25,", "1"]
        assert github_annotations([result]) == snapshot

    def test_a_line_without_a_file_is_left_out(self):
        assert "line" not in github_annotations([BudgetResult("x", "1", "0", False, "", None, 7)])

    def test_names_of_a_file_command_nothing(self):
        text = "  ::stop-commands::x at::native\n##[error]y"
        assert escape_commands(text) == ("  : :stop-commands::x at::native\n# #[error]y")


class TestJunit:
    def test_a_case_for_each_budget_beside_the_text(self, tracelab, tmp_path):
        file = tmp_path / "new" / "x.xml"
        flags = ("--max-blocking-calls", "0", "--max-step-ms", "100")
        ran = tracelab("check", WAITS, *flags, "--junit", file)
        assert ran == tracelab("check", WAITS, *flags)
        root = ElementTree.parse(file).getroot()
        assert root.find("testsuite").attrib == {
            "name": "tracelab check",
            "tests": "2",
            "failures": "1",
            "errors": "0",
        }
        cases = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
        assert cases["max-step-ms"] is None
        assert "cudaStreamSynchronize" in cases["max-blocking-calls"].get("message")

    def test_any_text_is_valid(self):
        nasty = "a\x00\x1b[31m<b>&\"'\ud800\ufffe\r\n]]>\U0001f600"
        content = junit_xml([BudgetResult(nasty, nasty, nasty, False, nasty, nasty, 1)])
        [case] = ElementTree.fromstring(content).iter("testcase")
        assert case.get("name") == "a[31m<b>&\"'\r\n]]>\U0001f600"

    def test_a_file_that_cannot_be_written_is_told(self, tracelab, tmp_path):
        (tmp_path / "x").write_text("")
        ran = tracelab("check", GOOD, "--max-idle", "50", "--junit", tmp_path / "x" / "y.xml")
        assert (ran.code, "cannot write" in ran.err) == (5, True)


@pytest.mark.parametrize("step", [3, 4, 5, 6])
def test_a_step_is_charged_the_idle_of_the_call_that_the_step_before_made(tracelab, step):
    # The synchronize at the end of each step keeps the GPU idle at the beginning of the next.
    trace = TRACES / "prefetch_copy_stream_synchronize.pt.trace.json.gz"
    ran = tracelab("check", trace, "--step", step, "--forbid", "TL101")
    assert ran.code == 1
    assert "forbid TL101  1 finding" in ran.out
