"""Each wrong argument of the names in front is refused by a sentence that names it."""

import io
import re
from pathlib import Path

import pytest

import tracelab
from tests.build.report_rows import make_report
from tracelab.analysis.analysis import analyze_source
from tracelab.base.errors import TracelabError
from tracelab.base.options import Options
from tracelab.outputs.picture import draw_whatif

TRACE = Path(__file__).parents[2] / "traces" / "events_item.pt.trace.json.gz"
REPORT = make_report()
NO_FILES = (None, 3, [3], [], {}.values(), 1.5)
NO_PATHS = (3, b"a.png", ["a.png"])
NO_NUMBERS = ("wide", 1.5, True)
NO_SWITCHES = (1, "yes", None)
NO_OPTIONS = ({"step": 3}, None, "step", 3)
NO_CALLABLES = (3, "print")


def closed(mode, path=TRACE):
    with open(path, mode) as stream:
        return stream


def compare(before=TRACE, after=TRACE, **more):
    return tracelab.compare(before, after, **more)


def profile(function=None, **more):
    return tracelab.profile_step(function, **more)(print)


def write_page(trace=TRACE, path="never.html", **more):
    return tracelab.write_page(trace, path, **more)


# The function, what it is called with beside the argument, its name, and values that it may not be.
WRONG = [
    (tracelab.analyze, (), "paths", NO_FILES),
    (tracelab.analyze, (), "paths", (closed("rb"), closed("r"), [TRACE, closed("rb")])),
    (tracelab.analyze, (TRACE,), "options", NO_OPTIONS),
    (tracelab.analyze, (TRACE,), "run", NO_CALLABLES),
    (tracelab.analyze, (TRACE,), "step", ("one", "", 1.5, True, [1], 99, -1, "99")),
    (tracelab.analyze, (TRACE,), "job", (1, "yes")),
    (tracelab.analyze, (TRACE,), "step_on", (3, "(", ["a"])),
    (tracelab.analyze, (TRACE,), "comm_pattern", (3, "(", ["ok", "("], [3])),
    (tracelab.analyze, (TRACE,), "source", (3, "no such folder", [Path("nowhere")], [3])),
    (tracelab.analyze, (TRACE,), "measures", (3, ["kernels"])),
    (tracelab.analyze, (TRACE,), "rules", (3, ["TL101"])),
    (tracelab.analyze, (TRACE,), "remedies", (3, ["barrier"])),
    (tracelab.analyze, (TRACE,), "stepp", (3,)),
    (tracelab.load_report, (), "path", (None, 3, [3], closed("rb"))),
    (tracelab.load_report, (), "pth", ("a.json",)),
    (tracelab.whatif, (), "trace", NO_FILES),
    (tracelab.whatif, (TRACE,), "fixes", (None, 1.5, [None], "TLX", "0x1", True, [TRACE])),
    (tracelab.whatif, (TRACE,), "edits", (3, [3], None, "no-edit:x")),
    (tracelab.whatif, (TRACE,), "options", NO_OPTIONS),
    (tracelab.whatif, (TRACE,), "fix", (1,)),
    (tracelab.compare, (TRACE,), "after", (*NO_FILES, [[]])),
    (compare, (), "before", (*NO_FILES, closed("rb"))),
    (compare, (), "options", NO_OPTIONS),
    (compare, (), "jobs", (2,)),
    (tracelab.draw, (), "trace", NO_FILES),
    (tracelab.draw, (TRACE,), "path", (*NO_PATHS, "a.gif", "png")),
    (tracelab.draw, (TRACE,), "options", NO_OPTIONS),
    (tracelab.draw, (TRACE,), "step", ("one", 1.5, True, 99)),
    (tracelab.draw, (TRACE,), "finding", (*NO_NUMBERS, 0, 99)),
    (tracelab.draw, (TRACE,), "start_ms", ("early", True, 1e13)),
    (tracelab.draw, (TRACE,), "end_ms", ("late", True)),
    (tracelab.draw, (TRACE,), "lanes", (3, [3], "no such lane")),
    (tracelab.draw, (TRACE,), "title", (3, None)),
    (tracelab.draw, (TRACE,), "width_px", (*NO_NUMBERS, None, 3)),
    (tracelab.draw, (TRACE,), "height_px", (*NO_NUMBERS, 3)),
    (tracelab.draw, (TRACE,), "dark", NO_SWITCHES),
    (tracelab.draw, (TRACE,), "colour", ("red",)),
    (write_page, (), "trace", NO_FILES),
    (write_page, (TRACE,), "path", (*NO_PATHS, None, "page.png")),
    (write_page, (), "options", NO_OPTIONS),
    (write_page, (), "title", ("mine",)),
    (tracelab.capture, (), "path", (3, None, "a.pftrace")),
    (tracelab.capture, (), "skip", (*NO_NUMBERS, -1)),
    (tracelab.capture, (), "steps", (*NO_NUMBERS, 0)),
    (tracelab.capture, (), "stacks", NO_SWITCHES),
    (tracelab.capture, (), "shapes", NO_SWITCHES),
    (tracelab.capture, (), "memory", NO_SWITCHES),
    (tracelab.capture, (), "print_report", NO_SWITCHES),
    (tracelab.capture, (), "collector", ("mine", 3)),
    (tracelab.capture, (), "stepz", (3,)),
    (profile, (), "function", (3, "train")),
    (profile, (), "steps", (*NO_NUMBERS, 0)),
    (profile, (), "stepz", (3,)),
    (tracelab.trace_handler, (), "folder", (3, None)),
    (tracelab.trace_handler, (), "worker_name", (3,)),
    (tracelab.trace_handler, (), "log", NO_CALLABLES),
    (tracelab.trace_handler, (), "every_rank", NO_SWITCHES),
    (tracelab.trace_handler, (), "max_mb", ("4", True, None)),
    (tracelab.trace_handler, (), "rank", (3,)),
    (REPORT.show, (), "height", NO_NUMBERS),
    (REPORT.save, (), "path", (3, None)),
    (tracelab.Report, (), "findngs", ((),)),
    (analyze_source, (), "source", (*NO_FILES, closed("rb"))),
    (analyze_source, (TRACE,), "options", NO_OPTIONS),
    (draw_whatif, (), "trace", NO_FILES),
    (draw_whatif, (TRACE,), "path", (*NO_PATHS, "a.gif")),
    (draw_whatif, (TRACE,), "fixes", (None, 1.5, "TLX")),
    (draw_whatif, (TRACE,), "options", NO_OPTIONS),
    (draw_whatif, (TRACE,), "width_px", (*NO_NUMBERS, 3)),
    (Options, (), "comm_pattern", (3, [3])),
    (Options, (), "edits", (3, [None])),
    (Options, (), "cache", NO_SWITCHES),
    (Options, (), "processes", NO_NUMBERS),
    (Options, (), "stepp", (3,)),
]
NEED_TORCH = (tracelab.capture, profile, tracelab.trace_handler)
CASES = [
    pytest.param(function, before, name, value, id=f"{index}-{name}-{number}")
    for index, (function, before, name, values) in enumerate(WRONG)
    for number, value in enumerate(values)
]
UNITS = re.compile(r"(_px|_ms|s)$")


