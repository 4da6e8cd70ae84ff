"""The remedies, explained: for the terminal, and as the page "I see X, what do I do?".

``python -m tracelab.render.remedies`` prints ``tracelab/docs/remedies.md``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Instead, Remedy

_PAGE = """\
# I see X, what do I do?

A rule says that something costs time; a remedy says what to write instead. Where a trace shows one
of these pitfalls, its finding has the remedy's fix (`findings[].remedy`, `findings[].source`) and a
saving that is predicted for exactly that change. `tracelab explain ID` prints the same in a
terminal. What the predictions are worth was [measured](remedies_measured.md) without a profiler.
Most pitfalls are recognized by Python functions in the trace (`with_stack=True`, which
`tracelab run` records).

<!-- Made from tracelab/findings/remedies.toml by `make documents`. -->
"""
_INDENT = "  "
_MIN_WIDTH, _MAX_WIDTH = 80, 100


def find_remedy(word: str) -> Remedy | None:
    """Find a remedy by its id."""
    return next((remedy for remedy in REMEDIES if remedy.id == word.lower()), None)


def listed(remedies: Sequence[Remedy], width: int) -> str:
    """Remedies with their pitfalls, a line or two each."""
    return "\n".join(wrapped(f"{remedy.id}: {remedy.name}", width) for remedy in remedies)


def remedies_of_rule(rule_id: str) -> list[Remedy]:
    """The remedies that findings of a rule may have."""
    return [remedy for remedy in REMEDIES if rule_id in remedy.rules]


def explained(remedy: Remedy, width: int) -> str:
    """All that the table has of a remedy.

    Args:
        remedy: which one.
        width: of the terminal, in columns.
    """
    texts = (
        ("How a trace shows it", remedy.shows),
        ("What to do", " ".join(_fixes(remedy))),
        ("When it does not apply", remedy.not_when),
        ("What a replay changes to predict the saving", remedy.edit or "nothing: not predicted"),
        ("Rules", ", ".join(remedy.rules)),
        ("Source", remedy.documented),
    )
    parts = [f"{title}\n{wrapped(text, width)}" for title, text in texts if text]
    return "\n\n".join([f"{remedy.id}: {remedy.name}", *parts])


def markdown() -> str:
    """The page of the documents: what is seen, and below it each remedy, by rule."""
    rules = [rule for rule in RULES if any(x.rules[0] == rule.id for x in REMEDIES)]
    sections = []
    for rule in sorted(rules, key=lambda rule: rule.id):
        entries = [_entry(remedy) for remedy in REMEDIES if remedy.rules[0] == rule.id]
        sections.append("\n".join([f"## {rule.id}: {rule.name}\n", *entries]))
    return "\n".join([_PAGE, *_index(), "", *sections])


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


if __name__ == "__main__":
    print(markdown(), end="")


def wrapped(text: str, width: int) -> str:
    """A paragraph, indented, in lines that fit.

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
