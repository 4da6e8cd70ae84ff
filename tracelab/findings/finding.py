"""A finding: one thing to do about the time that a window lost, where it is, and what it saves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Annotated

from tracelab.base.arrays import Record
from tracelab.base.printing import Shown
from tracelab.measures.measure import constrained
from tracelab.measures.window_times import PROFILED, UNPROFILED
from tracelab.model.program.call_sites import CallSite

CRITICAL, WARNING, INFO = "critical", "warning", "info"
UNMET = "unmet"  # why what a fix saves is a bound: a condition of it is not shown to be met
# Two lines of a terminal.
MAX_SHORT_LETTERS = 160
# The place of a finding among the others.
SPECIFIC, GENERIC, REST, ASIDE = "specific", "generic", "rest", "aside"
CALL_SITE_FIELDS = tuple(field.name for field in fields(CallSite))
_ADDED = {"added": True}  # after the first version: reports of before have no such key

# Shares of the window, or of the step, that a finding is about.
CRITICAL_SHARE, WARNING_SHARE = 0.1, 0.02
MIN_REPORTED_SHARE = 0.001
MIN_REPORTED_SHARE_WITHOUT_FIX = 0.02
_MIN_SHARE_WITHOUT_EDIT = 0.05
# From this factor on, a recording does not show who is late.
MIN_SLOWDOWN = 1.2
COVERED_SHARE = 1 / 3  # of what all fixes save: then fixes of one place come before a rebuilding


class Where(Record):
    """Place of a finding, as far as the file says; None where it does not.

    Attributes:
        count: how many calls or activities it is about.
        device: the GPU that loses most.
        api: the call of the CUDA or HIP runtime.
        operator, annotation, function, file, line, call, waited_in: see
            `tracelab.model.program.call_sites.CallSite`.
        activity: the kernel or copy on the GPU.
        captured_at: where that was captured, if it ran as a node of a CUDA graph; the other fields
            are about the replay.
        lines: where `line` is None, the lines of which it is one, ascending; empty if they are
            many.
        function_line: the line at which the function is entered, if only one has that name.
        code: the text of `line` in the source that ran, if that is certain.
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
    waited_in: Annotated[str | None, _ADDED] = None
    captured_at: Annotated[str | None, _ADDED] = None
    lines: Annotated[tuple[int, ...], _ADDED] = ()
    function_line: Annotated[int | None, _ADDED] = None
    code: Annotated[str | None, _ADDED] = None


