"""The findings as the page lists them: each place of the program once, with what it saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.safe_text import counted
from tracelab.findings.finding import Finding
from tracelab.findings.places import sentence_of
from tracelab.findings.remedies import REMEDIES
from tracelab.render.text.savings import REASONS, amount, interval, seen_in
from tracelab.render.words import FINDING_CAUSE_NAMES, meaning_of, time_text
from tracelab.report.finding_groups import FindingGroup, finding_groups
from tracelab.report.schema import Report
from tracelab.report.views import RankView, Scope

# The only addresses that a page links to: those of our own table.
_LINKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {remedy.documented: (remedy.source, remedy.url) for remedy in REMEDIES if remedy.url}
)


@dataclass(frozen=True, slots=True, repr=False)
class Source(OneLine):
    """Documentation of a fix; text without an address of ours.

    Example: ``Source("PyTorch documentation: torch.optim", "https://docs.pytorch.org/...")``
    """

    text: str
    url: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class FindingItem(OneLine):
    """A finding in words.

    Attributes:
        number: in the report, from 1 on, as it is printed.
        own_number: of the finding that is in words: of the same place on several ranks another one
            than the first may be the most expensive.
        severity: "critical", "warning" or "info".
        price: "saves 2.20 ms", "up to 5.9 %" or "takes 40.7 %".
        interval: "(1.93 to 2.41)", or "".
        title: what happens.
        rule: ids of the rule and the remedy.
        facts: why, how often, where and how long.
        fix: what to do; with it why nothing is predicted.
        source: where that is documented.
        on: on which ranks, in a job.
        others: the same place on the other ranks.

    Example row: ``FindingItem(number=1, own_number=1, severity="critical", ...)``
    """

    number: int
    own_number: int
    severity: str
    price: str
    interval: str
    title: str
    rule: tuple[str, ...]
    facts: tuple[str, ...]
    fix: str
    source: Source | None
    on: str = ""
    others: tuple[FindingItem, ...] = ()


def finding_items(report: Report, ranks: Sequence[RankView], *, about: str) -> list[FindingItem]:
    """The findings of a report, the most expensive first; of a job each place once.

    Args:
        report: the report.
        ranks: its files, or some of them.
        about: "program", or "trace" for what the files lack.
    """
    numbers = {id(finding): index + 1 for index, finding in enumerate(report.findings)}
    groups = finding_groups(report, ranks, about=about)
    if report.job is None:
        return [_item(numbers[id(x.finding)], x.finding, x.scope) for x in groups]
    return [_item_of_ranks(numbers, group, len(ranks)) for group in groups]


def _item_of_ranks(numbers: Mapping[int, int], group: FindingGroup, ranks: int) -> FindingItem:
    """One place of the program on several ranks: the most expensive in words, all in it.

    Its number is that of the first in the report, as it is printed. With several ranks its words
    say whose they are.
    """
    on = group.ranks
    where = (
        "all ranks" if len(on) == ranks else f"rank {on[0]}" if len(on) == 1 else f"{len(on)} ranks"
    )
    item = _item(numbers[id(group.finding)], group.finding, group.scope, where)
    others = [
        _item(numbers[id(finding)], finding, scope, f"rank {finding.rank}")
        for finding, scope in group.members[1:]
    ]
    if others and item.facts:
        item = replace(item, facts=(*item.facts, f"on rank {group.finding.rank}"))
    return replace(
        item,
        number=min(numbers[id(finding)] for finding, _ in group.members),
        others=tuple(sorted(others, key=lambda x: x.number)),
    )


def _item(number: int, finding: Finding, scope: Scope, on: str = "") -> FindingItem:
    is_of_time = finding.about == "program"
    reason = REASONS.get(finding.saves_reason or "")
    return FindingItem(
        number=number,
        own_number=number,
        severity=finding.severity,
        price=amount(finding, scope) if is_of_time else "",
        interval=interval(finding, scope) if is_of_time else "",
        title=sentence_of(finding.shown_title, finding.where),
        rule=tuple(filter(None, (finding.rule, finding.remedy))),
        facts=tuple(_facts(finding, scope)) if is_of_time else (),
        fix=" ".join(filter(None, [reason, finding.fix])),
        source=_source(finding),
        on=on,
    )


def _facts(finding: Finding, scope: Scope) -> list[str]:
    where = finding.where
    of_steps = f" in {scope.steps} steps" if scope.steps > 1 else ""
    parts = [
        f"cause {meaning_of(FINDING_CAUSE_NAMES, finding.cause)}",
        counted(where.count, "time", "times"),
        *seen_in(finding, scope),
        f"costs {time_text(finding.cost_ns)}{of_steps}",
    ]
    if 0 < finding.bound_ns != finding.cost_ns:
        parts.append(f"{time_text(finding.bound_ns)} of it attributed")
    if where.activity and where.activity not in finding.title:
        parts.append(where.activity)
    if where.annotation:
        parts.append(f"in {where.annotation}")
    return parts


def _source(finding: Finding) -> Source | None:
    if finding.source is None:
        return None
    return Source(*_LINKS.get(finding.source, (finding.source, "")))
