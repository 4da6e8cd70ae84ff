"""The code of the documents runs, and says what they say it says."""

import contextlib
import io
import re
import subprocess
from pathlib import Path

import matplotlib as mpl
import pytest

import tracelab
from tests.documents import SCREENS
from tracelab.analysis.analysis import STAGES
from tracelab.base.errors import MissingSupportError

ROOT = Path(__file__).parents[2]


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def test_graph_examples_run(tmp_path, monkeypatch):
    mpl.use("Agg")
    blocks = python_blocks(ROOT / "tracelab" / "docs" / "reference" / "graph.md")
    code = "\n".join(blocks).replace("traces/", f"{ROOT}/traces/")
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "graph.md", "exec"), {})
    assert len(blocks) >= 5
    most_delayed, awaited = printed.getvalue().splitlines()[:2]
    assert f"# {most_delayed}" in blocks[1]
    assert awaited == "Memcpy DtoH (Device -> Pinned) on stream 7"
    assert (tmp_path / "part.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("page", SCREENS, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(page):
    text = page.path.read_text(encoding="utf-8")
    assert page.renew(text) == text, "make documents"


def test_the_pages_for_users_show_screens():
    shown = {page.path.stem for page in SCREENS}
    assert shown >= {"README", "start", "screen", "jobs", "compare", "whatif", "faq"}


def test_the_faq_has_the_figures_of_the_evidence():
    docs = ROOT / "tracelab" / "docs"
    faq = " ".join((docs / "faq.md").read_text().split())
    measured = (docs / "evidence" / "remedies_measured.md").read_text()
    pitfalls, predictions, held = re.search(
        r"^(\d+) pitfalls, .*half of (\d+) predictions .* (\d+) one of both", measured, re.M
    ).groups()
    fixes, error, held_fixes = re.search(
        r"^all: (\d+) fixes, mean error ([\d.]+)%, .*; (\d+) in the interval",
        (docs / "evidence" / "predictions.md").read_text(),
        re.M,
    ).groups()
    assert f"{pitfalls} pitfalls were fixed" in faq
    assert f"half of {predictions} predictions are within 5 %" in faq
    assert f"{held} intervals hold" in faq
    assert f"{held_fixes} of {fixes} pairs of captures, before and after, are inside" in faq
    assert f"the mean error is {error} %" in faq


def test_document_on_jobs_says_what_its_code_prints(monkeypatch):
    [block] = python_blocks(ROOT / "tracelab" / "docs" / "jobs.md")
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "jobs.md", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"^# (.*)", block, re.MULTILINE)


def test_edit_of_ones_own_is_predicted(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    [code] = python_blocks(ROOT / "tracelab" / "docs" / "whatif.md")
    exec(compile(code, "whatif.md", "exec"), {"__name__": "__main__"})
    predicted, _, _ = capsys.readouterr().out.partition(" ms")
    shorter_ms, step_ms = map(float, predicted.split(" of "))
    assert 0 < shorter_ms < step_ms


def test_architecture_makes_the_properties_of_an_analysis_one_by_one(monkeypatch):
    [block] = python_blocks(ROOT / "tracelab" / "docs" / "develop" / "architecture.md")
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "architecture.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    assert [line.split()[0] for line in lines[: len(STAGES)]] == [*STAGES]
    assert any("GPU 0  busy " in line for line in lines)


@pytest.mark.usefixtures("small_program")
@pytest.mark.parametrize("document", ["README.md", "tracelab/docs/record.md"])
def test_examples_of_recording_run_until_they_need_a_gpu(document, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    blocks = [x for x in python_blocks(ROOT / document) if "tracelab.capture" in x]
    blocks += [x for x in python_blocks(ROOT / document) if "profile_step" in x]
    monkeypatch.chdir(tmp_path)
    trained = []
    with pytest.raises(MissingSupportError, match="no GPU here"):
        exec(blocks[0], {"loader": range(22), "train": trained.append})
    assert trained == [*range(22)]
    assert (tmp_path / "tracelab-run" / "steps.pt.trace.json.gz").exists()
    for block in blocks[1:]:
        exec(block, {"tracelab": tracelab})


def test_ci_runs_the_readmes_test_command():
    readme = (ROOT / "README.md").read_text()
    command = re.search(r"<!-- test command -->\n```\n(.*)\n```", readme)[1]
    found = subprocess.run(
        [
            "bash",
            "-c",
            re.search(r"^command=\$\((.*)\)$", (ROOT / ".ci" / "run").read_text(), re.M)[1],
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == command
    assert command.endswith("-m pytest -n auto")
