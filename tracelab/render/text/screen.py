"""The first screen as text: at most 25 lines; no fix is cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len

from tracelab.base.safe_text import clean, counted
from tracelab.render.document import Document
from tracelab.render.first_screen import Fact, FirstScreen, Item
from tracelab.render.notes import Note
from tracelab.render.ranks import Column, Ranks
from tracelab.render.recordings import Recordings
from tracelab.render.section import PART, TONES, Line, Span, Tone
from tracelab.render.text.hints import FULL, ONE_OF_THEM
from tracelab.render.words import paragraph, shorten_middle, shorten_names, wrap

MAX_LINES = 25
_INDENT = 3
# Of a title and a quoted line, if there is room.
_SECOND_COLUMN = 36
_MIN_CODE_LETTERS = 12
_TITLE_LINES = 2
_NAME_LETTERS = (44, 28, 20)  # to fit titles
_MAX_WARNINGS = 2
_SPARED = ("copies", "transfer", "waits for")  # columns to drop for room
_BLANK = Line()
_MAX_ROWS = 16
_MAX_FILE_LETTERS = 32


def screen(document: Document, *, width: int, full: str = FULL) -> list[Line]:
    """Draw the first screen; `full` is the command for all."""
    said, ranks = document.said, document.ranks
    if isinstance(said, Recordings):
        return _folder(said, width)
    for count, rows, is_tight in _sizes(len(said.items), len(ranks.rows) if ranks else 0):
        lines = [
            *_title(said, width),
            _BLANK,
            *_facts(said.facts, width),
            *_lines(wrap(clean(said.steps), width), Tone.DIM),
            *_warnings(said.notes, width),
            *(ranks_table(ranks, rows, width) if ranks and rows else []),
            *_items(said.items[:count], width, is_tight=is_tight),
            *_foot(said, count, width, full, is_after_table=rows > 0),
        ]
        if len(lines) <= MAX_LINES:
            break
    return lines


def _sizes(items: int, ranks: int) -> Iterator[tuple[int, int, bool]]:
    rows = min(ranks, MAX_LINES) if ranks > 1 else 0
    fewest = min(rows, 3)
    for count in range(items, -1, -1):
        yield count, rows, False
        yield from ((count, shown, True) for shown in range(rows, fewest - 1, -1))


def _title(said: FirstScreen, width: int) -> list[Line]:
    name = shorten_middle(clean(said.name), width)
    first, *others = wrap(PART.join((name, *map(clean, said.about))), width)
    rest = first.removeprefix(name)
    return [
        Line((Span(name, Tone.STRONG), Span(rest, Tone.DIM))),
        *_lines(others[: _TITLE_LINES - 1], Tone.DIM),
    ]


def _facts(facts: Sequence[Fact], width: int) -> Iterator[Line]:
    indent = max((len(fact.label) for fact in facts), default=0) + 2
    before = ""
    for i, fact in enumerate(facts):
        label = "" if fact.label == before else fact.label
        before = fact.label
        tone = Tone.STRONG if i < 2 else Tone.PLAIN
        for line in wrap(clean(fact.text), width - indent):
            yield Line((Span(f"{label:{indent}}", Tone.DIM), Span(line, tone)))
            label = ""


def _warnings(notes: Sequence[Note], width: int) -> list[Line]:
    shown = [note for note in notes if note.is_warning][:_MAX_WARNINGS]
    texts = [line for note in shown for line in wrap(clean(f"{note.full}."), width)]
    return _lines(texts, Tone.WARNING)


def _items(items: Sequence[Item], width: int, *, is_tight: bool) -> Iterator[Line]:
    for i, item in enumerate(items):
        if i == 0 or not is_tight:
            yield _BLANK
        yield from _item(item, width)


def _item(item: Item, width: int) -> Iterator[Line]:
    tone = TONES[item.finding.severity]
    text_tone = Tone.DIM if tone is Tone.DIM else Tone.PLAIN
    title_tone = Tone.DIM if tone is Tone.DIM else Tone.STRONG
    price = Span(", ".join(filter(None, [f"{item.number}  {item.price}", item.on])), tone)
    gap = " " * max(2, _SECOND_COLUMN - len(price.text))
    title = clean(item.title)
    if cell_len(price.text + gap + title) <= width:
        yield Line((price, Span(gap + title, title_tone)))
    else:
        yield Line((price,))
        yield from _indented(_shortened(title, width - _INDENT), title_tone)
    where = _where(clean(item.place), clean(item.code), width - _INDENT)
    yield from _indented([where] if where else [], text_tone)
    yield from _indented(wrap(clean(item.fix), width - _INDENT), text_tone)


def _where(place: str, code: str, room: int) -> str:
    place = shorten_middle(place, room)
    gap = " " * max(2, _SECOND_COLUMN - _INDENT - cell_len(place)) if place else ""
    if cell_len(place + gap + code) > room:
        gap = gap[:2]
    left = room - cell_len(place + gap)
    return (
        place if left < _MIN_CODE_LETTERS or not code else place + gap + shorten_middle(code, left)
    )


def _indented(lines: Sequence[str], tone: Tone) -> list[Line]:
    return _lines([" " * _INDENT + line for line in lines], tone)


def _shortened(title: str, room: int) -> list[str]:
    for most in _NAME_LETTERS:
        lines = wrap(title, room)
        if len(lines) <= _TITLE_LINES:
            return lines
        title = shorten_names(title, most)
    return paragraph(title, room, _TITLE_LINES)


def _foot(
    said: FirstScreen, count: int, width: int, full: str, *, is_after_table: bool
) -> Iterator[Line]:
    if not said.answer or is_after_table:
        yield _BLANK
    yield from _lines(wrap(clean(said.answer), width))
    more = said.more + len(said.items) - count
    notes = sum(not note.is_warning for note in said.notes)
    notes += max(0, len(said.notes) - notes - _MAX_WARNINGS)
    counts = [
        (more, "more finding", "more findings"),
        (said.minor, "finding saves less than 2 %", "findings save less than 2 %"),
        (notes, "note about this trace", "notes about this trace"),
    ]
    left_out = ". ".join(counted(*count) for count in counts if count[0])
    if left_out and not said.is_healthy:
        yield from _lines([f"{left_out}: {full}"], Tone.DIM)
    yield from _lines(_next(said.next, width), Tone.DIM)


def _next(commands: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for command in commands:
        longer = f"{lines[-1]}, {command}" if lines else f"Next: {command}"
        if cell_len(longer) <= width or not lines:
            lines[-1:] = [longer]
        else:
            lines = [*lines[:-1], f"{lines[-1]},", f"{' ' * len('Next: ')}{command}"]
    return lines


# --- the ranks of a job ---


def ranks_table(ranks: Ranks, most: int, width: int) -> list[Line]:
    """Draw the `most` important ranks, after an empty line."""
    titles, *rows = _aligned(
        [(title, cells, ">") for title, cells in _fitting(ranks.columns(most), width)]
    )
    return [
        _BLANK,
        *_lines([titles], Tone.DIM),
        *_lines(rows),
        *_lines(filter(None, [ranks.more(most)]), Tone.DIM),
        *_lines(paragraph(ranks.unlike, width, 2), Tone.WARNING),
    ]


def _aligned(columns: Sequence[tuple[str, Sequence[str], str]]) -> list[str]:
    widths = [max(map(len, [title, *cells])) for title, cells, _ in columns]
    rows = zip(*([title, *cells] for title, cells, _ in columns), strict=True)
    return [
        "  ".join(
            f"{cell:{side}{size}}"
            for cell, size, (_, _, side) in zip(row, widths, columns, strict=True)
        )
        for row in rows
    ]


def _fitting(columns: Sequence[Column], room: int) -> list[Column]:
    kept = list(columns)
    for spared in _SPARED:
        needed = sum(2 + max(map(len, [title, *cells])) for title, cells in kept)
        if needed > room:
            kept = [(title, cells) for title, cells in kept if title != spared]
    return kept


# --- files that are not one job ---


def _folder(said: Recordings, width: int) -> list[Line]:
    notes = [line for note in said.notes for line in wrap(clean(f"{note.text}."), width)]
    return [
        *_lines(paragraph(clean(PART.join(said.about)), width, 2), Tone.DIM),
        *_lines(notes, Tone.WARNING),
        *_lines(wrap(clean(said.why), width)),
        _BLANK,
        *_recordings(said, width),
        _BLANK,
        *_lines([f"Next: {ONE_OF_THEM}"], Tone.DIM),
    ]


def _recordings(said: Recordings, width: int) -> Iterator[Line]:
    rows = said.rows
    shown = rows[:_MAX_ROWS]
    columns = [
        ("file", [shorten_middle(clean(row.name), _MAX_FILE_LETTERS) for row in shown], "<"),
        *(
            [("ranks", [str(len(row.paths)) if len(row.paths) > 1 else "" for row in shown], ">")]
            if said.has_jobs
            else []
        ),
        ("step", [row.step for row in shown], ">"),
        ("busy", [row.busy for row in shown], ">"),
        ("saves", [row.saves for row in shown], ">"),
    ]
    titles, *lines = _aligned(columns)
    yield _recording(titles, "first finding", Tone.DIM, Tone.DIM, width)
    for row, line in zip(shown, lines, strict=True):
        tone = Tone.DIM if row.is_minor else Tone.PLAIN
        yield _recording(line, clean(row.title), Tone.PLAIN, tone, width)
    if len(shown) < len(rows):
        yield from _lines([f"… and {len(rows) - len(shown)} more"], Tone.DIM)


def _recording(line: str, title: str, tone: Tone, title_tone: Tone, width: int) -> Line:
    [text, *_] = paragraph(title, max(10, width - len(line) - 2), 1)
    return Line((Span(f"{line}  ", tone), Span(text, title_tone)))


def _lines(texts: Iterable[str], tone: Tone = Tone.PLAIN) -> list[Line]:
    return [Line((Span(text, tone),)) for text in texts]
