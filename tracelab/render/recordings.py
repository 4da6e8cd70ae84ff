"""Files that are not one job, each a row, the most expensive first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.base.arrays import Record
from tracelab.base.names import remove_rank, short_names
from tracelab.base.safe_text import counted
from tracelab.findings.finding import INFO
from tracelab.findings.places import place_text
from tracelab.render.notes import Note, unread
from tracelab.render.section import LABEL, PROSE, Section, table
from tracelab.render.sections.files import machines
from tracelab.render.text.hints import JOB
from tracelab.render.text.savings import amount, percent
from tracelab.render.words import duration_text
from tracelab.report.finding_groups import finding_groups
from tracelab.report.headline import headline_of
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of

NONE = "-"  # an unknown figure


class Recording(Record):
    """A file, or a job's files, by its longest step.

    Attributes:
        name: the shortest unique one.
        step_ns: None without steps.
        saves_share, saves: of all fixes; without prices of the first finding.
        title, place: of the first finding.
        is_minor: True without a finding, or for an informative one.
    """

    name: str
    paths: tuple[str, ...]
    step_ns: int | None
    busy_share: float
    has_finding: bool
    saves_share: float
    saves: str
    title: str
    place: str
    is_minor: bool

    @property
    def step(self) -> str:
        """Length of a step, or "-"."""
        return NONE if self.step_ns is None else duration_text(self.step_ns)

    @property
    def busy(self) -> str:
        """Busy share of the GPU that decides."""
        return percent(self.busy_share)


class Recordings(Record):
    """First screen of files that are not one job, the largest savings first.

    Attributes:
        why: sentence on why they are not one job; "" if not requested.
        notes: unusable files.
    """

    about: tuple[str, ...]
    why: str
    notes: tuple[Note, ...]
    rows: tuple[Recording, ...]

    @property
    def has_jobs(self) -> bool:
        """True if one of the rows is a job."""
        return any(len(row.paths) > 1 for row in self.rows)


def recordings_table(said: Recordings, most: int) -> Section:
    """Show at most `most` rows."""
    left_out = len(said.rows) - most
    return table(
        "",
        said.rows[:most],
        ("file", "name", LABEL),
        said.has_jobs and ("ranks", lambda row: str(len(row.paths))),
        ("step", "step"),
        ("GPU busy", "busy"),
        ("fixes save", "saves"),
        ("first finding", _first_finding, PROSE),
        lines=filter(None, [said.why]),
        notes=[f"… and {left_out} more"] if left_out > 0 else [],
    )


def _first_finding(row: Recording) -> str:
    return row.title + (f" ({row.place})" if row.place else "")


def are_recordings(report: Report) -> bool:
    """True for several files that are not one job."""
    return report.job is None and sum(bool(rank.views) for rank in ranks_of(report)) != 1


def recordings_of(report: Report, recordings: Sequence[Report] = ()) -> Recordings:
    """Make the first screen of files that are not one job, by their reports."""
    together = [group for one in recordings or [report] for group in _recorded_together(one)]
    ranks = [rank for _, group in together for rank in group]
    paths = [rank.trace.path for rank in ranks]
    names = dict(zip(paths, short_names(paths), strict=True))
    found = [_row(one, group, names[group[0].trace.path]) for one, group in together]
    rows = sorted(found, key=lambda row: -row.saves_share)
    decision = report.provenance.job
    return Recordings(
        about=(counted(len(ranks), "file", "files"), *machines(ranks)),
        why="" if decision is None else f"Not one job: {decision.why} ({JOB}).",
        notes=tuple(unread(report.provenance)),
        rows=tuple(rows),
    )


def _recorded_together(report: Report) -> Iterator[tuple[Report, list[RankView]]]:
    ranks = [rank for rank in ranks_of(report) if rank.views]
    yield from ((report, some) for some in ([ranks] if report.job else [[x] for x in ranks]))


def _row(report: Report, ranks: Sequence[RankView], name: str) -> Recording:
    groups = finding_groups(report, ranks)
    first = next((group for group in groups if group.is_worth_showing), None)
    headlines = [headline_of(rank) for rank in ranks]
    known = [x.saves_share for x in headlines if x.saves_share is not None]
    longest = max(ranks, key=lambda rank: rank.main.scope.printed_ns)
    headline = headline_of(longest)
    share, saves = max(known, default=0.0), NONE
    if first is not None:
        saves = percent(share) if known else amount(first.finding, first.scope)
        share = share if known else first.scope.share_of(first.finding)
    return Recording(
        name=name if len(ranks) == 1 else remove_rank(name),
        paths=tuple(rank.trace.path for rank in ranks),
        step_ns=headline.step_ns if longest.main.scope.steps else None,
        busy_share=headline.busy_share,
        has_finding=first is not None,
        saves_share=share,
        saves=saves,
        title=first.finding.title if first else NONE,
        place=place_text(first.finding.where) if first else "",
        is_minor=first is None or first.finding.severity == INFO,
    )
