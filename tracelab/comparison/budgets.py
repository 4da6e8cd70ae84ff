"""Budgets: limits of losses, and results of a check."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

from msgspec import field

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.base.safe_text import brief
from tracelab.findings.registry import RULES

KINDS = ("compute", "comm", "copy", "memset")
EXPOSED_KINDS = ("comm", "copy")
TABLE = "tool.tracelab.check"  # of pyproject.toml


class Budgets(Record):
    """The limits; None or empty for no limit.

    Attributes:
        max_idle: percent of the window, of the worst device.
        min_overlap: (first kind, second kind) to the percent of the first kind's time that must
            run while the second does.
        max_exposed: kind to percent of the window.
        max_blocking_calls: calls a step.
        forbid: rules, or starts of their ids.
        max_regression: percent by which the median step may exceed the baseline's.
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
        """Merge two budgets, of which the other wins; limits by kind or rule are joined."""

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
    """One checked budget, in texts.

    Attributes:
        name: with its kinds or rule: "min-overlap comm:compute".
        measured, allowed: "6.8 %", "at most 5 %".
        where: the worst device, call or finding.
        file, line: of the program, if known.
        window: "5 steady steps", or "".
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
    """Raise UsageError without any limit, or with half of a pair."""
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
    """Parse a TOML file; None without a table of budgets, if they may not be at the top.

    Raises:
        UsageError: it is no TOML, or makes no sense.
    """
    try:
        data: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # long numbers, deep nesting
        raise UsageError(f"{origin}: this is not a valid TOML file: {error}") from None
    table = data
    for key in TABLE.split("."):
        table = table.get(key) if isinstance(table, dict) else None
    if table is None and at_top:
        if "tool" in data:
            raise UsageError(f"{origin}: it has [tool] tables, but no [{TABLE}]")
        return parse_budgets(data, origin)
    if table is None:
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{origin}: {TABLE} must be a table of budgets, not {brief(table)}")
    if at_top and (outside := [name for name in NAMES if name in data]):
        raise UsageError(f"{origin}: {outside[0]} is outside of [{TABLE}], which the file also has")
    return parse_budgets(table, f"{origin}: [{TABLE}]")


def parse_budgets(table: Mapping[str, Any], origin: str) -> Budgets:
    """Parse a TOML table.

    Raises:
        UsageError: a budget is unknown, or a value makes no sense.
    """
    try:
        return Budgets(
            **{name.replace("-", "_"): _value_of(name, value) for name, value in table.items()}
        )
    except ValueError as error:
        raise UsageError(f"{origin}: {error}") from None


def _value_of(name: str, value: Any) -> Any:
    if name == "min-overlap":
        return {_pair(key): share for key, share in _percentages(name, value).items()}
    if name == "max-exposed":
        shares = _percentages(name, value)
        if others := shares.keys() - EXPOSED_KINDS:
            raise ValueError(f"max-exposed takes comm or copy, not {brief(min(others))}")
        return shares
    if name == "forbid":
        return _rules(value)
    if name == "baseline":
        if isinstance(value, str) and value:
            return value
        raise ValueError(f"baseline takes a file name, not {brief(value)}")
    if name in NAMES:
        return _number(name, value, 100 if name == "max-idle" else math.inf)
    raise ValueError(f"there is no budget {brief(name)}; the budgets are: {_KNOWN_NAMES}")


def _number(name: str, value: Any, most: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        with suppress(OverflowError):
            if math.isfinite(value):
                return float(value)
    allowed = "a number of at least 0" if most == math.inf else f"a number from 0 to {most:g}"
    raise ValueError(f"{name} takes {allowed}, not {brief(value)}")


def _percentages(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} takes a table of percentages, not {brief(value)}")
    return {key: _number(f"{name} {key}", percent, 100) for key, percent in value.items()}


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.partition(":")
    if first not in KINDS or second not in KINDS or first == second:
        raise ValueError(
            f"min-overlap takes two kinds, such as comm:compute, not {brief(text)}; "
            f"the kinds are: {', '.join(KINDS)}"
        )
    return first, second


def _rules(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(rule, str) for rule in value):
        raise ValueError(f"forbid takes a list of rules, not {brief(value)}")
    known = sorted(rule.id for rule in RULES)
    for text in value:
        if not text or not any(rule.startswith(text.upper()) for rule in known):
            raise ValueError(f"there is no rule {brief(text)}; the rules are: {', '.join(known)}")
    return tuple(text.upper() for text in value)
