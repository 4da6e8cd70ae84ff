"""What a rule says, before and after it is known what else promises the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

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
