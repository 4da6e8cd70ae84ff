"""Verdict about a step: shorter or longer, or why the recordings do not say.

The steps of two recordings say how much steps differ, not how much recordings do. So what differs
between recordings of one and the same program is left out of a difference: kernels that all ran a
little faster or slower, and idle time under different profilers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tracelab.base.arrays import Record
from tracelab.comparison.diff import CANNOT_TELL, LONGER, NO_CHANGE, SHORTER, Change, Doubt
from tracelab.comparison.recordings import MIN_PERCENT, Compared, Pair, Recording, Stretch, median
from tracelab.findings.rules.trace_quality import NO_STACKS
from tracelab.measures.window_times import DeviceMetrics
from tracelab.model.kernel_kinds import comm_test, copy_direction
from tracelab.model.steps import MIN_STEPS

# Of a step: with more noise than that "no change" says nothing.
_MAX_NOISE_PERCENT = 5
# The same kernels of one program took up to 8 % longer in a second recording (clocks, memory and
# links shared with others). Beyond this they do other work.
_MAX_SPEED_PERCENT = 10
# Steps of one program without the profiler, measured twice, differed by up to 9 %.
_UNPROFILED_PERCENT = 10
# More that was launched elsewhere, and the window of a single step may hold it.
_OTHER_WORK_PERCENT = 5
# Idle time that says nothing about the program.
_NO_SUPPORT = ("edge", "profiler", "unknown")
_EXPLAINING = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns")
# Idle time that waits for the host, and how differently Python stacks inflate two programs: by 1.5
# to 3 times. The same model took 2.0, 2.4 and 2.7 times as long with them, item() or not, fused
# optimizer or not.
_INFLATED = ("host_busy", "launch")
# Of the step without the profiler, which is timed once.
MIN_CONFIRMING_PERCENT = 0.5
_INFLATION_RATIO = 2
# What two recordings have in common, 0 to 1; between variants of one bundled program it is at least
# 0.68, whatever was done to it. A program in another precision launches other kernels by the same
# operators; a compiled one has other operators, and spends most of its time in the same kernels.
_MIN_LAUNCHES_SHARE = 0.5
_MIN_TIME_SHARE = 0.5
_MIN_OPERATORS_SHARE = 0.7


class Judgment(Record):
    """Verdict about the step.

    Attributes:
        verdict: "shorter", "longer", "no change" or "cannot tell".
        length: of the step; its noise includes what differs between recordings of one program.
        speed_percent: how much longer the same kernels took; None where that is not known.
        doubts: why the recordings do not say.
    """

    verdict: str
    length: Change
    speed_percent: float | None
    doubts: tuple[Doubt, ...]


def judge(both: Pair) -> Judgment:
    """Judge whether the step got shorter or longer."""
    length = both.change_of(lambda x: x.view.length_ns)
    speed = None if both.has_repeats else _speed(both)  # recordings say how much speeds differ
    explained_ns = {
        Doubt.SPEED: 0 if speed is None else _same_direction_ns(speed.step_effect_ns(both), length),
        Doubt.RECORDED_DIFFERENTLY: _idle_of_profiler_ns(both, length),
        Doubt.INFLATED: _inflated_ns(both, length),
    }
    judged = replace(length, noise_ns=length.noise_ns + sum(explained_ns.values()))
    judged = replace(judged, beyond_noise=abs(length.difference_ns) > judged.noise_ns)
    doubts = tuple(_doubts(both, length, judged, explained_ns))
    if Doubt.SPREAD in doubts:
        judged = length  # nothing needs to be explained
    verdict = CANNOT_TELL
    if not doubts:
        verdict = LONGER if length.difference_ns > 0 else SHORTER
    elif doubts == (Doubt.SPREAD,) and _is_steady(both, judged):
        verdict, doubts = NO_CHANGE, ()
    return Judgment(
        verdict=verdict,
        length=replace(judged, beyond_noise=verdict in (LONGER, SHORTER)),
        speed_percent=None if speed is None else speed.percent,
        doubts=doubts,
    )


def _doubts(
    both: Pair, length: Change, judged: Change, explained_ns: Mapping[Doubt, int]
) -> Iterator[Doubt]:
    """List the reasons why the recordings do not say."""
    one_each = not both.has_repeats
    is_single = one_each and 1 in (both.before.fewest_steps, both.after.fewest_steps)
    if one_each and not both.per_step and _step_count(both.before) != _step_count(both.after):
        yield Doubt.NO_STEPS
    elif is_single and not (length.beyond_noise and _is_supported(both, length)):
        yield Doubt.FEW_STEPS if both.per_step else Doubt.NO_STEPS
    elif length.beyond_noise and not judged.beyond_noise:
        most_ns = max(explained_ns.values())
        yield from (doubt for doubt, ns in explained_ns.items() if ns and 4 * ns >= most_ns)
    elif _profiler_disagrees(both, length):
        yield Doubt.PROFILER
    elif not length.beyond_noise:
        yield Doubt.SPREAD


def _is_steady(both: Pair, length: Change) -> bool:
    """True if a change would be seen: enough steps or recordings, and little noise.

    Between single recordings nothing changed only if the step did by less than 1 %.
    """
    change_percent = MIN_PERCENT if not both.has_repeats else _MAX_NOISE_PERCENT
    return (
        min(both.before.fewest_steps, both.after.fewest_steps) >= MIN_STEPS
        and 100 * length.noise_ns <= _MAX_NOISE_PERCENT * length.before_ns
        and abs(length.percent) <= change_percent
    )


def _step_count(side: Compared) -> int:
    return len(side.recordings[0].rank.steps)


def _same_direction_ns(ns: int, length: Change) -> int:
    """Return the part of a difference in length that another one explains."""
    if (ns > 0) != (length.difference_ns > 0):
        return 0
    return min(abs(ns), abs(length.difference_ns))


class _Speed(Record):
    """Times of the same kernels on both sides, ns, and their share of all compute before."""

    before_ns: int
    after_ns: int
    share: float

    @property
    def percent(self) -> float:
        return 100 * (self.after_ns - self.before_ns) / self.before_ns

    def step_effect_ns(self, both: Pair) -> int:
        """Return the effect of their speed on a step: their share of the compute time."""
        if abs(self.percent) > _MAX_SPEED_PERCENT:
            return 0
        compute_ns = median(both.before.sample(lambda x: _busiest(x).compute_ns))
        return round(compute_ns * self.share * self.percent / 100)


def _speed(both: Pair) -> _Speed | None:
    """Compare kernels of one name, launched equally often, without communication and copies."""
    before, after = map(_computing, both.sides)
    same = [name for name, row in before.items() if name in after and row[0] == after[name][0]]
    before_ns = sum(before[name][1] for name in same)
    if not before_ns:
        return None
    all_ns = sum(ns for _, ns in before.values())
    return _Speed(before_ns, sum(after[name][1] for name in same), before_ns / all_ns)


def _computing(side: Compared) -> dict[str, tuple[int, int]]:
    """Return count and time of each kernel that computes, as `_typical` does."""
    is_comm = comm_test(side.recordings[0].comm_patterns)
    return {
        name: (count, time_ns)
        for name, (count, time_ns) in _typical(side).items()
        if count and not copy_direction(name) and not is_comm(name)
    }


def _typical(side: Compared) -> dict[str, tuple[int, int]]:
    """Return count and time, ns, of each name of the first recording: medians of its windows."""
    windows = [x.launched for x in side.stretches[0]]
    return {
        name: (median([x[name][0] for x in windows]), median([x[name][1] for x in windows]))
        for name in windows[0]
    }


def _idle_of_profiler_ns(both: Pair, length: Change) -> int:
    """Return the idle time in a difference that the profiler may have made on one side."""
    if not _are_recorded_differently(both):
        return 0
    idle = both.change_of(lambda x: _busiest(x).idle_ns)
    return _same_direction_ns(idle.difference_ns, length)


def _are_recorded_differently(both: Pair) -> bool:
    """True if the profiler cost one side more than the other: CPU times do not compare."""
    measured = [side.unprofiled_step_ns is not None for side in both.sides]
    stacks = [_have_stacks(side) for side in both.sides]
    if all(measured):
        return False
    return measured[0] != measured[1] or stacks[0] != stacks[1]


def _have_stacks(side: Compared) -> bool:
    """True if all its recordings have Python functions."""
    return not any(
        finding.cause == NO_STACKS
        for recording in side.recordings
        for finding in recording.findings
    )


def _inflated_ns(both: Pair, length: Change) -> int:
    """Return the part of a difference that Python stacks may have made on both sides.

    They inflate the host's time, on one side up to twice as much as on the other. So where most of
    a difference is idle time that waits for the host, they explain as much of it as the side with
    less such idle time has.
    """
    measured = any(side.unprofiled_step_ns is not None for side in both.sides)
    if measured or not all(map(_have_stacks, both.sides)):
        return 0
    waiting = both.change_of(
        lambda x: sum(_busiest(x).bubbles.get(cause, 0) for cause in _INFLATED)
    )
    if 2 * _same_direction_ns(waiting.difference_ns, length) < abs(length.difference_ns):
        return 0
    less_ns = min(waiting.before_ns, waiting.after_ns)
    return min(abs(length.difference_ns), (_INFLATION_RATIO - 1) * less_ns)


def _profiler_disagrees(both: Pair, length: Change) -> bool:
    """True if both captures know the step without the profiler, and it differs otherwise.

    It does if it did not move the same way, by half a per cent at least; where no change is
    reported, if it moved by more than it does from run to run.
    """
    before_ns, after_ns = (side.unprofiled_step_ns for side in both.sides)
    if before_ns is None or after_ns is None:
        return False
    difference_ns, least_ns = after_ns - before_ns, min(before_ns, after_ns)
    if not length.beyond_noise:
        return 100 * abs(difference_ns) > _UNPROFILED_PERCENT * least_ns
    moved_ns = difference_ns if length.difference_ns > 0 else -difference_ns
    return 100 * moved_ns < MIN_CONFIRMING_PERCENT * least_ns


def _busiest(x: Stretch) -> DeviceMetrics:
    return max(x.view.window.devices, key=lambda device: device.busy_ns)


def _is_supported(both: Pair, length: Change) -> bool:
    """True if changes beyond the noise explain half of the difference.

    That is, on the device that decides; where other work than the step's own may run in its window,
    what the step launched.
    """
    if both.per_step and any(_holds_other_work(side.recordings[0]) for side in both.sides):
        changes = [both.change_of(_launched_ns)]
    else:
        changes = [*both.changes(_explaining_ns).values()]
    explained_ns = sum(
        _same_direction_ns(change.difference_ns, length)
        for change in changes
        if change.beyond_noise
    )
    return 2 * explained_ns >= abs(length.difference_ns)


def _holds_other_work(recording: Recording) -> bool:
    """True if a compared step may hold work that no step launched, such as queued work.

    Windows tile, so only the first step of a file can.
    """
    if recording.steps[0] is not recording.rank.steps[0]:
        return False
    if recording.kernels is None:
        return recording.rank.trace.launched_only is not None
    all_ns = sum(times.total_ns for times in recording.kernels)
    of_steps_ns = sum(sum(times.steps_ns) for times in recording.kernels)
    return 100 * (all_ns - of_steps_ns) > _OTHER_WORK_PERCENT * all_ns


def _launched_ns(x: Stretch) -> int:
    """Add up the GPU time of all that a step launched, ns."""
    return sum(time_ns for _, time_ns in x.launched.values())


def _explaining_ns(x: Stretch) -> dict[str, int]:
    """Return the work, exposed times and idle time by cause of the device that decides."""
    device = _busiest(x)
    times = {name: getattr(device, name) for name in _EXPLAINING}
    return times | {cause: ns for cause, ns in device.bubbles.items() if cause not in _NO_SUPPORT}


# --- whether both sides are one program ---


def is_same_program(both: Pair) -> bool | None:
    """True if both sides launch much the same: kernels by count or time, or operators.

    None if a side does not say: a saved report holds no names.
    """
    recordings = [side.recordings[0] for side in both.sides]
    if any(x.kernels is None for x in recordings):
        return None
    typical = list(map(_typical, both.sides))
    counts, times = (
        [{name: figures[i] for name, figures in x.items()} for x in typical] for i in (0, 1)
    )
    steps = [len(x.rank.steps) if both.per_step else 1 for x in recordings]
    operators = [
        {name: count / of for name, count in (x.operators or {}).items()}
        for x, of in zip(recordings, steps, strict=True)
    ]
    return (
        common(*counts) >= _MIN_LAUNCHES_SHARE
        or common(*map(_shares, times)) >= _MIN_TIME_SHARE
        or (all(operators) and common(*operators) >= _MIN_OPERATORS_SHARE)
    )


def common(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Share of the union of two multisets that is their intersection, 0 to 1.

    >>> common({"gemm": 4, "copy": 1}, {"gemm": 4, "fill": 3})
    0.5
    """
    names = {**before, **after}
    both = sum(min(before.get(name, 0), after.get(name, 0)) for name in names)
    either = sum(max(before.get(name, 0), after.get(name, 0)) for name in names)
    return both / either if either else 1.0


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values()) or 1
    return {name: value / total for name, value in values.items()}
