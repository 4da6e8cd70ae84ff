import subprocess
import sys
from pathlib import Path

import pytest

import tracelab
from tracelab.base.errors import UsageError
from tracelab.comparison.budgets import BudgetResult
from tracelab.comparison.compare import compare
from tracelab.comparison.diff import Side
from tracelab.render.budgets import junit_xml, render_budgets
from tracelab.render.registry import BUDGETS, RENDERERS, REPORT, Renderer, render_as, resolve
from tracelab.render.text.report import render_result, render_text

TRACE = Path(__file__).parents[3] / "traces" / "prefetch_copy_stream_synchronize.pt.trace.json.gz"
LOOK = {"width": 100, "color": False}


@pytest.fixture(scope="module")
def report():
    return tracelab.analyze(str(TRACE))


def test_every_renderer_is_there_and_takes_a_class_that_is_there():
    for renderer in RENDERERS:
        assert callable(resolve(renderer.function))
        assert isinstance(resolve(renderer.takes), type)


def test_a_result_has_one_renderer_of_a_name_and_of_an_ending():
    names = [(renderer.takes, renderer.name) for renderer in RENDERERS]
    endings = [(renderer.takes, x) for renderer in RENDERERS for x in renderer.endings]
    assert len(set(names)) == len(names)
    assert len(set(endings)) == len(endings)


def test_a_report_is_rendered_by_its_own_renderers(report):
    assert render_as(report, "text", **LOOK) == render_text(report, **LOOK)
    assert render_as(report, "json") == render_as(report, ".json") == report.to_json()
    assert render_as(report, "notebook").startswith("<pre")


def test_a_difference_is_rendered_by_its_own_renderers(report):
    diff = compare(Side(report, None), Side(report, None))
    assert render_as(diff, "text", **LOOK) == render_result(diff, **LOOK)
    assert render_as(diff, "json") == diff.to_json()


def test_budgets_are_rendered_together():
    results = [BudgetResult("max-idle", "6.8 %", "at most 5 %", passed=False, where="GPU 0")] * 2
    assert render_as(results, "text", **LOOK) == render_budgets(results, **LOOK)
    assert render_as(results, ".xml") == junit_xml(results)
    assert render_as(results, "github").count("::error") == 2


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_a_picture_is_rendered_as_its_file_holds_it(tmp_path, ending):
    picture = tracelab.draw(TRACE)
    picture.save(tmp_path / f"a{ending}")
    assert render_as(picture, ending) == (tmp_path / f"a{ending}").read_bytes()


def test_a_renderer_from_outside_can_be_added(report):
    def render_count(report, *, unit):
        return f"{len(report.windows)} {unit}"

    mine = Renderer("count", REPORT, render_count)
    text = render_as(report, "count", renderers=(*RENDERERS, mine), unit="windows")
    assert text == f"{len(report.windows)} windows"


def test_a_form_that_is_not_there_is_answered_with_those_that_are(report):
    with pytest.raises(
        UsageError, match=r"^Report has no form 'junit'; there are: text, json, html, not"
    ):
        render_as(report, "junit")
    with pytest.raises(UsageError, match=r"^int has no form 'text'; there are: none$"):
        render_as(5, "text")
    assert BUDGETS not in {renderer.takes for renderer in RENDERERS if renderer.name == "notebook"}


def test_the_registry_imports_no_renderer():
    code = "import sys, tracelab.render.registry; print([m for m in sys.modules if 'text.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
