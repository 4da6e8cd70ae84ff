"""What fixes save, in words: of a steady step, or of a whole trace that has no steps."""

from __future__ import annotations

from tracelab.findings.finding import WARNING_SHARE, Finding
from tracelab.measures.steady import PROFILED
from tracelab.render.text.cells import percent_text
from tracelab.render.words import duration_text, time_unit
from tracelab.report.views import Scope

# Why a finding says what it takes, and not what its fix saves.
REASONS = {
    "true_dependency": "No saving is predicted: what follows needs the value at once.",
    "not_in_steps": "No saving is predicted: the simulated steps have nothing that it changes.",
    "unmet": "What it saves is a bound: the trace does not show that its condition is met.",
    "launches": "No saving is predicted: what the host does there launches work as well.",
    "no_place": "No saving is predicted: nothing in the trace tells its calls from others.",
}
_WORTH_A_WORD = 0.005  # of a step


def saving(finding: Finding, scope: Scope) -> str:
    """What the fix of a finding saves: ``"saves 2.20 ms"``, of a trace ``"saves 5.9 %"``."""
    return _saving(finding.saves_ns or 0, scope)


def saving_in_full(finding: Finding, scope: Scope) -> str:
    """The same with its interval and what it is of: ``"saves 2.20 ms (1.93 to 2.41) of a ..."``."""
    return f"{saving(finding, scope)}{_after(interval(finding, scope))} of {of_what(scope)}"


def interval(finding: Finding, scope: Scope) -> str:
    """The interval of a saving in the unit of the saving: ``"(1.93 to 2.41)"``; "" without one."""
    return _interval(finding.saves_ns, finding.saves_low_ns, finding.saves_high_ns, scope)


def of_what(scope: Scope) -> str:
    """What savings are of: ``"a 12.4 ms step"``."""
    savings = scope.savings
    if savings is None or savings.step_ns is None:
        return "a step"
    if savings.is_of_trace:
        return "the trace"
    return f"a {duration_text(savings.step_ns)} step"


def saved_together(scope: Scope) -> list[str]:
    """A sentence: what all fixes save together.

    None where it is not known, or next to nothing, or little that may be nothing: then no finding
    stands below it.
    """
    savings = scope.savings
    if savings is None or not savings.saves_ns or not savings.edits or savings.step_ns is None:
        return []
    least = _WORTH_A_WORD if savings.saves_low_ns else WARNING_SHARE
    if savings.saves_ns < least * savings.step_ns:
        return []
    fixes = "All fixes together save" if len(savings.edits) > 1 else "The fix below saves"
    profiled = "a profiled" if savings.basis == PROFILED else "a"
    whole = of_what(scope).replace("a", profiled, 1) if not savings.is_of_trace else "the trace"
    return [f"{fixes} {all_save_in_full(scope)} of {whole}."]


def all_save(scope: Scope) -> str:
    """What all fixes save together: ``"4.10 ms"``; "" where that is not known."""
    if scope.savings is None or scope.savings.saves_ns is None:
        return ""
    return _saving(scope.savings.saves_ns, scope).removeprefix("saves ")


def all_save_in_full(scope: Scope) -> str:
    """The same with its interval: ``"4.10 ms (3.50 to 4.40)"``."""
    savings = scope.savings
    if savings is None:
        return ""
    range_ = _interval(savings.saves_ns, savings.saves_low_ns, savings.saves_high_ns, scope)
    return f"{all_save(scope)}{_after(range_)}"


def not_predicted(scope: Scope) -> list[str]:
    """A sentence: why findings have shares and no savings; none where they have."""
    savings = scope.savings
    if savings is None or savings.not_replayed is None:
        return []
    why = savings.not_replayed
    return [f"What fixes save is not predicted: {why[0].lower()}{why[1:]}"]


def _saving(saves_ns: int, scope: Scope) -> str:
    if not saves_ns:
        return "saves nothing"
    if scope.savings is not None and scope.savings.is_of_trace:
        return f"saves {percent_text(saves_ns, scope.savings.step_ns or 0)}"
    return f"saves {duration_text(saves_ns)}"


def _interval(saves_ns: int | None, low_ns: int | None, high_ns: int | None, scope: Scope) -> str:
    if saves_ns is None or low_ns is None or high_ns is None or low_ns == high_ns:
        return ""
    if scope.savings is not None and scope.savings.is_of_trace:
        whole = scope.savings.step_ns or 0
        low, high = (percent_text(ns, whole).removesuffix(" %") for ns in (low_ns, high_ns))
        return f"({low} to {high})"
    if not low_ns and (not saves_ns or time_unit(saves_ns) != time_unit(high_ns)):
        return f"(0 to {duration_text(high_ns)})"
    _, unit_ns = time_unit(saves_ns)
    return f"({_number(low_ns / unit_ns)} to {_number(high_ns / unit_ns)})"


def _number(value: float) -> str:
    """A number with three digits.

    >>> _number(0), _number(1.926), _number(12.34), _number(1234.5)
    ('0', '1.93', '12.3', '1,234')
    """
    return f"{value:,.{0 if value >= 100 or not value else 1 if value >= 10 else 2}f}"


def _after(text: str) -> str:
    return f" {text}" if text else ""
