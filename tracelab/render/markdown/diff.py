"""A difference as Markdown: the verdict, what changed beyond the noise, and folded all figures."""

from __future__ import annotations

from collections.abc import Iterator

from tracelab.comparison.diff import (
    CANNOT_TELL,
    DIFFERENT_PROGRAMS,
    LONGER,
    NO_CHANGE,
    SHORTER,
    UNCHANGED,
    Diff,
    RankDiff,
)
from tracelab.render.markdown.blocks import (
    brief_prose,
    bullets,
    cell,
    chapter_blocks,
    code,
    comment,
    details,
    prose,
    table,
)
from tracelab.render.section import Chapter
from tracelab.render.sections.diff import (
    MAX_DETAILED_RANKS,
    change_cells,
    change_titles,
    details as text_details,
    finding_row,
    left_out,
)
from tracelab.render.sections.diff_words import (
    changes_of_devices,
    headline,
    predicted,
)
from tracelab.render.words import shorten

_HEADINGS = {
    SHORTER: "{} got shorter",
    LONGER: "regression, {} got longer",
    NO_CHANGE: "no change beyond the noise",
    CANNOT_TELL: "cannot tell",
    DIFFERENT_PROGRAMS: "two different programs",
}
_MAX_PATH_LETTERS = 200


def render_diff(diff: Diff) -> str:
    """Return a difference as a comment."""
    shown = diff.ranks if len(diff.ranks) <= MAX_DETAILED_RANKS else (diff.slowest,)
    folded = [
        block
        for rank in shown
        for block in chapter_blocks(Chapter(_name(diff, rank), tuple(text_details(rank))))
    ]
    return comment("diff", [*_blocks(diff, shown), details("All figures", folded)])


def _blocks(diff: Diff, shown: tuple[RankDiff, ...]) -> Iterator[str]:
    slowest = diff.slowest
    what = "a step" if slowest.basis == "step" else "the trace"
    yield f"### tracelab diff: {_HEADINGS[diff.verdict].format(what)}"
    paths = (shorten(file.path, _MAX_PATH_LETTERS) for file in (slowest.before, slowest.after))
    yield " → ".join(map(code, paths))
    yield prose(headline(diff))
    yield from map(prose, predicted(diff.predictions))
    yield bullets(map(brief_prose, left_out(diff)))
    for rank in shown:
        yield f"#### {name}" if (name := _name(diff, rank)) else ""
        yield _changes(rank)
        yield _findings(rank)


def _name(diff: Diff, rank: RankDiff) -> str:
    return f"Rank {rank.after.rank}" if len(diff.ranks) > 1 else ""


def _changes(rank: RankDiff) -> str:
    """List the length of a step and the times that changed by more than the noise."""
    beyond_noise = (named for named in changes_of_devices(rank) if named[1].beyond_noise)
    changes = [(rank.basis, rank.length), *beyond_noise]
    rows = ((name, *change_cells(change, rank)) for name, change in changes)
    return table(("", *change_titles(rank)), ([*map(cell, row)] for row in rows))


def _findings(rank: RankDiff) -> str:
    """List the findings that are gone, new or changed."""
    return bullets(
        f"**{state}:** {brief_prose(title)} ({rule}, {before} → {after})"
        for finding in rank.findings
        if finding.state != UNCHANGED and finding.beyond_noise and not finding.about_the_trace
        for rule, state, before, after, _, _, title in [finding_row(finding)]
    )
