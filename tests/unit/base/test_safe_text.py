"""Whatever stands in a file, or in its name, is text and nothing else."""

import json
import unicodedata
from dataclasses import dataclass

import orjson
from hypothesis import given, strategies as st

from tests.build.report_rows import NASTY
from tracelab.base.safe_text import clean, escape_surrogates, json_bytes, visible

any_text = st.text(st.characters(codec=None, categories=None), max_size=20)


@dataclass
class Row:
    name: str
    paths: tuple[str, ...]


class TestClean:
    def test_leaves_nothing_that_a_terminal_acts_upon(self):
        assert clean(NASTY) == "[red]a[/] [31mb[0m c  def" + "g :smile: 1m"

    def test_keeps_letters_of_any_script(self):
        assert clean("größe 模型 модель") == "größe 模型 модель"

    def test_writes_bytes_that_are_no_text(self):
        assert clean("step\udcff.json") == r"step\xff.json"

    @given(any_text)
    def test_gives_one_printable_line(self, text):
        assert clean(text).isprintable()
        clean(text).encode()


class TestJson:
    @given(any_text)
    def test_is_the_same_text_and_nothing_acts_on_a_terminal(self, text):
        written = json_bytes({"name": text, "row": Row(text, (text,))})
        assert json.loads(written) == {
            "name": escape_surrogates(text),
            "row": {"name": escape_surrogates(text), "paths": [escape_surrogates(text)]},
        }
        assert not any(map(_acts, written.decode().replace("\n", "")))  # it is indented

    def test_escapes_controls_and_marks_of_direction(self):
        nasty = "\x1b[2J\x07\x7f\x85\x9b31m\u200f\u202e\u2066\u061c\ufeff\U000e0041"
        written = json_bytes(nasty)
        assert written.isascii()
        assert json.loads(written) == nasty

    def test_keeps_what_can_be_read(self):
        assert "größe 模型".encode() in json_bytes({"größe 模型": 1})

    def test_is_what_the_library_writes_otherwise(self):
        content = {"a": [1, None, True, 2.5, {"b": "c"}]}
        option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        assert json_bytes(content) == orjson.dumps(content, option=option)


def _acts(character):
    """Whether a terminal acts on it: controls, and marks of direction."""
    return unicodedata.category(character) == "Cc" or unicodedata.bidirectional(character) in {
        "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI",
    }  # fmt: skip


@given(st.text())
def test_visible_text_has_nothing_that_a_browser_acts_upon(text):
    shown = visible(text)
    assert all(unicodedata.category(c)[0] not in "CZ" or c == " " for c in shown)
    shown.encode()  # no surrogate is left


def test_visible_text_shows_what_was_there():
    assert visible("gemm<float>(int, 3)") == "gemm<float>(int, 3)"
    assert visible("a\u202eb\x1b[2J\n") == "a\\u202eb\\u001b[2J\\u000a"
    assert visible("i\ufe0f\U000e0041") == "i\\ufe0f\\U000e0041"
    assert visible("step\udcff.json") == "step\\xff.json"
    assert visible("\u4e2d\U0001f525 \u00e9") == "\u4e2d\U0001f525 \u00e9"
