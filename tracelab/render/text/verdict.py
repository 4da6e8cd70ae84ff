"""What the text report says first of a file: how long a step takes, how much the GPU works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracelab.findings.candidates_of_peer_waits import PEER_WAIT
from tracelab.findings.finding import ASIDE, INFO, Finding
from tracelab.findings.rules.tl910_profiler_overhead import INFLATED
from tracelab.measures.window_times import DeviceMetrics
from tracelab.render.text.cells import (
    CAUSE_NAMES,
    REASON_MEANINGS,
    counted,
    largest,
    listed,
    meaning_of,
    percent_text,
    split_text,
    time_text,
)
from tracelab.render.text.savings import of_what, saved_together
from tracelab.render.text.window_kernels import busy_answer
from tracelab.report.headline import TENTHS, in_parts
from tracelab.report.views import RankView, Scope

_MOST_GPUS = 4  # that are named one by one
_WORTH_A_WORD = 0.02  # of the step
_MUCH = 0.1  # of the step: so much idle time is worth a sentence
_LARGE = 0.05  # of the step: so much is worth a place though nothing can be done about it


def verdict(rank: RankView) -> list[str]:
    """Sentences: the length of a step, how much of it the GPUs work, what is not overlapped."""
    scope = rank.main.scope
    if scope.length_ns <= 0:
        return ["The window has no length."]
    if scope.step_ns <= 0:  # as of steps that launch nothing while the GPU works off earlier ones
        return ["Most steady steps have no length of their own: their time is an earlier step's."]
    sentences = [_length(rank, scope), _busy(rank, scope), *saved_together(scope)]
    sentences += _exposed(scope)
    if any(finding.cause == INFLATED for finding in rank.main.findings):
        sentences.append(
            "Python stacks were recorded, which inflates host times: idle time that waits for the "
            "host is an upper bound."
        )
    if not any(is_large(finding, scope) for finding in rank.main.findings):
        sentences.append(none_is_large(scope))
        # What is left is the GPU's own work.
        sentences += filter(None, [busy_answer(rank.main)])
    return sentences


def is_large(finding: Finding, scope: Scope) -> bool:
    """Whether a finding is an alarm, or is about much time though nothing can be done about it."""
    if finding.about == "trace" or finding.role == ASIDE:
        return False
    if finding.saves_ns is not None:
        return finding.severity != INFO or scope.share_of(finding) >= _LARGE
    return finding.severity != INFO or finding.cost_ns >= _LARGE * scope.length_ns


def none_is_large(scope: Scope) -> str:
    """The sentence where no finding is an alarm."""
    if scope.savings is not None and scope.savings.saves_ns is not None:
        return f"No fix saves 2 % of {of_what(scope)}."
    return f"No finding reaches 2 % of {scope.name}."


def _length(rank: RankView, scope: Scope) -> str:
    """How long a step takes, with the profiler and without it."""
    step, row = rank.main.step, rank.steady
    if step is not None:
        others = f"; a steady step takes {time_text(row.step_ns)}" if row else ""
        return f"Step {step} takes {time_text(scope.step_ns)}{others}."
    if row is None:
        steps = "No step is known to be steady" if rank.steps else "The file has no steps"
        return f"{steps}, so this is about the whole trace of {time_text(scope.length_ns)}."
    several = len(row.steps) > 1
    median = f" (median of {len(row.steps)})" if several else ""
    marked = (
        f" It {row.left_out[0].why}." if row.steps == tuple(x.step for x in row.left_out) else ""
    )
    what = "A steady step" if several else "The only step" if marked else "The one steady step"
    with_profiler, without = time_text(row.step_ns), row.unprofiled_step_ns
    if without is None:
        return f"{what} takes {with_profiler}{median}.{marked}"
    if scope.is_slowed:
        return (
            f"{what} takes {time_text(without)} without the profiler, {with_profiler} with it."
            f"{marked}"
        )
    if without > row.step_ns * (1 + _WORTH_A_WORD):  # the clocks, or who else used the machine
        return (
            f"{what} takes {with_profiler}{median}; timed apart, without the profiler, "
            f"{time_text(without)}.{marked}"
        )
    unprofiled = f"without the profiler, {time_text(without)}"
    return f"{what} takes {with_profiler}{median}; {unprofiled}.{marked}"


def _busy(rank: RankView, scope: Scope) -> str:
    """How much of the steps the GPU that decides is busy, how much it is idle, and why."""
    if scope.deciding is None or not scope.deciding.busy_ns:
        return "No GPU was busy."
    others = [device for device in scope.devices if device.device != scope.device]
    named = [f"GPU {x.device} {percent_text(x.busy_ns, scope.length_ns)}" for x in others]
    if len(others) >= _MOST_GPUS:
        named = [f"the other {len(others)} GPUs less"]
    busy, idle = split_text(scope.busy_ns, scope.idle_ns)
    beside = f"; {listed(named)}" if named else ""
    waits_ns = peer_wait_ns(rank, scope)
    if waits_ns:
        waits = percent_text(waits_ns, scope.length_ns)
        return (
            f"GPU {scope.device} is busy {busy}{beside}, but in {waits} of {_all_of(scope)} it "
            "waits for a peer."
        )
    return f"GPU {scope.device} is busy {busy}, idle {idle}{_why_idle(scope)}{beside}."


def peer_wait_ns(rank: RankView, scope: Scope) -> int:
    """How long collectives waited for a peer, where that is worth a word: no work of the GPU's."""
    waits_ns = sum(x.cost_ns for x in rank.main.findings if x.cause == PEER_WAIT)
    return waits_ns if waits_ns >= _WORTH_A_WORD * scope.length_ns else 0


