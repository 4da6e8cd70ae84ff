"""``tracelab explain``: what a rule finds, why it matters, how it decides, before and after."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.errors import UsageError
from tracelab.system.console import output_width, write_result

if TYPE_CHECKING:
    from tracelab.findings.rule import Rule


def explain(
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="Its id, TL203; without one, all of them.")
    ] = None,
) -> None:
    """Say what a rule finds, why it matters and how it decides."""
    from tracelab.findings.registry import RULES

    if rule is None:
        lines = [f"{x.id}  {x.name}" for x in sorted(RULES, key=lambda x: x.id)]
        write_result("\n".join(lines) + "\n")
        return
    found = [x for x in RULES if x.id == rule.upper()]
    if not found:
        known = ", ".join(sorted(x.id for x in RULES))
        raise UsageError(f"there is no rule {rule!r}; there are: {known}")
    write_result(_text(found[0]))


def _text(rule: Rule) -> str:
    parts = [f"{rule.id}: {rule.name}"]
    for title, text in (("Why it matters", rule.matters), ("How it decides", rule.decides)):
        parts.append(f"{title}\n{textwrap.indent(_wrapped(text), '  ')}")
    if rule.fix:
        parts.append(f"What to do\n{textwrap.indent(_wrapped(rule.fix), '  ')}")
    for title, code in (("Before", rule.before), ("After", rule.after)):
        if code:
            parts.append(f"{title}\n{textwrap.indent(code, '  ')}")
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=min(max(output_width(), 80), 100) - 2)
