"""Comparison of the GPU work of ranks: more kernels, or the same kernels slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, OneLine, dataclass
from tracelab.job.part import RankPart
from tracelab.measures.host_work import FOR_THREADS, NOT_IN_FILE, OUTSIDE_OPERATORS, WorkMetrics
from tracelab.measures.kernel_times import KernelMetrics
from tracelab.measures.ranking import OTHERS
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite
from tracelab.model.trace import COLLECTIVE_OPERATOR

Tables = Mapping[str, Sequence[Any]]

# A step may be cut.
_MAX_CUT_SHARE = 0.02
_MIN_SHARE_OF_EXCESS = 0.8
# The deviation of a kernel's slowdown from that of all kernels, as a share of the latter.
_MAX_SPREAD_SHARE = 0.5
_NO_NAMES = (OTHERS, OUTSIDE_OPERATORS, NOT_IN_FILE, FOR_THREADS, COLLECTIVE_OPERATOR)


@dataclass(frozen=True, slots=True, repr=False)
class MoreWork(OneLine):
    """Work that a rank's GPU does beyond the typical one of the others, per steady step.

    Attributes:
        name: the operator, else the kernel, with most of it.
        is_kernel: `name` is a kernel's.
        phase: where in the step most of it is, None where that is not known.
        ratio: how often it runs on this rank / on the others where that differs, else its GPU time
            / theirs: a GPU that waits a lot between its kernels runs each of them faster.
        calls, usual_calls: how often it runs on this rank, and on the others.
        excess_ns: by how much longer it runs, ns.
        surplus_ns: what the rank computes too much in all, at its own speed, ns: of what it runs
            more often than the others these calls, of all else how much longer it runs.
        site: where in the program most of it was launched, as far as that is known.
        is_slower: not more work, but the same kernels as often, each longer by about as much:
            a slower GPU; `ratio` is that of all of them.

    Example row: ``MoreWork(name="aten::mm", is_kernel=False, phase="forward", ratio=1.5,
    calls=18.0, usual_calls=12.0, excess_ns=11_354_000, surplus_ns=9_610_000,
    site=CallSite(function="train", file="train.py", line=35, call="__matmul__"),
    is_slower=False)``.
    """

    name: str
    is_kernel: bool
    phase: str | None
    ratio: float
    calls: float
    usual_calls: float
    excess_ns: int
    surplus_ns: int
    site: CallSite
    is_slower: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Ran(Frozen):
    """GPU time and calls by name on each rank, per step; r ranks, w names.

    Attributes:
        names: what ran, kernels, operators or call sites.
        ns: float64[r, w], ns.
        count: float64[r, w].
        usual_ns, usual_count: float64[r, w], the median of the other ranks.
        phases: of each rank, name to where in the step most of it is.
    """

    names: tuple[Any, ...]
    ns: NDArray[np.float64]
    count: NDArray[np.float64]
    usual_ns: NDArray[np.float64]
    usual_count: NDArray[np.float64]
    phases: tuple[Mapping[Any, str | None], ...]

    def most_excess(self, rank: int) -> int:
        """The index of the name that takes most longer on a rank than is usual; at least one."""
        return int((self.ns[rank] - self.usual_ns[rank]).argmax())

    def is_as_often(self, rank: int) -> NDArray[np.bool_]:
        """bool[w], what runs as often on a rank as is usual."""
        usual = self.usual_count[rank]
        alike: NDArray[np.bool_] = np.abs(self.count[rank] - usual) <= _MAX_CUT_SHARE * usual
        return alike


_Row = tuple[Any, float, float, str | None]  # name, ns, count, phase


def more_work(tables: Sequence[Tables], parts: Sequence[RankPart]) -> tuple[MoreWork | None, ...]:
    """Find the work that the GPU of each rank does beyond those of the others.

    Args:
        tables: those of each rank, by key: "operators" and "kernels" are looked at.
        parts: the ranks, at least two.

    Returns:
        one of each rank; None where it does not do more, or the tables do not say.
    """
    kernels = _ran([_kernels(of_rank.get("kernels", ())) for of_rank in tables])
    operators = _ran([_operators(of_rank.get("operators", ())) for of_rank in tables])
    sites = _ran(
        [
            [(*pair, 1, None) for pair in zip(part.work_sites, part.work_site_ns, strict=True)]
            for part in parts
        ]
    )
    return tuple(_more_work(kernels, operators, sites, rank) for rank in range(len(parts)))


def _more_work(kernels: _Ran, operators: _Ran, sites: _Ran, rank: int) -> MoreWork | None:
    """Find the work that one rank does beyond the others."""
    for ran in (operators, kernels):
        if not ran.names:
            continue
        most = ran.most_excess(rank)
        excess_ns = float(ran.ns[rank, most] - ran.usual_ns[rank, most])
        if excess_ns <= 0:
            continue
        slower = _slower(kernels, rank)
        return MoreWork(
            name=ran.names[most],
            is_kernel=ran is kernels,
            phase=ran.phases[rank].get(ran.names[most]),
            ratio=slower or _ratio(ran, rank, most),
            calls=float(ran.count[rank, most]),
            usual_calls=float(ran.usual_count[rank, most]),
            excess_ns=round(excess_ns),
            surplus_ns=_surplus_ns(ran, rank),
            site=_site_of_excess(sites, rank, excess_ns),
            is_slower=slower is not None,
        )
    return None


def _surplus_ns(ran: _Ran, rank: int) -> int:
    """Return the time of what a rank runs too much, ns.

    Ranks that wait clock higher, and run the same calls faster: that is no surplus of calls.
    """
    ns, count, usual_count = ran.ns[rank], ran.count[rank], ran.usual_count[rank]
    is_more_often = (count > usual_count) & ~ran.is_as_often(rank)
    share = np.divide(usual_count, count, out=np.zeros_like(count), where=count > 0)
    of_calls_ns = ns * (1 - share)
    longer_ns = np.maximum(ns - ran.usual_ns[rank], 0)
    return round(float(np.where(is_more_often, of_calls_ns, longer_ns).sum()))


def _site_of_excess(sites: _Ran, rank: int, excess_ns: float) -> CallSite:
    """The call site with the most compute beyond that of the others, if it is most of an excess."""
    if not sites.names:
        return NO_CALL_SITE
    most = sites.most_excess(rank)
    more_ns = sites.ns[rank, most] - sites.usual_ns[rank, most]
    site: CallSite = sites.names[most]
    return site if more_ns > _MIN_SHARE_OF_EXCESS * excess_ns else NO_CALL_SITE


def _kernels(rows: Sequence[KernelMetrics]) -> list[_Row]:
    """The compute of a rank by kernel."""
    return [
        (row.name, row.total_ns, row.count, row.phase)
        for row in rows
        if row.kind == "compute" and row.name not in _NO_NAMES
    ]


def _operators(rows: Sequence[WorkMetrics]) -> list[_Row]:
    """The GPU work of a rank by the operator that launched it, without communication."""
    return [
        (row.name, row.gpu_ns, row.calls or row.launches, row.where)
        for row in rows
        if row.gpu_ns and row.name not in _NO_NAMES and not row.name.startswith(("c10d::", "nccl:"))
    ]


def _ran(by_rank: Sequence[Sequence[_Row]]) -> _Ran:
    """Gather what ran on each rank, and what is usual; nothing if a rank has no row."""
    numbers: dict[Any, int] = {}
    for rows in by_rank:
        for name, *_ in rows:
            numbers.setdefault(name, len(numbers))
    ns, count = np.zeros((2, len(by_rank), len(numbers)))
    for rank, rows in enumerate(by_rank):
        index = [numbers[name] for name, *_ in rows]
        ns[rank, index] = [row[1] for row in rows]
        count[rank, index] = [row[2] for row in rows]
    phases = tuple({name: phase for name, _, _, phase in rows} for rows in by_rank)
    return _Ran(
        tuple(numbers), ns, count, _medians_of_others(ns), _medians_of_others(count), phases
    )


def _medians_of_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[r, w], for each row and column the median of the other rows.

    >>> _medians_of_others(np.array([[1.0], [2.0], [5.0], [9.0]]))[:, 0].tolist()
    [5.0, 5.0, 2.0, 2.0]
    """
    count = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    position = np.argsort(order, axis=0, kind="stable")
    # Of the others in order the one in the middle, or both: behind its own place one further.
    lower, upper = (
        np.take_along_axis(ordered, middle + (position <= middle), axis=0)
        for middle in ((count - 2) // 2, (count - 1) // 2)
    )
    middle_of: NDArray[np.float64] = (lower + upper) / 2
    return middle_of


def _slower(kernels: _Ran, rank: int) -> float | None:
    """Return the factor by which all kernels of a rank take longer; None if others differ."""
    ns, usual_ns = kernels.ns[rank], kernels.usual_ns[rank]
    is_same = kernels.is_as_often(rank) & (usual_ns > 0) & (ns > 0)
    excess_ns = np.maximum(ns - usual_ns, 0).sum()
    same_ns, usual_same_ns = ns[is_same], usual_ns[is_same]
    more_ns = same_ns.sum() - usual_same_ns.sum()
    if more_ns <= 0 or more_ns < _MIN_SHARE_OF_EXCESS * excess_ns:
        return None
    ratio = float(same_ns.sum() / usual_same_ns.sum())
    is_uniform = np.abs(same_ns / usual_same_ns - ratio) <= _MAX_SPREAD_SHARE * (ratio - 1)
    uniform_ns = usual_same_ns[is_uniform].sum()
    return ratio if uniform_ns >= _MIN_SHARE_OF_EXCESS * usual_same_ns.sum() else None


def _ratio(ran: _Ran, rank: int, index: int) -> float:
    """Return how many times as much runs on a rank as is usual; infinity for what only it runs."""
    usual_ns, usual_count = ran.usual_ns[rank, index], ran.usual_count[rank, index]
    if not usual_ns or not usual_count:
        return float("inf")
    count = ran.count[rank, index]
    if count > usual_count and not ran.is_as_often(rank)[index]:
        return float(count / usual_count)
    return float(ran.ns[rank, index] / usual_ns)
