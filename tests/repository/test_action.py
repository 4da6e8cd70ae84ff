"""The GitHub action: its steps, and its script with a pull request whose comments are a file."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tracelab

yaml = pytest.importorskip("yaml", reason="reading the action needs PyYAML: install .[dev]")

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
SCRIPT = ROOT / ".ci" / "action"
TRACE = ROOT / "traces" / "events_item.pt.trace.json.gz"
FIXED = ROOT / "traces" / "events_wait.pt.trace.json.gz"
DOCUMENT = ROOT / "tracelab" / "docs" / "reference" / "check.md"
MARKER = "<!-- tracelab action: tracelab -->"
TRACELAB = f"""#!/bin/sh
PYTHONPATH="{ROOT}" exec "{sys.executable}" -m tracelab "$@"
"""
# `gh` with the comments of one pull request in a file; a token that may only read fails to write.
GH = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
arguments = sys.argv[1:]
file = Path(os.environ["COMMENTS"])
comments = json.loads(file.read_text())
assert os.environ["GH_REPO"] == "some/where"
if arguments[:4] == ["pr", "view", "7", "--json"]:
    for number, body in comments.items():
        if body.startswith(os.environ["MARKER"]):
            print(f"https://github.com/some/where/pull/7#issuecomment-{{number}}")
elif os.environ["GH_TOKEN"] == "reads":
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
elif arguments[:4] == ["pr", "comment", "7", "--body-file"]:
    comments[str(len(comments) + 1)] = Path(arguments[4]).read_text()
elif arguments[:4] == ["api", "--silent", "--method", "PATCH"]:
    field, _, body = arguments[6].partition("=@")
    assert (arguments[5], field) == ("--field", "body")
    number = arguments[4].removeprefix("repos/some/where/issues/comments/")
    comments[number] = Path(body).read_text()
else:
    sys.exit(f"unknown: {{arguments}}")
file.write_text(json.dumps(comments))
"""


