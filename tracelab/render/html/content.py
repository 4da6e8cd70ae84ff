"""Content of the page, before it is HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from pathlib import PurePath
from string import ascii_letters, digits

from tracelab.base.arrays import ABSENT, Record
from tracelab.base.names import short_names
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.render.document import detailed, opening
from tracelab.render.first_screen import Fact, Item, all_notes, item_of
from tracelab.render.html.charts import (
    Bar,
    HeatChart,
    Segment,
    StepChart,
    bar_of,
    bars_of_ranks,
    job_charts,
    legend_of,
    overlap_charts,
    step_chart,
)
from tracelab.render.ranks import rank_shares
from tracelab.render.recordings import Recordings, recordings_table
from tracelab.render.scene import Scene
from tracelab.render.section import PART, Chapter, Column, Fit, Section
from tracelab.render.sections.files import causes_by_step, file_facts
from tracelab.render.sections.findings import causal_section, circumstances, prediction_sections
from tracelab.render.sections.work import work
from tracelab.render.text.hints import steps_hint
from tracelab.render.text.savings import REASONS, lowered, price
from tracelab.render.words import ELLIPSIS, Quantity, bare_name, shorten
from tracelab.report.finding_groups import finding_groups
from tracelab.report.glossary import (
    CAUSES,
    FINDING_CAUSES,
    GROUPS,
    KINDS,
    PATH_KINDS,
    TERMS,
)
from tracelab.report.schema import CausalMetrics, Job, Report, WhatIf
from tracelab.report.views import RankView, ranks_of

_MAX_FILES_WITH_FACTS, _MAX_RECORDINGS = 64, 50
_MAX_WORK_ROWS, _MAX_WORK_ROWS_OF_RANK, _MAX_RANKS = 30, 10, 64
# Of a job, one rank's table is shown at a time.
_BY_RANK = ("kernels", "lines")
# The only addresses that a page links to.
_LINKS: Mapping[str, tuple[str, str]] = {
    remedy.documented: (remedy.source, remedy.url) for remedy in REMEDIES if remedy.url
}
# Of parts with several sections.
_TITLES = {
    "bubbles": "Idle by cause and step",
    "times": "Busy and idle",
    "other": "Other tables",
}
# Their titles name no stretch of time.
_OF_WINDOW = frozenset(("bubbles", "overlap", "blocking-calls", "critical-path", "starts", "other"))
_COLORED = ("cause", "kind", "biggest idle cause")  # columns
# In a cell, and in its tooltip.
_MAX_NAME_LETTERS, _MAX_FULL_NAME_LETTERS = 48, 300
_SHARE = re.compile(r"[<>]?(\d+(?:\.\d+)?) %")
_CODE = re.compile(r"name|call|operator|line|module|kernel|what|where|inside|file")
_WORD = f"{ascii_letters}{digits}_:"
_FITS: Mapping[Fit, str] = {
    Fit.NUMBER: "",
    Fit.LABEL: "label",
    Fit.BRIEF: "label",
    Fit.PROSE: "prose",
}
_COLORS: Mapping[str, str] = {
    **{term.name: term.key for term in (*PATH_KINDS.terms, *CAUSES.terms)},
    **{term.key: term.key for term in (*PATH_KINDS.terms, *CAUSES.terms, *KINDS.terms)},
}


class FilePart(Record, eq=False):
    """A file of a page.

    Attributes:
        causal: by line, or by operator if no line is known.
        whatif: each fix alone, then all.
    """

    scene: Scene
    causal: tuple[CausalMetrics, ...]
    whatif: WhatIf | None


class Part(Record):
    """A part of the page under a heading.

    Attributes:
        suffix: of its file, if there are several.
        heat, columns: charts above the sections.
        ranks: of each section, for the reader's choice; else empty.
        of: the stretch of time, if titles do not say it.
    """

    key: str
    suffix: str
    title: str
    sections: tuple[Section, ...]
    heat: tuple[HeatChart, ...] = ()
    columns: StepChart | None = None
    ranks: tuple[int, ...] = ()
    chosen: int = ABSENT
    of: str = ""

    @property
    def id(self) -> str:
        """Target of links."""
        return self.key + self.suffix

    @property
    def label(self) -> str:
        """Text of links: ``"Kernels"`` for "Kernels, per steady step (mean of 5)"."""
        return self.title.partition(",")[0].partition(PART)[0]


class PartGroup(Record):
    """The parts about one file, or all; a single file has no title."""

    id: str
    name: str
    title: str
    parts: tuple[Part, ...]


class PageFinding(Record):
    """A finding with further details.

    Attributes:
        reason: why no saving is predicted, or only a bound; "" for a saving.
        source: its documentation and address, "" if that is not ours.
        others: number, severity, rank and price of the same place on the other ranks.
    """

    item: Item
    circumstances: str
    reason: str
    source: tuple[str, str] | None
    others: tuple[tuple[int, str, int, str], ...]


class Content(Record):
    """Content of the page.

    Attributes:
        path: "" for files that are not one job.
        answer: the sentence printed without findings worth a place; else "".
        recordings: None for a file or a job.
        bars: one for a file or each rank.
        lacks: findings about missing parts of the files.
    """

    name: str
    path: str
    about: str
    warnings: tuple[str, ...]
    facts: tuple[Fact, ...]
    answer: str
    recordings: Section | None
    bars: tuple[Bar, ...]
    findings: tuple[PageFinding, ...]
    notes: tuple[str, ...]
    lacks: tuple[PageFinding, ...]
    groups: tuple[PartGroup, ...]
    provenance: tuple[Section, ...]
    definitions: tuple[Definition, ...]

    @property
    def legend(self) -> tuple[Segment, ...]:
        """Each sort of part of the bars once."""
        return legend_of(bar.parts for bar in self.bars)


def content_of(report: Report, files: Sequence[FilePart]) -> Content:
    """Make the content of a report's page."""
    ranks = [rank for rank in ranks_of(report) if rank.views]
    document = detailed(report, top=_MAX_WORK_ROWS)
    said = document.said
    facts: tuple[Fact, ...] = ()
    bars: list[Bar] = []
    path, answer, recordings = "", "", None
    if isinstance(said, Recordings):
        name, recordings = said.about[0], recordings_table(said, _MAX_RECORDINGS)
    else:
        name, facts, answer = said.name, said.facts, said.answer
        path = said.paths[0] if len(said.paths) == 1 else name
        bars = bars_of_ranks(report) if report.job else [bar_of(ranks[0])]
    findings = page_findings(report, ranks, about="program")
    lacks = page_findings(report, ranks, about="trace")
    groups = part_groups(report, document.chapters, files)
    parts = [part for group in groups for part in group.parts]
    notes = all_notes(report, ranks)
    sentences = [answer, *(x.text for x in facts), *(x.name for bar in bars for x in bar.parts)]
    return Content(
        name=PurePath(name).name or name,
        path=path,
        about=PART.join(text for text in said.about if text != name),
        warnings=(
            *(f"{note.full}." for note in notes if note.is_warning),
            *([document.ranks.unlike] if document.ranks and document.ranks.unlike else []),
        ),
        facts=facts,
        answer=answer,
        recordings=recordings,
        bars=tuple(bar for bar in bars if bar.parts),
        findings=tuple(findings),
        notes=(
            *dict.fromkeys(filter(None, map(steps_hint, report.traces))),
            *(f"{x.text}." for x in notes if x.rule is None and not x.is_warning),
        ),
        lacks=tuple(lacks),
        groups=tuple(groups),
        provenance=tuple(_provenance(report, ranks)),
        definitions=tuple(definitions(parts, [*findings, *lacks], sentences)),
    )


