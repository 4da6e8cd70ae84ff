"""The causal profile: what would a step take if a line, an operator or a kernel cost nothing?

No item shares work with another: host work belongs to the innermost line of the program's own, or
to the outermost tensor operator; an activity to the item that launched it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, Record, concatenated
from tracelab.measures.measure import OTHERS, constrained, ranked
from tracelab.measures.what_ran import OUTSIDE_FUNCTIONS
from tracelab.measures.work import OUTSIDE_OPERATORS
from tracelab.model.lookup import Nesting, expand_ranges, groups_of
from tracelab.model.program.call_sites import CallSite, call_sites
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.baseline import Baseline, gpu_chain
from tracelab.simulate.edits import host, remove, scale
from tracelab.simulate.program import NodeKind, Program, Via
from tracelab.simulate.replay import replay, replay_edits, weights_ns
from tracelab.simulate.sites import Selection, Sites
from tracelab.simulate.waits import unblock, waits_for_gpu

# --- the items of a program ---


class HostPieces(Arrays):
    """Pieces of host work along the edges of a program: int64[k] and so on, by thread."""

    edge_index: IndexArray
    event_id: Int64Array
    share: NDArray[np.float64]


_NO_PIECES = HostPieces(np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0))


def host_pieces(trace: Trace, program: Program) -> HostPieces:
    """Name the host's work between the calls of a program, which was recorded in a trace."""
    is_host = (program.via == Via.HOST) | (program.via == Via.THREAD)
    edges = np.flatnonzero(is_host & (program.latency_ns > 0))
    source, target = program.source[edges], program.target[edges]
    end_ns = trace.start_ns[program.event_id[target]]
    is_recorded = (program.lag[edges] == 0) & (program.moment_ns[source] < end_ns)
    start_ns = np.where(is_recorded, program.moment_ns[source], end_ns - program.latency_ns[edges])
    woken = np.zeros(len(program.kind), dtype=np.bool_)
    woken[program.target[program.via == Via.THREAD]] = True
    sleeps = woken[target] & (program.via[edges] == Via.HOST) & is_recorded
    if not len(edges):
        return _NO_PIECES
    events = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    in_time = (trace.end_ns[events] > start_ns.min()) & (trace.start_ns[events] < end_ns.max())
    nesting = Nesting(trace, events[in_time])
    parts = [
        _thread_pieces(nesting, thread, edges[own], start_ns[own], end_ns[own], sleeps[own])
        for thread, own in groups_of(program.thread_index[target])
    ]
    return concatenated(parts)


def _thread_pieces(
    nesting: Nesting,
    thread: int,
    edges: IndexArray,
    start_ns: Int64Array,
    end_ns: Int64Array,
    sleeps: BoolArray,
) -> HostPieces:
    own = nesting.entries_of(thread)
    # Times that occur twice make pieces without a length; `unique` would take many times as long.
    moments_ns = np.sort(
        np.concatenate((nesting.start_ns[own], nesting.end_ns[own], start_ns, end_ns))
    )
    first, last = np.searchsorted(moments_ns, start_ns), np.searchsorted(moments_ns, end_ns)
    of_edge, piece = expand_ranges(first, last)
    length_ns = np.diff(moments_ns)[piece]
    bounds = np.concatenate(([0], np.cumsum(last - first)))
    for edge in np.flatnonzero(sleeps).tolist():
        begin, end = bounds[edge : edge + 2].tolist()
        length_ns[begin + int(length_ns[begin:end].argmax())] = 0
    entry = nesting.innermost_at(thread, moments_ns)[piece]
    event_id = np.append(nesting.event_id, ABSENT)[entry]  # ABSENT is the last one
    work_ns = np.bincount(of_edge, length_ns, len(edges))
    is_work = length_ns > 0
    share = length_ns[is_work] / work_ns[of_edge[is_work]]
    return HostPieces(edges[of_edge[is_work]], event_id[is_work], share)


ItemName = tuple[str, str | None]  # with the place of a line, such as "train.py:40"


