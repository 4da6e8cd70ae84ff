"""The causal profile: what would a step take if a line, an operator or a kernel cost nothing?

How long something runs says little about what its end would save: while the host decides, a kernel
could be free and the step would be as long. So each item is taken out of the replayed step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, OneLine, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.measures.measure import constrained
from tracelab.measures.ranking import OTHERS, ranked
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Baseline
from tracelab.simulate.basis import gpu_chain
from tracelab.simulate.edits import host, remove, scale
from tracelab.simulate.items import ItemName, Items, kernels_of, lines_of, operators_of
from tracelab.simulate.program import NodeKind, Program, Via
from tracelab.simulate.replay import replay, replay_edits
from tracelab.simulate.sites import Selection, Sites
from tracelab.simulate.waits import unblock, waits_for_gpu

_HOST = (Via.HOST, Via.THREAD)
_GPU = (Via.STREAM, Via.EVENT, Via.QUEUE, Via.SM)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CriticalCycle(Frozen):
    """Critical cycle of a step: the nodes and edges that each wait for the one before.

    Walked back from the last node, from each to the one that it waited for last, until a node comes
    again. All times of a cycle add up to its repetitions; a program that runs once has a path.

    Attributes:
        edge: intp[k], the edges, each from the node that decides when the next one is reached.
        steps: how many steps it is long.
        host_ns: ns per step that work of the host decides.
        gpu_ns: ns per step that GPU activities decide, with the gaps between those of a stream.
        between_ns: ns per step from one to the other: launches, and waking up from a wait.

    Example: ``CriticalCycle(edge=[41, 40, 12], steps=3, host_ns=300_000, gpu_ns=9_100_000,
    between_ns=8_000)``.
    """

    edge: NDArray[np.intp]
    steps: int
    host_ns: int
    gpu_ns: int
    between_ns: int


def critical_cycle(program: Program, time_ns: Int64Array, step_ns: int) -> CriticalCycle:
    """Walk the critical cycle of a replayed program.

    Args:
        program: what was replayed.
        time_ns: int64[n], ns, when each node was reached.
        step_ns: ns, what a step took.
    """
    last_edge = _last_edges(program, time_ns, step_ns).tolist()
    sources = program.source.tolist()
    node, path, seen = int(time_ns.argmax()), list[int](), dict[int, int]()
    while node not in seen and last_edge[node] != ABSENT:
        seen[node] = len(path)
        path.append(last_edge[node])
        node = sources[last_edge[node]]
    edge = np.array(path[seen.get(node, 0) :], dtype=np.intp)
    steps = program.steps * max(int(program.lag[edge].sum()), 1)

    via, target = program.via[edge], program.target[edge]
    cost_ns = np.where(via == Via.WAIT, 0, program.cost_ns[target])
    latency_ns = program.latency_ns[edge]
    is_activity = program.kind[target] == NodeKind.ACTIVITY
    host_ns = cost_ns[~is_activity].sum() + latency_ns[np.isin(via, _HOST)].sum()
    gpu_ns = cost_ns[is_activity].sum() + latency_ns[np.isin(via, _GPU)].sum()
    between_ns = latency_ns[~np.isin(via, (*_HOST, *_GPU))].sum()
    return CriticalCycle(
        edge, steps, *(int(part_ns // steps) for part_ns in (host_ns, gpu_ns, between_ns))
    )


def _last_edges(program: Program, time_ns: Int64Array, step_ns: int) -> NDArray[np.intp]:
    """intp[n], of each node the edge by which it was reached last; ABSENT without any."""
    adds_cost = program.via != Via.WAIT
    arrived_ns = time_ns[program.source] + program.latency_ns
    arrived_ns += np.where(adds_cost, program.cost_ns[program.target], 0)
    arrived_ns[program.lag == 1] -= step_ns * program.steps
    order = np.lexsort((arrived_ns, program.target))
    last_edge = np.full(len(program), ABSENT, dtype=np.intp)
    last_edge[program.target[order]] = order  # the last one written stays
    return last_edge


ALL, FINDING, LINE, OPERATOR, KERNEL = "all", "finding", "line", "operator", "kernel"
HOST, GPU = "host", "GPU"
# Without the row of others.
_MAX_ITEMS = 60


@dataclass(frozen=True, slots=True, repr=False)
class CausalMetrics(OneLine):
    """Length of a steady step if one part of it cost less.

    The items of a profile have nothing in common: a line has the host's work and the calls that it
    makes itself, with the GPU activities that these launch; so has an operator, with all that it
    calls inside; a kernel has its GPU activities alone. Where nothing is repeated, the lengths are
    those of the whole recording. What items save does not add up: that of one may hide another.

    Attributes:
        by: what the items are: "finding", "line", "operator" or "kernel"; "all" in the first rows,
            of all work of the host, and of all GPU activities.
        name: the rule of a finding, the function that a line is in, the operator's or the
            kernel's name; "others" in the row of all that has none of its own.
        where: the place of a finding or of a line, "train.py:40"; the file alone where the line is
            not known.
        names: how many items the row is about.
        step_ns: the step as it is, ns.
        free_ns: the step if this cost nothing, ns: neither host work nor GPU activities nor waits;
            of a finding the step with its fix.
        half_ns: the step if its host work and activities took half as long, ns; None where it
            mostly waits for a GPU, for half of a wait means nothing.
        no_wait_ns: the step if its blocking calls did not wait, ns; None where none does.
        count: its launches and blocking calls, or its activities, per step.
        host_ns, gpu_ns: its own host work and GPU activities, ns per step.
        critical_ns: how much of the step it decides, ns: what of it is on the critical cycle of
            the replay. It saves less where something else takes nearly as long, and more where it
            keeps other work waiting.

    Example row: ``CausalMetrics(rank=0, by="line", name="train_epoch", where="train.py:40",
    names=1, step_ns=12_400_000, free_ns=10_100_000, half_ns=None, no_wait_ns=10_200_000, count=1.0,
    host_ns=21_000, gpu_ns=3_000, critical_ns=18_000)``.
    """

    rank: int
    by: str = field(metadata=constrained(enum=[ALL, FINDING, LINE, OPERATOR, KERNEL]))
    name: str
    where: str | None
    names: int
    step_ns: int
    free_ns: int
    half_ns: int | None
    no_wait_ns: int | None
    count: float | None
    host_ns: int | None
    gpu_ns: int | None
    critical_ns: int | None

    @property
    def saves_ns(self) -> int:
        """Time saved per step, ns."""
        return self.step_ns - self.free_ns


class PricedFinding(Protocol):
    """The part of a `Finding` that a profile by finding reads."""

    @property
    def rule(self) -> str:
        """Id of the rule."""

    @property
    def edit(self) -> str | None:
        """The change that is replayed."""

    @property
    def saves_ns(self) -> int | None:
        """Time saved per step, ns."""


def causal_profile(
    baseline: Baseline, sites: Sites | None, by: str, findings: Sequence[PricedFinding] = ()
) -> tuple[CausalMetrics, ...]:
    """Say what a step would take if each item cost nothing, half as much, or did not wait.

    There is no slow reference model: all figures are of replays, which have one.

    Args:
        baseline: the replayed steps.
        sites: the places of their program; None without a program.
        by: what the items are: FINDING, LINE, OPERATOR or KERNEL.
        findings: with what is known by a replay; there is no row for the others.

    Returns:
        two rows of all work of the host and of all GPU activities; then the items with most time of
        their own, that which saves most first; then all others together. Findings are rows alone.
        Nothing where the steps cannot be replayed.
    """
    if baseline.program is None or baseline.step_ns is None or sites is None:
        return ()
    basis = baseline.printed_basis
    if by == FINDING:
        return _sort_by_saving(_finding_row(basis.step_ns, finding) for finding in findings)
    program, items = baseline.program, _ITEMS_BY[by](sites)
    replayed = replay([program])
    replayed_ns = int(replayed.step_ns[0])
    cycle = critical_cycle(program, replayed.time_ns[:, 0], replayed_ns)
    whole, (parts, others) = _whole(sites, cycle), _parts(items, cycle, by)
    asked = [*whole, *parts, *others]
    changes = [change for part in asked for change in part.changes]
    steps_ns = replay_edits(program, (change() for change in changes))
    remains_ns = replay_edits(gpu_chain(program), (gpu_chain(change()) for change in changes))
    # By how much the replay is off without a change, it is with one, in proportion.
    per_replayed = basis.step_ns / replayed_ns
    answers_ns = (
        max(round(step_ns * per_replayed), min(remain_ns, basis.step_ns))
        for step_ns, remain_ns in zip(steps_ns, remains_ns, strict=True)
    )
    rows = [_answered(part, basis.step_ns, answers_ns, per_replayed) for part in asked]
    first, last = len(whole), len(whole) + len(parts)
    return (*rows[:first], *_sort_by_saving(rows[first:last]), *rows[last:])


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the program, and what is asked of it.

    Attributes:
        known: the fields of its row that are known without a replay.
        free, half, no_wait: make the programs whose steps the fields of these names are.
    """

    known: Mapping[str, Any]
    free: Callable[[], Program]
    half: Callable[[], Program] | None = None
    no_wait: Callable[[], Program] | None = None

    @property
    def changes(self) -> Iterator[Callable[[], Program]]:
        """Changes to replay, in the order of the fields."""
        return (change for change in (self.free, self.half, self.no_wait) if change is not None)


