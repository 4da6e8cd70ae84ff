"""Findings by place: one change of a program mends several ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tracelab.base.arrays import Record
from tracelab.findings.finding import Finding, call_site_key, order_of
from tracelab.findings.places import sentence_of
from tracelab.findings.rules.waiting_ranks import same_work
from tracelab.report.schema import Report, Table
from tracelab.report.views import RankView, Scope, ranks_of


class FindingGroup(Record):
    """Findings of one place on some ranks with their scopes, the most expensive first."""

    members: tuple[tuple[Finding, Scope], ...]

    @property
    def finding(self) -> Finding:
        """The most expensive of them."""
        return self.members[0][0]

    @property
    def scope(self) -> Scope:
        """Scope of that finding."""
        return self.members[0][1]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks in which it was found."""
        return tuple(sorted({finding.rank for finding, _ in self.members}))

    @property
    def is_worth_showing(self) -> bool:
        """Tell whether it is worth a place among the first on one of the ranks."""
        return any(scope.is_worth_showing(finding) for finding, scope in self.members)

    def number_in(self, report: Report) -> int:
        """Return its number in all outputs, from 1 on."""
        own = {id(finding) for finding, _ in self.members}
        return next(i for i, x in enumerate(report.findings, start=1) if id(x) in own)


def finding_groups(
    report: Report, ranks: Sequence[RankView], *, about: str = "program"
) -> list[FindingGroup]:
    """The findings of ranks in `order_of`'s order; of a job each place once."""
    found = [
        (finding, rank.main.scope)
        for rank in ranks
        if rank.views
        for finding in rank.main.findings
        if finding.about == about
    ]
    if report.job is None:
        return [FindingGroup((pair,)) for pair in found]
    by_place: dict[tuple[object, ...], list[tuple[Finding, Scope]]] = defaultdict(list)
    own = [finding for finding, _ in found]
    for finding, scope in found:
        # Waits for a rank and that rank's own findings are one cause.
        by_place[_place_of(same_work(finding, own))].append((finding, scope))
    groups = [FindingGroup(tuple(sorted(pairs, key=_order))) for pairs in by_place.values()]
    return sorted(groups, key=lambda group: _order(group.members[0]))


def put_groups_first(report: Report) -> Report:
    """Begin a job's findings with one of each place, for their numbers."""
    leaders = [group.finding for group in finding_groups(report, ranks_of(report))]
    own = {id(finding) for finding in leaders}
    others = (finding for finding in report.findings if id(finding) not in own)
    return replace(report, findings=Table((*leaders, *others)))


def _place_of(finding: Finding) -> tuple[object, ...]:
    where = finding.where
    known = () if where.line else (sentence_of(finding.title, where), where.call)
    return (*call_site_key(finding), *known)


def _order(pair: tuple[Finding, Scope]) -> tuple[object, ...]:
    finding, scope = pair
    return order_of(finding, scope.share_of(finding), scope.cost_share_of(finding))
