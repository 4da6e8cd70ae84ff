"""A rule, and what it claims before it is known what else claims the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracelab.findings.facts import Context
from tracelab.findings.finding import Where
from tracelab.intervals import Intervals


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a rule found: the time that its fix would win, if nothing else did.

    Attributes:
        title, cause, where, evidence, fix: as in `Finding`.
        lost: device to the time lost on it, within the window.
        limit_ns: device to the most that the fix can win there, ns; all that is lost where it is
            missing.
        told: a severity that does not depend on the bound. A claim that loses no time is told
            however little it is.
    """

    title: str
    cause: str
    where: Where
    evidence: tuple[int, ...]
    fix: str
    lost: Mapping[int, Intervals] = field(default_factory=dict)
    limit_ns: Mapping[int, int] = field(default_factory=dict)
    severity_override: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it says of itself, and the function that applies it.

    Attributes:
        id: stable.
        name: what it finds, in a few words.
        matters: why that costs time.
        decides: how the rule decides, and when it stays silent.
        before, after: the defect and its fix as a few lines of PyTorch; "" of the trace's quality.
        find: the claims, by cost or in the order of the program.
        fix: what to do, where that is the same everywhere.
    """

    id: str
    name: str
    matters: str
    decides: str
    before: str
    after: str
    find: Callable[[Context], list[Candidate]]
    fix: str = ""
