"""The parts of the page below its first screen: charts and the tables of the text report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tracelab.base.arrays import Record
from tracelab.base.file_names import short_names
from tracelab.render.html.charts import HeatChart, StepChart, job_charts, overlap_charts, step_chart
from tracelab.render.scene import Scene
from tracelab.render.section import PART, Chapter, Column, Fit, Section
from tracelab.render.sections.files import causes_by_step
from tracelab.render.sections.predictions import causal_section, prediction_sections
from tracelab.render.words import bare_name, shorten
from tracelab.report.glossary import CAUSES, KINDS, PATH_KINDS
from tracelab.report.schema import CausalMetrics, Report, WhatIf
from tracelab.report.views import RankView, ranks_of

# Of parts that have several sections.
_TITLES = {
    "bubbles": "Idle by cause and step",
    "times": "Busy and idle",
    "other": "Other tables",
}
# Parts whose titles do not say which stretch of time they are about.
_OF_WINDOW = frozenset(("bubbles", "overlap", "blocking-calls", "critical-path", "starts", "other"))
_COLORED = ("cause", "kind", "biggest idle cause")  # columns
# A longer name is shortened; its tooltip has the full name, cut.
_MAX_NAME_LETTERS, _MAX_FULL_NAME_LETTERS = 48, 300
_SHARE = re.compile(r"[<>]?(\d+(?:\.\d+)?) %")
_CODE = re.compile(r"name|call|operator|line|module|kernel|what|where|inside|file")
_FITS: Mapping[Fit, str] = MappingProxyType(
    {Fit.NUMBER: "", Fit.LABEL: "label", Fit.BRIEF: "label", Fit.PROSE: "prose"}
)
_COLORS: Mapping[str, str] = MappingProxyType(
    {
        **{term.name: term.key for term in (*PATH_KINDS.terms, *CAUSES.terms)},
        **{term.key: term.key for term in (*PATH_KINDS.terms, *CAUSES.terms, *KINDS.terms)},
    }
)


class FilePart(Record, eq=False):
    """A file of a page.

    Attributes:
        scene: what its timeline shows.
        causal: what a step would take if a line, or an operator if no line is known, cost
            nothing; empty if nothing can be replayed.
        whatif: what the steps take with the fix of each finding alone, then with all of them.
    """

    scene: Scene
    causal: tuple[CausalMetrics, ...]
    whatif: WhatIf | None


class Part(Record):
    """A part of the page under a heading.

    Attributes:
        key: what it is about.
        suffix: which file it is about, where there are several.
        title: its heading.
        sections: sentences, tables and notes.
        heat: heat maps above them.
        columns: a chart above them.
        of: which stretch of time they are about, where their titles do not say it.
    """

    key: str
    suffix: str
    title: str
    sections: tuple[Section, ...]
    heat: tuple[HeatChart, ...] = ()
    columns: StepChart | None = None
    of: str = ""

    @property
    def id(self) -> str:
        """Target of a link to it."""
        return self.key + self.suffix

    @property
    def label(self) -> str:
        """Text of a link to it: ``"Kernels"`` for "Kernels, per steady step (mean of 5)"."""
        return self.title.partition(",")[0].partition(PART)[0]


class PartGroup(Record):
    """The parts about one file, or about all of them; the title is "" where there is one file."""

    id: str
    name: str
    title: str
    parts: tuple[Part, ...]


def part_groups(
    report: Report, chapters: Sequence[Chapter], files: Sequence[FilePart]
) -> list[PartGroup]:
    """Make everything below the first screen except where it comes from, in order."""
    several = len(report.traces) > 1
    opening, *others = chapters
    groups = [PartGroup("all", "", "", tuple(_parts_of_all(report, opening)))] if several else []
    by_path = {part.scene.path: part for part in files}
    shown = [(x, chapter) for x, chapter in zip(ranks_of(report), others, strict=False) if x.views]
    names = short_names([rank.trace.path for rank, _ in shown])
    for index, ((rank, chapter), file) in enumerate(zip(shown, names, strict=True)):
        suffix = f"-{index}" if several else ""
        part = by_path.get(rank.trace.path)
        parts = tuple(_parts_of_file(report, rank, chapter, part, suffix))
        name = f"Rank {rank.trace.rank}" if report.job else file
        groups.append(PartGroup(f"file{suffix}", name, chapter.title if several else "", parts))
    return groups


def _parts_of_all(report: Report, chapter: Chapter) -> Iterator[Part]:
    """Make the parts about all files together."""
    for key, sections in _sections_by_key(chapter).items():
        heat = tuple(job_charts(report)) if key == "ranks" else ()
        title = ("Ranks" if report.job else "Files") if key == "ranks" else sections[0].title
        yield Part(key, "", title, tuple(sections), heat=heat)
    if report.job and (predictions := _predictions(report.whatif)):
        yield Part("whatif", "", "What if", tuple(predictions))


def _parts_of_file(
    report: Report, rank: RankView, chapter: Chapter, part: FilePart | None, suffix: str
) -> Iterator[Part]:
    """Make the parts of a file, those about what to do before those about what was measured."""
    if causal := _causal(report, rank, part):
        yield Part("causal", suffix, "Causal profile", tuple(causal))
    if whatif := _whatif(report, part):
        yield Part("whatif", suffix, "What if", tuple(whatif))
    for key, sections in _sections_by_key(chapter).items():
        is_idle, pairs = key == "bubbles", rank.main.overlaps if key == "overlap" else ()
        yield Part(
            key,
            suffix,
            _TITLES.get(key) or sections[0].title,
            (*sections, *(causes_by_step(rank) if is_idle else ())),
            heat=tuple(overlap_charts(pairs, several=rank.main.several)),
            columns=step_chart(rank) if is_idle else None,
            of=rank.main.name.lower() if key in _OF_WINDOW else "",
        )


def _sections_by_key(chapter: Chapter) -> dict[str, list[Section]]:
    """Return the sections of each part."""
    parts: dict[str, list[Section]] = {}
    for section in chapter.sections:
        if section.key:
            parts.setdefault(section.key, []).append(section)
    return parts


def _causal(report: Report, rank: RankView, part: FilePart | None) -> list[Section]:
    rows: Sequence[CausalMetrics] = [x for x in report.causal if x.rank == rank.trace.rank]
    if part is not None and part.causal:
        rows = part.causal
    return [causal_section(rows, rank.main.savings)] if rows else []


def _whatif(report: Report, part: FilePart | None) -> list[Section]:
    whatif: WhatIf | None = None if report.job else report.whatif
    if part is not None and part.whatif is not None:
        whatif = part.whatif
    return _predictions(whatif)


def _predictions(whatif: WhatIf | None) -> list[Section]:
    """Show what the fixes save, if that is known."""
    return [] if whatif is None or whatif.not_replayed else prediction_sections(whatif)


class Shown(Record):
    """A cell.

    Attributes:
        text: its first part; of a long name of C++ that which tells people what it is.
        full: the whole of that name, where it is cut.
        rest: what of it follows the text, where another row has the same text for another name.
        more: its other parts.
        fit: the name of the class that aligns it; "" of numbers.
        is_head: whether it names its row.
        is_code: whether it is a name of the program.
        kind: the name of the color that it has in charts, or "".
        share: of what is a share, in percent, or "".
    """

    text: str
    full: str
    rest: str
    more: tuple[str, ...]
    fit: str
    is_head: bool
    is_code: bool
    kind: str
    share: str


class Table(Record):
    """A table: titles of columns, each with the class that aligns it, and cells."""

    titles: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Shown, ...], ...]


def table_of(section: Section) -> Table:
    """The table of a section."""
    is_headed = section.columns[0].fit is not Fit.PROSE
    by_column = zip(section.columns, zip(*section.rows, strict=True), strict=True)
    fits = [_fit(column, cells) for column, cells in by_column]
    titles = [column.title.replace("-\n", "").replace("\n", " ") for column in section.columns]
    rows = [
        [
            _shown(column, title, fit, cell, is_head=is_headed and index == 0)
            for index, (column, title, fit, cell) in enumerate(
                zip(section.columns, titles, fits, row, strict=True)
            )
        ]
        for row in section.rows
    ]
    texts = Counter(cell.text for row in rows for cell in row if cell.full)
    return Table(
        tuple(zip(titles, fits, strict=True)),
        tuple(
            tuple(
                replace(x, rest=x.full.partition(x.text)[2]) if texts[x.text] > 1 else x
                for x in row
            )
            for row in rows
        ),
    )


def _fit(column: Column, cells: Sequence[str]) -> str:
    """Return the alignment of a column: words have none, whatever column they are in."""
    is_words = column.fit is Fit.NUMBER and not any(re.search(r"\d", cell) for cell in cells)
    return "words" if is_words and any(map(str.strip, cells)) else _FITS[column.fit]


def _shown(column: Column, title: str, fit: str, cell: str, *, is_head: bool) -> Shown:
    text, *more = cell.split(PART) if column.fit in (Fit.LABEL, Fit.BRIEF) else [cell]
    is_code = column.fit is Fit.LABEL and bool(_CODE.match(title)) and bool(text.strip())
    short = bare_name(text) if is_code and len(text) > _MAX_NAME_LETTERS else text
    share = _SHARE.fullmatch(cell)
    return Shown(
        text=short,
        full=shorten(text, _MAX_FULL_NAME_LETTERS) if short != text else "",
        rest="",
        more=tuple(more),
        fit=fit,
        is_head=is_head,
        is_code=is_code,
        kind=_COLORS.get(text.strip(), "") if title in _COLORED else "",
        share=share[1] if share and not is_head and cell != "0 %" else "",
    )