class Items(Arrays):
    """The items of a program.

    Attributes:
        of_node, of_piece: intp[n], intp[k], the item of each node and of each of `pieces`, the
            host's work; else ABSENT.
    """

    sites: Sites
    names: tuple[ItemName, ...]
    of_node: IndexArray
    of_piece: IndexArray
    pieces: HostPieces

    def select(self, chosen: Sequence[int]) -> Selection:
        """The part of the program that some items are."""
        is_chosen = np.zeros(len(self.names) + 1, dtype=np.bool_)  # the last one is ABSENT's
        is_chosen[list(chosen)] = True
        program, nodes = self.sites.program, is_chosen[self.of_node]
        pieces = np.flatnonzero(is_chosen[self.of_piece])
        is_activity = program.kind == NodeKind.ACTIVITY

        def share() -> NDArray[np.float64]:
            edge_index, share = self.pieces.edge_index[pieces], self.pieces.share[pieces]
            return np.minimum(np.bincount(edge_index, share, len(program.via)), 1)

        return Selection(self.sites, nodes & ~is_activity, nodes & is_activity, share)

    def host_sums(self, of_edge: Int64Array) -> Int64Array:
        """int64[items], the sum over the host's work of each item, of a value of each edge."""
        values = of_edge[self.pieces.edge_index] * self.pieces.share
        return self._sums(self.of_piece, values)

    def node_sums(self, of_node: NDArray[np.integer | np.bool_]) -> Int64Array:
        """int64[items], the sum over the nodes of each item."""
        known = self.of_node != ABSENT
        return self._sums(self.of_node[known], of_node[known])

    def _sums(self, item: IndexArray, values: NDArray[Any]) -> Int64Array:
        return np.rint(np.bincount(item, values, len(self.names))).astype(np.int64)


def lines_of(sites: Sites) -> Items:
    """Group by line of the program's own code, or by function if the line is unknown."""

    def names(events: Int64Array) -> list[ItemName]:
        found = call_sites(sites.timeline, events, sites.lines)
        name_of = {id(site): _line_name(site) for site in {id(x): x for x in found}.values()}
        return [name_of[id(site)] for site in found]  # what is alike is mostly one object

    return _host_work_items(sites, OUTSIDE_FUNCTIONS, names)


def operators_of(sites: Sites) -> Items:
    """Group by operator."""
    operators, strings = sites.timeline.operators, sites.timeline.trace.strings

    def names(events: Int64Array) -> list[ItemName]:
        called = operators.around(operators.innermost(events), sites.is_outermost)
        numbers = operators.names(called).tolist()
        return [(OUTSIDE_OPERATORS if x == ABSENT else strings[x], None) for x in numbers]

    return _host_work_items(sites, OUTSIDE_OPERATORS, names)


def kernels_of(sites: Sites) -> Items:
    """Group by name of the GPU activity, without host work."""
    program, trace = sites.program, sites.timeline.trace
    is_activity = program.kind == NodeKind.ACTIVITY
    names, item = np.unique(trace.name_index[program.event_id[is_activity]], return_inverse=True)
    of_node = np.full(len(program), ABSENT, dtype=np.intp)
    of_node[is_activity] = item
    item_names = tuple((trace.strings[name], None) for name in names.tolist())
    return Items(sites, item_names, of_node, np.zeros(0, np.intp), _NO_PIECES)


def _host_work_items(
    sites: Sites, outside: str, names_of: Callable[[Int64Array], list[ItemName]]
) -> Items:
    program, timeline = sites.program, sites.timeline
    pieces = host_pieces(timeline.trace, program)
    is_activity = program.kind == NodeKind.ACTIVITY
    made_by = program.event_id.copy()
    made_by[is_activity] = timeline.launch_id[program.row[is_activity]]
    events, event = np.unique(np.concatenate((made_by, pieces.event_id)), return_inverse=True)
    is_known = events != ABSENT
    names = names_of(events[is_known])
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*names, (outside, None)]))}
    item = np.full(len(events), numbers[outside, None], dtype=np.intp)
    item[is_known] = [numbers[name] for name in names]
    of_node = np.where(made_by == ABSENT, ABSENT, item[event[: len(program)]])
    return Items(sites, tuple(numbers), of_node, item[event[len(program) :]], pieces)


def _line_name(site: CallSite) -> ItemName:
    if site.function is None:
        return OUTSIDE_FUNCTIONS, None
    line = "" if site.line is None else f":{site.line}"
    return site.function, f"{site.file}{line}"


# --- what a step takes without them ---

_HOST = (Via.HOST, Via.THREAD)
_GPU = (Via.STREAM, Via.EVENT, Via.QUEUE, Via.SM)


