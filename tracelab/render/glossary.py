"""Words, rules and remedies of reports, explained: in the terminal, and as pages of documents."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable, Sequence

from tracelab.base.errors import UsageError
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Instead, Remedy
from tracelab.findings.rule import Rule
from tracelab.report.glossary import FAMILIES, GROUPS, Group, Term

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
_REMEDIES = "Remedies: what to write instead of a pitfall that is recognized"
_INDENT = "  "
_MIN_WIDTH, _MAX_WIDTH = 80, 100


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
        f"{group.title}\n{_wrapped(', '.join(map(_both_names, group.terms)), width)}"
        for group in GROUPS
        if group is not FAMILIES
    ]
    ids = ", ".join(remedy.id for remedy in REMEDIES)
    remedies = f"{_REMEDIES} (tracelab explain remedies)\n{_wrapped(ids, width)}"
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


def _explained(word: str, width: int) -> str:
    rule = next((rule for rule in RULES if rule.id == word.upper()), None)
    if rule is not None:
        return _rule_text(rule, width)
    remedy = next((remedy for remedy in REMEDIES if remedy.id == word.lower()), None)
    if remedy is not None:
        return _remedy_text(remedy, width)
    if word.lower() == "remedies":
        return f"{_REMEDIES}\n{_listed(REMEDIES, width)}"
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
        parts.append(f"Remedies, where a trace shows one of these\n{_listed(remedies, width)}")
    return "\n\n".join(parts)


def _remedy_text(remedy: Remedy, width: int) -> str:
    texts = (
        ("How a trace shows it", remedy.shows),
        ("What to do", " ".join(_fixes(remedy))),
        ("When it does not apply", remedy.not_when),
        ("What a replay changes to predict the saving", remedy.edit or "nothing: not predicted"),
        ("Rules", ", ".join(remedy.rules)),
        ("Source", remedy.documented),
    )
    return "\n\n".join([f"{remedy.id}: {remedy.name}", *_paragraphs(texts, width)])


def _paragraphs(texts: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return texts below their titles, without those that are empty."""
    return [f"{title}\n{_wrapped(text, width)}" for title, text in texts if text]


def _listed(remedies: Iterable[Remedy], width: int) -> str:
    """Return remedies with their pitfalls, a line or two each."""
    return "\n".join(_wrapped(f"{remedy.id}: {remedy.name}", width) for remedy in remedies)


def _term_text(group: Group, term: Term, width: int) -> str:
    shown = f', shown as "{term.shown}"' if term.shown else ""
    return f"{term.key}: {group.one}{shown}\n{_wrapped(_sentences(term), width)}"


def _group_text(group: Group, width: int) -> str:
    terms = (f"{_both_names(term)}: {term.meaning}" for term in group.terms)
    lines = (_wrapped(line, width) for line in (group.about, *terms))
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


def _wrapped(text: str, width: int) -> str:
    """Indent a paragraph and wrap it into lines that fit.

    Args:
        text: one paragraph.
        width: of the terminal, in columns.
    """
    return textwrap.fill(
        text,
        min(max(width, _MIN_WIDTH), _MAX_WIDTH),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- search ---


def find_terms(word: str) -> list[tuple[Group, Term]]:
    """Find a word in every group that has it; capitals and separators do not matter.

    >>> [group.key for group, _ in find_terms("trace boundary")]
    ['causes']
    >>> [term.key for _, term in find_terms("caused_idle_ns")]
    ['caused idle']

    A word that is no term stands for the terms that contain it.

    >>> [term.key for _, term in find_terms("steady")]
    ['steady steps', 'steady window', 'steady step']
    """
    wanted = normalized(word)
    terms = [(group, term) for group in GROUPS for term in group.terms]
    exact = [pair for pair in terms if wanted in _names(pair[1])]
    return exact or [
        pair for pair in terms if any(f" {wanted} " in f" {name} " for name in _names(pair[1]))
    ]


def _names(term: Term) -> tuple[str, str]:
    """List the texts by which a term is found."""
    return normalized(term.key), normalized(term.name)


def find_group(word: str) -> Group | None:
    """Find the group of that key or title; None without one.

    >>> find_group("Causes").title
    'Causes of idle time'
    """
    wanted = normalized(word)
    return next(
        (group for group in GROUPS if wanted in (normalized(group.key), normalized(group.title))),
        None,
    )


def nearest(word: str, others: Iterable[str] = ()) -> list[str]:
    """List at most three known words, or others, that are most like an unknown one.

    >>> nearest("exposd")[0]
    'exposed'
    """
    names = [group.key for group in GROUPS]
    names += [name for group in GROUPS for term in group.terms for name in (term.key, term.name)]
    known = {normalized(name): name for name in (*others, *names)}
    return [known[close] for close in difflib.get_close_matches(normalized(word), known, n=3)]


def normalized(word: str) -> str:
    """Remove capitals, separators and the unit from a word, which do not tell words apart.

    >>> normalized("Caused-Idle_ns")
    'caused idle'
    """
    return re.sub(r"[\s_-]+", " ", word).strip().casefold().removesuffix(" ns")


# --- pages of the documents ---


def glossary_page() -> str:
    """The page of the documents: all rules and all words."""
    return "\n".join([_GLOSSARY_PAGE, *map(_markdown_section, GROUPS)])


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


def remedies_page() -> str:
    """The page of the documents: what is seen, and below it each remedy, by rule."""
    rules = [rule for rule in RULES if any(x.rules[0] == rule.id for x in REMEDIES)]
    sections = []
    for rule in sorted(rules, key=lambda rule: rule.id):
        entries = [_entry(remedy) for remedy in REMEDIES if remedy.rules[0] == rule.id]
        sections.append("\n".join([f"## {rule.id}: {rule.name}\n", *entries]))
    return "\n".join([_REMEDIES_PAGE, *_index(), "", *sections])


def _index() -> list[str]:
    rows = (f"| {remedy.name} | [{remedy.id}](#{remedy.id}) |" for remedy in REMEDIES)
    return ["| I see | remedy |", "|---|---|", *sorted(rows, key=str.casefold)]


def _entry(remedy: Remedy) -> str:
    others = ", ".join(remedy.rules[1:])
    lines = [
        f"### {remedy.id}\n",
        f"{remedy.name[0].upper()}{remedy.name[1:]}.\n",
        f"- **In the trace:** {remedy.shows}",
        *(f"- **Do this:** {fix}" for fix in _fixes(remedy)),
        *([f"- **Not when:** {remedy.not_when}"] if remedy.not_when else []),
        f"- **Predicted by:** `{remedy.edit}`" if remedy.edit else "- **Predicted by:** nothing",
        *([f"- **Also refines:** {others}"] if others else []),
        f"- **Source:** [{remedy.source}]({remedy.url})",
    ]
    return "\n".join(lines) + "\n"


def _fixes(remedy: Remedy) -> list[str]:
    """List what to do, the newest API first, each with the versions that it is for."""
    newest, *older = remedy.fixes
    before = [f"Before: {fix.text}" for fix in older]
    return [_versioned_text(newest), *before]


def _versioned_text(fix: Instead) -> str:
    return f"From PyTorch {fix.since} on: {fix.text}" if fix.since else fix.text
