"""What a user of the package meets: paths of every kind, and results that show themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

import tracelab
from tracelab.analysis.analysis import analyze_source
from tracelab.base.errors import UnreadableInputError
from tracelab.findings.registry import RULES
from tracelab.measures.registry import MEASURES
from tracelab.read.reader import read_trace
from tracelab.render.registry import RENDERERS

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "traces" / "events_item.pt.trace.json.gz"
FIXED = ROOT / "traces" / "events_wait.pt.trace.json.gz"


@pytest.fixture(scope="module")
def report():
    return tracelab.analyze(TRACE)


@pytest.mark.parametrize(("kind", "listed"), [(str, list), (Path, tuple)])
def test_files_are_given_as_text_or_paths_alone_or_in_a_list(report, tmp_path, kind, listed):
    trace, fixed, saved = kind(TRACE), kind(FIXED), kind(tmp_path / "report.json")
    report.save(saved)

    assert tracelab.analyze(trace).windows == report.windows
    assert len(tracelab.analyze(listed([trace, fixed])).traces) == 2
    assert tracelab.load_report(saved) == report
    assert tracelab.load_report(listed([saved, saved])) == [report, report]
    assert len(read_trace(trace)) == len(read_trace(TRACE)) > 1000
    assert analyze_source(trace).report == report
    assert [len(x) for x in read_trace(listed([trace]))] == [len(read_trace(TRACE))]
    assert tracelab.draw(listed([trace])).png() == tracelab.draw(trace).png()
    diff = tracelab.compare(TRACE, FIXED).to_json()
    assert tracelab.compare(trace, listed([fixed])).to_json() == diff
    assert tracelab.compare(saved, fixed).ranks


def test_a_picture_of_one_lane_and_of_a_list_of_it_are_the_same():
    assert tracelab.draw(TRACE, lanes="host").png() == tracelab.draw(TRACE, lanes=["host"]).png()


def test_a_result_prints_as_its_text_in_the_terminal(report):
    text = str(report)
    assert len(text.splitlines()) > 5
    assert "GPU 0  busy " in text
    assert str(tracelab.compare(report, report)).strip().endswith(".")


def test_every_public_object_shows_itself_in_one_line(report):
    analysis = analyze_source(TRACE)
    pending = [analysis, report, tracelab.compare(report, report), tracelab.draw(TRACE)]
    pending += [*RULES, *MEASURES, *RENDERERS]
    seen = set()
    while pending:
        shown = pending.pop()
        if id(shown) in seen or not type(shown).__module__.startswith("tracelab"):
            continue
        seen.add(id(shown))
        assert "\n" not in repr(shown), type(shown)
        assert len(repr(shown)) <= 100, repr(shown)
        for value in getattr(shown, "__dict__", {}).values():
            pending += [value, *value[:3]] if isinstance(value, (list, tuple)) else [value]
    assert len(seen) > 50


def test_capture_is_there_without_torch_and_says_what_it_needs():
    code = (
        "import sys; sys.modules['torch'] = None; import tracelab\n"
        "from tracelab.base.errors import MissingSupportError\n"
        "assert hasattr(tracelab, 'capture') and hasattr(tracelab, 'profile_step')\n"
        "try:\n    tracelab.capture()\n"
        "except MissingSupportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "torch" in done.stdout, done.stderr


def test_a_report_that_is_not_there_is_refused():
    with pytest.raises(UnreadableInputError, match="no such file"):
        tracelab.load_report("nowhere.json")
