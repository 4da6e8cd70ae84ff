"""What a rule says, before and after it is known what else promises the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracelab.intervals import Intervals

if TYPE_CHECKING:
    from tracelab.findings.facts import Facts

CRITICAL, WARNING, INFO = "critical", "warning", "info"


@dataclass(frozen=True, slots=True)
class Where:
    """Where a finding is, as far as the file says; None where it does not.

    Attributes:
        count: how many calls or activities it is about.
        device: the GPU that loses most.
        api: the call of the CUDA or HIP runtime.
        operator, annotation, function, file, line, call: see `tracelab.model.call_sites.Place`.
        activity: the kernel or copy on the GPU.
    """

    count: int
    device: int | None = None
    api: str | None = None
    operator: str | None = None
    annotation: str | None = None
    function: str | None = None
    file: str | None = None
    line: int | None = None
    call: str | None = None
    activity: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to do about the time that a window lost.

    Attributes:
        rule: id of the rule.
        title: what happens, in a sentence without figures.
        severity: "critical", "warning" or "info".
        step: None for the whole trace.
        cause: why it happens, in one word.
        cost_ns: the time lost, ns, on the GPU that loses most.
        bound_ns: the most that the fix can win, ns; what an earlier finding promises is left out,
            so the bounds of a window can be added.
        evidence: event ids, the dearest first.
        fix: what to change, in words and a few lines of PyTorch.
    """

    rule: str
    title: str
    severity: str
    rank: int
    step: int | None
    cause: str
    cost_ns: int
    bound_ns: int
    where: Where
    evidence: tuple[int, ...]
    fix: str


@dataclass(frozen=True, slots=True)
class Claim:
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
    told: str | None = None


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
    find: Callable[[Facts], list[Claim]]
    fix: str = ""