def _why_idle(scope: Scope) -> str:
    """What most of the idle time is due to, where that is much and the profiler is not why."""
    device = scope.deciding
    if device is None or scope.is_slowed:
        return ""
    least_ns, by_calls_ns = _WORTH_A_WORD * scope.length_ns, device.idle_by_calls_ns
    if by_calls_ns < least_ns and scope.idle_ns < _MUCH * scope.length_ns:
        return ""
    # Data that is loaded behind a blocking call is the loader's cost: one gap has one story.
    if by_calls_ns < least_ns or device.bubbles.get("input", 0) >= least_ns:
        return _top_cause(device, device.bubbles, scope.length_ns)
    _, idle = in_parts([scope.busy_ns, scope.idle_ns], TENTHS)
    parts = in_parts([by_calls_ns, device.idle_ns - by_calls_ns], idle)
    by_calls, by_others = (percent_text(part, TENTHS) for part in parts)
    others_ns = {
        cause: time_ns - device.bubbles_by_calls.get(cause, 0)
        for cause, time_ns in device.bubbles.items()
    }
    if by_calls_ns < max(others_ns.values(), default=0):
        top = _top_cause(device, others_ns, scope.length_ns)
        return f"{top}, {by_calls} in and after blocking calls"
    others = "" if by_others == "0 %" else f", {by_others} otherwise"
    return f": {by_calls} in and after blocking calls{others}"


def _top_cause(device: DeviceMetrics, bubbles: Mapping[str, int], length_ns: int) -> str:
    """The cause of most idle time: ", mostly CPU-bound (9.2 %)"."""
    causes = largest(bubbles)
    if not causes:
        return ""
    cause, time_ns = causes[0]
    reasons = largest(device.unknown_reasons) if cause == "unknown" else []
    meaning = meaning_of(REASON_MEANINGS, reasons[0][0]).partition(":")[0] if reasons else ""
    reason = f": {meaning}" if meaning else ""
    name = meaning_of(CAUSE_NAMES, cause)
    return f", mostly {name} ({percent_text(time_ns, length_ns)}{reason})"


def _all_of(scope: Scope) -> str:
    """The whole of what the shares of idle time are of."""
    return f"the {scope.steps} steady steps" if scope.steps > 1 else "it"


def _exposed(scope: Scope) -> list[str]:
    """Communication and copies that are not overlapped."""
    device = scope.deciding
    parts = exposed_parts(device, scope.base_ns) if device else []
    of_what = scope.name if scope.is_slowed else _all_of(scope)
    return [f"{listed(parts).capitalize()} of {of_what}."] if parts else []


def exposed_parts(device: DeviceMetrics, base_ns: int) -> Sequence[str]:
    """The shares that are worth a word: ``["copies not overlapped with compute take 2.1 %"]``."""
    kinds = (
        ("communication not overlapped with compute takes", device.exposed_comm_ns),
        ("copies not overlapped with other work take", device.exposed_copy_ns),
    )
    return [
        f"{verb} {percent_text(time_ns, base_ns)}"
        for verb, time_ns in kinds
        if time_ns >= _WORTH_A_WORD * base_ns
    ]


def left_out_steps(rank: RankView) -> list[str]:
    """The steps that are not steady, and why: ``["step 2 (holds ...)"]``."""
    if rank.steady is None or rank.main.step is not None:
        return []
    by_reason: dict[str, list[str]] = {}
    for step in rank.steady.left_out:
        if step.step not in rank.steady.steps:  # the only one is marked, and stays
            by_reason.setdefault(step.why, []).append(str(step.step))
    return [
        f"step {numbers[0]} ({why})" if len(numbers) == 1 else f"{_steps(numbers)} ({why})"
        for why, numbers in by_reason.items()
    ]


def _steps(numbers: Sequence[str]) -> str:
    if len(numbers) <= _MOST_GPUS:
        return f"steps {listed(numbers)}"
    return counted(len(numbers), "step", "steps")
