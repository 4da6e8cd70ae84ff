"""The verdict of ``tracelab diff``: in a sentence, what changed by more than noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracelab.comparison.diff import Diff, FindingDiff, RankDiff
from tracelab.comparison.noise import Change
from tracelab.render.text.cells import listed, time_text
from tracelab.render.text.diff_words import (
    ARROW,
    before_after,
    device_changes,
    figure_name,
    gpu_name,
    loss_share,
    needs_device_names,
    percent_change,
)
from tracelab.render.words import bare_name

_MOST_FIGURES, _MOST_OTHERS, _MOST_FINDINGS = 4, 3, 3
_MAIN_FIGURES = ("idle_ns", "exposed_comm_ns", "exposed_copy_ns", "compute_ns")


def headline(diff: Diff) -> str:
    """The verdict; of several ranks, about the one that is the slowest afterwards."""
    if len(diff.ranks) == 1:
        return verdict(diff.ranks[0])
    if not diff.different:
        return f"No difference beyond the noise on any of {len(diff.ranks)} ranks."
    slowest = diff.slowest
    sentence = verdict(slowest)
    return (
        f"Rank {slowest.after.rank}, the slowest of {len(diff.ranks)}: "
        f"{sentence[0].lower()}{sentence[1:]}"
    )


def verdict(rank: RankDiff) -> str:
    """In a sentence: how much longer or shorter a step takes, and what changed with it."""
    if not rank.different:
        return "No difference beyond the noise."
    per_step, length = rank.basis == "step", rank.length
    if length.beyond_noise:
        start = (
            f"{'A step' if per_step else 'The trace'} takes {time_text(length.after_ns)} instead "
            f"of {time_text(length.before_ns)} ({percent_change(length)})"
        )
    else:
        start = (
            f"{'A step' if per_step else 'The trace'} takes as long as before, but for noise "
            f"({before_after(length)}); what changed"
        )
    findings = [
        text for state in ("gone", "new", "changed") for text in _findings(state, rank.findings)
    ]
    figures = _largest(_main_figures(rank), _MOST_FIGURES)
    if not figures and not (findings and length.beyond_noise):
        others = (_largest(changes, _MOST_OTHERS) for changes in _other_figures(rank))
        figures = next(filter(None, others), [])
    parts = [*([", ".join(figures)] if figures else []), *findings]
    return f"{start}: {'; '.join(parts)}." if parts else f"{start}."


def _main_figures(rank: RankDiff) -> Iterator[tuple[str, Change]]:
    """What lengthens a step, or would."""
    with_device = needs_device_names(rank)
    for device in rank.devices:
        for name in _MAIN_FIGURES:
            gpu = f"{gpu_name(device)} " if with_device else ""
            yield f"{gpu}{figure_name(name)}", device.figures[name]


def _other_figures(rank: RankDiff) -> Iterator[list[tuple[str, Change]]]:
    """What else there is, for where nothing of the above changed; in the order of interest."""
    with_device = needs_device_names(rank)
    named = [
        (f"{gpu_name(device)} {name.strip()}" if with_device else name.strip(), change)
        for device in rank.devices
        for name, change in device_changes(device)
    ]
    yield [(name, change) for name, change in named if "stream " not in name]
    yield [(bare_name(kernel.name), kernel.total) for kernel in rank.kernels or ()]
    yield [(f"idle caused by {call.api}", call.caused_idle) for call in rank.calls]
    yield named


def _largest(named: Iterable[tuple[str, Change]], most: int) -> list[str]:
    """The changes beyond the noise, the largest first."""
    beyond_noise = [(name, change) for name, change in named if change.beyond_noise]
    largest = sorted(beyond_noise, key=lambda pair: -abs(pair[1].difference_ns))[:most]
    return [f"{name} {before_after(change)}" for name, change in largest]


def _findings(state: str, findings: Iterable[FindingDiff]) -> Iterator[str]:
    """The findings that are gone, new or changed, and by more than noise."""
    real = [finding for finding in findings if finding.state == state and finding.beyond_noise]
    if not real:
        return
    names = [_finding_name(finding) for finding in real[:_MOST_FINDINGS]]
    if len(real) > _MOST_FINDINGS:
        names.append(f"{len(real) - _MOST_FINDINGS} more")
    yield f"{'finding' if len(real) == 1 else 'findings'} {state}: {listed(names)}"


def _finding_name(finding: FindingDiff) -> str:
    name = f"{finding.rule} `{finding.name}`" if finding.name else finding.rule
    if finding.state != "changed":
        return name
    return f"{name} {loss_share(finding.before_share)}{ARROW}{loss_share(finding.after_share)}"
