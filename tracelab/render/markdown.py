"""Reports and differences as Markdown; minor parts are folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tracelab.base.safe_text import clean, counted, escape_commands
from tracelab.comparison.diff import (
    CANNOT_TELL,
    DIFFERENT_PROGRAMS,
    LONGER,
    NO_CHANGE,
    SHORTER,
    Diff,
)
from tracelab.render.document import document_of
from tracelab.render.first_screen import Fact, FirstScreen, Item
from tracelab.render.notes import Note
from tracelab.render.ranks import Ranks
from tracelab.render.recordings import Recordings, recordings_table
from tracelab.render.section import PART, Chapter, Section
from tracelab.render.sections.diff import chapters, details as details_of
from tracelab.render.text.hints import ONE_OF_THEM
from tracelab.render.words import shorten
from tracelab.report.schema import Report

_MAX_OTHERS = 10
_MAX_FILE_ROWS = 50
_MAX_PLACE_LETTERS = 200
# Names in a fix may be long.
_MAX_FIX_LETTERS = 2_000
_HEADINGS = {
    SHORTER: "{} got shorter",
    LONGER: "regression, {} got longer",
    NO_CHANGE: "no change beyond the noise",
    CANNOT_TELL: "cannot tell",
    DIFFERENT_PROGRAMS: "two different programs",
}
# GitHub refuses a comment of 65,536.
MAX_LETTERS = 60_000
# Some kernels have names of thousands.
MAX_TEXT_LETTERS = 400
_BETWEEN = "\n\n"
_MAX_CELL_LETTERS = 160
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|%)(?!\w))")
_FIGURE = re.compile(r"([+-]?(&lt;|>)?\d|-?$)")
_CODE = re.compile(r"(`[^`]+`)")
# Quotes, headings, lists, lines below headings.
_BLOCK = re.compile(r"^(>|#+(?=\s|$)|[+-](?=\s|$)|\d+(?=[.)](?:\s|$))|[=-](?=[=-]*\s*$))")
# Markup, runs of underscores, starts of mentions, issues, links and emoji.
_SPECIAL = re.compile(
    r"[\\`*~\[\]&<|$]|(?<!_)_+|@(?=\w)|#(?=\d)|\bGH-(?=\d)|\bwww(?=\.)"
    r"|(?<!:):(?=//|[\w+-]+:(?!:))",
    re.IGNORECASE,
)
_ENTITIES = {"&": "&amp;", "<": "&lt;", "|": "&#124;", "$": "<span>$</span>"}
_BREAK = "&#8203;"  # zero width


def render_markdown(report: Report, *, recordings: Sequence[Report] = ()) -> str:
    """Return a first screen as a comment."""
    content = document_of(report, recordings)
    said = content.said
    if isinstance(said, Recordings):
        return comment("analyze", _recordings(said))
    ranks = _ranks(content.ranks) if content.ranks else []
    return comment("analyze", [*_blocks(said, ranks), _folded(said), _next(said)])


def _blocks(said: FirstScreen, ranks: Sequence[str]) -> Iterator[str]:
    yield f"### tracelab: {code(shorten(said.name, _MAX_PLACE_LETTERS))}"
    yield brief_prose(PART.join(said.about))
    yield _facts(said.facts)
    yield brief_prose(said.steps)
    for note in said.notes:
        if note.is_warning:
            yield f"> **Warning:** {_note(note)}"
    yield from ranks
    yield from map(_item, said.items)
    yield prose(said.answer)


def _facts(facts: Sequence[Fact]) -> str:
    labels: dict[str, list[str]] = {}
    for fact in facts:
        labels.setdefault(fact.label, []).append(brief_prose(fact.text))
    return bullets(f"**{label}** {' '.join(texts)}" for label, texts in labels.items())


def _ranks(ranks: Ranks) -> list[str]:
    titles, columns = zip(*ranks.columns(_MAX_FILE_ROWS), strict=True)
    rows = [[*map(cell, row)] for row in zip(*columns, strict=True)]
    return [table(titles, rows), ranks.more(_MAX_FILE_ROWS), prose(ranks.unlike)]


def _item(item: Item) -> str:
    number = f"{item.number}. "
    price = ", ".join(filter(None, [item.price, item.on]))
    parts = [
        f"**{prose(price)}:** {brief_prose(item.title)}",
        _place(item),
        prose(shorten(item.fix, _MAX_FIX_LETTERS)),
    ]
    indent = " " * len(number)
    return number + f"\n\n{indent}".join(filter(None, parts))


def _place(item: Item) -> str:
    is_file = item.finding.where.file is not None
    place = shorten(item.place, _MAX_PLACE_LETTERS)
    shown = code(place) if is_file else prose(place)
    quoted = code(shorten(item.code, _MAX_PLACE_LETTERS))
    return ": ".join(filter(None, [shown, quoted]))


def _folded(said: FirstScreen) -> str:
    notes = [note for note in said.notes if not note.is_warning]
    counts = [
        (said.more, "more finding", "more findings"),
        (said.minor, "minor finding", "minor findings"),
        (len(notes), "note about this trace", "notes about this trace"),
    ]
    summary = ", ".join(counted(*count) for count in counts if count[0])
    others = [_other(item) for item in said.others[:_MAX_OTHERS]]
    left_out = len(said.others) - len(others)
    if left_out:
        others.append(f"… and {left_out} more")
    titled = "Notes about this trace:" if notes else ""
    return details(summary, [bullets(others), titled, bullets(map(_note, notes))])


def _other(item: Item) -> str:
    place = f" ({_place(item)})" if item.place else ""
    return f"{item.number}, {prose(item.price)}: {brief_prose(item.title)}{place}"


def _note(note: Note) -> str:
    return f"{brief_prose(note.full)}."


def _next(said: FirstScreen) -> str:
    return f"Next: {', '.join(map(code, said.commands))}"


def _recordings(said: Recordings) -> Iterator[str]:
    listed = recordings_table(said, _MAX_FILE_ROWS)
    yield "### tracelab"
    yield brief_prose(PART.join(said.about))
    yield from map(brief_prose, listed.lines)
    yield from (f"> **Warning:** {_note(note)}" for note in said.notes)
    yield section_table(listed)
    yield from listed.notes
    yield f"Next: {code(ONE_OF_THEM.partition(' (')[0])} of one line"


def render_diff(diff: Diff) -> str:
    """Return a difference as a comment."""
    slowest = diff.slowest
    what = "a step" if slowest.basis == "step" else "the trace"
    paths = (shorten(file.path, _MAX_PLACE_LETTERS) for file in (slowest.before, slowest.after))
    opening, *ranks = chapters(diff)
    verdict, *shown = opening.sections
    if len(ranks) == 1:
        files, *rest = ranks[0].sections
        shown += rest[:1]  # the figures, unless the programs are different
        ranks = [Chapter("", (files, *rest[1:]))]
    if not ranks:  # of many
        ranks = [Chapter(f"Rank {slowest.after.rank}, the slowest", tuple(details_of(slowest)))]
    blocks = [
        f"### tracelab diff: {_HEADINGS[diff.verdict].format(what)}",
        " → ".join(map(code, paths)),
        *map(prose, verdict.lines),
        *(block for section in shown for block in section_blocks(section)),
        details("All figures", (block for x in ranks for block in chapter_blocks(x))),
    ]
    return comment("diff", blocks)


# --- blocks ---


def comment(command: str, blocks: Iterable[str]) -> str:
    """Return the blocks within `MAX_LETTERS` as a comment that an invisible first line names."""
    kept: list[str] = []
    room = MAX_LETTERS
    for block in (f"<!-- tracelab {command} -->", *blocks):
        if block and len(block) < room:
            kept.append(block)
            room -= len(block) + len(_BETWEEN)
    # A job's log acts upon some lines.
    return escape_commands(f"{_BETWEEN.join(kept)}\n")


def brief_prose(text: str) -> str:
    """Limit a sentence to `MAX_TEXT_LETTERS`."""
    return prose(shorten(text, MAX_TEXT_LETTERS))


def bullets(items: Iterable[str]) -> str:
    """Return a list of Markdown items."""
    return "\n".join(f"- {item}" for item in items)


def details(summary: str, blocks: Iterable[str]) -> str:
    """Return a folded part; "" if it is empty."""
    content = "\n\n".join(filter(None, blocks))
    if not content:
        return ""
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown cells, at least one row."""
    cells = list(rows)
    sides = [
        "--:" if all(map(_FIGURE.match, column)) else "---" for column in zip(*cells, strict=True)
    ]
    return "\n".join([_row(titles), f"|{'|'.join(sides)}|", *map(_row, cells)])


