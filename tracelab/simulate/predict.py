"""Predict what a step takes with some changes: all fixes in as few replays as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tracelab.base.arrays import Int64Array, Record
from tracelab.simulate.baseline import Baseline, Bounds, gpu_chain
from tracelab.simulate.edits import EDITS, NEAR, Edit, apply_edit
from tracelab.simulate.program import Edited, Program
from tracelab.simulate.replay import replay
from tracelab.simulate.sites import Sites

Change = Edit | Callable[[Program], Program]


class Fix(Record):
    """Changes that are made together.

    Attributes:
        name: what it is called.
        edits: made in order: each an `Edit`, or a function from a program to another.
        findings: indices of its findings.
        after: changes made before; predicted is what these add.
    """

    name: str
    edits: tuple[Change, ...]
    findings: tuple[int, ...] = ()
    after: tuple[Change, ...] = ()


class Prediction(Record):
    """Length of a step with a fix.

    Attributes:
        name, findings: of the fix.
        edits: its changes as they are written.
        step_ns: ns, the step that is printed, as it is; with the changes that the fix comes after.
        predicted_ns: ns, the step with the fix.
        low_ns, high_ns: ns, between which it is expected.
        reason: why nothing better can be said, a clause; None where there is nothing to say.
    """

    name: str
    edits: tuple[str, ...]
    findings: tuple[int, ...]
    step_ns: int
    predicted_ns: int
    low_ns: int
    high_ns: int
    reason: str | None = None

    @property
    def saving_ns(self) -> tuple[int, int, int]:
        """The saving as predicted, at least and at most, ns; negative if a step gets longer."""
        step_ns = self.step_ns
        return step_ns - self.predicted_ns, step_ns - self.high_ns, step_ns - self.low_ns


def predict(baseline: Baseline, sites: Sites, fixes: Sequence[Fix]) -> tuple[Prediction, ...]:
    """Replay the baseline's program with each fix: one prediction for each, in their order."""
    if baseline.program is None or baseline.step_ns is None:
        return ()
    bases, basis, step_ns = (baseline.program, *baseline.loose), baseline.printed, baseline.step_ns
    starts = {
        after: [apply_changes(after, base, sites).program for base in bases]
        for after in dict.fromkeys(fix.after for fix in fixes)
    }
    edited = [
        [apply_changes(fix.edits, start, sites) for start in starts[fix.after]] for fix in fixes
    ]
    programs = [*bases, *(program for of_after in starts.values() for program in of_after)]
    programs += [program for of_fix in edited for of_base in of_fix for program in of_base.programs]
    different = list(dict.fromkeys(programs))
    replayed_ns = dict(zip(different, replay(different).step_ns.tolist(), strict=True))
    chains = map(gpu_chain, (bases[0], *(of_fix[0].low for of_fix in edited)))
    _, *remains_ns = replay([*chains]).step_ns.tolist()
    predictions = []
    for fix, of_fix, remain_ns in zip(fixes, edited, remains_ns, strict=True):
        start_ns = np.array([replayed_ns[program] for program in starts[fix.after]])
        with_fix_ns = np.array([[replayed_ns[x] for x in of_base.programs] for of_base in of_fix])
        from_ns = round(step_ns * (int(start_ns[0]) / replayed_ns[bases[0]]))
        # By how much the replay is off without a change, it is with one, in proportion.
        new_ns = np.rint(with_fix_ns * (from_ns / start_ns[:, np.newaxis])).astype(np.int64)
        bounds = bounds_ns(from_ns, new_ns.ravel(), margin_of(fix.edits))
        printed = basis.carry(step_ns, from_ns, bounds, remain_ns)
        printed_ns = round(from_ns * basis.step_ns / step_ns)
        edits, reason = tuple(map(describe, fix.edits)), of_fix[0].reason
        prediction = Prediction(fix.name, edits, fix.findings, printed_ns, *printed, reason)
        predictions.append(prediction)
    return tuple(predictions)


def describe(change: Change) -> str:
    """Write a change as it is given; the name of a function."""
    return str(change) if isinstance(change, Edit) else getattr(change, "__name__", repr(change))


def apply_changes(changes: Sequence[Change], program: Program, sites: Sites) -> Edited:
    """Make all of some changes, one after the other."""
    edited = Edited.exactly(program, 0)
    reasons: list[str] = []
    for change in changes:
        middle, low, high = edited.call_each(partial(_changed, change, sites))
        if middle.reason is not None or not middle.count:
            reasons.append(middle.reason or f"{describe(change)} matches nothing in these steps")
        reason = "; ".join(dict.fromkeys(reasons)) or None
        edited = Edited(middle.program, low.low, high.high, edited.count + middle.count, reason)
    return edited


def _changed(change: Change, sites: Sites, program: Program) -> Edited:
    if isinstance(change, Edit):
        return apply_edit(change, program, sites)
    return Edited.exactly(change(program), 1)


# A product took 171 us in a step with waits, 191 us in one without (shared/REPLAY.md).
_CLOCKS = 0.1
# Median of 31 programs: the rest shrinks by this share of what a fix takes away
# (tests/benchmarks/judgement).
_LIGHTER = 0.4


def bounds_ns(step_ns: int, new_ns: Int64Array, margin: tuple[float, float]) -> Bounds:
    """Bound the length of a step with a fix, ns, by replays (int64[k], the likeliest first).

    The margin is of what changes. A GPU that idles less runs at lower clocks; what is left often
    takes less than predicted.
    """
    predicted_ns, at_most_ns = int(new_ns[0]), abs(step_ns - int(new_ns[0]))
    denser = max(0.0, 1 - predicted_ns / step_ns)
    shorter, longer = margin
    shorter_ns = min(int((shorter + _LIGHTER * denser) * predicted_ns), at_most_ns)
    longer_ns = int((longer + _CLOCKS * denser) * predicted_ns)
    if longer <= shorter or not at_most_ns:
        longer_ns = min(longer_ns, at_most_ns)
    return Bounds(
        predicted_ns,
        max(int(new_ns.min()) - shorter_ns, 0),
        min(int(new_ns.max()) + longer_ns, max(step_ns, predicted_ns + longer_ns)),
    )


def margin_of(changes: Sequence[object]) -> tuple[float, float]:
    """Return the shares by which a step may be shorter and longer than predicted."""
    margins = [NEAR, *(EDITS[x.kind].margin for x in changes if isinstance(x, Edit))]
    shorter, longer = map(max, zip(*margins, strict=True))
    return shorter, longer