def page_findings(report: Report, ranks: Sequence[RankView], *, about: str) -> list[PageFinding]:
    """List the findings about the "program" or "trace", each place once."""
    numbers = {id(finding): index for index, finding in enumerate(report.findings, start=1)}
    found = []
    for group in finding_groups(report, ranks, about=about):
        item, finding = item_of(group, report, len(ranks)), group.finding
        others = [
            (numbers[id(x)], x.severity, x.rank, price(x, scope))
            for x, scope in group.members
            if numbers[id(x)] != item.number
        ]
        source = None
        if finding.source is not None:
            source = _LINKS.get(finding.source, (finding.source, ""))
        reason = REASONS.get(finding.saves_reason or "", "")
        found.append(
            PageFinding(item, circumstances(finding), reason, source, tuple(sorted(others)))
        )
    return found


def _provenance(report: Report, ranks: Sequence[RankView]) -> list[Section]:
    asked = report.provenance.job
    lines = [f"Steps are annotations that match {' or '.join(report.step_patterns)}"]
    if asked is not None:
        lines.append(f"{'One job' if asked.is_job else 'Not one job'}: {asked.why}.")
    in_job = report.job is not None
    facts = [
        Section(rank.trace.path, file_facts(rank.trace, rank.views, in_job=in_job).lines)
        for rank in ranks[:_MAX_FILES_WITH_FACTS]
    ]
    return [*opening(report), Section("", tuple(lines)), *facts]


