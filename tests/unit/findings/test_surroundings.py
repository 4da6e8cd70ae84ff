"""What the source says of a call site besides its line."""

import json

import numpy as np
import pytest

from tests.build.rows import call, operator, python, timeline
from tracelab.findings.candidates import where
from tracelab.findings.places import add_lines
from tracelab.model.program.call_sites import call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.program.source_scopes import read_scopes, scopes_as_lists

SOURCE = """\
import torch

@torch.no_grad()
def step(x):
    x.to(1)
    x.to(2)
    x.item()
    x.cpu()
    return x

def many(x):
    x.to(1)
    x[x > 1] = 1
    x[x > 2] = 2
    x.to(3)
    x.to(4)
    x.to(5)
    x.to(6)
    x.to(7)

class Encoder:
    def forward(self, x):
        x.to(1)
        x.to(2)

class Decoder:
    def forward(self, x):
        x.to(3)
"""
TO = "<built-in method to of Tensor object at 0x7f>"
ITEM = "<built-in method item of Tensor object at 0x7f>"


@pytest.fixture
def folder(tmp_path):
    """A folder with the train.py that ran."""
    (tmp_path / "train.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def recorded(folder):
    """What a recording stores of it, as read again."""
    scopes = scopes_as_lists(read_scopes(folder / "train.py"))
    return {"train.py": json.loads(json.dumps(scopes))}


def around(lines, *rows):
    """The call site of a call in [40, 50) amid these rows, and what surrounds it."""
    made = timeline(call("cudaLaunchKernel", 40, 50), *rows)
    (site,) = call_sites(made, np.array([0]), lines)
    return site, add_lines(where(site, count=1), made, lines)


def nested(*names):
    """Python frames around [40, 50), the outermost first, in a thread that ran others before."""
    before = python("train.py(0): <module>", 0, 100), python("<built-in function len>", 0, 1)
    return [*before, *(python(name, 2 + i, 99 - i) for i, name in enumerate(names))]


def test_calls_that_cannot_be_told_apart_have_the_lines_of_all(folder):
    site, more = around(SourceLines([str(folder)]), *nested("train.py(3): step", TO))

    assert (site.call, site.line) == ("to", None)
    assert (more.lines, more.function_line, more.code) == ((5, 6), 4, None)


def test_what_is_written_without_a_name_has_the_lines_of_all(folder):
    index = operator("aten::index_put_", 30, 60)
    site, more = around(SourceLines([str(folder)]), *nested("train.py(11): many"), index)

    assert (site.call, site.line) == ("__setitem__", None)
    assert more.lines == (13, 14)


def test_more_lines_than_anybody_reads_are_left_out(folder):
    site, more = around(SourceLines([str(folder)]), *nested("train.py(11): many", TO))

    assert site.line is None
    assert (more.lines, more.function_line) == ((), 11)


@pytest.mark.parametrize(
    ("decoder_calls", "lines", "function_line"),
    [((), (23, 24), 22), ((TO,), (23, 24, 28), None)],
)
def test_of_functions_of_one_name_the_lines_are_those_of_all_that_call_so(
    folder, decoder_calls, lines, function_line
):
    decoder = [python(name, 60 + i, 90 - i) for i, name in enumerate(decoder_calls, 1)]
    encoder = python("train.py(22): forward", 30, 55), python(TO, 31, 54)
    rows = *nested()[:2], python("train.py(27): forward", 60, 90), *decoder, *encoder
    site, more = around(SourceLines([str(folder)]), *rows)

    assert (site.call, site.line) == ("to", None)
    assert (more.lines, more.function_line) == (lines, function_line)


def test_the_text_of_a_line_is_that_of_the_source(folder):
    site, more = around(SourceLines([str(folder)]), *nested("train.py(3): step", ITEM))

    assert site.line == 7
    assert (more.lines, more.function_line, more.code) == ((), 4, "x.item()")


def test_without_source_the_function_is_entered_where_the_trace_says():
    site, more = around(SourceLines(), *nested("train.py(3): step", ITEM))

    assert site.line is None
    assert (more.lines, more.function_line) == ((), 3)


def test_a_function_that_ran_when_recording_began_was_not_seen_to_be_entered():
    frames = python("train.py(7): step", 1, 99), python(ITEM, 30, 60)
    _, more = around(SourceLines(), python("train.py(9): <module>", 0, 100), *frames)

    assert more.function_line is None


def test_the_text_of_a_recorded_line_is_the_recorded_one(folder, recorded):
    texts = {"train.py": {"7": "    x.item()  # as it ran\n"}}
    (folder / "train.py").write_text(SOURCE.replace("x.item()", "y.item()"))
    lines = SourceLines([str(folder)], recorded, texts)

    assert around(lines, *nested("train.py(3): step", ITEM))[1].code == "x.item()  # as it ran"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("x.to(3)\n", "x.to(3)\n\n\n", "x.item()"),  # behind the function
        ("import torch\n", "import torch\n\n", None),  # it stands elsewhere
        ("    x.to(2)\n    x.item()", "    x.item()\n    x.to(2)", None),
        ("x.item()", "x.cpu().item()", None),
    ],
)
def test_a_file_is_quoted_where_it_has_the_function_as_it_was_recorded(
    folder, recorded, old, new, code
):
    (folder / "train.py").write_text(SOURCE.replace(old, new))
    lines = SourceLines([str(folder)], recorded)
    site, more = around(lines, *nested("train.py(3): step", ITEM))

    assert (site.line, more.code) == (7, code)


@pytest.mark.parametrize("texts", [None, 3, [], {"7": 3}, {"7": ""}, {"7": "%1B%E2%80%AE"}])
def test_damaged_texts_are_not_quoted(recorded, texts):
    lines = SourceLines((), recorded, {"train.py": texts})

    assert around(lines, *nested("train.py(3): step", ITEM))[1].code is None