def _answered(
    part: _Part, step_ns: int, answers_ns: Iterator[int], per_replayed: float
) -> CausalMetrics:
    """The row of a part, which takes its answers; what it decides is a part of the same step."""
    known = {**part.known, "critical_ns": round(part.known["critical_ns"] * per_replayed)}
    return CausalMetrics(
        rank=0,
        step_ns=step_ns,
        free_ns=next(answers_ns),
        half_ns=None if part.half is None else next(answers_ns),
        no_wait_ns=None if part.no_wait is None else next(answers_ns),
        **known,
    )


def _sort_by_saving(rows: Iterable[CausalMetrics | None]) -> tuple[CausalMetrics, ...]:
    """Rows, that which saves most first; of those that save as much, that with most time."""

    def order(row: CausalMetrics) -> tuple[int, int, str, str]:
        return row.free_ns, -(row.host_ns or 0) - (row.gpu_ns or 0), row.name, row.where or ""

    return tuple(sorted((row for row in rows if row is not None), key=order))


def _finding_row(step_ns: int, finding: PricedFinding) -> CausalMetrics | None:
    if finding.saves_ns is None:
        return None
    return CausalMetrics(
        rank=0,
        by=FINDING,
        name=finding.rule,
        where=finding.edit,
        names=1,
        step_ns=step_ns,
        free_ns=max(step_ns - finding.saves_ns, 0),
        half_ns=None,
        no_wait_ns=None,
        count=None,
        host_ns=None,
        gpu_ns=None,
        critical_ns=None,
    )


