"""What a user of the package meets: paths of every kind, and results that show themselves."""

import gzip
import importlib
import inspect
import io
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tracelab
from tracelab.analysis.analysis import analyze_source
from tracelab.base.errors import UnreadableInputError
from tracelab.base.options import Options
from tracelab.findings.registry import RULES
from tracelab.measures.registry import MEASURES
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources
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


@pytest.fixture
def forms(tmp_path):
    """One trace in every form that is no path of a file, and what it is called then."""
    content, plain = TRACE.read_bytes(), gzip.decompress(TRACE.read_bytes())
    Path(tmp_path, "item_rank3.json").write_bytes(plain)
    with open(TRACE, "rb") as binary, open(tmp_path / "item_rank3.json") as text:
        yield {
            "paths 1": content,
            str(TRACE): binary,
            str(tmp_path / "item_rank3.json"): text,
            str(tmp_path / "item_rank3.json "): str(tmp_path / "item_*.json"),
        }


def test_a_trace_may_be_bytes_an_open_file_or_a_pattern(report, forms):
    for name, form in forms.items():
        found = tracelab.analyze(form)
        assert found.windows.columns.keys() == report.windows.columns.keys()
        assert found.steps.columns["busy_ns"] == report.steps.columns["busy_ns"]
        assert found.traces[0].path == name.strip()


def test_every_function_takes_them(report, tmp_path):
    content = TRACE.read_bytes()
    assert tracelab.load_report(report.to_json()) == report
    assert tracelab.whatif(content) == tracelab.whatif(TRACE)
    assert tracelab.compare(content, io.BytesIO(content)).verdict == "no change"
    assert tracelab.draw(io.BytesIO(content), lanes="host").png()
    assert tracelab.write_page(content, tmp_path / "page.html").findings
    assert analyze_source(content).report.findings


def test_several_of_them_are_several_files():
    content = TRACE.read_bytes()
    found = tracelab.analyze([content, FIXED, content, io.BytesIO(content)])
    assert [x.path for x in found.traces] == ["paths 1", str(FIXED), "paths 3", "paths 4"]
    assert len(tracelab.analyze(TRACE.parent.glob("events_item*")).traces) == 1


def test_a_pattern_stands_for_the_ranks_in_their_order(tmp_path):
    for rank in (10, 2):
        shutil.copy(TRACE, tmp_path / f"a_rank{rank}.json.gz")
    shutil.copy(TRACE, tmp_path / "[b].json.gz")
    sources = find_sources([str(tmp_path / "a_rank*")])
    assert [(source.rank, source.named) for source in sources] == [(2, True), (10, True)]
    assert len(find_sources([str(tmp_path / "[b].json.gz")])) == 1


def test_an_open_file_is_read_from_where_it_is_and_not_from_its_path(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"no JSON" + gzip.decompress(TRACE.read_bytes()))
    with open(path, "rb") as stream:
        stream.seek(len("no JSON"))
        assert tracelab.analyze(stream, Options(processes=2)).traces[0].path == str(path)


def test_options_may_be_named_as_on_the_command_line(report):
    step = tracelab.analyze(TRACE, step=report.steps[1].step)
    assert step.windows == report.windows[2:3]
    assert tracelab.analyze(TRACE, step=str(report.steps[1].step)).windows == step.windows
    assert tracelab.analyze(TRACE, step="all").windows == report.windows
    both = tracelab.analyze(TRACE, Options(step=3, prices=False), step="all")
    assert (both.windows, both.findings[0].saves_ns) == (report.windows, None)
    named = tracelab.analyze(TRACE, step_on="forward", comm_pattern="elementwise", source="tests")
    assert named.provenance.step_pattern == "forward"
    assert named.provenance.comm_patterns == ("elementwise",)
    assert tracelab.analyze([TRACE, FIXED], job=True).provenance.job.is_job
    assert Options(source=[Path("a"), "b"]) == Options(source=("a", "b"))
    assert repr(Options(step=3)) == "Options(step=3)"


def lines_of_help(thing):
    """The lines that `help` needs of a function in a terminal; of a class, of all but its names."""
    if not isinstance(thing, type):
        lines = pydoc.plain(pydoc.render_doc(thing)).splitlines()
    else:
        lines = [f"{thing.__name__}{inspect.signature(thing)}", *inspect.getdoc(thing).splitlines()]
    return sum(max(1, -(-len(line) // 80)) for line in lines)


@pytest.mark.parametrize("name", [x for x in tracelab.__all__ if not x.startswith("_")])
def test_help_fits_a_screen(name):
    assert 5 < lines_of_help(getattr(tracelab, name)) <= 40


def test_the_package_shows_the_names_in_front_and_no_others():
    completed = {name for name in dir(tracelab) if not name.startswith("_")}
    assert completed == {*tracelab.__all__} - {"__version__"}
    assert len(completed) == 10
    wild = {}
    exec("from tracelab import *", wild)
    assert {*wild} - {"__builtins__"} == {*tracelab.__all__}


def test_modules_that_the_package_names_say_what_they_have():
    names = re.findall(r"`(tracelab\.[a-z_.]+)`", tracelab.__doc__)
    assert len(names) == 11
    assert all(len(importlib.import_module(name).__doc__) > 40 for name in names)


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
