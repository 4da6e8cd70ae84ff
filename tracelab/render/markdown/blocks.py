"""Blocks of Markdown: headings, lists, tables, folded parts; and sections of the text as these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tracelab.base.safe_text import clean, escape_commands
from tracelab.render.section import Chapter, Section
from tracelab.render.words import shorten

# GitHub refuses a comment of 65,536.
MAX_LETTERS = 60_000
# Names of some kernels have thousands.
MAX_TEXT_LETTERS = 400
_BETWEEN = "\n\n"
_MAX_CELL_LETTERS = 160
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|%)(?!\w))")
_FIGURE = re.compile(r"([+-]?(&lt;|>)?\d|-?$)")
_CODE = re.compile(r"(`[^`]+`)")
# A quote, a heading, a list, the line below a heading.
_BLOCK = re.compile(r"^(>|#+(?=\s|$)|[+-](?=\s|$)|\d+(?=[.)](?:\s|$))|[=-](?=[=-]*\s*$))")
# Markup, runs of underscores, and what begins a mention, an issue, a link or an emoji.
_SPECIAL = re.compile(
    r"[\\`*~\[\]&<|$]|(?<!_)_+|@(?=\w)|#(?=\d)|\bGH-(?=\d)|\bwww(?=\.)"
    r"|(?<!:):(?=//|[\w+-]+:(?!:))",
    re.IGNORECASE,
)
_ENTITIES = {"&": "&amp;", "<": "&lt;", "|": "&#124;", "$": "<span>$</span>"}
_BREAK = "&#8203;"  # a space without width


def comment(command: str, blocks: Iterable[str]) -> str:
    """Return a comment of some blocks, without those that would make it too long.

    The first line, which is not shown, tells later comments of the same command from others.
    """
    kept: list[str] = []
    room = MAX_LETTERS
    for block in (f"<!-- tracelab {command} -->", *blocks):
        if block and len(block) < room:
            kept.append(block)
            room -= len(block) + len(_BETWEEN)
    # A job's log shows what it prints, and acts upon some lines.
    return escape_commands(f"{_BETWEEN.join(kept)}\n")


def brief_prose(text: str) -> str:
    """Return a sentence of at most `MAX_TEXT_LETTERS`."""
    return prose(shorten(text, MAX_TEXT_LETTERS))


def bullets(items: Iterable[str]) -> str:
    """Return a list of what is Markdown already."""
    return "\n".join(f"- {item}" for item in items)


def details(summary: str, blocks: Iterable[str]) -> str:
    """Return a folded part; "" where nothing is in it."""
    content = "\n\n".join(filter(None, blocks))
    if not content:
        return ""
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of at least one row; its cells are Markdown already."""
    cells = list(rows)
    sides = [
        "--:" if all(map(_FIGURE.match, column)) else "---" for column in zip(*cells, strict=True)
    ]
    return "\n".join([_row(titles), f"|{'|'.join(sides)}|", *map(_row, cells)])


def cell(text: str) -> str:
    """Return text as a cell, in which a number is never torn from its unit."""
    return _BEFORE_UNIT.sub("\u00a0", prose(shorten(text, _MAX_CELL_LETTERS), is_cell=True))


def chapter_blocks(chapter: Chapter) -> list[str]:
    """Return a chapter of the text as blocks."""
    title = [f"#### {brief_prose(chapter.title)}"] if chapter.title else []
    return [*title, *(block for section in chapter.sections for block in section_blocks(section))]


def section_blocks(section: Section) -> list[str]:
    """Return a section of the text as blocks."""
    return [
        f"**{brief_prose(section.title)}**" if section.title else "",
        *map(brief_prose, section.lines),
        section_table(section) if section.rows else "",
        *map(brief_prose, section.notes),
    ]


def section_table(section: Section) -> str:
    """Return the table of a section."""
    titles = [" ".join(column.title.split()) for column in section.columns]
    return table(titles, ([*map(cell, row)] for row in section.rows))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def code(text: str) -> str:
    """Return text as a code span."""
    text = clean(text)
    if not text.strip():
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    is_padded = text[0] in "` " or text[-1] in "` "
    return f"{fence} {text} {fence}" if is_padded else f"{fence}{text}{fence}"


def code_in_cell(text: str) -> str:
    """Return text as code in a cell of a table, where a code span cannot hold every character."""
    if not re.search(r"[|\\`]", text):
        return code(text)
    return f"<code>{_escaped(clean(text))}</code>"


def prose(text: str, *, is_cell: bool = False) -> str:
    """Return a sentence whose parts in backticks are code spans and whose rest is text."""
    as_code = code_in_cell if is_cell else code
    parts = _CODE.split(clean(text).strip())
    texts = [as_code(part[1:-1]) if i % 2 else _escaped(part) for i, part in enumerate(parts)]
    return "".join(texts) if is_cell else _BLOCK.sub(_disarmed, "".join(texts))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(_escape_letter, text)


def _escape_letter(special: re.Match[str]) -> str:
    found = special[0]
    if found in _ENTITIES:
        return _ENTITIES[found]
    if found[0] == "_":  # inside of a word it is only text
        around = (
            special.string[special.start() - 1 : special.start()],
            special.string[special.end() : special.end() + 1],
        )
        return found if all(map(str.isalnum, around)) else r"\_" * len(found)
    return f"\\{found}" if found in r"\`*~[]" else found + _BREAK


def _disarmed(start: re.Match[str]) -> str:
    return f"{start[0]}\\" if start[0][0].isdigit() else f"\\{start[0]}"
