"""Files that are not one job: a row for each file and job among them, the most expensive first.

Text, Markdown and JSON in brief draw the same `Recordings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracelab.base.arrays import OneLine
from tracelab.base.file_names import short_names
from tracelab.base.rank_names import without_rank
from tracelab.base.text import counted
from tracelab.findings.places import place_text
from tracelab.render.notes import Note, unread
from tracelab.render.sections.files import machines
from tracelab.render.text.hints import JOB
from tracelab.render.text.savings import amount, percent
from tracelab.render.words import duration_text
from tracelab.report.finding_groups import FindingGroup, finding_groups
from tracelab.report.headline import Headline, headline_of
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of

NONE = "-"  # cell of a figure that does not exist


@dataclass(frozen=True, slots=True, repr=False)
class Recording(OneLine):
    """A file, or the files of a job.

    Attributes:
        name: the shortest name that tells it from the others; without the rank for a job.
        ranks: the files.
        first: its first finding that is worth a place; None without one.
    """

    name: str
    ranks: tuple[RankView, ...]
    first: FindingGroup | None

    @property
    def longest(self) -> RankView:
        """The file whose step takes longest."""
        return max(self.ranks, key=lambda rank: rank.main.scope.printed_ns)

    @property
    def headline(self) -> Headline:
        """Its figures, of the file whose step takes longest."""
        return headline_of(self.longest)

    @property
    def saves(self) -> float:
        """What all fixes save of a step, 0 to 1; what the first finding is about without prices."""
        known = self._saves_shares()
        if known or self.first is None:
            return max(known, default=0.0)
        return self.first.scope.share_of(self.first.finding)

    @property
    def has_steps(self) -> bool:
        """True if its figures are of a step, not of the whole trace."""
        return self.longest.main.scope.steps > 0

    @property
    def step_text(self) -> str:
        """Length of a step; "-" of a file without steps."""
        return duration_text(self.headline.step_ns) if self.has_steps else NONE

    @property
    def busy_text(self) -> str:
        """Busy share of the GPU that decides."""
        return percent(self.headline.busy_share)

    @property
    def saves_text(self) -> str:
        """What all fixes save; where nothing is predicted, what the first finding is about."""
        if self.first is None:
            return NONE
        if self._saves_shares():
            return percent(self.saves)
        return amount(self.first.finding, self.first.scope)

    @property
    def title(self) -> str:
        """Title of the first finding; "-" without one."""
        return NONE if self.first is None else self.first.finding.title

    @property
    def place(self) -> str:
        """Place of the first finding in the program; "" where the file does not say."""
        return "" if self.first is None else place_text(self.first.finding.where)

    def _saves_shares(self) -> list[float]:
        shares = [headline_of(rank).saves_share for rank in self.ranks]
        return [share for share in shares if share is not None]


@dataclass(frozen=True, slots=True, repr=False)
class Recordings(OneLine):
    """Everything that is said first of files that are not one job.

    Attributes:
        about: how many files there are, GPUs and versions.
        why: why they are not one job, a sentence; "" where that was not asked.
        notes: what could not be used.
        rows: the files and jobs, those first whose fixes save most.
    """

    about: tuple[str, ...]
    why: str
    notes: tuple[Note, ...]
    rows: tuple[Recording, ...]

    @property
    def has_jobs(self) -> bool:
        """True if one of the rows is a job."""
        return any(len(row.ranks) > 1 for row in self.rows)


def are_recordings(report: Report) -> bool:
    """Tell whether a report is of several files that are not one job."""
    return report.job is None and sum(bool(rank.views) for rank in ranks_of(report)) != 1


def recordings_of(report: Report, recordings: Sequence[Report] = ()) -> Recordings:
    """Return what is said first of files that are not one job.

    Args:
        report: of all files.
        recordings: each of a job or a file among them; none where there is no job.
    """
    found = [row for one in recordings or [report] for row in _rows(one)]
    rows = sorted(_named(found), key=lambda row: -row.saves)
    ranks = [rank for row in rows for rank in row.ranks]
    decision = report.provenance.job
    return Recordings(
        about=(counted(len(ranks), "file", "files"), *machines(ranks)),
        why="" if decision is None else f"Not one job: {decision.why} ({JOB}).",
        notes=tuple(unread(report.provenance)),
        rows=tuple(rows),
    )


def _rows(report: Report) -> Iterator[Recording]:
    ranks = [rank for rank in ranks_of(report) if rank.views]
    for some in [ranks] if report.job is not None else [[rank] for rank in ranks]:
        groups = finding_groups(report, some)
        first = next((group for group in groups if group.is_worth_showing), None)
        yield Recording("", tuple(some), first)


def _named(rows: Sequence[Recording]) -> list[Recording]:
    """Name files by what tells them apart, and jobs by what their files have in common."""
    paths = [rank.trace.path for row in rows for rank in row.ranks]
    short = dict(zip(paths, short_names(paths), strict=True))
    names = [short[row.ranks[0].trace.path] for row in rows]
    return [
        Recording(name if len(row.ranks) == 1 else without_rank(name), row.ranks, row.first)
        for row, name in zip(rows, names, strict=True)
    ]
