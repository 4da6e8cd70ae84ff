"""Savings in words, as shares of the printed step."""

from __future__ import annotations

from tracelab.base.arrays import Record
from tracelab.findings.finding import Finding
from tracelab.render.words import duration_text, share_text
from tracelab.report.headline import PERCENTS
from tracelab.report.views import Scope

SAVES, AT_MOST, TAKES = "saves", "at most", "takes"

# Why a finding has no predicted saving.
REASONS = {
    "true_dependency": "No saving is predicted: the next work needs the value.",
    "not_in_steps": "No saving is predicted: the simulated steps have nothing that it changes.",
    "unmet": "The saving is an upper bound: the trace does not show that the fix is possible.",
    "launches": "No saving is predicted: the work of the CPU there also launches kernels.",
    "no_place": "No saving is predicted: the trace does not distinguish its calls from others.",
}


class Price(Record):
    """Saving of a fix, as share and time of the printed step.

    Attributes:
        how: `SAVES`; `AT_MOST` for a replay's bound; `TAKES` for the time lost there without one.
        low_share, high_share: interval of the saving, or None.
        time_ns: None unless a saving is predicted.
    """

    how: str
    share: float
    low_share: float | None = None
    high_share: float | None = None
    time_ns: int | None = None


def price_of(finding: Finding, scope: Scope) -> Price:
    """Return the figures of a fix."""
    if finding.saves_ns is None:
        if finding.saves_high_ns is not None:
            return Price(AT_MOST, scope.share_of(finding))
        lost = scope.share_of if finding.bound_ns else scope.cost_share_of
        return Price(TAKES, lost(finding))
    share = scope.share_of(finding)
    time_ns = round(share * scope.printed_ns)
    of_ns = (scope.savings and scope.savings.step_ns) or 0
    low_ns, high_ns = finding.saves_low_ns, finding.saves_high_ns
    if low_ns is None or high_ns is None or not of_ns:
        return Price(SAVES, share, time_ns=time_ns)
    return Price(SAVES, share, low_ns / of_ns, high_ns / of_ns, time_ns)


def amount(finding: Finding, scope: Scope) -> str:
    """Say "saves 23 %", "at most 6 %", or "takes 41 %" if no replay says more."""
    if finding.saves_ns == 0:
        return "saves nothing"
    figures = price_of(finding, scope)
    return f"{figures.how} {percent(figures.share)}"


def interval(finding: Finding, scope: Scope) -> str:
    """Write the interval in percent: "(10 to 35)", or ""."""
    figures = price_of(finding, scope)
    if figures.low_share is None or figures.high_share is None:
        return ""
    return interval_text(figures.low_share, figures.high_share)


def price(finding: Finding, scope: Scope) -> str:
    """Write a saving in full: ``"saves 23 % (10 to 35), 7.3 ms"``."""
    parts = [" ".join(filter(None, [amount(finding, scope), interval(finding, scope)]))]
    time_ns = price_of(finding, scope).time_ns
    if finding.saves_ns and time_ns is not None:
        parts.append(duration_text(time_ns))
    return ", ".join([*parts, *seen_in(finding, scope)])


def seen_in(finding: Finding, scope: Scope) -> list[str]:
    """Count the steady steps with a finding, if not all."""
    if finding.steps_seen is None or finding.steps_seen >= scope.steps:
        return []
    return [f"in {finding.steps_seen} of {scope.steps} steps"]


def not_predicted(scope: Scope) -> str:
    """Say why findings have no savings, or ""."""
    why = scope.savings and scope.savings.not_replayed
    return f"No savings predicted: {lowered(why)}" if why else ""


def lowered(sentence: str) -> str:
    """Begin a sentence with a small letter."""
    return sentence[:1].lower() + sentence[1:]


def interval_text(low: float, high: float) -> str:
    """Write an interval of shares: "(10 to 35)"; "" for equal ends."""
    ends = [percent(share).removesuffix(" %") for share in (low, high)]
    return "" if ends[0] == ends[1] else f"({ends[0]} to {ends[1]})"


def percent(share: float) -> str:
    """Write a share in whole percents; only nothing is 0 % and only everything is 100 %."""
    millionths = PERCENTS * 10_000
    return share_text(round(share * millionths), millionths)
