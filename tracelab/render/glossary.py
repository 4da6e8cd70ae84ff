"""The words and rules of reports, explained: for the terminal, and as a page of the documents.

``python -m tracelab.render.glossary`` prints ``tracelab/docs/glossary.md``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from tracelab.base.errors import UsageError
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.rule import Rule
from tracelab.render.remedies import explained, find_remedy, listed, remedies_of_rule, wrapped
from tracelab.report.glossary import FAMILIES, GROUPS, Group, Term, find_group, find_terms, nearest

_PAGE = """\
# Glossary

The words that reports use. `tracelab explain WORD` prints the same in a terminal, and
`tracelab explain TL203` explains a rule with an example. [What each number means](numbers.md) gives
the definitions in full.

<!-- Made from tracelab/report/glossary.toml by `make documents`. -->
"""

_REMEDIES = "Remedies: what to write instead of a pitfall that is recognized"


def overview(width: int) -> str:
    """All rules by family with their names; the ids of all remedies, and all words by group.

    Args:
        width: of the terminal, in columns.
    """
    families = [
        "\n".join([_heading(family), *(f"  {rule.id}  {rule.name}" for rule in rules)])
        for family, rules in _families()
    ]
    words = [
        f"{group.title}\n{wrapped(', '.join(map(_both_names, group.terms)), width)}"
        for group in GROUPS
        if group is not FAMILIES
    ]
    ids = ", ".join(remedy.id for remedy in REMEDIES)
    remedies = f"{_REMEDIES} (tracelab explain remedies)\n{wrapped(ids, width)}"
    end = "tracelab explain WORD explains any of these, for example: tracelab explain TL101 exposed"
    return "\n\n".join([*families, *words, remedies, end]) + "\n"


def words_that_begin(start: str) -> list[str]:
    """Rules, families, remedies and terms, each of one word, that begin so.

    >>> words_that_begin("TL90")[:2]
    ['TL901', 'TL902']
    """
    terms = (term.key for group in GROUPS for term in group.terms)
    known = (*(rule.id for rule in RULES), *(remedy.id for remedy in REMEDIES), *terms)
    return sorted({word for word in known if word.startswith(start) and " " not in word})


def explanation(words: Sequence[str], width: int) -> str:
    """Explain rules, families, remedies, groups and words.

    Args:
        words: at least one; several that are one term together are that term.
        width: of the terminal, in columns.

    Raises:
        UsageError: one of them is unknown.
    """
    whole = " ".join(words)
    asked = [whole] if len(words) > 1 and find_terms(whole) else words
    return "\n\n".join(_explained(word, width) for word in asked) + "\n"


def markdown() -> str:
    """The page of the documents: all rules and all words."""
    return "\n".join([_PAGE, *map(_markdown_section, GROUPS)])


def _explained(word: str, width: int) -> str:
    rule = next((rule for rule in RULES if rule.id == word.upper()), None)
    if rule is not None:
        return _rule_text(rule, width)
    remedy = find_remedy(word)
    if remedy is not None:
        return explained(remedy, width)
    if word.lower() == "remedies":
        return f"{_REMEDIES}\n{listed(REMEDIES, width)}"
    family = next((rules for term, rules in _families() if term.key == word.upper()), ())
    terms = find_terms(word)
    group = find_group(word)
    parts = [_term_text(group_of_it, term, width) for group_of_it, term in terms]
    parts += ["\n".join(f"  {rule.id}  {rule.name}" for rule in family)] if family else []
    parts += [_group_text(group, width)] if group is not None else []
    if not parts:
        raise UsageError(_unknown(word))
    return "\n\n".join(parts)


def _unknown(word: str) -> str:
    siblings = [rule.id for rule in RULES if rule.id[:3] == word[:3].upper()]
    ids = (*(rule.id for rule in RULES), *(remedy.id for remedy in REMEDIES))
    close = sorted(siblings) or nearest(word, ids)
    meant = f"; did you mean {' or '.join(close)}?" if close else "."
    return f"{word!r} is not a word or rule of tracelab{meant} `tracelab explain` lists all of them"


def _rule_text(rule: Rule, width: int) -> str:
    parts = [f"{rule.id}: {rule.name}"]
    texts = (("Why it matters", rule.matters), ("How it decides", rule.decides))
    for title, text in (*texts, ("What to do", rule.fix)):
        if text:
            parts.append(f"{title}\n{wrapped(text, width)}")
    for title, code in (("Before", rule.before), ("After", rule.after)):
        if code:
            parts.append(f"{title}\n{textwrap.indent(code, '  ')}")
    if remedies := remedies_of_rule(rule.id):
        parts.append(f"Remedies, where a trace shows one of these\n{listed(remedies, width)}")
    return "\n\n".join(parts)


def _term_text(group: Group, term: Term, width: int) -> str:
    shown = f', shown as "{term.shown}"' if term.shown else ""
    return f"{term.key}: {group.one}{shown}\n{wrapped(_sentences(term), width)}"


def _group_text(group: Group, width: int) -> str:
    terms = (f"{_both_names(term)}: {term.meaning}" for term in group.terms)
    lines = (wrapped(line, width) for line in (group.about, *terms))
    return "\n".join((group.title, *lines))


def _families() -> list[tuple[Term, list[Rule]]]:
    """Each family of rules, with its rules in the order of their ids."""
    return [
        (term, sorted((x for x in RULES if x.id.startswith(term.key)), key=lambda rule: rule.id))
        for term in FAMILIES.terms
    ]


def _heading(term: Term) -> str:
    return f"{term.key}  {term.meaning[0].upper()}{term.meaning[1:]}"


def _both_names(term: Term) -> str:
    return f"{term.key} ({term.shown})" if term.shown else term.key


def _sentences(term: Term) -> str:
    return f"{term.meaning[0].upper()}{term.meaning[1:]}. {term.detail}".strip()


def _markdown_section(group: Group) -> str:
    rows: Iterable[tuple[str, str]]
    if group is FAMILIES:
        rows = [
            row
            for term, rules in _families()
            for row in ((f"**{term.key}**", _sentences(term)), *((x.id, x.name) for x in rules))
        ]
    else:
        rows = [(_markdown_name(term), _sentences(term)) for term in group.terms]
    lines = "\n".join(f"| {name} | {text} |" for name, text in rows)
    return f"## {group.title}\n\n{group.about}\n\n| | |\n|---|---|\n{lines}\n"


def _markdown_name(term: Term) -> str:
    key = f"`{term.key}`" if re.fullmatch(r"[a-z_0-9]*_[a-z_0-9]*", term.key) else term.key
    return f"{key} ({term.shown})" if term.shown else key


if __name__ == "__main__":
    print(markdown(), end="")
