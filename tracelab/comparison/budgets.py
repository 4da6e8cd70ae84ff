"""Budgets: how much a trace may lose, as they are written in TOML, and the results of a check."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from msgspec import field

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.base.safe_text import brief
from tracelab.findings.registry import RULES

KINDS = ("compute", "comm", "copy", "memset")
EXPOSED_KINDS = ("comm", "copy")
TABLE = "tool.tracelab.check"  # of a pyproject.toml


class Budgets(Record):
    """The limits; None or empty if a budget is not set.

    Example row: ``Budgets(max_idle=5.0, min_overlap={("comm", "compute"): 80.0}, forbid=("TL1",))``

    Attributes:
        max_idle: percent of the window, of the worst device.
        min_overlap: (first kind, second kind) to the percent of the first kind's time that must
            run while the second does.
        max_exposed: kind to percent of the window.
        max_blocking_calls: calls a step.
        forbid: rules, or how their ids begin.
        max_step_ms: the median step, ms.
        max_regression: percent by which the median step may be longer than the baseline's.
        baseline: a saved report or a trace.
    """

    max_idle: float | None = None
    min_overlap: Mapping[tuple[str, str], float] = field(default_factory=dict)
    max_exposed: Mapping[str, float] = field(default_factory=dict)
    max_blocking_calls: float | None = None
    forbid: tuple[str, ...] = ()
    max_step_ms: float | None = None
    max_regression: float | None = None
    baseline: str | None = None

    def updated(self, other: Budgets) -> Budgets:
        """Merge these budgets with others, which win; limits by kind or rule are joined.

        >>> Budgets(max_idle=5, forbid=("TL1",)).updated(Budgets(max_idle=9, forbid=("TL2",)))
        ... # doctest: +ELLIPSIS
        Budgets(max_idle=9, ... forbid=('TL1', 'TL2')…)
        """

        def merged(ours: Any, theirs: Any) -> Any:
            if isinstance(ours, Mapping):
                return {**ours, **theirs}
            if isinstance(ours, tuple):
                return tuple(dict.fromkeys((*ours, *theirs)))
            return ours if theirs is None else theirs

        names = [field.name for field in fields(self)]
        return Budgets(
            **{name: merged(getattr(self, name), getattr(other, name)) for name in names}
        )


class BudgetResult(Record):
    """One budget, checked against what was measured; the texts are for people.

    Example row: ``BudgetResult("max-idle", "6.8 %", "at most 5 %", passed=False, where="GPU 0")``

    Attributes:
        name: the budget, with its kinds or rule: "min-overlap comm:compute".
        measured, allowed: "6.8 %", "at most 5 %".
        passed: whether the budget is met.
        where: the worst device, call or finding, and what else is worth knowing.
        file, line: where that is in the program, where the trace says so.
        window: what was measured, "5 steady steps"; "" where `where` says it, and of findings,
            which are of the whole file.
    """

    name: str
    measured: str
    allowed: str
    passed: bool
    where: str = ""
    file: str | None = None
    line: int | None = None
    window: str = ""


NAMES = tuple(x.name.replace("_", "-") for x in fields(Budgets))
_KNOWN_NAMES = ", ".join(NAMES)


def require_checkable(budgets: Budgets) -> None:
    """Refuse what cannot be checked.

    Raises:
        UsageError: nothing is allowed or forbidden, or one of two that need each other is missing.
    """
    if budgets.baseline is not None and budgets.max_regression is None:
        raise UsageError("a baseline needs max-regression, too")
    if budgets.baseline is None and budgets.max_regression is not None:
        raise UsageError("max-regression needs a baseline: a saved report or a trace")
    if budgets == Budgets():
        raise UsageError(
            f"no budget is given, either by a flag or in [{TABLE}] of a pyproject.toml; "
            f"the budgets are: {_KNOWN_NAMES}"
        )


def parse_toml(text: str, origin: str, *, at_top: bool) -> Budgets | None:
    """The budgets of a TOML file.

    >>> parse_toml("max-idle = 5", "budgets.toml", at_top=True).max_idle
    5.0

    Args:
        text: the file's content.
        origin: its name, for errors.
        at_top: whether they may stand at the top level, without their table.

    Returns:
        None where the table is missing and they may not stand elsewhere.

    Raises:
        UsageError: it is no TOML, or what it says makes no sense.
    """
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, deep nesting
        raise UsageError(f"{origin}: this is not a valid TOML file: {error}") from None
    table: Any = data
    for key in TABLE.split("."):
        table = table.get(key) if isinstance(table, dict) else None
    if table is None and (not at_top or "tool" in data):
        if at_top:
            raise UsageError(f"{origin}: it has [tool] tables, but no [{TABLE}]")
        return None
    if table is None:
        return parse_budgets(data, origin)
    if not isinstance(table, dict):
        raise UsageError(f"{origin}: {TABLE} must be a table of budgets, not {brief(table)}")
    if at_top and (outside := [name for name in NAMES if name in data]):
        raise UsageError(f"{origin}: {outside[0]} is outside of [{TABLE}], which the file also has")
    return parse_budgets(table, f"{origin}: [{TABLE}]")


def parse_budgets(table: Mapping[str, Any], origin: str) -> Budgets:
    """The budgets of a table as TOML has it.

    >>> parse_budgets({"max-exposed": {"copy": 2}}, "pyproject.toml").max_exposed
    {'copy': 2.0}

    Raises:
        UsageError: a budget that there is not, or a value that makes no sense.
    """
    for name in table:
        if name not in NAMES:
            raise UsageError(
                f"{origin}: there is no budget {brief(name)}; the budgets are: {_KNOWN_NAMES}"
            )

    def number(name: str, most: float = math.inf) -> float | None:
        return _number(table[name], name, origin, most) if name in table else None

    def numbers(name: str) -> dict[str, float]:
        value = table.get(name, {})
        if not isinstance(value, Mapping):
            raise UsageError(f"{origin}: {name} takes a table of percentages, not {brief(value)}")
        return {
            key: _number(percent, f"{name} {key}", origin, 100) for key, percent in value.items()
        }

    baseline = table.get("baseline")
    if baseline is not None and not (isinstance(baseline, str) and baseline):
        raise UsageError(f"{origin}: baseline takes a file name, not {brief(baseline)}")
    return Budgets(
        max_idle=number("max-idle", 100),
        min_overlap={
            _pair(kinds, origin): percent for kinds, percent in numbers("min-overlap").items()
        },
        max_exposed={
            _exposed_kind(kind, origin): percent for kind, percent in numbers("max-exposed").items()
        },
        max_blocking_calls=number("max-blocking-calls"),
        forbid=_rules(table.get("forbid", []), origin),
        max_step_ms=number("max-step-ms"),
        max_regression=number("max-regression"),
        baseline=baseline,
    )


def _number(value: Any, name: str, origin: str, most: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if 0 <= number <= most and math.isfinite(number):
            return number
    allowed = "a number of at least 0" if most == math.inf else f"a number from 0 to {most:g}"
    raise UsageError(f"{origin}: {name} takes {allowed}, not {brief(value)}")


def _pair(text: str, origin: str) -> tuple[str, str]:
    first, _, second = text.partition(":")
    if first not in KINDS or second not in KINDS or first == second:
        kinds = ", ".join(KINDS)
        raise UsageError(
            f"{origin}: min-overlap takes two kinds, such as comm:compute, not {brief(text)}; "
            f"the kinds are: {kinds}"
        )
    return first, second


def _exposed_kind(text: str, origin: str) -> str:
    if text not in EXPOSED_KINDS:
        raise UsageError(f"{origin}: max-exposed takes comm or copy, not {brief(text)}")
    return text


def _rules(value: Any, origin: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(rule, str) for rule in value):
        raise UsageError(f"{origin}: forbid takes a list of rules, not {brief(value)}")
    known = sorted(rule.id for rule in RULES)
    for text in value:
        if not text or not any(rule.startswith(text.upper()) for rule in known):
            raise UsageError(
                f"{origin}: there is no rule {brief(text)}; the rules are: {', '.join(known)}"
            )
    return tuple(text.upper() for text in value)
