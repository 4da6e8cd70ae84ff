"""Words of a comparison: verdict, predictions, changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tracelab.comparison.diff import (
    CHANGED,
    DIFFERENT_PROGRAMS,
    FIGURES,
    GONE,
    LONGER,
    NEW,
    NO_CHANGE,
    NUMBER,
    ORDER,
    SHORTER,
    Change,
    DeviceDiff,
    Diff,
    Doubt,
    FindingDiff,
    PredictionDiff,
    RankDiff,
    StreamDiff,
)
from tracelab.comparison.judge import MIN_CONFIRMING_PERCENT
from tracelab.findings.places import TOGETHER
from tracelab.findings.rules.trace_quality import INFLATED
from tracelab.render.section import column_title
from tracelab.render.words import (
    bare_name,
    duration_text,
    exact_percent,
    interval_text,
    listed,
    percent_text,
    time_text,
)
from tracelab.report.glossary import CAUSES, FINDING_CAUSES
from tracelab.report.schema import UNPROFILED

ARROW = " → "
NOISE = "noise"
UNCLEAR = "unclear"
_MAX_FIGURES, _MAX_KERNELS, _MAX_FINDINGS = 4, 3, 3
_MAIN_FIGURES = ("idle_ns", "exposed_comm_ns", "exposed_copy_ns", "compute_ns")


# --- the verdict ---


def headline(diff: Diff) -> str:
    """The verdict; of several ranks, about the slowest afterwards."""
    slowest = diff.slowest
    if diff.verdict == DIFFERENT_PROGRAMS:
        return (
            "These are two different programs: they have hardly any kernels or operators in "
            f"common. {_what(slowest)} takes {_lengths(slowest)}."
        )
    if len(diff.ranks) == 1:
        return verdict(slowest)
    if all(rank.verdict == NO_CHANGE for rank in diff.ranks):
        return f"No change beyond the noise on any of {len(diff.ranks)} ranks."
    directions = [
        [str(rank.after.rank) for rank in diff.ranks if rank.verdict == direction]
        for direction in (SHORTER, LONGER)
    ]
    if all(directions):
        return (
            "Cannot tell whether a step got shorter or longer: it did get shorter on rank "
            f"{listed(directions[0])} and longer on rank {listed(directions[1])}."
        )
    sentence = verdict(slowest)
    return (
        f"Rank {slowest.after.rank}, the slowest of {len(diff.ranks)}: "
        f"{sentence[0].lower()}{sentence[1:]}"
    )


def verdict(rank: RankDiff) -> str:
    """Say how much shorter or longer a step got, or why that is unknown."""
    if rank.verdict in (SHORTER, LONGER):
        sentence = (
            f"{_what(rank)} got {abs(rank.length.percent):.1f} % {rank.verdict}: {_lengths(rank)}."
            f"{_inflation_warning(rank)}"
        )
    elif rank.verdict == NO_CHANGE:
        noise = percent_text(rank.length.noise_ns, rank.length.before_ns)
        sentence = (
            f"No change beyond the noise of {noise}: {_what(rank).lower()} takes {_lengths(rank)}."
        )
    else:
        sentence = why_not(rank)
    parts = "; ".join(_parts(rank))
    what = "changed" if rank.length.beyond_noise else "differs"
    return f"{sentence} What {what}: {parts}." if parts else sentence


def _inflation_warning(rank: RankDiff) -> str:
    is_inflated = any(finding.cause == INFLATED for finding in rank.findings)
    if not is_inflated or rank.unprofiled_after_ns is not None:
        return ""
    return (
        " Python stacks were recorded, which inflates CPU times: without the profiler the change "
        "may be smaller or larger."
    )


def why_not(rank: RankDiff) -> str:
    """Explain why a comparison is inconclusive, and a remedy."""
    reasons = " ".join(_reason(doubt, rank) for doubt in rank.doubts)
    return (
        f"Cannot tell whether {_what(rank).lower()} got shorter or longer: "
        f"{percent_change(rank.length)}, {_lengths(rank)}. {reasons}"
    ).rstrip()


def _reason(doubt: Doubt, rank: RankDiff) -> str:
    is_of_recordings = doubt == Doubt.SPREAD and rank.has_repeats
    speed_percent = rank.speed_percent or 0
    before_ns, after_ns = rank.unprofiled_before_ns or 0, rank.unprofiled_after_ns or 0
    percent = 100 * (after_ns - before_ns) / (before_ns or 1)
    unprofiled = f"it got {abs(percent):.1f} % {LONGER if percent > 0 else SHORTER}"
    if abs(percent) < MIN_CONFIRMING_PERCENT:
        unprofiled = f"it changed by less than {MIN_CONFIRMING_PERCENT} %"
    return (_SPREAD_OF_RECORDINGS if is_of_recordings else _REASONS[doubt]).format(
        noise=percent_text(rank.length.noise_ns, rank.length.before_ns),
        speed=f"{abs(speed_percent):.1f} % {'faster' if speed_percent < 0 else 'slower'}",
        unprofiled=unprofiled,
    )


_SPREAD_OF_RECORDINGS = (
    "Recordings of the same side differ too much (noise {noise}): record more of them."
)
_REASONS = {
    Doubt.FEW_STEPS: "A single steady step does not say how much steps vary: record more steps.",
    Doubt.NO_STEPS: (
        "Not every file has steady steps, and whole traces do not say how much steps vary: record "
        "at least three steps, with a call of the profiler's step() after each."
    ),
    Doubt.SPREAD: (
        "Steps of the same side differ too much (noise {noise}): record more steps, or each side "
        "several times."
    ),
    Doubt.SPEED: (
        "The same kernels ran {speed}, as they may from run to run: record each side several times."
    ),
    Doubt.RECORDED_DIFFERENTLY: (
        "The GPU was idle for that long, and the two were recorded in different ways, so the "
        "profiler's overhead differs: record both in the same way."
    ),
    Doubt.PROFILER: "Without the profiler {unprofiled}: record each side several times.",
    Doubt.INFLATED: (
        "Most of the difference is idle time in which the GPU waits for the CPU. Python stacks "
        "inflate that, perhaps more on one side than on the other: record both without stacks, or "
        "with `tracelab run`, which also measures a step without the profiler."
    ),
}


def _what(rank: RankDiff) -> str:
    return "A step" if rank.basis == "step" else "The trace"


def _lengths(rank: RankDiff) -> str:
    lengths = before_after(rank.length)
    if rank.unprofiled_before_ns is None or rank.unprofiled_after_ns is None:
        return lengths
    return (
        f"{lengths} ({time_text(rank.unprofiled_before_ns)}{ARROW}"
        f"{time_text(rank.unprofiled_after_ns)} without the profiler)"
    )


def _parts(rank: RankDiff) -> list[str]:
    findings = [text for state in (GONE, NEW, CHANGED) for text in _findings(rank, state)]
    figures = _largest(_main_figures(rank), _MAX_FIGURES)
    if not figures and not findings:
        kernels = [(bare_name(kernel.name), kernel.total) for kernel in rank.kernels or ()]
        figures = _largest(kernels, _MAX_KERNELS)
    return [*([", ".join(figures)] if figures else []), *findings]


def _main_figures(rank: RankDiff) -> Iterator[tuple[str, Change]]:
    for device in rank.devices:
        gpu = f"GPU {pair_name(device)} " if needs_device_names(rank) else ""
        for name in _MAIN_FIGURES:
            yield gpu + column_title(name), device.figures[name]


def _largest(named: Iterable[tuple[str, Change]], most: int) -> list[str]:
    beyond_noise = [(name, change) for name, change in named if change.beyond_noise]
    largest = sorted(beyond_noise, key=lambda pair: -abs(pair[1].difference_ns))[:most]
    return [f"{name} {before_after(change)}" for name, change in largest]


def _findings(rank: RankDiff, state: str) -> Iterator[str]:
    real = [finding for finding in rank.findings if finding.state == state and finding.beyond_noise]
    if not real:
        return
    alike = Counter((finding.rule, finding.name) for finding in rank.findings)
    names = [
        _finding_name(finding, with_cause=alike[finding.rule, finding.name] > 1)
        for finding in real[:_MAX_FINDINGS]
    ]
    if len(real) > _MAX_FINDINGS:
        names.append(f"{len(real) - _MAX_FINDINGS} more")
    yield f"{'finding' if len(real) == 1 else 'findings'} {state}: {listed(names)}"


def _finding_name(finding: FindingDiff, *, with_cause: bool) -> str:
    name = f"{finding.rule} `{finding.name}`" if finding.name else finding.rule
    if with_cause:
        name = f"{name} ({FINDING_CAUSES.name_of(finding.cause)})"
    if finding.state != CHANGED:
        return name
    return (
        f"{name} {exact_percent(finding.before_share)}{ARROW}{exact_percent(finding.after_share)}"
    )


# --- predictions ---


def predicted(diffs: Sequence[PredictionDiff]) -> list[str]:
    """Describe the last prediction, of all changes together."""
    if not diffs:
        return []
    last = diffs[-1]
    without = " without the profiler" if last.basis == UNPROFILED else ""
    changes = "All changes together" if last.name == TOGETHER else last.name
    saves = f"{changes}: predicted to save {interval_of(last)}"
    if last.measured_ns is None:
        return [f"{saves}{without}, which was not measured on both sides."]
    where = "inside" if last.holds else "outside"
    sign = "-" if last.measured_ns < 0 else ""
    measured = f"{sign}{duration_text(abs(last.measured_ns))}"
    return [f"{saves}, measured {measured}{without}, {where} the interval."]


def interval_of(diff: PredictionDiff) -> str:
    """Write the predicted saving with its interval."""
    return interval_text(diff.saves_ns, diff.saves_low_ns, diff.saves_high_ns)


# --- cells ---


def difference_text(change: Change) -> str:
    """Write the change of a time: +1.20 ms."""
    return signed(change.difference_ns, time_text(abs(change.difference_ns)))


def signed(difference: int, text: str) -> str:
    """Prepend the sign of a difference."""
    return f"{'-' if difference < 0 else '+'}{text}" if difference else text


def percent_change(change: Change) -> str:
    """Write the change of a time in percent: +12.5 %."""
    return f"{change.percent:+.1f} %"


def before_after(change: Change) -> str:
    """A time before and after: 1.20 ms → 1.35 ms."""
    return f"{time_text(change.before_ns)}{ARROW}{time_text(change.after_ns)}"


def counts_text(before: int, after: int) -> str:
    """A number before and after: 3, or 3 → 1,200."""
    return f"{before:,}" if before == after else f"{before:,}{ARROW}{after:,}"


def finding_counts(finding: FindingDiff) -> str:
    """Count the findings of a row; "" for one."""
    most = max(finding.before_count, finding.after_count)
    counts = [count for count in (finding.before_count, finding.after_count) if count]
    return f"{counts_text(counts[0], counts[-1])} findings: " if most > 1 else ""


def judgment(change: Change) -> str:
    """Judge a change: "same", "noise", "more" or "less"; "unclear" without a known noise."""
    if not change.difference_ns:
        return "same"
    if not change.beyond_noise:
        return NOISE if None not in (change.before_spread_ns, change.after_spread_ns) else UNCLEAR
    return "more" if change.difference_ns > 0 else "less"


def needs_device_names(rank: RankDiff) -> bool:
    """True if figures need the name of their device."""
    return len(rank.devices) > 1 or any(device.matched != NUMBER for device in rank.devices)


def device_changes(device: DeviceDiff) -> Iterator[tuple[str, Change]]:
    """The times of a device with their names."""
    for name in FIGURES:
        yield column_title(name), device.figures[name]
        if name == "idle_ns":
            for cause, bubble in device.bubbles.items():
                yield f"  idle: {CAUSES.name_of(cause)}", bubble
    for stream in device.streams:
        yield f"stream {pair_name(stream)}", stream.busy


def changes_of_devices(rank: RankDiff) -> list[tuple[str, Change]]:
    """The times of all devices, named if needed."""
    with_device = needs_device_names(rank)
    return [
        (f"GPU {pair_name(device)} {name.strip()}" if with_device else name, change)
        for device in rank.devices
        for name, change in device_changes(device)
    ]


def pair_name(x: DeviceDiff | StreamDiff) -> str:
    """Name a pair by its numbers: 0, 0 → 1 if they differ, or 1 (new)."""
    if x.matched == NUMBER:
        return str(x.before)
    if x.matched == ORDER:
        return f"{x.before}{ARROW}{x.after}"
    return f"{x.after} (new)" if x.before is None else f"{x.before} (gone)"
