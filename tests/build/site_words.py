"""Pages of the site that list rules, remedies and words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from tests.build.site_parts import Pages, slug, table, tree
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.render.glossary import capitalized, remedy_facts, rules_of, sentences
from tracelab.report.glossary import FAMILIES, GROUPS, Group

MAX_WORDS = 1_200  # of a page
_MARGIN = 50  # words of its title and its first sentence
_Item = TypeVar("_Item")


def pages() -> Pages:
    """Pages of rules, remedies and words."""
    return {**_rule_pages(), **_remedy_pages(), **_glossary_pages()}


def places() -> dict[str, str]:
    """The page and the heading of each rule and remedy, by its name."""
    return {
        heading.partition(":")[0]: f"{page}#{heading}"
        for page, text in pages().items()
        for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)
    }


def _rule_pages() -> Pages:
    """Pages of the rules of one family."""
    found: Pages = {}
    rows = []
    for family in FAMILIES.terms:
        title, _, about = family.meaning.partition(": ")
        sections = [(x, _rule_section(x)) for x in rules_of(family)]
        for name, rules, text in _parts(family.key, f"{family.key}xx: {title}", about, sections):
            found[f"reference/rules/{name}"] = text
            rows += [f"| [{x.id}](rules/{name}.md#{slug(_title(x))}) | {x.name} |" for x in rules]
    return {**found, "reference/_rules": table("rule", "finds", rows) + tree(found)}


def _title(rule: Rule) -> str:
    return f"{rule.id}: {rule.name}"


def _rule_section(rule: Rule) -> str:
    """What a rule says; of the fixes of its cases those that hold without measured values."""
    short = [case.short or case.fix for case in rule.cases.values()]
    fixes = [rule.fix] if rule.fix else [text for text in dict.fromkeys(short) if "{" not in text]
    code = [
        f"{when}:\n\n```python\n{text.strip()}\n```"
        for when, text in (("Before", rule.before), ("After", rule.after))
        if text
    ]
    texts = [text.strip() for text in fixes if text]
    fix = [f"**Fix:** {text}" for text in texts]
    if len(texts) > 1:
        fix = ["**Fixes, by what causes it:**", "\n".join(f"- {text}" for text in texts)]
    return "\n\n".join([f"## {_title(rule)}", rule.matters, rule.decides, *fix, *code]) + "\n"


def _remedy_pages() -> Pages:
    """Pages of the remedies of one rule, in the order of the rules."""
    found: Pages = {}
    rows = []
    for rule in sorted(RULES, key=lambda rule: rule.id):
        remedies = sorted((x for x in REMEDIES if x.rules[0] == rule.id), key=lambda x: x.id)
        sections = [(x, _remedy_section(x)) for x in remedies]
        for name, part, text in _parts(rule.id, f"Remedies of {rule.id}", rule.name, sections):
            found[f"reference/remedies/{name}"] = text
            rows += [f"| {x.name} | [{x.id}](remedies/{name}.md#{x.id}) |" for x in part]
    rows.sort(key=str.casefold)
    return {**found, "reference/_remedies": table("I see", "remedy", rows) + tree(found)}


def _parts(
    key: str, title: str, about: str, sections: Sequence[tuple[_Item, str]]
) -> Iterator[tuple[str, list[_Item], str]]:
    """Yield pages of few enough words, each with its name, the items of its sections and its text.

    Args:
        key: the name of the first page.
        title: of the pages.
        about: the first sentence of each.
        sections: items with their texts.
    """
    parts: list[list[tuple[_Item, str]]] = []
    words = MAX_WORDS
    for section in sections:
        words += len(section[1].split())
        if words > MAX_WORDS - _MARGIN:
            parts.append([])
            words = len(section[1].split())
        parts[-1].append(section)
    for number, part in enumerate(parts, start=1):
        name = key.lower() if number == 1 else f"{key.lower()}_{number}"
        which = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
        texts = [f"# {title}{which}\n", f"{capitalized(about)}.\n", *(text for _, text in part)]
        yield name, [item for item, _ in part], "\n".join(texts)


def _remedy_section(remedy: Remedy) -> str:
    facts = [f"- **{title}:** {text}" for title, text in remedy_facts(remedy) if text]
    return "\n".join([f"## {remedy.id}\n", f"{capitalized(remedy.name)}.\n", *facts]) + "\n"


def _glossary_pages() -> Pages:
    groups = [group for group in GROUPS if group is not FAMILIES]
    found = {f"reference/glossary/{slug(x.title)}": _group_page(x) for x in groups}
    rows = [
        f"| [{x.title}](glossary/{slug(x.title)}.md) | {', '.join(t.name for t in x.terms)} |"
        for x in groups
    ]
    return {**found, "reference/_glossary": table("words", "", rows) + tree(found)}


def _group_page(group: Group) -> str:
    rows = []
    for term in group.terms:
        key = f"`{term.key}`" if re.fullmatch(r"[a-z_0-9]*_[a-z_0-9]*", term.key) else term.key
        rows.append(f"| {key}{f' ({term.shown})' if term.shown else ''} | {sentences(term)} |")
    return f"# {group.title}\n\n{group.about}\n\n{table('word', 'meaning', rows)}"
