"""What one rank's GPU does more than those of the others: more work, or the same more slowly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tracelab.arrays import OneLine
from tracelab.job.rank_part import RankPart
from tracelab.measures.host_work import NOT_IN_FILE, OUTSIDE_OPERATORS, WorkMetrics
from tracelab.measures.kernels import KernelMetrics
from tracelab.measures.ranking import OTHERS
from tracelab.model.call_sites import NO_CALL_SITE, CallSite
from tracelab.model.trace import COLLECTIVE_OPERATOR

Tables = Mapping[str, Sequence[Any]]

_ALIKE = 0.02  # counts that differ by less are the same: a step may be cut
_OF_THE_EXCESS = 0.8  # most of it
_UNIFORM = 0.5  # how far a kernel's slowdown may be from that of all, in parts of that
_NO_NAMES = (OTHERS, OUTSIDE_OPERATORS, NOT_IN_FILE, COLLECTIVE_OPERATOR)


@dataclass(frozen=True, slots=True, repr=False)
class MoreWork(OneLine):
    """What a rank's GPU does more than the typical one of the others, per steady step.

    Attributes:
        name: the operator, else the kernel, with most of it.
        is_kernel: `name` is a kernel's.
        phase: where in the step most of it is, None where that is not known.
        ratio: how often it runs on this rank / on the others where that differs, else its GPU time
            / theirs: a GPU that waits a lot between its kernels runs each of them faster.
        calls, usual_calls: how often it runs on this rank, and on the others.
        excess_ns: by how much longer it runs, ns.
        site: where in the program most of it was launched, as far as that is known.
        is_slower: not more work, but the same kernels as often, each longer by about as much:
            a slower GPU; `ratio` is that of all of them.

    Example row: ``MoreWork(name="aten::mm", is_kernel=False, phase="forward", ratio=1.5,
    calls=18.0, usual_calls=12.0, excess_ns=11_354_000, site=CallSite(function="train",
    file="train.py", line=35, call="__matmul__"), is_slower=False)``.
    """

    name: str
    is_kernel: bool
    phase: str | None
    ratio: float
    calls: float
    usual_calls: float
    excess_ns: int
    site: CallSite
    is_slower: bool


@dataclass(frozen=True, slots=True)
class _Ran:
    """How long something ran on a GPU per step, and how often."""

    ns: float
    count: float
    phase: str | None


_NOTHING = _Ran(0, 0, None)


def more_work(
    tables: Sequence[Tables], parts: Sequence[RankPart], part_index: int
) -> MoreWork | None:
    """What the GPU of one rank does more than those of the others.

    Args:
        tables: those of each rank, by key: "operators" and "kernels" are looked at.
        parts: the ranks.
        part_index: which of them.

    Returns:
        None where it does not do more, or the tables do not say.
    """
    kernels = [_kernels(of_rank.get("kernels", ())) for of_rank in tables]
    operators = [_operators(of_rank.get("operators", ())) for of_rank in tables]
    slower = _slower(*_beside_others(kernels, part_index))
    found, usual = _beside_others(operators, part_index)
    name = max(found, key=lambda key: found[key].ns - usual[key].ns, default=None)
    is_kernel = name is None or found[name].ns <= usual[name].ns
    if is_kernel:
        found, usual = _beside_others(kernels, part_index)
        name = max(found, key=lambda key: found[key].ns - usual[key].ns, default=None)
    if name is None or found[name].ns <= usual[name].ns:
        return None
    excess_ns = round(found[name].ns - usual[name].ns)
    return MoreWork(
        name=name,
        is_kernel=is_kernel,
        phase=found[name].phase,
        ratio=slower or _ratio(found[name], usual[name]),
        calls=found[name].count,
        usual_calls=usual[name].count,
        excess_ns=excess_ns,
        site=_site_of_excess(parts, part_index, excess_ns),
        is_slower=slower is not None,
    )


def _site_of_excess(parts: Sequence[RankPart], part_index: int, excess_ns: int) -> CallSite:
    """The call site with the most compute beyond that of the others, if it is most of an excess."""
    by_site = [
        dict(zip(part.work_sites, part.work_site_ns.tolist(), strict=True)) for part in parts
    ]
    own = by_site.pop(part_index)
    more_ns = {site: ns - median(of.get(site, 0) for of in by_site) for site, ns in own.items()}
    site = max(more_ns, key=lambda site: more_ns[site], default=NO_CALL_SITE)
    is_most = more_ns.get(site, 0) > _OF_THE_EXCESS * excess_ns
    return site if is_most else NO_CALL_SITE


def _kernels(rows: Sequence[KernelMetrics]) -> dict[str, _Ran]:
    """The compute of a rank by kernel."""
    return {
        row.name: _Ran(row.total_ns, row.count, row.phase)
        for row in rows
        if row.kind == "compute" and row.name not in _NO_NAMES
    }


def _operators(rows: Sequence[WorkMetrics]) -> dict[str, _Ran]:
    """The GPU work of a rank by the operator that launched it, without communication."""
    return {
        row.name: _Ran(row.gpu_ns, row.calls or row.launches, row.where)
        for row in rows
        if row.gpu_ns and row.name not in _NO_NAMES and not row.name.startswith(("c10d::", "nccl:"))
    }


def _beside_others(
    ran: Sequence[Mapping[str, _Ran]], part_index: int
) -> tuple[dict[str, _Ran], dict[str, _Ran]]:
    """What one rank ran, and how much of each is usual: the median of the other ranks."""
    of_name: dict[str, list[_Ran]] = defaultdict(list)
    for other_index, of_rank in enumerate(ran):
        if other_index != part_index:
            for name in ran[part_index]:
                of_name[name].append(of_rank.get(name, _NOTHING))
    usual = {
        name: _Ran(median(one.ns for one in ones), median(one.count for one in ones), None)
        for name, ones in of_name.items()
    }
    return {name: ran[part_index][name] for name in usual}, usual


def _slower(found: Mapping[str, _Ran], usual: Mapping[str, _Ran]) -> float | None:
    """By which factor all kernels of a rank take longer; None where that is not what differs."""
    same = [
        name for name, one in found.items() if usual[name].ns and _is_as_often(one, usual[name])
    ]
    excess_ns = sum(max(0, one.ns - usual[name].ns) for name, one in found.items())
    found_ns, usual_ns = (sum(some[name].ns for name in same) for some in (found, usual))
    if found_ns - usual_ns < _OF_THE_EXCESS * excess_ns or found_ns <= usual_ns:
        return None
    ratio = found_ns / usual_ns
    uniform_ns = sum(
        usual[name].ns
        for name in same
        if abs(found[name].ns / usual[name].ns - ratio) <= _UNIFORM * (ratio - 1)
    )
    return ratio if uniform_ns >= _OF_THE_EXCESS * usual_ns else None


def _is_as_often(one: _Ran, other: _Ran) -> bool:
    return abs(one.count - other.count) <= _ALIKE * other.count


def _ratio(found: _Ran, usual: _Ran) -> float:
    """How many times as much runs on a rank as is usual; infinity for what only it runs."""
    if not usual.ns or not usual.count:
        return float("inf")
    more_often = found.count > usual.count and not _is_as_often(found, usual)
    return found.count / usual.count if more_often else found.ns / usual.ns
