"""Sections of a comparison: figures, findings, kernels, blocking calls, other tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from tracelab.base.safe_text import counted
from tracelab.comparison.diff import (
    AFTER,
    BEFORE,
    CANNOT_TELL,
    DIFFERENT_PROGRAMS,
    GONE,
    NEW,
    ORDER,
    UNCHANGED,
    CallDiff,
    Change,
    ComparedFile,
    Diff,
    FindingDiff,
    KernelDiff,
    PredictionDiff,
    RankDiff,
    TableDiff,
)
from tracelab.findings.places import sentence_of
from tracelab.render.section import (
    LABEL,
    PART,
    Cell,
    Chapter,
    Column,
    Fit,
    Section,
    Tone,
    column_title,
    table,
    table_title,
)
from tracelab.render.sections.diff_words import (
    NOISE,
    UNCLEAR,
    before_after,
    counts_text,
    device_changes,
    difference_text,
    finding_counts,
    headline,
    interval_of,
    judgment,
    needs_device_names,
    pair_name,
    percent_change,
    predicted,
    signed,
)
from tracelab.render.text.hints import FULL_NAMES_IN_JSON, MORE_IN_JSON
from tracelab.render.words import (
    ELLIPSIS,
    bare_name,
    duration_text,
    exact_percent,
    listed,
    percent_text,
    time_text,
)
from tracelab.report.glossary import FINDING_CAUSES

MAX_DETAILED_RANKS = 4
_MAX_CALLS, _MAX_FINDINGS, _MAX_KERNELS, _MAX_ROWS = 10, 10, 10, 10
_MAX_PART_LETTERS = 48
_NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|\b\w+)::")


def chapters(diff: Diff) -> list[Chapter]:
    """Make all chapters in order."""
    several = len(diff.ranks) > 1
    opening = [Section("", (headline(diff), *predicted(diff.predictions)), tone=Tone.STRONG)]
    opening += predictions(diff.predictions)
    if several:
        opening.append(_ranks(diff))
    notes = tuple(left_out(diff))
    if notes:
        opening.append(Section("Not compared", notes, tone=Tone.WARNING))
    if not several:
        return [Chapter("", (*opening, *details(diff.ranks[0])))]
    if len(diff.ranks) > MAX_DETAILED_RANKS:
        opening.append(Section("", ("For the details of one rank, compare its files alone.",)))
        return [Chapter("", tuple(opening))]
    return [
        Chapter("", tuple(opening)),
        *(Chapter(f"Rank {rank.after.rank}", tuple(details(rank))) for rank in diff.ranks),
    ]


def left_out(diff: Diff) -> Iterator[str]:
    """Say what could not be compared, and why."""
    for ranks, side in ((diff.only_before, BEFORE), (diff.only_after, AFTER)):
        if ranks:
            noun = "Rank" if len(ranks) == 1 else "Ranks"
            yield f"{noun} {listed(map(str, ranks))}: {side}."
    saved = (("before", diff.saved_before), ("after", diff.saved_after))
    if sides := [name for name, is_saved in saved if is_saved]:
        verb = "is a saved report, which holds" if len(sides) == 1 else "are saved reports and hold"
        yield f"Kernels: {listed(sides)} {verb} none. Nor can a timeline be drawn."
    if not diff.same_options:
        yield (
            "The two sides were analyzed with different patterns for communication or for steps, "
            "so they count different things."
        )
    if not all(rank.places for rank in diff.ranks):
        yield (
            "Lines of the program: one side was recorded without Python functions, so findings and "
            "blocking calls are matched by rule, cause and call alone."
        )


def _ranks(diff: Diff) -> Section:
    return table(
        "A step on every rank" if diff.ranks[0].basis == "step" else "Every rank",
        diff.ranks,
        ("rank", lambda x: str(x.after.rank)),
        *_times(lambda x: x.length),
        ("", lambda x: percent_change(x.length)),
        ("noise", lambda x: time_text(x.length.noise_ns)),
        ("", lambda x: x.verdict),
    )


def _times(change_of: Callable[[Any], Change]) -> list[Cell[Any]]:
    """Make the columns of a time on both sides and its difference."""
    return [
        ("before", lambda x: time_text(change_of(x).before_ns)),
        ("after", lambda x: time_text(change_of(x).after_ns)),
        ("difference", lambda x: difference_text(change_of(x))),
    ]


def predictions(diffs: Sequence[PredictionDiff]) -> list[Section]:
    """Show several predictions; it is not known which of the changes were made."""
    if len(diffs) < 2:
        return []
    change: Cell[PredictionDiff] = ("change", lambda x: x.name, LABEL)
    return [table("Predicted savings", diffs, change, ("saves (interval)", interval_of))]


def details(rank: RankDiff) -> Iterator[Section]:
    """Make the sections about one rank in order."""
    yield _basis(rank)
    if rank.verdict == DIFFERENT_PROGRAMS:
        return
    yield from _figures(rank)
    yield from _findings(rank)
    if rank.kernels is not None:
        yield kernel_table(rank.kernels, rank.basis)
    yield from _calls(rank.calls)
    yield from (_other(key, rows, rank) for key, rows in rank.tables.items() if rows)


def _basis(rank: RankDiff) -> Section:
    files = tuple(
        f"{side:<7}{file.path} ({_steps(file, with_length=rank.has_repeats)})"
        for side, recordings in (
            ("before", rank.before_recordings),
            ("after", rank.after_recordings),
        )
        for file in recordings
    )
    ranks = rank.before.rank, rank.after.rank
    other = (f"Rank {ranks[0]} is compared with rank {ranks[1]}.",) if len({*ranks}) > 1 else ()
    rule = () if rank.verdict == DIFFERENT_PROGRAMS else (_rule(rank),)
    return Section("", (*files, *rule, *other))


def _steps(file: ComparedFile, *, with_length: bool) -> str:
    steady = f", {file.steady_steps} of them steady" if file.steady_steps != file.steps else ""
    length = f", {time_text(file.length_ns)}" if with_length else ""
    return counted(file.steps, "step", "steps") + steady + length


def _rule(rank: RankDiff) -> str:
    if rank.has_repeats:
        rule = (
            "Medians of the recordings. A change counts if it is larger than the noise between "
            "recordings of one side (95 % interval)"
        )
    elif rank.basis == "trace" or 1 in (rank.before.steady_steps, rank.after.steady_steps):
        why = (
            "Not every file has steady steps, so the whole traces are compared"
            if rank.basis == "trace"
            else "A side has a single steady step"
        )
        rule = f"{why}: a time counts as changed if it did by more than a quarter"
    else:
        rule = (
            "Medians over the steady steps. A change counts if it is larger than the noise: the "
            "larger spread of the two sides (interquartile range; of fewer than 5 steps the full "
            "range), unless all steps of one side lie beyond all of the other"
        )
    one_percent = f"1 % of a {rank.basis}, {time_text(rank.length.before_ns // 100)}"
    return f"{rule}, and at least {one_percent}."


def _figures(rank: RankDiff) -> Iterator[Section]:
    """Times of the step and of every device, without those that are nothing on both sides."""
    title = "Per steady step" if rank.basis == "step" else "Whole trace"
    length = (rank.basis, rank.length)
    notes = tuple(_matches(rank))
    if not needs_device_names(rank):
        figures = [named for device in rank.devices for named in device_changes(device)]
        yield _table(title, [length, *figures], rank, notes)
        return
    yield _table(title, [length], rank)
    for i, device in enumerate(rank.devices, 1):
        last = notes if i == len(rank.devices) else ()
        yield _table(
            f"{title}{PART}GPU {pair_name(device)}", list(device_changes(device)), rank, last
        )


def _table(
    title: str, named: Sequence[tuple[str, Change]], rank: RankDiff, notes: tuple[str, ...] = ()
) -> Section:
    rows = [(name, *change_cells(x, rank)) for name, x in named if x.before_ns or x.after_ns]
    return Section(
        title,
        columns=(Column("", Fit.LABEL), *map(Column, change_titles(rank))),
        rows=tuple(rows),
        notes=notes,
    )


def change_titles(rank: RankDiff) -> tuple[str, ...]:
    """Return the titles of the columns that `change_cells` fills."""
    return ("before", "after", "difference", f"of {rank.basis}", "noise", "")


def change_cells(change: Change, rank: RankDiff) -> tuple[str, ...]:
    """Return before, after, the difference, that of a step, the noise, and what it is judged."""
    is_unclear = change is rank.length and rank.verdict == CANNOT_TELL
    return (
        time_text(change.before_ns),
        time_text(change.after_ns),
        difference_text(change),
        signed(
            change.difference_ns, percent_text(abs(change.difference_ns), rank.length.before_ns)
        ),
        time_text(change.noise_ns),
        UNCLEAR if is_unclear else judgment(change),
    )


def _matches(rank: RankDiff) -> Iterator[str]:
    """Say how devices and streams without a namesake were paired."""
    if any(device.matched == ORDER for device in rank.devices):
        yield "GPUs with different numbers are paired in their order."
    streams = [stream for device in rank.devices for stream in device.streams]
    if any(stream.matched == ORDER for stream in streams):
        yield (
            "Streams are paired by their number; those with → have no namesake and are paired by "
            "how busy they are."
        )


def _findings(rank: RankDiff) -> Iterator[Section]:
    """Show what is gone, new or changed; then the traces themselves."""
    findings = rank.findings
    about_time = [finding for finding in findings if not finding.about_the_trace]
    changed = [finding for finding in about_time if finding.state != UNCHANGED]
    if about_time:
        scope = rank.before_scope
        if rank.after_scope != scope:
            scope += f" (after: of {rank.after_scope})"
        share = f"Before and after: the share of {scope} attributed to it."
        rest = len(about_time) - len(changed[:_MAX_FINDINGS])
        titles = ("rule", "", "before", "after", "", "cause", "what")
        fits = (*(Fit.NUMBER,) * 5, Fit.LABEL, Fit.PROSE)
        yield Section(
            "Findings",
            lines=() if changed else ("No change beyond the noise.",),
            columns=tuple(map(Column, titles, fits)),
            rows=tuple(finding_row(finding) for finding in changed[:_MAX_FINDINGS]),
            notes=(
                *((share,) if changed else ()),
                *((f"{rest} {MORE_IN_JSON}.",) if rest and changed else ()),
            ),
        )
    lines = tuple(
        f"{finding.rule} {AFTER if finding.state == NEW else BEFORE}: {finding.title}."
        for finding in findings
        if finding.about_the_trace and finding.state in (NEW, GONE)
    )
    if lines:
        yield Section("About the traces", lines)


def finding_row(finding: FindingDiff) -> tuple[str, ...]:
    """Return rule, state, the shares before and after, whether that is noise, cause and title."""
    return (
        finding.rule,
        finding.state,
        exact_percent(finding.before_share) if finding.state != NEW else "-",
        exact_percent(finding.after_share) if finding.state != GONE else "-",
        "" if finding.beyond_noise else NOISE,
        FINDING_CAUSES.name_of(finding.cause),
        finding_counts(finding) + sentence_of(finding.title, finding.where),
    )


def _calls(calls: Sequence[CallDiff]) -> Iterator[Section]:
    """Blocking calls: how often, how long, and what idle they caused."""
    changed = [call for call in calls if call.caused_idle.beyond_noise or call.blocked.beyond_noise]
    if not changed:
        if calls:
            yield Section("Blocking calls", ("No change beyond the noise.",))
        return
    shown = changed[:_MAX_CALLS]
    rest = len(calls) - len(shown)
    yield table(
        "Blocking calls",
        shown,
        ("call · place", _call_site, LABEL),
        ("count", lambda x: counts_text(x.before_count, x.after_count)),
        ("blocked", lambda x: before_after(x.blocked)),
        ("caused idle", lambda x: before_after(x.caused_idle)),
        ("", lambda x: judgment(x.caused_idle)),
        notes=(
            "Blocking costs nothing while the GPU is busy: the last column counts the caused idle "
            "time.",
            *((f"{rest} {MORE_IN_JSON}.",) if rest else ()),
        ),
    )


def _call_site(call: CallDiff) -> str:
    line = call.file and (f"{call.file}:{call.line}" if call.line else call.file)
    return PART.join(filter(None, (call.api, call.operator, call.function, line)))


def kernel_table(kernels: Sequence[KernelDiff], basis: str) -> Section:
    """The names whose time changed most; if all of that is noise, those that are new or gone."""
    title = "GPU activities by name" + (", per step that launched them" if basis == "step" else "")
    changed = [kernel for kernel in kernels if kernel.total.difference_ns]
    is_noise = not any(kernel.total.beyond_noise for kernel in changed)
    if is_noise:
        changed = [kernel for kernel in changed if kernel.state]
    shown = changed[:_MAX_KERNELS]
    names = [kernel.name for kernel in shown]
    labels = dict(zip(names, kernel_labels(names), strict=True))
    return table(
        title,
        shown,
        ("name", lambda x: labels[x.name], LABEL),
        ("count", lambda x: counts_text(x.before_count, x.after_count)),
        *_times(lambda x: x.total),
        ("", _judgment),
        lines=[_only_noise(kernels)] if is_noise else [],
        notes=_notes(kernels, shown) if shown else (),
    )


def _judgment(kernel: KernelDiff) -> str:
    """Judge a change; that a kernel came or went is no noise, however short it is."""
    if not kernel.state:
        return judgment(kernel.total)
    return kernel.state if kernel.total.beyond_noise else f"{kernel.state}, below the noise"


def _notes(kernels: Sequence[KernelDiff], shown: Sequence[KernelDiff]) -> tuple[str, ...]:
    """Note how many are not shown, and how many of those came or went."""
    counts = Counter(x.state for x in kernels)
    counts.subtract(x.state for x in shown)
    rest = counts.total()
    states = ", ".join(f"{counts[state]:,} {state}" for state in (NEW, GONE) if counts[state])
    of_them = f" ({states})" if states else ""
    return (f"{rest:,} more, which changed less{of_them}; {FULL_NAMES_IN_JSON}.",) if rest else ()


def kernel_labels(names: Sequence[str]) -> list[str]:
    """Bare names; those that would look alike are followed by the part in which they differ.

    >>> kernel_labels(["void f<int>(int)", "void f<float>(float)", "gemm"])
    ['f · …int>(int)', 'f · …float>(float)', 'gemm']
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(bare_name(name), []).append(name)
    labels: list[str] = []
    for name in names:
        bare = bare_name(name)
        distinct = _NAMESPACE.sub("", name[_common_letters(alike[bare]) :])[:_MAX_PART_LETTERS]
        looks_alike = len(alike[bare]) > 1
        labels.append(f"{bare}{PART}{ELLIPSIS}{distinct}" if looks_alike else bare)
    return labels


