"""Reports and differences as Markdown; what is minor is folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.base.safe_text import counted
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
from tracelab.render.markdown.blocks import (
    brief_prose,
    bullets,
    cell,
    chapter_blocks,
    code,
    comment,
    details,
    prose,
    section_blocks,
    section_table,
    table,
)
from tracelab.render.notes import Note
from tracelab.render.ranks import Ranks
from tracelab.render.recordings import Recordings, recordings_table
from tracelab.render.section import PART, Chapter
from tracelab.render.sections.diff import chapters, details as details_of
from tracelab.render.text.hints import ONE_OF_THEM
from tracelab.render.words import shorten
from tracelab.report.schema import Report

_MAX_OTHERS = 10
_MAX_FILE_ROWS = 50
_MAX_PLACE_LETTERS = 200
# No fix is that long, but the names in it may be.
_MAX_FIX_LETTERS = 2_000
_HEADINGS = {
    SHORTER: "{} got shorter",
    LONGER: "regression, {} got longer",
    NO_CHANGE: "no change beyond the noise",
    CANNOT_TELL: "cannot tell",
    DIFFERENT_PROGRAMS: "two different programs",
}
_MAX_PATH_LETTERS = 200


def render_markdown(report: Report, *, recordings: Sequence[Report] = ()) -> str:
    """Return the first screen of a report as a comment."""
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
    paths = (shorten(file.path, _MAX_PATH_LETTERS) for file in (slowest.before, slowest.after))
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