class Definition(Record):
    """A word, its sort, its meaning, and further sentences."""

    word: str
    what: str
    meaning: str
    detail: str


def definitions(
    parts: Iterable[Part], findings: Iterable[PageFinding], sentences: Iterable[str]
) -> list[Definition]:
    """List the glossary's words on a page."""
    found_in = [x.item.finding for x in findings]
    causes = [FINDING_CAUSES.name_of(finding.cause) for finding in found_in]
    texts = {"findings": causes, "page": [*sentences]}
    for part in parts:
        words = list(_words(part.sections))
        texts.setdefault(part.key, []).extend(words)
        texts["page"] += words
    ids = {finding.rule for finding in found_in}
    found = [Definition(x.id, "a rule", x.name, "") for x in RULES if x.id in ids]
    for group in GROUPS:
        text = " ".join(word for key in group.parts for word in texts.get(key, ())).lower()
        found += [
            Definition(term.name, "" if group is TERMS else group.one, term.meaning, term.detail)
            for term in group.terms
            if re.search(rf"(?<!\w){re.escape(term.name.lower())}(?!\w)", text)
        ]
    return list({(x.word, x.meaning): x for x in reversed(found)}.values())[::-1]


def _words(sections: Iterable[Section]) -> Iterator[str]:
    for section in sections:
        yield from (section.title, *section.lines, *section.notes)
        yield from (column.title.replace("\n", " ") for column in section.columns)
        yield from (row[0] for row in section.rows)


# --- charts and tables ---


def part_groups(
    report: Report, chapters: Sequence[Chapter], files: Sequence[FilePart]
) -> list[PartGroup]:
    """Make everything below the first screen."""
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
    for key, sections in _sections_by_key(chapter).items():
        heat = tuple(job_charts(report)) if key == "ranks" else ()
        title = ("Ranks" if report.job else "Files") if key == "ranks" else sections[0].title
        yield Part(key, "", title, tuple(sections), heat=heat)
    if report.job:
        yield from _parts_by_rank(report, report.job)
        yield from _whatif(report.whatif, "")


def _parts_by_rank(report: Report, job: Job) -> Iterator[Part]:
    shares = sorted(rank_shares(report), key=lambda x: -x.wait_ns)
    awaited = [*(x.rank for x in job.stragglers), *(x.waits_for for x in shares)]
    ranks = {x.trace.rank: x for x in ranks_of(report) if x.views}
    shown = sorted(ranks, key=lambda rank: (rank not in awaited, rank))[:_MAX_RANKS]
    for key in _BY_RANK:
        made = [
            (number, replace(x, title=f"Rank {number}: {lowered(x.title)}"))
            for number in sorted(shown)
            for x in work(ranks[number].main, key, _MAX_WORK_ROWS_OF_RANK)
        ]
        of_rank = tuple(number for number, x in made if x.rows)
        if of_rank:
            sections = tuple(x for _, x in made if x.rows)
            chosen = next(rank for rank in (*awaited, *of_rank) if rank in of_rank)
            title = f"{key.capitalize()}, by rank"
            yield Part(key, "", title, sections, ranks=of_rank, chosen=chosen)
        elif made:  # all alike
            yield Part(key, "", key.capitalize(), (replace(made[0][1], title=""),))


def _parts_of_file(
    report: Report, rank: RankView, chapter: Chapter, part: FilePart | None, suffix: str
) -> Iterator[Part]:
    sections = _sections_by_key(chapter)
    for key in _BY_RANK if report.job else ():
        sections.pop(key, None)
    if kernels := sections.pop("kernels", None):
        yield _part_of_file(rank, "kernels", kernels, suffix)
    of_rank = tuple(x for x in report.causal if x.rank == rank.trace.rank)
    if causal := (part and part.causal) or of_rank:
        profile = causal_section(causal, rank.main.savings)
        yield Part("causal", suffix, "Causal profile", (profile,))
    whatif = None if report.job else report.whatif
    yield from _whatif((part and part.whatif) or whatif, suffix)
    for key, some in sections.items():
        yield _part_of_file(rank, key, some, suffix)