class Finding(Record, Shown):
    """One thing to do about the time that a window lost.

    Attributes:
        rule: id of the rule.
        title: what happens, in a sentence without figures and without the place.
        step: number of the step; None for the steady window, or the whole trace without one.
        cause: why it happens, in one word.
        cost_ns: the time lost, ns, on the GPU that loses most.
        bound_ns: the part of the idle and exposed time (of busy time, where it is about that) that
            is attributed to it and to no earlier finding, ns: the bounds of a window can be added.
            It is of the GPU that decides how long a step takes, else of the one that loses most.
        where: where in the program, and on which GPU.
        evidence: event ids, the most expensive first.
        fix: what to change, in words and a few lines of PyTorch.
        about: "program", or "trace" for what the file itself lacks.
        steps_seen: in how many of the steady steps it costs time; None without steady steps.
        spread_ns: by how much steady steps differ for other reasons, ns: to save less than that and
            a tenth of a step is no alarm. None of fewer than `MIN_STEPS` steps.
        edit: the change to the program that a replay makes for it, such as "unblock:train.py:40";
            several are joined by " + ". None where no change is known.
        saves_ns: what that change saves of a steady step, else of the whole trace, by a replay, ns.
        saves_low_ns, saves_high_ns: the interval in which it lies.
        remedy: id of the remedy that says what to write instead, if one is recognized.
        source: where that is documented.
        saves_reason: why a replay says nothing about its edit, in one word. With "unmet", no more
            than `saves_high_ns` is known.
        role: "specific" (the fix changes one place), "generic" (a rebuilding, such as a CUDA graph
            of a step), "rest" (that, after the specific fixes: what it adds to them) or "aside" (of
            no typical step).
        fix_short: the fix in at most `MAX_SHORT_LETTERS` letters; "" without such a form.
    """

    rule: Annotated[str, constrained(pattern="^[A-Z]+[0-9]+$")]
    title: str
    severity: Annotated[str, constrained(enum=[CRITICAL, WARNING, INFO])]
    rank: int
    step: int | None
    cause: str
    cost_ns: int
    bound_ns: int
    where: Where
    evidence: tuple[int, ...]
    fix: str
    about: Annotated[str, _ADDED, constrained(enum=["program", "trace"])] = "program"
    steps_seen: Annotated[int | None, _ADDED] = None
    spread_ns: Annotated[int | None, _ADDED] = None
    edit: Annotated[str | None, _ADDED] = None
    saves_ns: Annotated[int | None, _ADDED] = None
    saves_low_ns: Annotated[int | None, _ADDED] = None
    saves_high_ns: Annotated[int | None, _ADDED] = None
    saves_reason: Annotated[str | None, _ADDED] = None
    remedy: Annotated[str | None, _ADDED] = None
    source: Annotated[str | None, _ADDED] = None
    role: Annotated[str, _ADDED, constrained(enum=[SPECIFIC, GENERIC, REST, ASIDE])] = SPECIFIC
    fix_short: Annotated[str, _ADDED] = ""

    @property
    def is_generic(self) -> bool:
        """Tell whether its fix asks for a rebuilding, rather than for a change of one place."""
        return self.role in (GENERIC, REST)

    @property
    def shown_title(self) -> str:
        """Title, which tells if other findings come before it."""
        if self.role != REST:
            return self.title
        return f"After that: {self.title[:1].lower()}{self.title[1:]}"


class Savings(Record):
    """Savings of the fixes of one file's findings together, by one replay with all of them.

    Attributes:
        step: None.
        step_ns: the mean length of the steps that were replayed, ns; None without a replay.
        basis: with the profiler or without it.
        is_of_trace: whether it is the whole trace, which has no steps.
        saves_ns: what all edits together save of it, ns: less than the sum of the findings'.
        saves_low_ns, saves_high_ns: the interval in which it lies.
        edits: those of the findings, each once.
        not_replayed: why nothing is predicted, a sentence.
        is_of_job: whether the step is the job's, replayed with all its ranks.
    """

    rank: int
    step: int | None
    step_ns: int | None
    basis: Annotated[str, constrained(enum=[PROFILED, UNPROFILED])]
    is_of_trace: bool
    saves_ns: int | None
    saves_low_ns: int | None
    saves_high_ns: int | None
    edits: tuple[str, ...]
    not_replayed: str | None
    is_of_job: Annotated[bool, {"added": True}] = False


def call_site_of(where: Where) -> CallSite:
    """Return the call site that a finding is at."""
    return CallSite(*(getattr(where, name) for name in CALL_SITE_FIELDS))


def severity_of(time_ns: float, of_ns: float, spread_ns: float = 0) -> str:
    """Return the severity of time that is saved or attributed, of a step that varies by a spread.

    >>> severity_of(20, 100), severity_of(5, 100), severity_of(5, 100, spread_ns=6)
    ('critical', 'warning', 'info')
    """
    if time_ns >= CRITICAL_SHARE * of_ns:
        return CRITICAL
    return WARNING if time_ns >= WARNING_SHARE * of_ns and time_ns > spread_ns else INFO


def add_saving(
    finding: Finding, step_ns: int, saved_ns: tuple[int, int, int], slowed: float = 1
) -> Finding:
    """Add what a finding's edit saves of a step, at least and at most, and judge it by that.

    The step took `slowed` times as long while it was recorded.
    """
    # A saving of next to nothing is a warning at most. One that may be nothing counts only for a
    # change of one place in a recording that is hardly slowed (or if it is large).
    saves_ns, low_ns, high_ns = saved_ns
    is_open = low_ns < WARNING_SHARE * step_ns and high_ns >= CRITICAL_SHARE * step_ns
    severity = severity_of(saves_ns, step_ns, finding.spread_ns or 0)
    if low_ns <= 0:
        is_alarm = INFO not in (severity, finding.severity) and not finding.is_generic
        is_alarm &= slowed <= MIN_SLOWDOWN or severity == CRITICAL
        severity = WARNING if is_alarm else INFO
    elif is_open:
        severity = INFO if finding.severity == INFO else WARNING
    return replace(
        finding, severity=severity, saves_ns=saves_ns, saves_low_ns=low_ns, saves_high_ns=high_ns
    )


