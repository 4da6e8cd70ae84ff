"""A difference as Markdown: the verdict, the figures of a step, and folded all else."""

from __future__ import annotations

from tracelab.comparison.diff import (
    CANNOT_TELL,
    DIFFERENT_PROGRAMS,
    LONGER,
    NO_CHANGE,
    SHORTER,
    Diff,
)
from tracelab.render.markdown.blocks import (
    chapter_blocks,
    code,
    comment,
    details,
    prose,
    section_blocks,
)
from tracelab.render.section import Chapter
from tracelab.render.sections.diff import chapters, details as details_of
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
    slowest = diff.slowest
    what = "a step" if slowest.basis == "step" else "the trace"
    paths = (shorten(file.path, _MAX_PATH_LETTERS) for file in (slowest.before, slowest.after))
    opening, *ranks = chapters(diff)
    verdict, *shown = opening.sections
    if len(ranks) == 1:
        files, *rest = ranks[0].sections
        shown += rest[:1]  # the figures, unless the programs are different
        ranks = [Chapter("", (files, *rest[1:]))]
    if not ranks:  # of many
        ranks = [Chapter(f"Rank {slowest.after.rank}, the slowest", tuple(details_of(slowest)))]
    blocks = [
        f"### tracelab diff: {_HEADINGS[diff.verdict].format(what)}",
        " → ".join(map(code, paths)),
        *map(prose, verdict.lines),
        *(block for section in shown for block in section_blocks(section)),
        details("All figures", (block for x in ranks for block in chapter_blocks(x))),
    ]
    return comment("diff", blocks)
