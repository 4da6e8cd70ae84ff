"""Pages of the documents that list words, rules and remedies; ``make documents`` writes them."""

from __future__ import annotations

import re

from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Remedy
from tracelab.render.glossary import capitalized, remedy_facts, rules_of, sentences
from tracelab.report.glossary import FAMILIES, GROUPS, Group

_GLOSSARY_PAGE = """\
# Glossary

The words that reports use. `tracelab explain WORD` prints the same in a terminal, and
`tracelab explain TL203` explains a rule with an example. [What each number means](numbers.md) gives
the definitions in full.

<!-- Made from tracelab/report/glossary.toml by `make documents`. -->
"""
_REMEDIES_PAGE = """\
# I see X, what do I do?

A rule says that something costs time; a remedy says what to write instead. Where a trace shows one
of these pitfalls, its finding has the remedy's fix (`findings[].remedy`, `findings[].source`) and a
saving that is predicted for exactly that change. `tracelab explain ID` prints the same in a
terminal. What the predictions are worth was [measured](remedies_measured.md) without a profiler.
Most pitfalls are recognized by Python functions in the trace (`with_stack=True`, which
`tracelab run` records).

<!-- Made from tracelab/findings/remedies.toml by `make documents`. -->
"""


def glossary_page() -> str:
    """The page of the documents: all rules and all words."""
    return "\n".join([_GLOSSARY_PAGE, *map(_markdown_section, GROUPS)])


def _markdown_section(group: Group) -> str:
    rows = []
    for term in group.terms:
        if group is FAMILIES:
            rows.append((f"**{term.key}**", sentences(term)))
            rows += [(rule.id, rule.name) for rule in rules_of(term)]
        else:
            key = f"`{term.key}`" if re.fullmatch(r"[a-z_0-9]*_[a-z_0-9]*", term.key) else term.key
            rows.append((f"{key} ({term.shown})" if term.shown else key, sentences(term)))
    lines = "\n".join(f"| {name} | {text} |" for name, text in rows)
    return f"## {group.title}\n\n{group.about}\n\n| | |\n|---|---|\n{lines}\n"


def remedies_page() -> str:
    """The page of the documents: what is seen, and below it each remedy, by rule."""
    index = sorted((f"| {x.name} | [{x.id}](#{x.id}) |" for x in REMEDIES), key=str.casefold)
    lines = [_REMEDIES_PAGE, "| I see | remedy |", "|---|---|", *index, ""]
    for rule in sorted(RULES, key=lambda rule: rule.id):
        remedies = [remedy for remedy in REMEDIES if remedy.rules[0] == rule.id]
        if remedies:
            lines += [f"## {rule.id}: {rule.name}\n", *map(_markdown_remedy, remedies)]
    return "\n".join(lines)


def _markdown_remedy(remedy: Remedy) -> str:
    facts = [f"- **{title}:** {text}" for title, text in remedy_facts(remedy) if text]
    return "\n".join([f"### {remedy.id}\n", f"{capitalized(remedy.name)}.\n", *facts]) + "\n"
