"""The words of ``tracelab diff``: the verdict, then what changed and what of it is only noise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from tracelab.comparison.diff import (
    AFTER,
    BEFORE,
    FIGURES,
    NUMBER,
    ORDER,
    CallDiff,
    DeviceDiff,
    Diff,
    FileInfo,
    FindingDiff,
    KernelDiff,
    RankDiff,
    StreamDiff,
)
from tracelab.comparison.noise import FEWEST_STEPS, Change
from tracelab.render.text.cells import PART, counted, listed, percent_text, time_text
from tracelab.render.text.sections import Chapter, Column, Fit, Section, Tone
from tracelab.render.words import ELLIPSIS, bare_name, duration_text

_MOST_KERNELS, _MOST_CALLS, _MOST_FINDINGS, _MOST_RANKS = 10, 10, 10, 4
_MOST_FIGURES, _MOST_NAMED = 4, 3  # in the verdict
_TOLD = ("idle_ns", "exposed_comm_ns", "exposed_copy_ns", "compute_ns")  # in the verdict
_SAME, _NOISE, _MORE, _LESS = "same", "noise", "more", "less"
_ARROW = " → "
_LONGEST_PART = 48
_NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|\b\w+)::")


def render_diff(diff: Diff, *, width: int, color: bool) -> str:
    """What changed, as text; lines are at most `width` long, but at least 80."""
    from tracelab.render.text.terminal import draw

    return draw(chapters(diff), width=width, color=color)


def chapters(diff: Diff) -> list[Chapter]:
    """Everything that the text says, in order."""
    several = len(diff.ranks) > 1
    opening = [Section("", (headline(diff),), tone=Tone.STRONG)]
    if several:
        opening.append(_ranks(diff))
    notes = tuple(_left_out(diff))
    if notes:
        opening.append(Section("Not compared", notes, tone=Tone.WARNING))
    if not several:
        return [Chapter("", (*opening, *_details(diff.ranks[0])))]
    if len(diff.ranks) > _MOST_RANKS:
        opening.append(Section("", ("For the details of one rank, compare its files alone.",)))
        return [Chapter("", tuple(opening))]
    return [
        Chapter("", tuple(opening)),
        *(Chapter(f"Rank {x.after.rank}", tuple(_details(x))) for x in diff.ranks),
    ]


def headline(diff: Diff) -> str:
    """The verdict; of several ranks, about the one that is the slowest afterwards."""
    if len(diff.ranks) == 1:
        return verdict(diff.ranks[0])
    if not diff.different:
        return f"No difference beyond the noise on any of {len(diff.ranks)} ranks."
    slowest = diff.slowest
    told = verdict(slowest)
    return (
        f"Rank {slowest.after.rank}, the slowest of {len(diff.ranks)}: {told[0].lower()}{told[1:]}"
    )


def verdict(rank: RankDiff) -> str:
    """In a sentence: how much longer or shorter a step takes, and what changed with it."""
    if not rank.different:
        return "No difference beyond the noise."
    per_step, length = rank.basis == "step", rank.length
    if length.beyond_noise:
        start = (
            f"{'A step' if per_step else 'The trace'} takes {time_text(length.after_ns)} instead "
            f"of {time_text(length.before_ns)} ({_percent(length)})"
        )
    else:
        start = (
            f"{'A step' if per_step else 'The trace'} takes as long as before, but for noise "
            f"({_from_to(length)}); what changed"
        )
    findings = [x for state in ("gone", "new", "changed") for x in _named(state, rank.findings)]
    figures = _told(_main_figures(rank), _MOST_FIGURES)
    if not figures and not (findings and length.beyond_noise):
        others = (_told(x, _MOST_NAMED) for x in _other_figures(rank))
        figures = next(filter(None, others), [])
    parts = [*([", ".join(figures)] if figures else []), *findings]
    return f"{start}: {'; '.join(parts)}." if parts else f"{start}."


def picture_title(facts: FileInfo) -> str:
    """The headline of one of two timelines."""
    which = "whole trace" if facts.shown is None else f"step {facts.shown}"
    name = Path(facts.path).name
    return f"{name}{PART}{which}: {duration_text(facts.end_ns - facts.start_ns)}"


def _main_figures(rank: RankDiff) -> Iterator[tuple[str, Change]]:
    """What lengthens a step, or would."""
    which = _named_devices(rank)
    for device in rank.devices:
        for name in _TOLD:
            gpu = f"{_gpu(device)} " if which else ""
            yield f"{gpu}{_name(name)}", device.figures[name]


def _other_figures(rank: RankDiff) -> Iterator[list[tuple[str, Change]]]:
    """What else there is, told where nothing of the above changed; in the order of interest."""
    which = _named_devices(rank)
    named = [
        (f"{_gpu(device)} {name.strip()}" if which else name.strip(), change)
        for device in rank.devices
        for name, change in _of_device(device)
    ]
    yield [x for x in named if "stream " not in x[0]]
    yield [(bare_name(x.name), x.total) for x in rank.kernels or ()]
    yield [(f"idle caused by {x.api}", x.caused_idle) for x in rank.calls]
    yield named


def _told(named: Iterable[tuple[str, Change]], most: int) -> list[str]:
    """The changes beyond the noise, the largest first."""
    changed = [(name, x) for name, x in named if x.beyond_noise]
    largest = sorted(changed, key=lambda x: -abs(x[1].difference_ns))[:most]
    return [f"{name} {_from_to(x)}" for name, x in largest]


def _named(state: str, findings: Iterable[FindingDiff]) -> Iterator[str]:
    """The findings that are gone, new or changed, and by more than noise."""
    found = [x for x in findings if x.state == state and x.beyond_noise]
    if not found:
        return
    names = [_called(x) for x in found[:_MOST_NAMED]]
    if len(found) > _MOST_NAMED:
        names.append(f"{len(found) - _MOST_NAMED} more")
    yield f"{'finding' if len(found) == 1 else 'findings'} {state}: {listed(names)}"


def _called(finding: FindingDiff) -> str:
    name = f"{finding.rule} `{finding.name}`" if finding.name else finding.rule
    if finding.state != "changed":
        return name
    return f"{name} {_share(finding.before_share)}{_ARROW}{_share(finding.after_share)}"


def _left_out(diff: Diff) -> Iterator[str]:
    """What could not be compared, and why."""
    for ranks, which in ((diff.only_before, BEFORE), (diff.only_after, AFTER)):
        if ranks:
            word = "Rank" if len(ranks) == 1 else "Ranks"
            yield f"{word} {listed(map(str, ranks))}: {which.replace(' only', '')} only."
    if diff.saved_before or diff.saved_after:
        sides = [
            name
            for name, saved in (("before", diff.saved_before), ("after", diff.saved_after))
            if saved
        ]
        says = "is a saved report, which holds" if len(sides) == 1 else "are saved reports and hold"
        yield f"Kernels: {listed(sides)} {says} none. Nor can a timeline be drawn."
    if not diff.same_options:
        yield (
            "The saved report was made with other patterns for communication or for steps: what "
            "counts as either differs."
        )
    if not all(x.places for x in diff.ranks):
        yield (
            "Lines of the program: one side was recorded without Python functions, so findings and "
            "blocking calls are told apart by rule, cause and call alone."
        )


def _ranks(diff: Diff) -> Section:
    rows = tuple(
        (
            str(x.after.rank),
            time_text(x.length.before_ns),
            time_text(x.length.after_ns),
            _difference(x.length),
            _percent(x.length),
            time_text(x.length.noise_ns),
            _judged(x.length),
        )
        for x in diff.ranks
    )
    titles = ("rank", "before", "after", "difference", "", "noise", "")
    return Section(
        "A step on every rank" if diff.ranks[0].basis == "step" else "Every rank",
        columns=tuple(Column(x) for x in titles),
        rows=rows,
    )


def _details(rank: RankDiff) -> Iterator[Section]:
    yield _basis(rank)
    yield from _figures(rank)
    yield from _findings(rank.findings)
    if rank.kernels is not None:
        yield _kernels(rank.kernels, rank.basis)
    yield from _calls(rank.calls)


def _basis(rank: RankDiff) -> Section:
    """Which files, what of them is compared, and from when on it counts."""
    files = tuple(
        f"{name:<7}{facts.path} ({counted(facts.steps, 'step', 'steps')})"
        for name, facts in (("before", rank.before), ("after", rank.after))
    )
    one_percent = time_text(rank.length.before_ns // 100)
    if rank.basis == "step":
        rule = (
            "Medians over the steps. A change counts if it is larger than the noise: the larger "
            f"interquartile range of the two sides, and at least 1 % of a step, {one_percent}."
        )
    else:
        rule = (
            f"A side has fewer than {FEWEST_STEPS} steps, so the whole traces are compared, and "
            f"nothing says how far they spread: whatever exceeds 1 %, {one_percent}, counts."
        )
        if rank.before.steps != rank.after.steps:
            rule += " They are not of the same number of steps."
    ranks = rank.before.rank, rank.after.rank
    other = (f"Rank {ranks[0]} is compared with rank {ranks[1]}.",) if len({*ranks}) > 1 else ()
    return Section("", (*files, rule, *other))


def _figures(rank: RankDiff) -> Iterator[Section]:
    """Times of the step and of every device, without those that are nothing on both sides."""
    title = "Per step" if rank.basis == "step" else "Whole trace"
    length = (_step_name(rank), rank.length)
    notes = tuple(_matches(rank))
    if not _named_devices(rank):
        figures = [x for device in rank.devices for x in _of_device(device)]
        yield _table(title, [length, *figures], rank, notes)
        return
    yield _table(title, [length], rank)
    for i, device in enumerate(rank.devices, 1):
        last = notes if i == len(rank.devices) else ()
        yield _table(f"{title}{PART}{_gpu(device)}", list(_of_device(device)), rank, last)


def _table(
    title: str, named: Sequence[tuple[str, Change]], rank: RankDiff, notes: tuple[str, ...] = ()
) -> Section:
    share = f"of {_step_name(rank)}"
    return Section(
        title,
        columns=(
            Column("", Fit.LABEL),
            *(Column(x) for x in ("before", "after", "difference", share, "noise", "")),
        ),
        rows=tuple(
            (name, *_cells(x, rank.length.before_ns))
            for name, x in named
            if x.before_ns or x.after_ns
        ),
        notes=notes,
    )


def _step_name(rank: RankDiff) -> str:
    return "step" if rank.basis == "step" else "trace"


def _of_device(device: DeviceDiff) -> Iterator[tuple[str, Change]]:
    for name in FIGURES:
        yield _name(name), device.figures[name]
        if name == "idle_ns":
            for cause, bubble in device.bubbles.items():
                yield f"  idle: {cause}", bubble
    for stream in device.streams:
        yield _stream(stream), stream.busy


def _matches(rank: RankDiff) -> Iterator[str]:
    """How devices and streams without a namesake were paired."""
    if any(x.matched == ORDER for x in rank.devices):
        yield "GPUs with different numbers are paired in their order."
    streams = [x for device in rank.devices for x in device.streams]
    if any(x.matched == ORDER for x in streams):
        yield (
            "Streams are paired by their number; those with → have no namesake and are paired by "
            "how busy they are."
        )


def _named_devices(rank: RankDiff) -> bool:
    """Whether it is a question which device a figure is of."""
    return len(rank.devices) > 1 or any(x.matched != NUMBER for x in rank.devices)


def _gpu(device: DeviceDiff) -> str:
    return f"GPU {_pair(device.before, device.after, device.matched)}"


def _stream(stream: StreamDiff) -> str:
    return f"stream {_pair(stream.before, stream.after, stream.matched)}"


def _pair(before: int | None, after: int | None, matched: str) -> str:
    if matched == NUMBER:
        return str(before)
    if matched == ORDER:
        return f"{before}{_ARROW}{after}"
    return f"{after} (new)" if before is None else f"{before} (gone)"


def _findings(findings: Sequence[FindingDiff]) -> Iterator[Section]:
    """What is gone, new or changed; then the traces themselves."""
    about_time = [x for x in findings if not x.about_the_trace]
    told = [x for x in about_time if x.state != "same"]
    if about_time:
        rest = len(about_time) - len(told[:_MOST_FINDINGS])
        yield Section(
            "Findings",
            lines=() if told else ("The same on both sides, but for noise.",),
            columns=(
                *(Column(x) for x in ("rule", "", "before", "after", "")),
                Column("cause", Fit.LABEL),
                Column("what", Fit.PROSE),
            ),
            rows=tuple(_finding_row(x) for x in told[:_MOST_FINDINGS]),
            notes=(
                *(("Before and after: what the fix could win, of the trace.",) if told else ()),
                *((f"{rest} more in --json.",) if rest and told else ()),
            ),
        )
    lines = tuple(
        f"{x.rule} {AFTER if x.state == 'new' else BEFORE}: {x.title}."
        for x in findings
        if x.about_the_trace and x.state in ("new", "gone")
    )
    if lines:
        yield Section("About the traces", lines)


def _finding_row(finding: FindingDiff) -> tuple[str, ...]:
    return (
        finding.rule,
        finding.state,
        _share(finding.before_share) if finding.state != "new" else "-",
        _share(finding.after_share) if finding.state != "gone" else "-",
        "" if finding.beyond_noise else _NOISE,
        finding.cause,
        finding.title,
    )


def _share(share: float) -> str:
    return percent_text(round(share * 1_000_000), 1_000_000)


def _kernels(kernels: Sequence[KernelDiff], basis: str) -> Section:
    """The names whose time changed most."""
    title = "GPU activities by name" + (", per step that launched them" if basis == "step" else "")
    changed = [x for x in kernels if x.total.difference_ns]
    if not any(x.total.beyond_noise for x in changed):
        return Section(title, (_only_noise(kernels),))
    shown = changed[:_MOST_KERNELS]
    rest = len(kernels) - len(shown)
    labels = kernel_labels([x.name for x in shown])
    return Section(
        title,
        columns=(
            Column("name", Fit.LABEL),
            *(Column(x) for x in ("count", "before", "after", "difference", "")),
        ),
        rows=tuple(
            (
                label,
                _counts(x.before_count, x.after_count),
                time_text(x.total.before_ns),
                time_text(x.total.after_ns),
                _difference(x.total),
                _judged(x.total),
            )
            for x, label in zip(shown, labels, strict=True)
        ),
        notes=(f"{rest:,} more, which changed less; full names in --json.",) if rest else (),
    )


def kernel_labels(names: Sequence[str]) -> list[str]:
    """Short names; those that would look alike are followed by the part in which they differ."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(bare_name(name), []).append(name)
    labels: list[str] = []
    for name in names:
        short = bare_name(name)
        own = _NAMESPACE.sub("", name[_common_words(alike[short]) :])
        looks_alike = len(alike[short]) > 1
        labels.append(f"{short}{PART}{ELLIPSIS}{own[:_LONGEST_PART]}" if looks_alike else short)
    return labels


