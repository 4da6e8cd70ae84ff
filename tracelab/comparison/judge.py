"""Whether a step got shorter or longer, or why the recordings do not say.

The steps of two recordings say how much steps differ, not how much recordings do. So what differs
between recordings of one and the same program is left out of a difference: kernels that all ran a
little faster or slower, and idle time under different profilers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tracelab.base.arrays import OneLine
from tracelab.comparison.diff import (
    CANNOT_TELL,
    LONGER,
    NO_CHANGE,
    SHORTER,
    Doubt,
)
from tracelab.comparison.noise import LEAST_PERCENT, Change, median
from tracelab.comparison.programs import steps_of
from tracelab.comparison.recordings import Compared, Pair, Recording
from tracelab.findings.rules.tl903_no_python_stacks import NO_STACKS
from tracelab.measures.window_times import DeviceMetrics
from tracelab.model.kernel_kinds import comm_test, copy_direction
from tracelab.model.steady import FEWEST_STEPS
from tracelab.report.views import View

# Of a step: with more noise than that "no change" says nothing.
_MOST_NOISE_PERCENT = 5
# The same kernels of one program took up to 8 % longer in a second recording (clocks, memory and
# links shared with others). Beyond this they do other work.
_MOST_SPEED_PERCENT = 10
# Steps of one program without the profiler, measured twice, differed by up to 9 %.
_UNPROFILED_PERCENT = 10
# More that was launched elsewhere, and the window of a single step may hold it.
_OTHER_WORK_PERCENT = 5
# Idle time that says nothing about the program.
_NO_SUPPORT = ("edge", "profiler", "unknown")
_EXPOSED = ("exposed_comm_ns", "exposed_copy_ns")
# Idle time that waits for the host, and how differently Python stacks inflate two programs: by 1.5
# to 3 times. The same model took 2.0, 2.4 and 2.7 times as long with them, item() or not, fused
# optimizer or not.
_INFLATED = ("host_busy", "launch")
CONFIRMS_PERCENT = 0.5  # of the step without the profiler, which is timed once: so much it moved
_INFLATION_RATIO = 2


@dataclass(frozen=True, slots=True, repr=False)
class Judgment(OneLine):
    """What became of the step.

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
    """Whether the step got shorter or longer."""
    length = both.change_of_views(lambda view: view.length_ns)
    speed = None if both.by_recording else _speed(both)  # recordings say how much speeds differ
    explained_ns = {
        Doubt.SPEED: 0 if speed is None else _same_direction_ns(speed.of_step_ns(both), length),
        Doubt.RECORDED_DIFFERENTLY: _idle_of_profiler_ns(both, length),
        Doubt.INFLATED: _inflated_ns(both, length),
    }
    judged = replace(length, noise_ns=length.noise_ns + sum(explained_ns.values()))
    judged = replace(judged, beyond_noise=abs(length.difference_ns) > judged.noise_ns)
    doubts = tuple(_doubts(both, length, judged, explained_ns))
    percent = None if speed is None else speed.percent
    if Doubt.SPREAD in doubts:
        judged = length  # nothing needs to be explained
    return _judgment(both, replace(judged, beyond_noise=not doubts), percent, doubts)


def _judgment(
    both: Pair, length: Change, speed_percent: float | None, doubts: tuple[Doubt, ...]
) -> Judgment:
    if not doubts:
        return Judgment(_direction(length), length, speed_percent, ())
    if doubts == (Doubt.SPREAD,) and _is_steady(both, length):
        return Judgment(NO_CHANGE, length, speed_percent, ())
    return Judgment(CANNOT_TELL, length, speed_percent, doubts)


def _doubts(
    both: Pair, length: Change, judged: Change, explained_ns: Mapping[Doubt, int]
) -> Iterator[Doubt]:
    """Why the recordings do not say; nothing if they do."""
    one_each = not both.by_recording
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