def is_worth_showing(finding: Finding, share: float, cost_share: float) -> bool:
    """Tell whether a finding is worth a place among the first, by its shares of a step, 0 to 1.

    The share is what its fix saves, else its bound; without either, its cost counts.
    """
    if finding.about == "trace" or finding.role == ASIDE:
        return False
    worths_ns = (finding.saves_ns, finding.saves_high_ns, finding.bound_ns or None)
    is_large = worths_ns == (None, None, None) and cost_share >= _MIN_SHARE_WITHOUT_EDIT
    return finding.severity != INFO or share >= WARNING_SHARE or is_large


def order_of(finding: Finding, share: float, cost_share: float) -> tuple[object, ...]:
    """Return the key by which findings are sorted and numbered everywhere.

    Savings of 2 % of a step or more come first, the rest of a rebuilding last of them; then shares;
    then what is not worth a place.
    """
    is_worth = is_worth_showing(finding, share, cost_share)
    is_bound = finding.saves_ns is None and finding.saves_high_ns is not None
    is_info = finding.severity == INFO
    return (
        finding.about == "trace",
        not is_worth,
        finding.role == ASIDE or finding.saves_ns == 0,
        finding.saves_ns is None or share < WARNING_SHARE,
        share < WARNING_SHARE,
        finding.role == REST,
        is_bound if finding.is_generic else is_worth and is_info and finding.edit is None,
        -share,
        -finding.bound_ns,
        -finding.cost_ns,
        finding.rule,
    )


def add_bound(finding: Finding, step_ns: int, high_ns: int) -> Finding:
    """Limit the saving of a finding: it is a warning if that limit and its share are one."""
    severity = severity_of(high_ns, step_ns, finding.spread_ns or 0)
    is_alarm = INFO not in (severity, finding.severity)
    return replace(finding, severity=WARNING if is_alarm else INFO, saves_high_ns=high_ns)


def sort_findings(findings: Iterable[Finding], steps: int, step_ns: float) -> tuple[Finding, ...]:
    """Sort findings of a window of some steady steps (else 1) in the order of `order_of`."""

    def key(finding: Finding) -> tuple[object, ...]:
        saves_ns = finding.saves_high_ns if finding.saves_ns is None else finding.saves_ns
        worth_ns = finding.bound_ns / steps if saves_ns is None else saves_ns
        of_ns = max(1, step_ns)
        return order_of(finding, worth_ns / of_ns, finding.cost_ns / steps / of_ns)

    return tuple(sorted(findings, key=key))


def mark_rest(
    findings: Iterable[Finding], specific_ns: float, all_ns: float
) -> tuple[Finding, ...]:
    """Mark the generic findings of a rank as the rest where the others cover enough of all.

    The rest is no alarm. Times, ns, are savings of the specific ones together, or their share, and
    of all.
    """
    is_rest = specific_ns > 0 and specific_ns >= COVERED_SHARE * all_ns
    role = REST if is_rest else GENERIC
    return tuple(
        replace(x, role=role, severity=INFO if is_rest and x.saves_reason == UNMET else x.severity)
        if x.is_generic
        else x
        for x in findings
    )


def is_same_place(finding: Finding, other: Finding) -> bool:
    """Return True if two findings are about the same thing at the same place of the program."""
    is_same_operator = finding.where.operator == other.where.operator
    return is_same_operator and call_site_key(finding) == call_site_key(other)


def call_site_key(finding: Finding) -> tuple[object, ...]:
    """Return the key by which findings of several ranks are one: rule, cause and line."""
    where = finding.where
    what = (finding.rule, finding.cause, finding.remedy)
    return *what, where.function, where.file, where.line
