"""The ranks of a job in a table: a line each, and which are unlike the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.file_names import short_names
from tracelab.base.safe_text import clean
from tracelab.render.text.job import RankShares, is_unmatched, rank_shares
from tracelab.render.text.savings import percent
from tracelab.render.text.wrapping import shorten_middle
from tracelab.render.words import duration_text
from tracelab.report.schema import STATED, Report
from tracelab.report.views import RankView, ranks_of

# Fewer ranks to one that differs have no usual value.
_MIN_RANKS_ALIKE = 3
# Of the usual length, or of a step.
_MIN_DIFFERENCE_SHARE = 0.1
# Of a step.
_MIN_COPIES_SHARE = 0.02
_MAX_FILE_LETTERS = 30

_MAY_LACK = ("unmatched", "copies")

Column = tuple[str, list[str]]  # its title and cells


@dataclass(frozen=True, slots=True, repr=False)
class RankRow(OneLine):
    """A rank: times and shares are those recorded, with the profiler.

    Only so do ranks compare: the profiler may slow down some of them and others not.

    Attributes:
        number: the rank.
        path: its file.
        step_ns: what a step takes, ns.
        works_share: how much of a step its GPU works, and does not wait for others.
        percents: how it spends a step, in whole percents; empty where the report does not say.
        waits_for: the rank that it waits for most.
        notable: those of `percents` that may be left out where no rank has much of them.
    """

    number: int
    path: str
    step_ns: int
    works_share: float
    percents: Mapping[str, int]
    waits_for: str
    notable: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Ranks(OneLine):
    """The ranks of a job.

    Attributes:
        rows: each rank.
        order: indices of the rows, the one that matters most first.
        step: what their steps are called.
        has_names: True if their files are named.
        unlike: a sentence about the ranks that are unlike the others; "" without any.
    """

    rows: tuple[RankRow, ...]
    order: tuple[int, ...]
    step: str
    has_names: bool
    unlike: str

    def columns(self, most: int) -> list[Column]:
        """Return the titles and cells of the `most` ranks that matter most."""
        shown = [self.rows[i] for i in sorted(self.order[:most])]
        columns = [("rank", [str(row.number) for row in shown])]
        if self.has_names:
            names = short_names([row.path for row in shown])
            columns.append(("file", [shorten_middle(clean(x), _MAX_FILE_LETTERS) for x in names]))
        columns.append((self.step, [duration_text(row.step_ns) for row in shown]))
        if not all(row.percents for row in shown):
            return [*columns, ("GPU busy", [percent(row.works_share) for row in shown])]
        kept = {name for row in shown for name in row.notable}
        columns += [
            (name, [f"{row.percents[name]} %" for row in shown])
            for name in shown[0].percents
            if name not in _MAY_LACK or name in kept
        ]
        return [*columns, ("waits for", [row.waits_for for row in shown])]

    def more(self, most: int) -> str:
        """Say how many ranks are left out if `most` are shown; "" for zero."""
        left_out = len(self.rows) - most
        return f"… and {left_out} more ranks" if left_out > 0 else ""


def ranks_of_job(report: Report) -> Ranks:
    """Say how the ranks of a report spend a step, and which are unlike the others."""
    shares = {x.rank: x for x in rank_shares(report)}
    ranks = [rank for rank in ranks_of(report) if rank.views]
    rows = [_row(rank, shares.get(rank.trace.rank)) for rank in ranks]
    differing = _differing(rows)
    stragglers = [x.rank for x in report.job.stragglers] if report.job else []
    awaited = [x.waits_for for x in shares.values() if x.waits_for is not None]
    first = {*stragglers, *differing, *awaited}
    order = sorted(
        range(len(rows)), key=lambda i: (rows[i].number not in first, rows[i].works_share)
    )
    decision = report.provenance.job
    unlike = ", ".join(f"rank {number} ({why})" for number, why in differing.items())
    return Ranks(
        tuple(rows),
        tuple(order),
        step="profiled step" if any(x.main.scope.is_slowed for x in ranks) else "step",
        # Ranks that the user states may be places among the files, whose names say something else.
        has_names=decision is not None and decision.why == STATED,
        unlike=f"Unlike the others: {unlike}." if unlike else "",
    )


def _row(rank: RankView, shares: RankShares | None) -> RankRow:
    scope = rank.main.scope
    busy_ns = scope.deciding.busy_ns if scope.deciding else 0
    works_share = min(1.0, busy_ns / max(1, scope.length_ns))
    notable = []
    if shares is not None:
        works_share = shares.compute_ns / max(1, shares.length_ns)
        is_large = is_unmatched([shares]), shares.copy_ns >= _MIN_COPIES_SHARE * shares.length_ns
        notable = [name for name, large in zip(_MAY_LACK, is_large, strict=True) if large]
    return RankRow(
        number=rank.trace.rank,
        path=rank.trace.path,
        step_ns=scope.step_ns,
        works_share=works_share,
        percents=shares.percents if shares else {},
        waits_for=shares.waits_for_text if shares else "",
        notable=tuple(notable),
    )


def _differing(rows: Sequence[RankRow]) -> dict[int, str]:
    """Return the ranks that are unlike most others, and why; none where no length is usual."""
    usual_ns = median(row.step_ns for row in rows)
    usual_share = median(row.works_share for row in rows)
    differing = {}
    for row in rows:
        why = []
        if abs(row.step_ns - usual_ns) > _MIN_DIFFERENCE_SHARE * usual_ns:
            took, usually = duration_text(row.step_ns), duration_text(int(usual_ns))
            why.append(f"a step takes {took}, usually {usually}")
        if abs(row.works_share - usual_share) > _MIN_DIFFERENCE_SHARE:
            works = "computes" if row.percents else "busy"
            why.append(f"{works} {percent(row.works_share)}, usually {percent(usual_share)}")
        if why:
            differing[row.number] = "; ".join(why)
    return differing if _MIN_RANKS_ALIKE * len(differing) <= len(rows) else {}