def _direction(length: Change) -> str:
    return LONGER if length.difference_ns > 0 else SHORTER


def _is_steady(both: Pair, length: Change) -> bool:
    """Whether a change would be seen: enough steps or recordings, and little noise.

    Between single recordings nothing changed only if the step did by less than 1 %.
    """
    change_percent = LEAST_PERCENT if not both.by_recording else _MOST_NOISE_PERCENT
    return (
        min(both.before.fewest_steps, both.after.fewest_steps) >= FEWEST_STEPS
        and 100 * length.noise_ns <= _MOST_NOISE_PERCENT * length.before_ns
        and abs(length.percent) <= change_percent
    )


def _step_count(side: Compared) -> int:
    return len(side.recordings[0].rank.steps)


def _same_direction_ns(ns: int, length: Change) -> int:
    """How much of a difference in length another one explains."""
    if (ns > 0) != (length.difference_ns > 0):
        return 0
    return min(abs(ns), abs(length.difference_ns))


@dataclass(frozen=True, slots=True)
class _Speed:
    """How long the same kernels took on both sides, ns, and their share of all compute before."""

    before_ns: int
    after_ns: int
    share: float

    @property
    def percent(self) -> float:
        return 100 * (self.after_ns - self.before_ns) / self.before_ns

    def of_step_ns(self, both: Pair) -> int:
        """What their speed makes of a step: their share of the time in which the GPU computes."""
        if abs(self.percent) > _MOST_SPEED_PERCENT:
            return 0
        compute_ns = median(both.before.sample_of_views(lambda view: _busiest(view).compute_ns))
        return round(compute_ns * self.share * self.percent / 100)


def _speed(both: Pair) -> _Speed | None:
    """Of kernels by the same name, launched equally often; without communication and copies."""
    before, after = (
        _kernels(side.recordings[0], per_step=both.per_step) for side in (both.before, both.after)
    )
    same = [name for name, row in before.items() if name in after and row[0] == after[name][0]]
    before_ns = sum(before[name][1] for name in same)
    if not before_ns:
        return None
    all_ns = sum(ns for _, ns in before.values())
    return _Speed(before_ns, sum(after[name][1] for name in same), before_ns / all_ns)


def _kernels(recording: Recording, *, per_step: bool) -> dict[str, tuple[int, int]]:
    """Count and time of each kernel that computes: medians per step, or of the whole trace."""
    is_comm = comm_test(recording.comm_patterns)
    rows = {}
    for times in recording.kernels or ():
        count, total_ns = times.count, times.total_ns
        if per_step:
            counts, steps_ns = steps_of(recording, times.step_counts, times.steps_ns)
            count, total_ns = median(counts), median(steps_ns)
        if count and not copy_direction(times.name) and not is_comm(times.name):
            rows[times.name] = count, total_ns
    return rows


def _idle_of_profiler_ns(both: Pair, length: Change) -> int:
    """How much of the difference is idle time that the profiler may have made on one side."""
    if not _are_recorded_differently(both):
        return 0
    return _same_direction_ns(_busiest_change(both, "idle_ns").difference_ns, length)


def _are_recorded_differently(both: Pair) -> bool:
    """Whether the profiler cost one side more than the other: the host's times do not compare."""
    measured = [side.unprofiled_step_ns is not None for side in _sides(both)]
    stacks = [_have_stacks(side) for side in _sides(both)]
    if all(measured):
        return False
    return measured[0] != measured[1] or stacks[0] != stacks[1]


def _have_stacks(side: Compared) -> bool:
    """Whether all its recordings have Python functions."""
    return not any(
        finding.cause == NO_STACKS
        for recording in side.recordings
        for finding in recording.findings
    )