@pytest.mark.parametrize(("function", "before", "name", "value"), CASES)
def test_it_is_named(function, before, name, value, tmp_path, monkeypatch):
    if function in NEED_TORCH:
        pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TracelabError, TypeError, ValueError)) as caught:
        function(*before, **{name: value})
    sentence = str(caught.value)
    assert re.search(rf"\b{UNITS.sub('', name)}", sentence)
    assert "\n" not in sentence
    assert not any(tmp_path.iterdir())


def test_all_names_in_front_are_tried():
    tried = {function.__name__ for function, *_ in WRONG} | {"profile_step"}
    assert tried >= {*tracelab.__all__} - {"__version__"}


@pytest.mark.parametrize("pattern", ["no*such.json", "no/**/such.json", "[ab].json"])
def test_a_pattern_that_nothing_matches_is_told(tmp_path, pattern):
    path = str(tmp_path / pattern)
    for function in (tracelab.analyze, tracelab.whatif, tracelab.draw):
        with pytest.raises(
            TracelabError, match=rf"^{re.escape(path)}: no such file or folder, and none matches$"
        ):
            function(path)


def test_what_is_no_trace_is_told_by_the_name_of_its_argument():
    for content in (b"", b"{}", io.BytesIO(b"nothing"), io.StringIO("[]")):
        with pytest.raises(TracelabError, match=r"^paths 1: "):
            tracelab.analyze(content)