def _common_words(names: Sequence[str]) -> int:
    """How many letters the names begin with in common, up to where a word begins."""
    common = sum(1 for _ in takewhile(lambda x: len({*x}) == 1, zip(*names, strict=False)))
    return max(names[0].rfind(x, 0, common) + 1 for x in "<:, _(")


def _only_noise(kernels: Sequence[KernelDiff]) -> str:
    most = max(kernels, key=lambda x: abs(x.total.difference_ns), default=None)
    if most is None or not most.total.difference_ns:
        return "All as before."
    return (
        f"None of {len(kernels):,} changed by more than the noise; the most: "
        f"{bare_name(most.name)}, {_difference(most.total)}."
    )


def _calls(calls: Sequence[CallDiff]) -> Iterator[Section]:
    """Blocking calls: how often, how long, and what idle they caused."""
    if not calls:
        return
    told = [x for x in calls if x.caused_idle.beyond_noise or x.blocked.beyond_noise]
    if not told:
        line = f"None of {len(calls):,} changed by more than the noise."
        yield Section("Blocking calls", (line if len(calls) > 1 else "As before, but for noise.",))
        return
    rest = len(calls) - len(told[:_MOST_CALLS])
    yield Section(
        "Blocking calls",
        columns=(
            Column("call · place", Fit.LABEL),
            *(Column(x) for x in ("count", "blocked", "caused idle", "")),
        ),
        rows=tuple(
            (
                _place(x),
                _counts(x.before_count, x.after_count),
                _from_to(x.blocked),
                _from_to(x.caused_idle),
                _judged(x.caused_idle),
            )
            for x in told[:_MOST_CALLS]
        ),
        notes=(
            "Blocking beside a busy GPU costs nothing: the last column is about the caused idle.",
            *((f"{rest} more in --json.",) if rest else ()),
        ),
    )