def cell(text: str) -> str:
    """Return a cell that keeps numbers with their units."""
    return _BEFORE_UNIT.sub("\u00a0", prose(shorten(text, _MAX_CELL_LETTERS), is_cell=True))


def chapter_blocks(chapter: Chapter) -> list[str]:
    """Return a chapter as blocks."""
    title = [f"#### {brief_prose(chapter.title)}"] if chapter.title else []
    return [*title, *(block for section in chapter.sections for block in section_blocks(section))]


def section_blocks(section: Section) -> list[str]:
    """Return a section as blocks."""
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
    """Return a code span."""
    text = clean(text)
    if not text.strip():
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    is_padded = text[0] in "` " or text[-1] in "` "
    return f"{fence} {text} {fence}" if is_padded else f"{fence}{text}{fence}"


def code_in_cell(text: str) -> str:
    """Return code for a cell, which a code span cannot always be."""
    if not re.search(r"[|\\`]", text):
        return code(text)
    return f"<code>{_escaped(clean(text))}</code>"


def prose(text: str, *, is_cell: bool = False) -> str:
    """Return a sentence as Markdown; backticks make code spans."""
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
    if found[0] == "_":  # text inside a word
        around = (
            special.string[special.start() - 1 : special.start()],
            special.string[special.end() : special.end() + 1],
        )
        return found if all(map(str.isalnum, around)) else r"\_" * len(found)
    return f"\\{found}" if found in r"\`*~[]" else found + _BREAK


def _disarmed(start: re.Match[str]) -> str:
    return f"{start[0]}\\" if start[0][0].isdigit() else f"\\{start[0]}"
