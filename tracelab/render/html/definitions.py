"""The words that a page uses, with their meanings from the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tracelab.base.arrays import OneLine
from tracelab.findings.registry import RULES
from tracelab.render.html.finding_items import FindingItem
from tracelab.render.html.parts import Part
from tracelab.render.section import Section
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