class CriticalCycle(Arrays):
    """Critical cycle of a step: the nodes and edges that each wait for the one before.

    Walked back from the last node until a node comes again; a path in a program that runs once.
    Edges are intp[k]; times ns per step.
    """

    edge: IndexArray
    steps: int
    host_ns: int
    gpu_ns: int


def critical_cycle(program: Program, time_ns: Int64Array, step_ns: int) -> CriticalCycle:
    """Walk the critical cycle of a program with steps of a length, reached at int64[n], ns."""
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
    return CriticalCycle(edge, steps, int(host_ns // steps), int(gpu_ns // steps))


def _last_edges(program: Program, time_ns: Int64Array, step_ns: int) -> IndexArray:
    arrived_ns = time_ns[program.source] + weights_ns(program)
    arrived_ns[program.lag == 1] -= step_ns * program.steps
    order = np.lexsort((arrived_ns, program.target))
    last_edge = np.full(len(program), ABSENT, dtype=np.intp)
    last_edge[program.target[order]] = order  # the last one written stays
    return last_edge


ALL, FINDING, LINE, OPERATOR, KERNEL = "all", "finding", "line", "operator", "kernel"
HOST, GPU = "host", "GPU"
_MAX_ITEMS = 60


class CausalMetrics(Record):
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
    """

    rank: int
    by: Annotated[str, constrained(enum=[ALL, FINDING, LINE, OPERATOR, KERNEL])]
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


# The rule of a finding, the change that is replayed, and the time that it saves per step, ns.
Saving = tuple[str, str | None, int | None]


def causal_profile(
    baseline: Baseline, sites: Sites | None, by: str, savings: Iterable[Saving] = ()
) -> tuple[CausalMetrics, ...]:
    """Say what a step would take if each item cost nothing, half as much, or did not wait.

    The first two rows are all host work and all GPU activities; then the largest items, by saving;
    then all others. Findings are rows alone.
    """
    if baseline.program is None or baseline.step_ns is None or sites is None:
        return ()
    basis = baseline.printed
    if by == FINDING:
        return _sort_by_saving(
            _row(FINDING, (rule, edit), basis.step_ns, free_ns=max(basis.step_ns - saves_ns, 0))
            for rule, edit, saves_ns in savings
            if saves_ns is not None
        )
    program, items = baseline.program, _ITEMS_BY[by](sites)
    replayed = replay([program])
    replayed_ns = int(replayed.step_ns[0])
    cycle = critical_cycle(program, replayed.time_ns[:, 0], replayed_ns)
    whole = _whole(sites, cycle, basis.step_ns)
    parts, others = _parts(items, cycle, by, basis.step_ns)
    asked = [*whole, *parts, *others]
    changes = [change for _, changes in asked for change in changes.values()]
    steps_ns = replay_edits(program, (change() for change in changes))
    remains_ns = replay_edits(gpu_chain(program), (gpu_chain(change()) for change in changes))
    per_replayed = basis.step_ns / replayed_ns
    answers_ns = (
        max(round(step_ns * per_replayed), min(remain_ns, basis.step_ns))
        for step_ns, remain_ns in zip(steps_ns, remains_ns, strict=True)
    )
    rows = []
    for row, changes_of_part in asked:
        answers: dict[str, Any] = {name: next(answers_ns) for name in changes_of_part}
        critical_ns = round((row.critical_ns or 0) * per_replayed)
        rows.append(replace(row, critical_ns=critical_ns, **answers))
    first, last = len(whole), len(whole) + len(parts)
    return (*rows[:first], *_sort_by_saving(rows[first:last]), *rows[last:])


# A row as far as it is known without a replay; and by field what makes its program.
_Changes = Mapping[str, Callable[[], Program]]
_Part = tuple[CausalMetrics, _Changes]


def _sort_by_saving(rows: Iterable[CausalMetrics]) -> tuple[CausalMetrics, ...]:
    def order(row: CausalMetrics) -> tuple[int, int, str, str]:
        return row.free_ns, -(row.host_ns or 0) - (row.gpu_ns or 0), row.name, row.where or ""

    return tuple(sorted(rows, key=order))


def _row(by: str, item: ItemName, step_ns: int, **figures: Any) -> CausalMetrics:
    unknown = dict.fromkeys(("half_ns", "no_wait_ns", "count", "host_ns", "gpu_ns", "critical_ns"))
    row = {"names": 1, "free_ns": step_ns, **unknown, **figures}
    return CausalMetrics(rank=0, by=by, name=item[0], where=item[1], step_ns=step_ns, **row)


def _per_step(steps: int, count: int, host_ns: int, gpu_ns: int) -> dict[str, float]:
    return {"count": count / steps, "host_ns": host_ns // steps, "gpu_ns": gpu_ns // steps}


def _whole(sites: Sites, cycle: CriticalCycle, step_ns: int) -> list[_Part]:
    program, everything = sites.program, sites.select(None)
    is_activity = program.kind == NodeKind.ACTIVITY
    calls, activities = int((program.kind == NodeKind.CALL).sum()), int(is_activity.sum())
    host_ns = int(_work_ns(program).sum() + program.cost_ns[~is_activity].sum())
    gpu_ns = int(program.cost_ns[is_activity].sum())
    on_host = _per_step(program.steps, calls, host_ns, 0)
    on_gpu = _per_step(program.steps, activities, 0, gpu_ns)
    changes = {
        "free_ns": lambda: host(program, everything, 0).program,
        "half_ns": lambda: host(program, everything, 0.5).program,
    }
    if waits_for_gpu(sites).any():
        changes["no_wait_ns"] = lambda: unblock(program, everything).program
    of_host = _row(ALL, (HOST, None), step_ns, **on_host, critical_ns=cycle.host_ns)
    of_gpu = _row(ALL, (GPU, None), step_ns, **on_gpu, critical_ns=cycle.gpu_ns)
    return [(of_host, changes), (of_gpu, _kernel_changes(everything))]


def _parts(
    items: Items, cycle: CriticalCycle, by: str, step_ns: int
) -> tuple[list[_Part], list[_Part]]:
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
        *own, decided_ns = (int(x[numbers].sum()) for x in (count, host_ns, gpu_ns, critical_ns))
        figures = {"names": len(numbers), "critical_ns": decided_ns // cycle.steps}
        row = _row(by, name, step_ns, **_per_step(program.steps, *own), **figures)
        if by == KERNEL:
            return row, _kernel_changes(selection)
        mostly_waits = bool(waited_ns[numbers].sum() > own_ns[numbers].sum())
        return row, _host_changes(selection, mostly_waits=mostly_waits)

    names = [" ".join(filter(None, name)) for name in items.names]
    kept, rest = ranked(own_ns + waited_ns, names, _MAX_ITEMS)
    parts = [part(items.names[number], [number]) for number in kept]
    return parts, [part((OTHERS, None), rest)] if rest else []


def _host_changes(selection: Selection, *, mostly_waits: bool) -> _Changes:
    program = selection.sites.program
    blocks = bool((selection.calls & waits_for_gpu(selection.sites)).any())

    def no_wait() -> Program:
        return unblock(program, selection).program

    def free() -> Program:
        return remove(no_wait() if blocks else program, selection).program

    def half() -> Program:
        return scale(host(program, selection, 0.5).program, selection, 0.5).program

    changes = {"free_ns": free}
    if not mostly_waits:
        changes["half_ns"] = half
    if blocks:
        changes["no_wait_ns"] = no_wait
    return changes


def _kernel_changes(selection: Selection) -> _Changes:
    program = selection.sites.program
    return {
        "free_ns": lambda: scale(program, selection, 0).program,
        "half_ns": lambda: scale(program, selection, 0.5).program,
    }


def _work_ns(program: Program) -> Int64Array:
    is_work = (program.via == Via.HOST) & (program.latency_ns > 0)
    return np.where(is_work, program.latency_ns, 0)


def _waited_ns(sites: Sites) -> Int64Array:
    program, trace = sites.program, sites.timeline.trace
    waited_ns = trace.duration_ns[program.event_id] - program.cost_ns
    return np.where(waits_for_gpu(sites), np.maximum(waited_ns, 0), 0)


def _critical_ns(items: Items, cycle: CriticalCycle) -> Int64Array:
    program, edge = items.sites.program, cycle.edge
    adds_cost = edge[program.via[edge] != Via.WAIT]
    visits = np.bincount(program.target[adds_cost], minlength=len(program))
    is_host = np.isin(program.via[edge], (Via.HOST, Via.THREAD))
    passes = np.bincount(edge[is_host], minlength=len(program.via))
    return items.node_sums(visits * program.cost_ns) + items.host_sums(passes * program.latency_ns)


_ITEMS_BY: Mapping[str, Callable[[Sites], Items]] = MappingProxyType(
    {LINE: lines_of, OPERATOR: operators_of, KERNEL: kernels_of}
)