def _common_letters(names: Sequence[str]) -> int:
    """Count the letters that the names begin with in common, up to where a word begins."""
    common = sum(
        1 for _ in takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    )
    return max(names[0].rfind(mark, 0, common) + 1 for mark in "<:, _(")


def _only_noise(kernels: Sequence[KernelDiff]) -> str:
    most = max(kernels, key=lambda kernel: abs(kernel.total.difference_ns), default=None)
    if most is None or not most.total.difference_ns:
        return "The same on both sides."
    return (
        f"The time of none of {len(kernels):,} changed by more than the noise; the most: "
        f"{bare_name(most.name)}, {difference_text(most.total)}."
    )


def _other(key: str, rows: Sequence[TableDiff], rank: RankDiff) -> Section:
    """Show what changed in a table of another measure."""
    named = [
        (" ".join([*row.names.values(), column_title(name)]), change)
        for row in rows
        for name, change in row.times.items()
    ]
    shown = [(name, change) for name, change in named if change.difference_ns][:_MAX_ROWS]
    return table(
        table_title(key) + (", per step" if rank.basis == "step" else ""),
        shown,
        ("", lambda x: x[0], LABEL),
        *_times(lambda x: x[1]),
        ("", lambda x: "" if x[1].beyond_noise else NOISE),
        lines=[] if shown else ["As before."],
    )


def picture_title(file: ComparedFile) -> str:
    """The headline of one of two timelines."""
    window = "whole trace" if file.shown is None else f"step {file.shown}"
    name = Path(file.path).name
    return f"{name}{PART}{window}: {duration_text(file.end_ns - file.start_ns)}"
