"""Pages of the site that list rules, remedies and words; the build of the site writes them.

A page that begins with ``_`` is part of one that is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.render.glossary import capitalized, remedy_facts, rules_of, sentences
from tracelab.report.glossary import FAMILIES, GROUPS, Group, Term

MAX_WORDS = 1_200  # of a page

_Pages = dict[str, str]  # the text of each page by its path, without the ending


def pages() -> _Pages:
    """All pages of the reference."""
    return {**_rule_pages(), **_remedy_pages(), **_glossary_pages()}


def write(docs: Path) -> None:
    """Write each page that is not there yet as it is today, and remove those of yesterday."""
    made = {docs / f"{name}.md": text for name, text in pages().items()}
    for folder in {path.parent for path in made}:
        folder.mkdir(exist_ok=True)
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for folder in {path.parent for path in made if path.name[0] != "_"}:
        for old in {*folder.glob("*.md")}.difference(made):
            old.unlink()


def _rule_pages() -> _Pages:
    found = {f"reference/rules/{x.key.lower()}": _family_page(x) for x in FAMILIES.terms}
    rows = [
        f"| [{rule.id}](rules/{family.key.lower()}.md#{_slug(_title(rule))}) | {rule.name} |"
        for family in FAMILIES.terms
        for rule in rules_of(family)
    ]
    return {**found, "reference/_rules": _table("rule", "finds", rows) + _tree(found)}


def _family_page(family: Term) -> str:
    title = f"# {family.key}xx: {family.meaning}\n"
    return "\n".join([title, *map(_rule_section, rules_of(family))])


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
    listed = "\n".join(f"- {text.strip()}" for text in fixes if text)
    fix = ["Fixes, by what causes it:" if len(fixes) > 1 else "Fix:", listed] if listed else []
    return "\n\n".join([f"## {_title(rule)}", rule.matters, rule.decides, *fix, *code]) + "\n"


def _remedy_pages() -> _Pages:
    """Pages of few enough words, each of remedies of one rule, in the order of the rules."""
    found: _Pages = {}
    rows = []
    for rule in sorted(RULES, key=lambda rule: rule.id):
        remedies = sorted((x for x in REMEDIES if x.rules[0] == rule.id), key=lambda x: x.id)
        parts = [*_parts(remedies)]
        for number, part in enumerate(parts, start=1):
            name = f"{rule.id.lower()}_{number}"
            which = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
            texts = [f"# Remedies of {_title(rule)}{which}\n", *map(_remedy_section, part)]
            found[f"reference/remedies/{name}"] = "\n".join(texts)
            rows += [f"| {x.name} | [{x.id}](remedies/{name}.md#{x.id}) |" for x in part]
    rows.sort(key=str.casefold)
    return {**found, "reference/_remedies": _table("I see", "remedy", rows) + _tree(found)}


def _parts(remedies: Iterable[Remedy]) -> Iterator[list[Remedy]]:
    part: list[Remedy] = []
    words = 0
    for remedy in remedies:
        more = len(_remedy_section(remedy).split())
        if part and words + more > MAX_WORDS:
            yield part
            part, words = [], 0
        part.append(remedy)
        words += more
    if part:
        yield part


def _remedy_section(remedy: Remedy) -> str:
    facts = [f"- **{title}:** {text}" for title, text in remedy_facts(remedy) if text]
    return "\n".join([f"## {remedy.id}\n", f"{capitalized(remedy.name)}.\n", *facts]) + "\n"


def _glossary_pages() -> _Pages:
    groups = [group for group in GROUPS if group is not FAMILIES]
    found = {f"reference/glossary/{_slug(x.title)}": _group_page(x) for x in groups}
    rows = [
        f"| [{x.title}](glossary/{_slug(x.title)}.md) | {', '.join(t.name for t in x.terms)} |"
        for x in groups
    ]
    return {**found, "reference/_glossary": _table("words", "", rows) + _tree(found)}


def _group_page(group: Group) -> str:
    rows = []
    for term in group.terms:
        key = f"`{term.key}`" if re.fullmatch(r"[a-z_0-9]*_[a-z_0-9]*", term.key) else term.key
        rows.append(f"| {key}{f' ({term.shown})' if term.shown else ''} | {sentences(term)} |")
    return f"# {group.title}\n\n{group.about}\n\n{_table('word', 'meaning', rows)}"


def _table(left: str, right: str, rows: Iterable[str]) -> str:
    return "\n".join([f"| {left} | {right} |", "|---|---|", *rows, ""])


def _tree(names: Iterable[str]) -> str:
    """The pages in the side bar."""
    listed = "\n".join(f"/{name}" for name in names)
    return f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
