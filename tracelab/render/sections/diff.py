"""Sections of a comparison: figures, findings, kernels, blocking calls, other tables."""

from __future__ import annotations

import re
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
    KernelDiff,
    PredictionDiff,
    RankDiff,
    TableDiff,
)
from tracelab.findings.places import sentence_of
from tracelab.render.section import (
    LABEL,
    PART,
    PROSE,
    Cell,
    Chapter,
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
    changes_of_devices,
    counts_text,
    difference_text,
    finding_counts,
    headline,
    interval_of,
    judgment,
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

_MAX_DETAILED_RANKS = 4
_MAX_CALLS, _MAX_FINDINGS, _MAX_KERNELS, _MAX_ROWS = 10, 10, 10, 10
_MAX_PART_LETTERS = 48
_NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|\b\w+)::")


def chapters(diff: Diff) -> list[Chapter]:
    """Make all chapters: of all ranks, then of each of a few."""
    several = len(diff.ranks) > 1
    opening = [Section("", (headline(diff), *predicted(diff.predictions)), tone=Tone.STRONG)]
    opening += predictions(diff.predictions)
    if several:
        opening.append(_ranks(diff))
    notes = tuple(left_out(diff))
    if notes:
        opening.append(Section("Not compared", notes, tone=Tone.WARNING))
    shown = diff.ranks
    if len(shown) > _MAX_DETAILED_RANKS:
        opening.append(Section("", ("For the details of one rank, compare its files alone.",)))
        shown = ()
    return [
        Chapter("", tuple(opening)),
        *(Chapter(f"Rank {x.after.rank}" if several else "", tuple(details(x))) for x in shown),
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
        ("", "verdict"),
    )


def _times(change_of: Callable[[Any], Change]) -> list[Cell[Any]]:
    return [
        ("before", lambda x: time_text(change_of(x).before_ns)),
        ("after", lambda x: time_text(change_of(x).after_ns)),
        ("difference", lambda x: difference_text(change_of(x))),
    ]


def predictions(diffs: Sequence[PredictionDiff]) -> list[Section]:
    """Show several predictions, of changes made or not."""
    if len(diffs) < 2:
        return []
    change: Cell[PredictionDiff] = ("change", "name", LABEL)
    return [table("Predicted savings", diffs, change, ("saves (interval)", interval_of))]


def details(rank: RankDiff) -> Iterator[Section]:
    """Make the sections about one rank."""
    yield _basis(rank)
    if rank.verdict == DIFFERENT_PROGRAMS:
        return
    yield _figures(rank)
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
    noise = "A change counts if it is larger than the noise"
    if rank.has_repeats:
        rule = f"Medians of the recordings. {noise} between recordings of one side"
    elif rank.basis == "trace":
        why = "Not every file has steady steps, so the whole traces are compared"
        rule = f"{why}. {noise}, a quarter of the time"
    elif 1 in (rank.before.steady_steps, rank.after.steady_steps):
        rule = f"A side has a single steady step. {noise}, a quarter of the time"
    else:
        rule = f"Medians over the steady steps. {noise} between steps of one side"
    return f"{rule}, and 1 % of a {rank.basis}, {time_text(rank.length.before_ns // 100)}."


def _figures(rank: RankDiff) -> Section:
    named = [(rank.basis, rank.length), *changes_of_devices(rank)]
    length_ns = rank.length.before_ns
    is_unclear = rank.verdict == CANNOT_TELL
    return table(
        "Per steady step" if rank.basis == "step" else "Whole trace",
        [(name, x) for name, x in named if x.before_ns or x.after_ns],
        ("", lambda row: row[0], LABEL),
        *_times(lambda row: row[1]),
        (
            f"of {rank.basis}",
            lambda row: signed(
                row[1].difference_ns, percent_text(abs(row[1].difference_ns), length_ns)
            ),
        ),
        ("noise", lambda row: time_text(row[1].noise_ns)),
        (
            "",
            lambda row: UNCLEAR if is_unclear and row[1] is rank.length else judgment(row[1]),
        ),
        notes=_matches(rank),
    )