def _inflated_ns(both: Pair, length: Change) -> int:
    """How much of the difference Python stacks may have made, where both sides have them.

    They inflate the host's time, on one side up to twice as much as on the other. So where most of
    a difference is idle time that waits for the host, they explain as much of it as the side with
    less such idle time has.
    """
    measured = any(side.unprofiled_step_ns is not None for side in _sides(both))
    if measured or not all(map(_have_stacks, _sides(both))):
        return 0
    waiting = both.change_of_views(
        lambda view: sum(_busiest(view).bubbles.get(cause, 0) for cause in _INFLATED)
    )
    if 2 * _same_direction_ns(waiting.difference_ns, length) < abs(length.difference_ns):
        return 0
    less_ns = min(waiting.before_ns, waiting.after_ns)
    return min(abs(length.difference_ns), (_INFLATION_RATIO - 1) * less_ns)


def _profiler_disagrees(both: Pair, length: Change) -> bool:
    """Whether both captures know the step without the profiler, and it says something else.

    It does if it did not move the same way, by half a per cent at least; where no change is
    reported, if it moved by more than it does from run to run.
    """
    before_ns, after_ns = (side.unprofiled_step_ns for side in _sides(both))
    if before_ns is None or after_ns is None:
        return False
    difference_ns, least_ns = after_ns - before_ns, min(before_ns, after_ns)
    if not length.beyond_noise:
        return 100 * abs(difference_ns) > _UNPROFILED_PERCENT * least_ns
    moved_ns = difference_ns if length.difference_ns > 0 else -difference_ns
    return 100 * moved_ns < CONFIRMS_PERCENT * least_ns


def _busiest(view: View) -> DeviceMetrics:
    return max(view.window.devices, key=lambda device: device.busy_ns)


def _busiest_change(both: Pair, name: str) -> Change:
    """A figure of the device that decides."""
    return both.change_of_views(lambda view: getattr(_busiest(view), name))


def _is_supported(both: Pair, length: Change) -> bool:
    """Whether what changed largely explains half of the difference.

    That is, on the device that decides; where other work than the step's own may run in its window,
    what the step launched.
    """
    if both.per_step and any(_holds_other_work(side.recordings[0]) for side in _sides(both)):
        changes = [both.change(*(side.sample(_launched_ns) for side in _sides(both)))]
    else:
        changes = [_busiest_change(both, name) for name in ("compute_ns", *_EXPOSED)]
        causes = {cause for side in _sides(both) for view in side.views for cause in _causes(view)}
        changes += [_cause_change(both, cause) for cause in causes]
    explained_ns = sum(
        _same_direction_ns(change.difference_ns, length)
        for change in changes
        if change.beyond_noise
    )
    return 2 * explained_ns >= abs(length.difference_ns)


def _sides(both: Pair) -> tuple[Compared, Compared]:
    return both.before, both.after


def _holds_other_work(recording: Recording) -> bool:
    """Whether a compared step may hold what no step launched: most of all what was queued before.

    Windows tile, so only the first step of a file can.
    """
    if recording.step_indices[0] > 0:
        return False
    if recording.kernels is None:
        return recording.rank.trace.launched_only is not None
    all_ns = sum(times.total_ns for times in recording.kernels)
    of_steps_ns = sum(sum(times.steps_ns) for times in recording.kernels)
    return 100 * (all_ns - of_steps_ns) > _OTHER_WORK_PERCENT * all_ns


def _launched_ns(recording: Recording) -> list[int]:
    """How long all that each compared step launched took on the GPU."""
    per_name = [steps_of(recording, times.steps_ns)[0] for times in recording.kernels or ()]
    return [sum(of_step) for of_step in zip(*per_name, strict=True)] or [0]


def _cause_change(both: Pair, cause: str) -> Change:
    """The idle time of a cause on the device that decides."""
    return both.change_of_views(lambda view: _causes(view).get(cause, 0))


def _causes(view: View) -> dict[str, int]:
    bubbles = _busiest(view).bubbles
    return {cause: ns for cause, ns in bubbles.items() if cause not in _NO_SUPPORT}
