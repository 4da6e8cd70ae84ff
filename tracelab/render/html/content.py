"""Content of the page, in order, before it is HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.safe_text import counted
from tracelab.findings.registry import RULES
from tracelab.render.html.finding_items import FindingItem, finding_items
from tracelab.render.html.summary import Summary, name_of, summaries_of
from tracelab.render.html.tables import Part, PartGroup, part_groups
from tracelab.render.notes import asides, notes_of, unread
from tracelab.render.section import PART, Section
from tracelab.render.sections.files import file_facts, hardware, machines, recorded
from tracelab.render.text.hints import steps_hint
from tracelab.render.text.savings import not_predicted
from tracelab.report.glossary import (
    BLOCKERS,
    BLOCKING_KINDS,
    CAUSES,
    CONSTRAINTS,
    FINDING_CAUSES,
    KINDS,
    LATENESS,
    PATH_KINDS,
    PHASES,
    PIPELINE,
    TERMS,
    Group,
)
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of

if TYPE_CHECKING:
    from tracelab.render.html.tables import FilePart

_MAX_FILES_WITH_FACTS = 64
# By part of the page the groups whose words it uses; those of TERMS mean the same everywhere.
_PLACES: Mapping[str, tuple[Group, ...]] = MappingProxyType(
    {
        "bubbles": (CAUSES,),
        "times": (KINDS,),
        "overlap": (KINDS,),
        "critical-path": (PATH_KINDS,),
        "blocking-calls": (BLOCKING_KINDS,),
        "starts": (CONSTRAINTS,),
        "phases": (PHASES,),
        "ranks": (LATENESS, PIPELINE),
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class Content(OneLine):
    """Content of the page.

    Attributes:
        version: of the package.
        name: of the file, or of all files together.
        facts: ranks, GPUs, versions and steps.
        path: of the file, where there is one.
        warnings: what the files lack that matters, and files that could not be used.
        summaries: the first part of the page, for each file or for the job.
        findings: about the program.
        notes: what to know beside them.
        lacks: findings about what the files lack.
        groups: tables and charts.
        provenance: what was analyzed, and how.
        definitions: the words.
    """

    version: str
    name: str
    facts: str
    path: str
    warnings: tuple[str, ...]
    summaries: tuple[Summary, ...]
    findings: tuple[FindingItem, ...]
    notes: tuple[str, ...]
    lacks: tuple[FindingItem, ...]
    groups: tuple[PartGroup, ...]
    provenance: tuple[Section, ...]
    definitions: tuple[Definition, ...]


def content_of(report: Report, files: Sequence[FilePart]) -> Content:
    """Make the content of the page of a report.

    Args:
        report: the report.
        files: what else is known of each file while it is analyzed; empty of a saved report.
    """
    ranks = [rank for rank in ranks_of(report) if rank.views]
    findings = finding_items(report, ranks, about="program")
    lacks = finding_items(report, ranks, about="trace")
    summaries = summaries_of(report, ranks)
    groups = part_groups(report, ranks, files)
    sentences = [text for summary in summaries for text in summary.words]
    parts = [part for group in groups for part in group.parts]
    return Content(
        version=report.version,
        name=name_of(report),
        facts=_facts(ranks),
        path=report.traces[0].path if len(report.traces) == 1 else "",
        warnings=tuple(_warnings(report)),
        summaries=tuple(summaries),
        findings=tuple(findings),
        notes=tuple(_notes(report, ranks)),
        lacks=tuple(lacks),
        groups=tuple(groups),
        provenance=tuple(_provenance(report, ranks)),
        definitions=tuple(definitions(parts, [*findings, *lacks], sentences)),
    )


def _facts(ranks: Sequence[RankView]) -> str:
    """The GPUs, versions and steps, in a line."""
    if len(ranks) != 1:
        return PART.join(machines(ranks))
    trace, views = ranks[0].trace, ranks[0].views
    rank = [] if trace.rank_source == "position" else [f"rank {trace.rank}"]
    return " · ".join([*rank, *hardware(trace, views), recorded(views)])


def _warnings(report: Report) -> list[str]:
    """List the warnings about what is missing."""
    notes = [*unread(report.provenance), *notes_of(report.findings, report.traces)]
    notes += asides(ranks_of(report))
    return [f"{note.text}." for note in notes if note.is_warning]


def _notes(report: Report, ranks: Sequence[RankView]) -> list[str]:
    """List what to know in addition to the findings."""
    shown = {(rank.trace.rank, rank.main.step) for rank in ranks}
    notes = [note.text for note in report.notes if (note.rank, note.step) in shown]
    unpredicted = [text for rank in ranks for text in not_predicted(rank.main.scope)]
    steps = filter(None, (steps_hint(rank.trace) for rank in ranks))
    return list(dict.fromkeys([*notes, *unpredicted, *steps]))


def _provenance(report: Report, ranks: Sequence[RankView]) -> list[Section]:
    """The files, and how they were analyzed."""
    asked = report.provenance
    lines = [
        f"tracelab {report.version}, {counted(len(report.traces), 'file', 'files')}",
        f"Steps are annotations that match {' or '.join(report.step_patterns)}",
    ]
    if asked.comm_patterns:
        patterns = " · ".join(asked.comm_patterns)
        lines.append(f"Counted as communication as well: kernels that match {patterns}")
    if asked.job is not None:
        what = "One job" if asked.job.is_job else "Not one job"
        lines.append(f"{what}: {asked.job.why}.")
    sections = [Section("", tuple(lines))]
    for rank in ranks[:_MAX_FILES_WITH_FACTS]:
        facts = file_facts(rank.trace, rank.views, in_job=report.job is not None)
        sections.append(Section(rank.trace.path, facts.lines))
    return sections


@dataclass(frozen=True, slots=True, repr=False)
class Definition(OneLine):
    """A word: ``Definition("host_blocked", "a cause of idle time", "the host sat in ...", "")``.

    Attributes:
        word: as the page has it.
        what: what sort of word it is; "" of a usual one.
        meaning: a phrase.
        detail: sentences that say more, or "".
    """

    word: str
    what: str
    meaning: str
    detail: str


def definitions(
    parts: Iterable[Part], findings: Iterable[FindingItem], sentences: Iterable[str]
) -> list[Definition]:
    """The words of the glossary that a page uses, each once for each of its meanings.

    Args:
        parts: the parts of the page.
        findings: its findings.
        sentences: what else it says in our words.
    """
    findings, parts = list(findings), list(parts)
    ids = sorted({finding.rule[0] for finding in findings})
    names = {rule.id: rule.name for rule in RULES}
    found = [Definition(x, "a rule", names[x], "") for x in ids if x in names]
    facts = " ".join(fact for finding in findings for fact in finding.facts[:1])
    found += [x for group in (BLOCKERS, FINDING_CAUSES) for x in _used(group, facts)]
    for part in parts:
        text = " ".join(_words(part.sections))
        for group in _PLACES.get(part.key, ()):
            found += _used(group, text)
    texts = [*sentences, *(word for part in parts for word in _words(part.sections))]
    found += _used(TERMS, " ".join(texts))
    return list({(x.word, x.meaning): x for x in reversed(found)}.values())[::-1]


def _words(sections: Iterable[Section]) -> Iterator[str]:
    """Our own words in tables, and the first cell of each row: what it is about."""
    for section in sections:
        yield from (section.title, *section.lines, *section.notes)
        yield from (column.title.replace("\n", " ") for column in section.columns)
        yield from (row[0] for row in section.rows)


def _used(group: Group, text: str) -> list[Definition]:
    lowered = text.lower()
    return [
        Definition(term.name, "" if group is TERMS else group.one, term.meaning, term.detail)
        for term in group.terms
        if re.search(rf"(?<!\w){re.escape(term.name.lower())}(?!\w)", lowered)
    ]
