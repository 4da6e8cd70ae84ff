"""Whatever a name holds, it is text: as a parser of Markdown reads it."""

import re

from hypothesis import given, strategies as st
from markdown_it import MarkdownIt

from tests.build.hostile import PAYLOADS
from tests.checks import with_each
from tests.examples import examples
from tracelab.base.safe_text import clean
from tracelab.render.markdown import code, code_in_cell, prose, table

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
PLAIN = {"text", "text_special", "code_inline"}
HARMLESS = {"<span>", "</span>", "<code>", "</code>"}  # around a dollar, and code in cells
ZERO_WIDTH = "\u200b"

HOSTILE = [
    *PAYLOADS,
    "@octocat and @org/team",
    "fixes #12, GH-13 and o/r#14",
    "https://evil.example www.evil.example a@evil.example",
    "[x](javascript:alert(1)) ![x](https://evil.example/x.png)",
    "a|b|c \\| d",
    "# heading",
    "- list",
    "1. list",
    "> quote",
    "---",
    "===",
    "***bold*** __init__ ~~gone~~ _a_ foo__bar_",
    "`` `a` ` ``` b",
    "$x^2$ :smile: $`y`$",
    "::error file=a::b ##[warning]c",
    "[ ] task",
    "<details><!-- -->",
    "&lt;b&gt; &#64;octocat",
    "\\",
    "`\\`",
]
specials = st.text("`*_[]()<>&|$@#:\\~!-+=.1 aé\u202e\n\r", max_size=30)


def inline_of(markdown):
    """The parts of the only paragraph of a text."""
    tokens = PARSER.parse(markdown)
    assert [token.type for token in tokens] in ([], ["paragraph_open", "inline", "paragraph_close"])
    return tokens[1].children if tokens else []


def text_of(parts):
    for part in parts:
        assert part.type in PLAIN or part.content in HARMLESS, part
    return "".join(part.content for part in parts if part.type in PLAIN)


def squeezed(text):
    """Letters and marks, without what stands between them and without backticks."""
    return re.sub(rf"[\s`{ZERO_WIDTH}]", "", text)


@with_each(HOSTILE)
def test_prose_is_text(text):
    assert squeezed(text_of(inline_of(prose(text)))) == squeezed(clean(text))


@examples(500)
@given(specials)
def test_any_prose_is_text(text):
    assert squeezed(text_of(inline_of(prose(text)))) == squeezed(clean(text))


@examples(500)
@given(specials)
def test_any_code_is_one_span(text):
    parts = inline_of(f"x {code(text)} y")
    spans = [part.content for part in parts if part.type == "code_inline"]
    assert spans == ([clean(text)] if clean(text).strip() else [])


@examples(500)
@given(specials, specials)
def test_any_cell_stays_in_its_table(name, text):
    tokens = PARSER.parse(
        table(["name", "text"], [[code_in_cell(name), prose(text, is_cell=True)]])
    )
    cells = [token.children for token in tokens if token.type == "inline"][2:]
    assert sum(token.type == "tr_open" for token in tokens) == 2
    assert [squeezed(text_of(cell)) for cell in cells] == [
        squeezed(clean(name)),
        squeezed(clean(text)),
    ]


@with_each(HOSTILE)
def test_github_finds_nobody_and_nothing_to_refer_to(text):
    shown = text_of(part for part in inline_of(prose(text)) if part.type != "code_inline")
    assert not re.search(r"@\w|#\d|GH-\d|://|www\.", shown)


def test_what_needs_no_escape_has_none():
    for text in (
        "31.5 -> 23.5 ms: save 26 % (9 to 30)",
        "aten::item in train_step.py:70",
        "-5",
    ):
        assert prose(text) == text