def _matches(rank: RankDiff) -> Iterator[str]:
    if any(device.matched == ORDER for device in rank.devices):
        yield "GPUs with different numbers are paired in their order."
    streams = [stream for device in rank.devices for stream in device.streams]
    if any(stream.matched == ORDER for stream in streams):
        yield (
            "Streams are paired by their number; those with → have no namesake and are paired by "
            "how busy they are."
        )


def _findings(rank: RankDiff) -> Iterator[Section]:
    findings = rank.findings
    about_time = [finding for finding in findings if not finding.about_the_trace]
    changed = [finding for finding in about_time if finding.state != UNCHANGED]
    if about_time:
        scope = rank.before_scope
        if rank.after_scope != scope:
            scope += f" (after: of {rank.after_scope})"
        share = f"Before and after: the share of {scope} attributed to it."
        rest = len(about_time) - len(changed[:_MAX_FINDINGS])
        yield table(
            "Findings",
            changed[:_MAX_FINDINGS],
            ("rule", "rule"),
            ("", "state"),
            ("before", lambda x: exact_percent(x.before_share) if x.state != NEW else "-"),
            ("after", lambda x: exact_percent(x.after_share) if x.state != GONE else "-"),
            ("", lambda x: "" if x.beyond_noise else NOISE),
            ("cause", lambda x: FINDING_CAUSES.name_of(x.cause), LABEL),
            ("what", lambda x: finding_counts(x) + sentence_of(x.title, x.where), PROSE),
            lines=() if changed else ["No change beyond the noise."],
            notes=[share, *([f"{rest} {MORE_IN_JSON}."] if rest else [])] if changed else (),
        )
    lines = tuple(
        f"{finding.rule} {AFTER if finding.state == NEW else BEFORE}: {finding.title}."
        for finding in findings
        if finding.about_the_trace and finding.state in (NEW, GONE)
    )
    if lines:
        yield Section("About the traces", lines)


def _calls(calls: Sequence[CallDiff]) -> Iterator[Section]:
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
    """The names whose time changed most; if all is noise, those new or gone."""
    title = "GPU activities by name" + (", per step that launched them" if basis == "step" else "")
    changed = [kernel for kernel in kernels if kernel.total.difference_ns]
    is_noise = not any(kernel.total.beyond_noise for kernel in changed)
    if is_noise:
        changed = [kernel for kernel in changed if kernel.state]
    shown = changed[:_MAX_KERNELS]
    rest = len(kernels) - len(shown) if shown else 0
    names = [kernel.name for kernel in shown]
    labels = dict(zip(names, kernel_labels(names), strict=True))
    return table(
        title,
        shown,
        ("name", lambda x: labels[x.name], LABEL),
        ("count", lambda x: counts_text(x.before_count, x.after_count)),
        *_times(lambda x: x.total),
        ("", _judgment),
        lines=["No change beyond the noise."] if is_noise else [],
        notes=[f"{rest:,} more, which changed less; {FULL_NAMES_IN_JSON}."] if rest else [],
    )


def _judgment(kernel: KernelDiff) -> str:
    if not kernel.state:
        return judgment(kernel.total)
    return kernel.state if kernel.total.beyond_noise else f"{kernel.state}, below the noise"


def kernel_labels(names: Sequence[str]) -> list[str]:
    """Bare names, with the differing part if they look alike."""
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
    common = sum(
        1 for _ in takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    )
    return max(names[0].rfind(mark, 0, common) + 1 for mark in "<:, _(")


def _other(key: str, rows: Sequence[TableDiff], rank: RankDiff) -> Section:
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
    """The headline of one timeline."""
    window = "whole trace" if file.shown is None else f"step {file.shown}"
    name = Path(file.path).name
    return f"{name}{PART}{window}: {duration_text(file.end_ns - file.start_ns)}"