def _whole(sites: Sites, cycle: CriticalCycle) -> list[_Part]:
    """All work of the host, whose waits stay, and all GPU activities."""
    program, everything = sites.program, sites.select(None)
    is_activity = program.kind == NodeKind.ACTIVITY
    calls, activities = int((program.kind == NodeKind.CALL).sum()), int(is_activity.sum())
    host_ns = int(_work_ns(program).sum() + program.cost_ns[~is_activity].sum())
    gpu_ns = int(program.cost_ns[is_activity].sum())
    blocks = bool(waits_for_gpu(sites).any())
    per_step = program.steps
    return [
        _Part(
            {
                **_names(ALL, ItemName(HOST)),
                **_figures(calls, host_ns, 0, per_step),
                "critical_ns": cycle.host_ns,
            },
            lambda: host(program, everything, 0).program,
            lambda: host(program, everything, 0.5).program,
            (lambda: unblock(program, everything).program) if blocks else None,
        ),
        _Part(
            {
                **_names(ALL, ItemName(GPU)),
                **_figures(activities, 0, gpu_ns, per_step),
                "critical_ns": cycle.gpu_ns,
            },
            lambda: scale(program, everything, 0).program,
            lambda: scale(program, everything, 0.5).program,
        ),
    ]


def _parts(items: Items, cycle: CriticalCycle, by: str) -> tuple[list[_Part], list[_Part]]:
    """The items with most time of their own; and all others together, where there are others."""
    sites, program = items.sites, items.sites.program
    is_activity = program.kind == NodeKind.ACTIVITY
    is_counted = is_activity if by == KERNEL else program.kind == NodeKind.CALL
    count = items.node_sums(is_counted)
    host_ns = items.node_sums(np.where(is_activity, 0, program.cost_ns))
    host_ns += items.host_sums(_work_ns(program))
    gpu_ns = items.node_sums(np.where(is_activity, program.cost_ns, 0))
    own_ns, waited_ns = host_ns + gpu_ns, items.node_sums(_waited_ns(sites))
    critical_ns = _critical_ns(items, cycle)

    def part(name: ItemName, numbers: list[int]) -> _Part:
        selection = items.select(numbers)
        calls, on_host_ns, on_gpu_ns = (int(x[numbers].sum()) for x in (count, host_ns, gpu_ns))
        known = {
            **_names(by, name, len(numbers)),
            **_figures(calls, on_host_ns, on_gpu_ns, program.steps),
            "critical_ns": int(critical_ns[numbers].sum()) // cycle.steps,
        }
        if by == KERNEL:
            return _kernel_part(selection, known)
        mostly_waits = bool(waited_ns[numbers].sum() > own_ns[numbers].sum())
        return _host_part(selection, known, mostly_waits=mostly_waits)

    names = [" ".join(filter(None, name)) for name in items.names]
    kept, rest = ranked(own_ns + waited_ns, names, _MAX_ITEMS)
    parts = [part(items.names[number], [number]) for number in kept]
    return parts, [part(ItemName(OTHERS), rest)] if rest else []


