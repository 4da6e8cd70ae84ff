"""The tables of ``tracelab diff`` about one rank: figures, findings, blocking calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.base.text import counted
from tracelab.comparison.diff import (
    AFTER,
    BEFORE,
    CANNOT_TELL,
    DIFFERENT_PROGRAMS,
    GONE,
    NEW,
    ORDER,
    SAME,
    CallDiff,
    ComparedFile,
    FindingDiff,
    RankDiff,
)
from tracelab.comparison.noise import Change
from tracelab.findings.places import sentence_of
from tracelab.render.text.cells import FINDING_CAUSE_NAMES, PART, percent_text, time_text
from tracelab.render.text.diff_kernels import kernel_table
from tracelab.render.text.diff_words import (
    NOISE,
    UNCLEAR,
    before_after,
    counts_text,
    device_changes,
    difference_text,
    finding_counts,
    gpu_name,
    judgment,
    loss_share,
    needs_device_names,
    signed,
)
from tracelab.render.text.hints import MORE_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.render.text.tables import changed_tables

_MOST_CALLS, _MOST_FINDINGS = 10, 10


def details(rank: RankDiff) -> Iterator[Section]:
    """Everything that is said of one rank, in order."""
    yield _basis(rank)
    if rank.verdict == DIFFERENT_PROGRAMS:
        return
    yield from _figures(rank)
    yield from _findings(rank)
    if rank.kernels is not None:
        yield kernel_table(rank.kernels, rank.basis)
    yield from _calls(rank.calls)
    yield from changed_tables(rank)


def _basis(rank: RankDiff) -> Section:
    """Which files, what of them is compared, and from when on it counts."""
    files = tuple(
        f"{side:<7}{file.path} ({_steps(file)}{_length(file) if rank.by_recording else ''})"
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


def _steps(file: ComparedFile) -> str:
    steady = f", {file.steady_steps} of them steady" if file.steady_steps != file.steps else ""
    return counted(file.steps, "step", "steps") + steady


def _length(file: ComparedFile) -> str:
    return f", {time_text(file.length_ns)}"


def _rule(rank: RankDiff) -> str:
    """What is compared, and from when on a difference counts."""
    one_percent = f"1 % of a {rank.basis}, {time_text(rank.length.before_ns // 100)}"
    if rank.by_recording:
        return (
            "Medians of the recordings. A change counts if it is larger than the noise between "
            f"recordings of one side (95 % interval), and at least {one_percent}."
        )
    if rank.basis == "trace":
        return (
            "Not every file has steady steps, so the whole traces are compared: a time counts as "
            f"changed if it did by more than a quarter, and at least by {one_percent}."
        )
    if min(rank.before.steady_steps, rank.after.steady_steps) == 1:
        return (
            "A side has a single steady step: a time counts as changed if it did by more than a "
            f"quarter, and at least by {one_percent}."
        )
    return (
        "Medians over the steady steps. A change counts if it is larger than the noise: the larger "
        "spread of the two sides (interquartile range; of fewer than 5 steps the full range), "
        "unless all steps of one side lie beyond all of the other, and at least "
        f"{one_percent}."
    )


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
        yield _table(f"{title}{PART}{gpu_name(device)}", list(device_changes(device)), rank, last)


def _table(
    title: str, named: Sequence[tuple[str, Change]], rank: RankDiff, notes: tuple[str, ...] = ()
) -> Section:
    return Section(
        title,
        columns=(Column("", Fit.LABEL), *map(Column, change_titles(rank))),
        rows=tuple(
            (name, *change_cells(change, rank))
            for name, change in named
            if change.before_ns or change.after_ns
        ),
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
    """How devices and streams without a namesake were paired."""
    if any(device.matched == ORDER for device in rank.devices):
        yield "GPUs with different numbers are paired in their order."
    streams = [stream for device in rank.devices for stream in device.streams]
    if any(stream.matched == ORDER for stream in streams):
        yield (
            "Streams are paired by their number; those with → have no namesake and are paired by "
            "how busy they are."
        )


def _findings(rank: RankDiff) -> Iterator[Section]:
    """What is gone, new or changed; then the traces themselves."""
    findings = rank.findings
    about_time = [finding for finding in findings if not finding.about_the_trace]
    changed = [finding for finding in about_time if finding.state != SAME]
    if about_time:
        rest = len(about_time) - len(changed[:_MOST_FINDINGS])
        yield Section(
            "Findings",
            lines=() if changed else ("No change beyond the noise.",),
            columns=(
                *(Column(heading) for heading in ("rule", "", "before", "after", "")),
                Column("cause", Fit.LABEL),
                Column("what", Fit.PROSE),
            ),
            rows=tuple(finding_row(finding) for finding in changed[:_MOST_FINDINGS]),
            notes=(
                *((_what_shares_are(rank),) if changed else ()),
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


def _what_shares_are(rank: RankDiff) -> str:
    """What stands in the columns before and after."""
    if rank.before_scope == rank.after_scope:
        return f"Before and after: the share of {rank.before_scope} attributed to it."
    return (
        "Before and after: the share attributed to it, before of "
        f"{rank.before_scope}, after of {rank.after_scope}."
    )


def finding_row(finding: FindingDiff) -> tuple[str, ...]:
    """Return rule, state, the shares before and after, whether that is noise, cause and title."""
    return (
        finding.rule,
        finding.state,
        loss_share(finding.before_share) if finding.state != NEW else "-",
        loss_share(finding.after_share) if finding.state != GONE else "-",
        "" if finding.beyond_noise else NOISE,
        FINDING_CAUSE_NAMES.get(finding.cause, finding.cause),
        finding_counts(finding) + sentence_of(finding.title, finding.where),
    )


def _calls(calls: Sequence[CallDiff]) -> Iterator[Section]:
    """Blocking calls: how often, how long, and what idle they caused."""
    if not calls:
        return
    changed = [call for call in calls if call.caused_idle.beyond_noise or call.blocked.beyond_noise]
    if not changed:
        line = f"None of {len(calls):,} changed by more than the noise."
        yield Section(
            "Blocking calls", (line if len(calls) > 1 else "No change beyond the noise.",)
        )
        return
    rest = len(calls) - len(changed[:_MOST_CALLS])
    yield Section(
        "Blocking calls",
        columns=(
            Column("call · place", Fit.LABEL),
            *(Column(heading) for heading in ("count", "blocked", "caused idle", "")),
        ),
        rows=tuple(
            (
                _call_site(call),
                counts_text(call.before_count, call.after_count),
                before_after(call.blocked),
                before_after(call.caused_idle),
                judgment(call.caused_idle),
            )
            for call in changed[:_MOST_CALLS]
        ),
        notes=(
            "Blocking costs nothing while the GPU is busy: the last column counts the caused idle "
            "time.",
            *((f"{rest} {MORE_IN_JSON}.",) if rest else ()),
        ),
    )


def _call_site(call: CallDiff) -> str:
    line = call.file and (f"{call.file}:{call.line}" if call.line else call.file)
    return PART.join(filter(None, (call.api, call.operator, call.function, line)))