class Job:
    """A job in which the action runs: its workspace, programs, and the pull request's comments."""

    def __init__(self, folder, script):
        self.folder, self.script = folder, script
        self.workspace, self.comments = folder / "workspace", folder / "comments.json"
        for name in ("workspace", "bin", "temp"):
            (folder / name).mkdir()
        self.comments.write_text(json.dumps({"1": "A comment of a person."}))
        for name, text in (("tracelab", TRACELAB), ("gh", GH)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def run(self, paths, *, pull_request="7", **inputs):
        """Run the script with inputs as `action.yml` passes them; return the finished process."""
        [step] = [step for step in STEPS if step.get("id") == "results"]
        given = {name: value.get("default", "") for name, value in ACTION["inputs"].items()}
        given |= {"paths": paths, "token": "writes"} | inputs
        for name in ("summary", "output"):
            (self.folder / name).write_text("")
        values = {
            variable: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda x: given[x[1]], value)
            for variable, value in step["env"].items()
        }
        runner = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "COMMENTS": str(self.comments),
            "GH_REPO": "some/where",
            "NUMBER": pull_request,
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "RUNNER_TEMP": str(self.folder / "temp"),
        }
        return subprocess.run(
            ["bash", self.script],
            env=os.environ | values | runner,
            capture_output=True,
            text=True,
            check=False,
        )

    def budget(self, text):
        """Write the budgets of the workspace."""
        (self.workspace / "pyproject.toml").write_text(f"[tool.tracelab.check]\n{text}\n")

    def commented(self):
        """The comments that the action wrote."""
        return [x for x in json.loads(self.comments.read_text()).values() if MARKER in x]

    def summary(self):
        return (self.folder / "summary").read_text()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Saved reports of the two traces, which take less time to read."""
    paths = [tmp_path_factory.mktemp("reports") / f"{name}.json" for name in ("trace", "fixed")]
    for trace, path in zip((TRACE, FIXED), paths, strict=True):
        tracelab.analyze(trace).save(path)
    return [str(path) for path in paths]


@pytest.fixture
def job(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("the action's script needs bash")
    return Job(tmp_path, SCRIPT)


def test_inputs_reach_scripts_as_variables_alone():
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) == 2
    assert not any("${{" in script for script in scripts)
    assert all(step["shell"] == "bash" for step in STEPS if "run" in step)
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == {*ACTION["inputs"]}


def test_documented_workflow_uses_inputs_that_are_there():
    [workflow] = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    steps = [step for job in yaml.safe_load(workflow)["jobs"].values() for step in job["steps"]]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    [given] = [step["with"] for step in steps if "/tracelab@" in step.get("uses", "")]
    assert {*given} <= {*ACTION["inputs"]}
    assert "paths" in given


def test_passed_budgets_are_in_the_log_the_summary_and_one_comment(job, reports):
    job.budget("max-idle = 10")
    for _ in range(2):
        ran = job.run(reports[0])
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "max-idle" in ran.stdout
    assert "tracelab check" in job.summary()
    [comment] = job.commented()
    assert comment == f"{MARKER}\n{job.summary()}"
    assert "A comment of a person." in job.comments.read_text()


def test_a_failed_budget_is_annotated_and_keeps_its_exit_code(job, reports):
    job.budget("max-idle = 10")
    job.run(reports[0])
    (job.workspace / "own.toml").write_text("max-idle = 1")
    ran = job.run(reports[0], budgets="own.toml")
    assert ran.returncode == 1
    assert "::error " in ran.stdout
    [comment] = job.commented()
    assert "FAILED" in comment


def test_without_a_pull_request_or_a_wish_there_is_no_comment(job, reports):
    job.budget("max-idle = 10")
    assert job.run(reports[0], pull_request="").returncode == 0
    assert job.run(reports[0], comment="false").returncode == 0
    assert job.commented() == []
    assert "tracelab check" in job.summary()


def test_a_token_that_may_not_write_is_told_and_fails_nothing(job, reports):
    job.budget("max-idle = 10")
    ran = job.run(reports[0], token="reads")
    assert ran.returncode == 0
    assert "::notice title=tracelab::" in ran.stdout
    assert job.commented() == []


def test_a_comparison_stands_below_the_budgets_and_fails_if_it_is_told_to(job, reports):
    job.budget("max-idle = 10")
    inputs = {"baseline": reports[1], "page": "page"}
    assert job.run(reports[0], baseline=reports[1]).returncode == 0
    ran = job.run(str(TRACE), **inputs, **{"max-regression": "1"})
    assert ran.returncode == 1
    [comment] = job.commented()
    assert comment.index("### tracelab check") < comment.index("### tracelab diff")
    assert "`tracelab diff` says:\n\n    tracelab: " in comment
    # The page and what it is about are for those who open the job.
    assert "### tracelab: " not in comment
    assert "### tracelab: " in job.summary()
    assert "wrote" not in job.summary()
    page = (job.folder / "output").read_text().removeprefix("page=").strip()
    assert Path(page).read_bytes().startswith(b"<!DOCTYPE html>")


@pytest.mark.slow
def test_a_comment_that_is_too_long_has_no_comparison(job, tmp_path, reports):
    job.budget("max-idle = 10")
    job.script = tmp_path / "script"
    job.script.write_text(SCRIPT.read_text().replace("MAX_LETTERS=65000", "MAX_LETTERS=1000"))
    assert job.run(reports[0], baseline=reports[1]).returncode == 0
    [comment] = job.commented()
    assert "### tracelab check" in comment
    assert "### tracelab diff" not in comment
    assert "### tracelab diff" in job.summary()


def test_names_are_text_and_command_nothing(job):
    # GIVEN paths that a shell, an option parser, Markdown or GitHub could take for something else
    job.budget("max-idle = 10")
    paths = "  --help $(touch owned) ##[error]```<img src=x>@you \n\n"
    # WHEN the action runs
    ran = job.run(paths, name="--> <b>$(touch owned)", baseline="`touch owned`")
    # THEN each is a file that is not there, and the comment's marker remains one
    assert ran.returncode == 3
    assert [x.name for x in job.workspace.iterdir()] == ["pyproject.toml"]
    assert "##[" not in ran.stdout + ran.stderr
    assert "tracelab: --help $(touch owned) # #[error]" in ran.stderr
    [comment] = [x for x in json.loads(job.comments.read_text()).values() if "tracelab" in x]
    first, *lines = comment.splitlines()
    assert first == "<!-- tracelab action: --_ _b__(touch owned) -->"
    assert all(line.startswith("    ") for line in lines if "no such file" in line)
    assert sum("no such file" in line for line in lines) >= 2


def test_no_budget_at_all_is_told_in_the_comment(job, reports):
    assert job.run(reports[0]).returncode == 2
    [comment] = job.commented()
    assert "`tracelab check` says:\n\n    tracelab: no budget is given" in comment