def _host_part(selection: Selection, known: Mapping[str, Any], *, mostly_waits: bool) -> _Part:
    """Return the changes of host work with all that it launches."""
    program = selection.sites.program
    blocks = bool((selection.calls & waits_for_gpu(selection.sites)).any())

    def no_wait() -> Program:
        return unblock(program, selection).program

    def free() -> Program:
        # What the waits kept in order on two streams stays so.
        return remove(no_wait() if blocks else program, selection).program

    def half() -> Program:
        return scale(host(program, selection, 0.5).program, selection, 0.5).program

    return _Part(known, free, None if mostly_waits else half, no_wait if blocks else None)


def _kernel_part(selection: Selection, known: Mapping[str, Any]) -> _Part:
    """Return the changes of GPU activities whose host work stays."""
    program = selection.sites.program
    return _Part(
        known,
        lambda: scale(program, selection, 0).program,
        lambda: scale(program, selection, 0.5).program,
    )


def _names(by: str, item: ItemName, names: int = 1) -> dict[str, Any]:
    return {"by": by, "name": item.name, "where": item.where, "names": names}


def _figures(count: int, host_ns: int, gpu_ns: int, steps: int) -> dict[str, Any]:
    """Return the count and the own time per step."""
    return {"count": count / steps, "host_ns": host_ns // steps, "gpu_ns": gpu_ns // steps}


def _work_ns(program: Program) -> Int64Array:
    """int64[e], ns, the host's work between calls, each nanosecond of a thread once."""
    is_work = (program.via == Via.HOST) & (program.latency_ns > 0)
    return np.where(is_work, program.latency_ns, 0)


def _waited_ns(sites: Sites) -> Int64Array:
    """int64[n], ns, how long the blocking calls were recorded beyond what they cost themselves."""
    program, trace = sites.program, sites.timeline.trace
    waited_ns = trace.duration_ns[program.event_id] - program.cost_ns
    return np.where(waits_for_gpu(sites), np.maximum(waited_ns, 0), 0)


def _critical_ns(items: Items, cycle: CriticalCycle) -> Int64Array:
    """int64[items], ns of the whole critical cycle that is work of each."""
    program, edge = items.sites.program, cycle.edge
    adds_cost = edge[program.via[edge] != Via.WAIT]
    visits = np.bincount(program.target[adds_cost], minlength=len(program))
    is_host = np.isin(program.via[edge], (Via.HOST, Via.THREAD))
    passes = np.bincount(edge[is_host], minlength=len(program.via))
    return items.node_sums(visits * program.cost_ns) + items.host_sums(passes * program.latency_ns)


_ITEMS_BY: Mapping[str, Callable[[Sites], Items]] = MappingProxyType(
    {LINE: lines_of, OPERATOR: operators_of, KERNEL: kernels_of}
)