def _place(call: CallDiff) -> str:
    where = call.file and (f"{call.file}:{call.line}" if call.line else call.file)
    return PART.join(filter(None, (call.api, call.operator, call.function, where)))


def _cells(change: Change, length_ns: int) -> tuple[str, ...]:
    return (
        time_text(change.before_ns),
        time_text(change.after_ns),
        _difference(change),
        _signed(change.difference_ns, percent_text(abs(change.difference_ns), length_ns)),
        time_text(change.noise_ns),
        _judged(change),
    )


def _judged(change: Change) -> str:
    if not change.difference_ns:
        return _SAME
    if not change.beyond_noise:
        return _NOISE
    return _MORE if change.difference_ns > 0 else _LESS


def _difference(change: Change) -> str:
    return _signed(change.difference_ns, time_text(abs(change.difference_ns)))


def _signed(difference: int, text: str) -> str:
    return f"{'-' if difference < 0 else '+'}{text}" if difference else text


def _percent(change: Change) -> str:
    return f"{change.percent:+.1f} %"


def _from_to(change: Change) -> str:
    return f"{time_text(change.before_ns)}{_ARROW}{time_text(change.after_ns)}"


def _counts(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,}{_ARROW}{after:,}"


def _name(figure: str) -> str:
    return figure.removesuffix("_ns").replace("_", " ")
