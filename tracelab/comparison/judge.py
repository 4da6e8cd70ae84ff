"""Verdict about a step: shorter or longer, or why the recordings do not say.

Differences between recordings of one program do not count: kernels that all ran a little faster
or slower, and idle time under different profilers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tracelab.comparison.diff import CANNOT_TELL, LONGER, NO_CHANGE, SHORTER, Change, Doubt
from tracelab.comparison.recordings import MIN_PERCENT, Compared, Pair, Stretch, median
from tracelab.findings.rules.trace_quality import NO_STACKS
from tracelab.measures.window_times import DeviceMetrics
from tracelab.model.kernel_kinds import comm_test, copy_direction
from tracelab.model.steps import MIN_STEPS

# Of a step; more noise makes "no change" meaningless.
_MAX_NOISE_PERCENT = 5
# The same kernels took up to 8 % longer in a second recording, on shared clocks, memory and links.
_MAX_SPEED_PERCENT = 10
# Steps of one program without the profiler, measured twice, differed by up to 9 %.
_UNPROFILED_PERCENT = 10
# Idle time that waits for the host. Python stacks inflate programs by 1.5 to 3 times: one model by
# 2.0, 2.4 and 2.7.
_INFLATED = ("host_busy", "launch")
# Of the step without the profiler, timed once.
MIN_CONFIRMING_PERCENT = 0.5
_INFLATION_RATIO = 2
# Common to two recordings; at least 0.68 between variants of one bundled program. Another precision
# launches other kernels by the same operators; a compiler replaces operators, but few kernels.
_MIN_LAUNCHES_SHARE = 0.5
_MIN_TIME_SHARE = 0.5
_MIN_OPERATORS_SHARE = 0.7


def judge(both: Pair) -> tuple[Change, str, tuple[Doubt, ...], float | None]:
    """Judge whether the step got shorter or longer.

    Returns:
        the change of its length, whose noise includes differences between recordings of one
        program; the verdict; doubts; and by how many per cent the same kernels took longer, or
        None.
    """
    length = both.change_of(lambda x: x.view.length_ns)
    speed_percent, speed_ns = (None, 0) if both.has_repeats else _speed(both)
    explained_ns = {Doubt.SPEED: _same_direction_ns(speed_ns, length), **_profiler_ns(both, length)}
    judged = replace(length, noise_ns=length.noise_ns + sum(explained_ns.values()))
    judged = replace(judged, beyond_noise=abs(length.difference_ns) > judged.noise_ns)
    doubts = tuple(_doubts(both, length, judged, explained_ns))
    if Doubt.SPREAD in doubts:
        judged = length
    verdict = CANNOT_TELL
    if not doubts:
        verdict = LONGER if length.difference_ns > 0 else SHORTER
    elif doubts == (Doubt.SPREAD,) and _is_steady(both, judged):
        verdict, doubts = NO_CHANGE, ()
    judged = replace(judged, beyond_noise=verdict in (LONGER, SHORTER))
    return judged, verdict, doubts, speed_percent


def _doubts(
    both: Pair, length: Change, judged: Change, explained_ns: Mapping[Doubt, int]
) -> Iterator[Doubt]:
    is_single = not both.has_repeats and 1 in [side.fewest_steps for side in both.sides]
    steps = {len(side.recordings[0].rank.steps) for side in both.sides}
    if is_single and not both.per_step and len(steps) > 1:
        yield Doubt.NO_STEPS
    elif is_single and not length.beyond_noise:
        yield Doubt.FEW_STEPS if both.per_step else Doubt.NO_STEPS
    elif length.beyond_noise and not judged.beyond_noise:
        most_ns = max(explained_ns.values())
        yield from (doubt for doubt, ns in explained_ns.items() if ns and 4 * ns >= most_ns)
    elif _profiler_disagrees(both, length):
        yield Doubt.PROFILER
    elif not length.beyond_noise:
        yield Doubt.SPREAD


def _is_steady(both: Pair, length: Change) -> bool:
    change_percent = MIN_PERCENT if not both.has_repeats else _MAX_NOISE_PERCENT
    return (
        min(both.before.fewest_steps, both.after.fewest_steps) >= MIN_STEPS
        and 100 * length.noise_ns <= _MAX_NOISE_PERCENT * length.before_ns
        and abs(length.percent) <= change_percent
    )


def _same_direction_ns(ns: int, length: Change) -> int:
    if (ns > 0) != (length.difference_ns > 0):
        return 0
    return min(abs(ns), abs(length.difference_ns))


def _speed(both: Pair) -> tuple[float | None, int]:
    """Compare kernels of one name that compute and were launched equally often.

    Returns:
        by how many per cent they took longer; their share of that in a step's compute time, ns.
    """
    before, after = map(_computing, both.sides)
    same = [name for name, row in before.items() if name in after and row[0] == after[name][0]]
    before_ns = sum(before[name][1] for name in same)
    if not before_ns:
        return None, 0
    percent = 100 * (sum(after[name][1] for name in same) - before_ns) / before_ns
    if abs(percent) > _MAX_SPEED_PERCENT:
        return percent, 0
    share = before_ns / sum(ns for _, ns in before.values())
    compute_ns = median(both.before.sample(lambda x: _busiest(x).compute_ns))
    return percent, round(compute_ns * share * percent / 100)


def _computing(side: Compared) -> dict[str, tuple[int, int]]:
    is_comm = comm_test(side.recordings[0].comm_patterns)
    return {
        name: (count, time_ns)
        for name, (count, time_ns) in _typical(side).items()
        if count and not copy_direction(name) and not is_comm(name)
    }


def _typical(side: Compared) -> dict[str, tuple[int, int]]:
    windows = [x.launched for x in side.stretches[0]]
    return {
        name: (median([x[name][0] for x in windows]), median([x[name][1] for x in windows]))
        for name in windows[0]
    }


def _profiler_ns(both: Pair, length: Change) -> dict[Doubt, int]:
    """Return the part of a difference that the profiler may have made, by the reason.

    That is all idle time if it cost one side more than the other. Python stacks on both sides
    inflate the host's time, of one side up to twice as much: if most of the difference is idle
    time that waits for the host, they explain as much as the other side has.
    """
    before, after = (
        (side.unprofiled_step_ns is not None, _have_stacks(side)) for side in both.sides
    )
    if before[0] and after[0]:
        return {}
    if before != after:
        idle = both.change_of(lambda x: _busiest(x).idle_ns)
        return {Doubt.RECORDED_DIFFERENTLY: _same_direction_ns(idle.difference_ns, length)}
    waiting = both.change_of(
        lambda x: sum(_busiest(x).bubbles.get(cause, 0) for cause in _INFLATED)
    )
    waiting_ns = _same_direction_ns(waiting.difference_ns, length)
    if not before[1] or 2 * waiting_ns < abs(length.difference_ns):
        return {}
    less_ns = min(waiting.before_ns, waiting.after_ns)
    return {Doubt.INFLATED: min(abs(length.difference_ns), (_INFLATION_RATIO - 1) * less_ns)}


def _have_stacks(side: Compared) -> bool:
    return all(x.cause != NO_STACKS for recording in side.recordings for x in recording.findings)


def _profiler_disagrees(both: Pair, length: Change) -> bool:
    """True if the step without the profiler moved otherwise."""
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


# --- whether both sides are one program ---


def is_same_program(both: Pair) -> bool | None:
    """True if both sides launch much the same; None if a side is a saved report."""
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
    """Share of the union of two multisets that is their intersection, 0 to 1."""
    names = {**before, **after}
    both = sum(min(before.get(name, 0), after.get(name, 0)) for name in names)
    either = sum(max(before.get(name, 0), after.get(name, 0)) for name in names)
    return both / either if either else 1.0


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values()) or 1
    return {name: value / total for name, value in values.items()}
