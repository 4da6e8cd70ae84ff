"""The words of ``tracelab diff``: the verdict, then what changed and what of it is only noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tracelab.comparison.diff import AFTER, BEFORE, ComparedFile, Diff
from tracelab.render.text.cells import PART, listed, time_text
from tracelab.render.text.diff_predictions import predicted, predictions
from tracelab.render.text.diff_tables import details
from tracelab.render.text.diff_verdict import headline
from tracelab.render.text.diff_words import difference_text, percent_change
from tracelab.render.text.sections import Chapter, Column, Section, Tone
from tracelab.render.words import duration_text

MOST_RANKS = 4  # of which the details are shown


def render_diff(diff: Diff, *, width: int, color: bool) -> str:
    """What changed, as text; lines are at most `width` long, but at least 80."""
    from tracelab.render.text.terminal import draw

    return draw(chapters(diff), width=width, color=color)


def chapters(diff: Diff) -> list[Chapter]:
    """Everything that the text says, in order."""
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
    if len(diff.ranks) > MOST_RANKS:
        opening.append(Section("", ("For the details of one rank, compare its files alone.",)))
        return [Chapter("", tuple(opening))]
    return [
        Chapter("", tuple(opening)),
        *(Chapter(f"Rank {rank.after.rank}", tuple(details(rank))) for rank in diff.ranks),
    ]


def left_out(diff: Diff) -> Iterator[str]:
    """What could not be compared, and why."""
    for ranks, side in ((diff.only_before, BEFORE), (diff.only_after, AFTER)):
        if ranks:
            noun = "Rank" if len(ranks) == 1 else "Ranks"
            yield f"{noun} {listed(map(str, ranks))}: {side}."
    if diff.saved_before or diff.saved_after:
        sides = [
            name
            for name, saved in (("before", diff.saved_before), ("after", diff.saved_after))
            if saved
        ]
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
    rows = tuple(
        (
            str(rank.after.rank),
            time_text(rank.length.before_ns),
            time_text(rank.length.after_ns),
            difference_text(rank.length),
            percent_change(rank.length),
            time_text(rank.length.noise_ns),
            rank.verdict,
        )
        for rank in diff.ranks
    )
    headings = ("rank", "before", "after", "difference", "", "noise", "")
    return Section(
        "A step on every rank" if diff.ranks[0].basis == "step" else "Every rank",
        columns=tuple(Column(heading) for heading in headings),
        rows=rows,
    )


def picture_title(file: ComparedFile) -> str:
    """The headline of one of two timelines."""
    window = "whole trace" if file.shown is None else f"step {file.shown}"
    name = Path(file.path).name
    return f"{name}{PART}{window}: {duration_text(file.end_ns - file.start_ns)}"
