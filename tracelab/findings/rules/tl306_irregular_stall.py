"""TL306: a stall of the host that is not typical of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import dataclass
from tracelab.base.intervals import Int64Array, Intervals
from tracelab.findings.candidates import MAX_EVIDENCE, Candidate, grouped, where
from tracelab.findings.context import Context
from tracelab.findings.finding import ASIDE, INFO
from tracelab.findings.rule import Rule
from tracelab.measures.idle_causes import Cause
from tracelab.measures.recurrence import are_rare
from tracelab.model.steady import MIN_STEPS
from tracelab.model.trace import ABSENT
from tracelab.model.wording import called

_BY_HOST = (Cause.HOST_BLOCKED, Cause.INPUT, Cause.HOST_BUSY, Cause.LAUNCH)
# Of a steady step: a shorter stall is no alarm in any step.
_MIN_STEP_SHARE = 0.02
# Of a stall: another one of that length at the same place makes it typical.
_MIN_TYPICAL_SHARE = 0.5
_FIX = (
    "Nothing yet: what happens only now and then is not the cost of a typical step. Record more "
    "steps (`schedule(active=...)`). If it comes back, look for what is not done in every step: "
    "logging, checkpoints, evaluation, Python's garbage collection, other work on the machine."
)


def find(context: Context) -> list[Candidate]:
    """The long idle times of which hardly another step has the like, together.

    Those of a slow start of the recording are a candidate of their own, which becomes no finding:
    each step has less of them, and a typical cost they are not either.
    """
    if len(context.steady_steps) < MIN_STEPS:
        return []
    stalls = {device: _irregular(context, device) for device in context.active_devices}
    of_start = context.bubbles.next_id[context.start_up.slow]
    return [
        replace(candidate, becomes_finding=becomes_finding)
        for becomes_finding in (True, False)
        for candidate in _candidate(
            context,
            {
                device: x.only(np.isin(x.next_id, of_start) != becomes_finding)
                for device, x in stalls.items()
            },
        )
    ]


def _candidate(context: Context, stalls: Mapping[int, _Stalls]) -> list[Candidate]:
    """One candidate of the stalls of all devices; none without any."""
    stalls = {device: of_device for device, of_device in stalls.items() if len(of_device.next_id)}
    if not stalls:
        return []
    device = max(stalls, key=lambda device: int(stalls[device].length_ns.max()))
    worst = stalls[device]
    culprit_id = worst.culprit_id[np.argsort(-worst.length_ns, kind="stable")]
    [call_site] = context.call_sites(culprit_id[:1])
    [remedy] = context.recognized.remedies(culprit_id[:1], RULE.id)
    count = len(worst.next_id)
    what = called(call_site, context.call_name(int(culprit_id[0])))
    often = "once" if count == 1 else f"irregularly ({count} times)"
    at = f", {'' if count == 1 else 'longest '}in {what}" if what else ""
    return [
        Candidate(
            title=f"The CPU stalls {often}{at}",
            cause="irregular",
            where=where(call_site, count=count, device=device),
            evidence=tuple(dict.fromkeys(culprit_id[culprit_id != ABSENT].tolist()))[:MAX_EVIDENCE],
            lost={number: _idle_of(context, number, x) for number, x in stalls.items()},
            severity_override=INFO,
            remedy=remedy,
            is_typical=False,
            role=ASIDE,
        )
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Stalls:
    """The long idle times of one device that the host caused, in steady steps.

    Attributes:
        next_id: int64[k], event id of the activity that each ends with.
        length_ns: int64[k].
        step_position: intp[k], the position among the steady steps.
        culprit_id: int64[k], what the host did for most of it, else ABSENT.
    """

    next_id: Int64Array
    length_ns: Int64Array
    step_position: NDArray[np.intp]
    culprit_id: Int64Array

    def only(self, is_chosen: NDArray[np.bool_]) -> _Stalls:
        """The chosen ones, bool[k]."""
        return _Stalls(*(getattr(self, column)[is_chosen] for column in _Stalls.__slots__))


def _irregular(context: Context, device: int) -> _Stalls:
    """The irregular stalls of one device."""
    steps = context.steady_steps
    idle_ns = context.bubbles.within(device, context.is_idle_by(*_BY_HOST), steps)
    least_ns = _MIN_STEP_SHARE * float(np.median([step.length_ns for step in steps]))
    stalls = _stalls_of(context, device, _MIN_TYPICAL_SHARE * least_ns)
    names = map(context.call_name, stalls.culprit_id.tolist())
    keys = zip(names, context.call_sites(stalls.culprit_id), strict=True)
    steps_alike = np.zeros(len(stalls.length_ns), dtype=np.int64)
    for group in grouped(keys).values():
        steps_alike[group] = _steps_alike(stalls, group, len(steps))
    is_rare = (stalls.length_ns >= least_ns) & are_rare(steps_alike, len(steps))
    # Where each step idles as long somewhere else, the stall is no exception.
    longer_ns = (idle_ns - np.median(idle_ns))[stalls.step_position]
    is_rare &= longer_ns >= _MIN_TYPICAL_SHARE * stalls.length_ns
    is_rare &= np.isin(stalls.next_id, context.bubbles.next_id[context.bubbles_inside])
    is_rare &= ~np.isin(stalls.next_id, context.bubbles.next_id[context.start_up.not_ahead])
    return stalls.only(is_rare)


def _stalls_of(context: Context, device: int, least_ns: float) -> _Stalls:
    """The stalls of one device of at least this length."""
    bubbles, steps = context.bubbles, context.steady_steps
    is_chosen = context.is_idle_by(*_BY_HOST) & (bubbles.device_number == device)
    piece_index = np.flatnonzero(is_chosen & (bubbles.next_id != ABSENT))
    piece_ns = (bubbles.end_ns - bubbles.start_ns)[piece_index]
    next_id, stall_index = np.unique(bubbles.next_id[piece_index], return_inverse=True)
    length_ns = np.bincount(stall_index, weights=piece_ns, minlength=len(next_id)).astype(np.int64)
    by_length = np.argsort(piece_ns, kind="stable")
    longest = np.zeros(len(next_id), dtype=np.intp)
    longest[stall_index[by_length]] = piece_index[by_length]  # the last one assigned is the longest
    middle_ns = (bubbles.start_ns[longest] + bubbles.end_ns[longest]) // 2
    step_position = np.searchsorted([step.start_ns for step in steps], middle_ns, "right") - 1
    ends_ns = np.array([step.end_ns for step in steps])
    is_stall = (length_ns >= least_ns) & (step_position >= 0) & (middle_ns < ends_ns[step_position])
    return _Stalls(
        next_id=next_id[is_stall],
        length_ns=length_ns[is_stall],
        step_position=step_position[is_stall],
        culprit_id=context.idle_culprits[longest[is_stall]],
    )


def _steps_alike(stalls: _Stalls, group: list[int], steps: int) -> NDArray[np.intp]:
    """intp[group], in how many steps a stall of a group is at least half as long as each of it."""
    longest_ns = np.zeros(steps, dtype=np.int64)
    np.maximum.at(longest_ns, stalls.step_position[group], stalls.length_ns[group])
    longest_ns.sort()
    return steps - np.searchsorted(longest_ns, _MIN_TYPICAL_SHARE * stalls.length_ns[group])


def _idle_of(context: Context, device: int, stalls: _Stalls) -> Intervals:
    """The idle time of these stalls."""
    is_chosen = np.isin(context.bubbles.next_id, stalls.next_id)
    return context.idle(device, is_chosen & context.is_idle_by(*_BY_HOST))


RULE = Rule(
    id="TL306",
    name="an irregular stall, in too few steps to be typical",
    matters="A step that stalls once is not typical: removing the work at that call site from the "
    "loop may save nothing. Only a longer recording shows whether the stall comes back.",
    decides="It needs at least three steady steps. A stall is idle time of at least 2 % of a step "
    "that the CPU caused, if at most a quarter of the steps (at least one) have idle time of at "
    "least half that length at the same call site. The step must also be idle for longer than the "
    "median step, by at least half of the stall: otherwise the idle time only moved. The start of "
    "the recording is left out: idle time before the CPU first ran ahead of the GPU, if it ever "
    "does, and idle time of the first recorded step or before the first launch of the second, "
    "unless the CPU took more than four times as long for that launch as in the other steps.",
    fix=_FIX,
    fix_short="Record more steps (`schedule(active=40)`): what happens only now and then is not "
    "the cost of a typical step.",
    before="schedule(wait=1, warmup=1, active=4)",
    after="schedule(wait=1, warmup=1, active=40)",
    find=find,
)
