"""The ranks of a job in a table: a line each, and which are unlike the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tracelab.base.arrays import OneLine
from tracelab.base.file_names import short_names
from tracelab.base.text import clean
from tracelab.render.text.job import RankShares, is_unmatched, rank_shares
from tracelab.render.text.savings import percent
from tracelab.render.text.wrapping import shorten_middle
from tracelab.render.words import duration_text
from tracelab.report.schema import STATED, Report
from tracelab.report.views import RankView, Scope, ranks_of

_SEVERAL = 3  # ranks to one that differs: of fewer none is the usual one
_OTHER = 0.1  # of the usual length, or of a step: so much makes a rank another
_WORTH_A_WORD = 0.02  # of a step
_LONGEST_FILE = 30  # letters of a name

Column = tuple[str, list[str]]  # its title and cells


@dataclass(frozen=True, slots=True, repr=False)
class RanksTable(OneLine):
    """The ranks of a job in a table.

    Attributes:
        columns: each with as many cells as there are ranks in the table.
        more: a line about the ranks that are left out; "" where none is.
        unlike: a sentence about the ranks that are unlike the others; "" where none is.

    Example: ``RanksTable((("rank", ["0", "1"]), ("step", ["17 ms", "18 ms"])), "", "")``.
    """

    columns: tuple[Column, ...]
    more: str
    unlike: str


@dataclass(frozen=True, slots=True, repr=False)
class _Row(OneLine):
    """A rank as the table has it: times and shares are those recorded, with the profiler.

    Only so do ranks compare: the profiler may slow down some of them and others not.

    Attributes:
        rank: the file.
        scope: what its figures are of.
        shares: how it spends a step; None where the report does not say.
    """

    rank: RankView
    scope: Scope
    shares: RankShares | None

    @property
    def number(self) -> int:
        return self.rank.trace.rank

    @property
    def works_share(self) -> float:
        """How much of a step its GPU works, and does not wait for others."""
        if self.shares is None:
            busy_ns = self.scope.deciding.busy_ns if self.scope.deciding else 0
            return min(1.0, busy_ns / max(1, self.scope.length_ns))
        return self.shares.compute_ns / max(1, self.shares.length_ns)


def table_of_ranks(report: Report, most: int) -> RanksTable:
    """So many ranks in a table; those that matter most are chosen."""
    shares = {x.rank: x for x in rank_shares(report)}
    rows = [
        _Row(rank, rank.main.scope, shares.get(rank.trace.rank))
        for rank in ranks_of(report)
        if rank.views
    ]
    differing = _differing(rows)
    stragglers = [x.rank for x in report.job.stragglers] if report.job else []
    awaited = [x.waits_for for x in shares.values() if x.waits_for is not None]
    shown = _chosen(rows, most, [*stragglers, *differing, *awaited])
    columns = [("rank", [str(row.number) for row in shown])]
    # Ranks that the user states may be places among the files, whose names say something else.
    if report.provenance.job is not None and report.provenance.job.why == STATED:
        names = short_names([row.rank.trace.path for row in shown])
        columns.append(("file", [shorten_middle(clean(x), _LONGEST_FILE) for x in names]))
    step = "profiled step" if any(row.scope.is_slowed for row in rows) else "step"
    columns.append((step, [duration_text(row.scope.step_ns) for row in shown]))
    left_out = len(rows) - len(shown)
    unlike = ", ".join(f"rank {number} ({why})" for number, why in differing.items())
    return RanksTable(
        columns=(*columns, *_shares(shown)),
        more=f"… and {left_out} more ranks" if left_out else "",
        unlike=f"Unlike the others: {unlike}." if unlike else "",
    )


def _differing(rows: Sequence[_Row]) -> dict[int, str]:
    """The ranks that are unlike most others, and by what; none where no length is usual."""
    usual_ns = median(row.scope.step_ns for row in rows)
    usual_share = median(row.works_share for row in rows)
    differing = {}
    for row in rows:
        why = []
        if abs(row.scope.step_ns - usual_ns) > _OTHER * usual_ns:
            took, usually = duration_text(row.scope.step_ns), duration_text(int(usual_ns))
            why.append(f"a step takes {took}, usually {usually}")
        if abs(row.works_share - usual_share) > _OTHER:
            works = "computes" if row.shares else "busy"
            why.append(f"{works} {percent(row.works_share)}, usually {percent(usual_share)}")
        if why:
            differing[row.number] = "; ".join(why)
    return differing if _SEVERAL * len(differing) <= len(rows) else {}


def _chosen(rows: Sequence[_Row], count: int, first: Sequence[int]) -> list[_Row]:
    """So many rows: some ranks before the others, then those that work least."""
    order = sorted(
        range(len(rows)), key=lambda i: (rows[i].number not in first, rows[i].works_share)
    )
    return [rows[i] for i in sorted(order[:count])]


def _shares(rows: Sequence[_Row]) -> list[Column]:
    """The columns that say how the ranks spend a step; they add up to it."""
    shares = [row.shares for row in rows if row.shares is not None]
    if len(shares) < len(rows):
        return [("GPU busy", [percent(row.works_share) for row in rows])]
    parts = [x.percents for x in shares]
    is_shown = {
        "unmatched": is_unmatched(shares),
        "copies": any(x.copy_ns >= _WORTH_A_WORD * x.length_ns for x in shares),
    }
    columns = [
        (name, [f"{of_rank[name]} %" for of_rank in parts])
        for name in parts[0]
        if is_shown.get(name, True)
    ]
    return [*columns, ("waits for", [x.waits_for_text for x in shares])]
