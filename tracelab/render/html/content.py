"""Content of the page, in order, before it is HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING

from tracelab.base.arrays import Record
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.render.document import detailed, opening
from tracelab.render.first_screen import Fact, Item, all_notes, item_of
from tracelab.render.html.charts import Bar, Segment, bar_of, bars_of_ranks, legend_of
from tracelab.render.html.tables import Part, PartGroup, part_groups
from tracelab.render.recordings import Recordings, recordings_table
from tracelab.render.section import PART, Section
from tracelab.render.sections.files import file_facts
from tracelab.render.sections.findings import circumstances
from tracelab.render.text.hints import steps_hint
from tracelab.render.text.savings import REASONS, price
from tracelab.report.finding_groups import finding_groups
from tracelab.report.glossary import FINDING_CAUSES, GROUPS, TERMS
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of

if TYPE_CHECKING:
    from tracelab.render.html.tables import FilePart

_MAX_FILES_WITH_FACTS, _MAX_RECORDINGS = 64, 50
# Kernels, lines, modules and operators.
_MAX_WORK_ROWS = 30
# The only addresses that a page links to: those of our own table.
_LINKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {remedy.documented: (remedy.source, remedy.url) for remedy in REMEDIES if remedy.url}
)


class PageFinding(Record):
    """A finding, with what the first screen of the text has no room for.

    Attributes:
        item: the finding as the first screen has it.
        circumstances: cause, count, place and cost.
        reason: why no saving is predicted, or only a bound; "" for a saving.
        source: text and address of its documentation, the address "" if it is not one of ours;
            None without documentation.
        others: number, severity, rank and price of the same place on each of the other ranks.
    """

    item: Item
    circumstances: str
    reason: str
    source: tuple[str, str] | None
    others: tuple[tuple[int, str, int, str], ...]


class Content(Record):
    """Content of the page.

    Attributes:
        name: of the file, of the folder of a job, or how many files there are.
        path: the whole of that name; "" for files that are not one job.
        about: ranks, GPUs, versions and steps.
        warnings: what the files lack that matters, and files that could not be used.
        facts: step, GPUs and savings of a file or a job, as on the first screen.
        answer: the sentence printed if no finding is worth a place; else "".
        recordings: the table of files that are not one job; None for a file or a job.
        bars: one for a file; for a job one for each rank.
        findings: about the program.
        notes: what to know in addition to them.
        lacks: findings about what the files lack.
        groups: tables and charts.
        provenance: what was analyzed, and how.
        definitions: the words.
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
    """Make the content of the page of a report, with more of files that are at hand."""
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
    """List the findings about the "program" or "trace" by cost, each place once."""
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
    """Name the files, and say how they were analyzed."""
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
    """A word as the page has it, its sort, its meaning, and sentences that say more."""

    word: str
    what: str
    meaning: str
    detail: str


def definitions(
    parts: Iterable[Part], findings: Iterable[PageFinding], sentences: Iterable[str]
) -> list[Definition]:
    """List the words of the glossary that a page uses, each once for each of its meanings."""
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
    """Yield our own words in tables, and the first cell of each row: what it is about."""
    for section in sections:
        yield from (section.title, *section.lines, *section.notes)
        yield from (column.title.replace("\n", " ") for column in section.columns)
        yield from (row[0] for row in section.rows)