def _part_of_file(rank: RankView, key: str, sections: Sequence[Section], suffix: str) -> Part:
    is_idle, pairs = key == "bubbles", rank.main.overlaps if key == "overlap" else ()
    return Part(
        key,
        suffix,
        _TITLES.get(key) or sections[0].title,
        (*sections, *(causes_by_step(rank) if is_idle else ())),
        heat=tuple(overlap_charts(pairs, several=rank.main.several)),
        columns=step_chart(rank) if is_idle else None,
        of=rank.main.name.lower() if key in _OF_WINDOW else "",
    )


def _sections_by_key(chapter: Chapter) -> dict[str, list[Section]]:
    parts: dict[str, list[Section]] = {}
    for section in chapter.sections:
        if section.key:
            parts.setdefault(section.key, []).append(section)
    return parts


def _whatif(whatif: WhatIf | None, suffix: str) -> Iterator[Part]:
    if whatif is not None and not whatif.not_replayed:
        yield Part("whatif", suffix, "What if", tuple(prediction_sections(whatif)))


class Shown(Record):
    """A cell.

    Attributes:
        text: its first part; of a long C++ name the telling part.
        full: the whole name, if cut.
        rest: the difference from another row with the same text.
        more: its other parts.
        fit: the class that aligns it; "" for numbers.
        is_head: True if it names its row.
        kind: its color in charts, or "".
        share: in percent, or "".
        exact: the exact figure with its unit, or "" for `text`.
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
    exact: str


class Table(Record):
    """Titles of columns, each with the class that aligns it, and cells."""

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
    full: dict[str, list[str]] = {}
    for cell in chain.from_iterable(rows):
        if cell.full:
            full.setdefault(cell.text, []).append(cell.full)
    return Table(
        tuple(zip(titles, fits, strict=True)),
        tuple(tuple(_cut_name(x, full.get(x.text, ())) for x in row) for row in rows),
    )


def _cut_name(cell: Shown, alike: Sequence[str]) -> Shown:
    most = _MAX_FULL_NAME_LETTERS
    rest = shorten(_rest(cell.full, alike), most)
    return replace(cell, full=shorten(cell.full, most), rest=rest)


def _rest(name: str, alike: Sequence[str]) -> str:
    """Return a name from the first word on that tells it from others."""
    others = [other for other in alike if other != name]
    if not name or not others:
        return ""
    same = [
        len(list(takewhile(lambda x: x[0] == x[1], zip(name, other, strict=False))))
        for other in others
    ]
    # The most similar name first, unless another ends alike.
    rests = [name[len(name[:length].rstrip(_WORD)) :] for length in (max(same), min(same))]
    return ELLIPSIS + rests[any(other.endswith(rests[0]) for other in others)]


def _fit(column: Column, cells: Sequence[str]) -> str:
    is_words = column.fit is Fit.NUMBER and not any(re.search(r"\d", cell) for cell in cells)
    return "words" if is_words and any(map(str.strip, cells)) else _FITS[column.fit]


def _shown(column: Column, title: str, fit: str, cell: str, *, is_head: bool) -> Shown:
    text, *more = cell.split(PART) if column.fit in (Fit.LABEL, Fit.BRIEF) else [cell]
    is_code = column.fit is Fit.LABEL and bool(_CODE.match(title)) and bool(text.strip())
    short = bare_name(text) if is_code and len(text) > _MAX_NAME_LETTERS else text
    share = _SHARE.fullmatch(cell)
    return Shown(
        text=short,
        full=text if short != text else "",
        rest="",
        more=tuple(more),
        fit=fit,
        is_head=is_head,
        is_code=is_code,
        kind=_COLORS.get(text.strip(), "") if title in _COLORED else "",
        share=share[1] if share and not is_head and cell != "0 %" else "",
        exact=cell.exact if isinstance(cell, Quantity) and cell.exact != cell else "",
    )
