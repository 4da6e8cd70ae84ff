"""Words, rules and remedies in the terminal."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tracelab.base.errors import UsageError
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.report.glossary import FAMILIES, GROUPS, Group, Term

_REMEDIES = "Remedies: what to write instead of a pitfall that is recognized"
_INDENT = "  "
_MIN_WIDTH, _MAX_WIDTH = 80, 100

_Entry = tuple[tuple[str, ...], Callable[[], str]]  # names, text


def overview(width: int) -> str:
    """All rules by family, remedies, and words by group."""
    families = [
        "\n".join([f"{family.key}  {capitalized(family.meaning)}", *_rule_lines(family)])
        for family in FAMILIES.terms
    ]
    words = [
        f"{group.title}\n{_wrapped(', '.join(map(_both_names, group.terms)), width)}"
        for group in GROUPS
        if group is not FAMILIES
    ]
    ids = ", ".join(remedy.id for remedy in REMEDIES)
    remedies = f"{_REMEDIES} (tracelab explain remedies)\n{_wrapped(ids, width)}"
    end = "tracelab explain WORD explains any of these, for example: tracelab explain TL101 exposed"
    return "\n\n".join([*families, *words, remedies, end]) + "\n"


def words_that_begin(start: str) -> list[str]:
    """List the explained words with this start."""
    known = {name for names, _ in _entries(_MIN_WIDTH) for name in names}
    return sorted(word for word in known if word.startswith(start) and " " not in word)


def explanation(words: Sequence[str], width: int) -> str:
    """Explain rules, families, remedies, groups and words.

    Raises:
        UsageError: one of them is unknown.
    """
    entries = _entries(width)
    whole = " ".join(words)
    asked = [whole] if _find(whole, entries) else words
    return "\n\n".join(_explained(word, entries) for word in asked) + "\n"


def _entries(width: int) -> list[_Entry]:
    return [
        *(((rule.id,), partial(_rule_text, rule, width)) for rule in RULES),
        *(((remedy.id,), partial(_remedy_text, remedy, width)) for remedy in REMEDIES),
        (("remedies",), partial(_listed, _REMEDIES, REMEDIES, width)),
        *(
            ((term.key, term.name), partial(_term_text, group, term, width))
            for group in GROUPS
            for term in group.terms
        ),
        *(((group.key, group.title), partial(_group_text, group, width)) for group in GROUPS),
    ]


def _find(word: str, entries: Iterable[_Entry]) -> list[Callable[[], str]]:
    wanted = normalized(word)
    named = [({*map(normalized, names)}, make_text) for names, make_text in entries]
    return [make_text for names, make_text in named if wanted in names] or [
        make_text
        for names, make_text in named
        if any(f" {wanted} " in f" {name} " for name in names)
    ]


def _explained(word: str, entries: Sequence[_Entry]) -> str:
    found = _find(word, entries)
    if not found:
        known = {normalized(name): name for names, _ in entries for name in names}
        siblings = [rule.id for rule in RULES if rule.id[:3] == word[:3].upper()]
        matches = difflib.get_close_matches(normalized(word), known, n=3)
        close = sorted(siblings) or [known[match] for match in matches]
        meant = f"; did you mean {' or '.join(close)}?" if close else "."
        raise UsageError(
            f"{word!r} is not a word or rule of tracelab{meant} `tracelab explain` lists all of "
            "them"
        )
    return "\n\n".join(make_text() for make_text in found)


def normalized(word: str) -> str:
    """Remove capitals, separators and the unit."""
    return re.sub(r"[\s_-]+", " ", word).strip().casefold().removesuffix(" ns")


def _rule_text(rule: Rule, width: int) -> str:
    texts = (
        ("Why it matters", rule.matters),
        ("How it decides", rule.decides),
        ("What to do", rule.fix),
    )
    parts = [f"{rule.id}: {rule.name}", *_paragraphs(texts, width)]
    for title, code in (("Before", rule.before), ("After", rule.after)):
        if code:
            parts.append(f"{title}\n{textwrap.indent(code, _INDENT)}")
    remedies = [remedy for remedy in REMEDIES if rule.id in remedy.rules]
    if remedies:
        parts.append(_listed("Remedies, where a trace shows one of these", remedies, width))
    return "\n\n".join(parts)


def _remedy_text(remedy: Remedy, width: int) -> str:
    facts = _paragraphs(remedy_facts(remedy), width)
    return "\n\n".join([f"{remedy.id}: {remedy.name}", *facts])


def remedy_facts(remedy: Remedy) -> list[tuple[str, str]]:
    """List titles and texts about a remedy, its newest fix first."""
    newest, *older = remedy.fixes
    since = f"From PyTorch {newest.since} on: " if newest.since else ""
    return [
        ("In the trace", remedy.shows),
        ("What to do", " Before: ".join([f"{since}{newest.text}", *(fix.text for fix in older)])),
        ("Not when", remedy.not_when),
        ("Predicted by", remedy.edit or "nothing"),
        ("Rules", ", ".join(remedy.rules)),
        ("Source", remedy.documented),
    ]


def _paragraphs(texts: Iterable[tuple[str, str]], width: int) -> list[str]:
    return [f"{title}\n{_wrapped(text, width)}" for title, text in texts if text]


def _listed(title: str, remedies: Iterable[Remedy], width: int) -> str:
    lines = [_wrapped(f"{remedy.id}: {remedy.name}", width) for remedy in remedies]
    return "\n".join([title, *lines])


def _term_text(group: Group, term: Term, width: int) -> str:
    shown = f', shown as "{term.shown}"' if term.shown else ""
    text = f"{term.key}: {group.one}{shown}\n{_wrapped(sentences(term), width)}"
    if group is not FAMILIES:
        return text
    return "\n".join([f"{text}\n", *_rule_lines(term)])


def _group_text(group: Group, width: int) -> str:
    terms = (f"{_both_names(term)}: {term.meaning}" for term in group.terms)
    lines = (_wrapped(line, width) for line in (group.about, *terms))
    return "\n".join((group.title, *lines))


def rules_of(family: Term) -> list[Rule]:
    """List the rules of a family by id."""
    return sorted((x for x in RULES if x.id.startswith(family.key)), key=lambda rule: rule.id)


def _rule_lines(family: Term) -> list[str]:
    return [f"  {rule.id}  {rule.name}" for rule in rules_of(family)]


def capitalized(text: str) -> str:
    """Begin the text with a capital."""
    return text[0].upper() + text[1:]


def _both_names(term: Term) -> str:
    return f"{term.key} ({term.shown})" if term.shown else term.key


def sentences(term: Term) -> str:
    """Explain a word in full."""
    return f"{capitalized(term.meaning)}. {term.detail}".strip()


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(
        text,
        min(max(width, _MIN_WIDTH), _MAX_WIDTH),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
