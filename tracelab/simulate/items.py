"""Items of a program: map host work, calls and GPU activities to lines, operators or kernels.

Nothing belongs to two items. Host work is its line's, the one in the program's own code that called
what ran; or its operator's, the outermost one of PyTorch's tensor operators around it: what that
one calls inside is part of it. A GPU activity is of the item that launched it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, concatenated, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.measures.host_work import OUTSIDE_OPERATORS
from tracelab.measures.program_lines import OUTSIDE_FUNCTIONS
from tracelab.model.lookup import expand_ranges, groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import CallSite, call_sites
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.program import NodeKind, Program, Via
from tracelab.simulate.sites import Selection, Sites


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HostPieces(Frozen):
    """Pieces of host work along the edges of a program.

    Example row: ``(edge_index=12, event_id=840, share=0.25)``: a quarter of the work that edge 12
    stands for was done in event 840 itself, outside all that it calls.

    Attributes:
        edge_index: intp[k], by thread, edges by which one host call comes after another.
        event_id: int64[k], the innermost operator, Python function or call that ran, else ABSENT.
        share: float64[k], of the edge's work; those of an edge add up to 1.
    """

    edge_index: NDArray[np.intp]
    event_id: Int64Array
    share: NDArray[np.float64]


def host_pieces(trace: Trace, program: Program) -> HostPieces:
    """Name the host's work between the calls of a program, which was recorded in a trace.

    An edge from one repetition to the next stands for the time just before its call. A thread that
    another one woke slept in its longest piece, which is no work.
    """
    is_host = (program.via == Via.HOST) | (program.via == Via.THREAD)
    edges = np.flatnonzero(is_host & (program.latency_ns > 0))
    source, target = program.source[edges], program.target[edges]
    end_ns = trace.start_ns[program.event_id[target]]
    is_recorded = (program.lag[edges] == 0) & (program.moment_ns[source] < end_ns)
    start_ns = np.where(is_recorded, program.moment_ns[source], end_ns - program.latency_ns[edges])
    woken = np.zeros(len(program.kind), dtype=np.bool_)
    woken[program.target[program.via == Via.THREAD]] = True
    sleeps = woken[target] & (program.via[edges] == Via.HOST) & is_recorded
    nesting = Nesting(trace, _host_events(trace, start_ns, end_ns))
    parts = [
        _thread_pieces(nesting, thread, edges[own], start_ns[own], end_ns[own], sleeps[own])
        for thread, own in groups_of(program.thread_index[target])
    ]
    none = HostPieces(np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0))
    return concatenated([none, *parts])


def _host_events(trace: Trace, start_ns: Int64Array, end_ns: Int64Array) -> NDArray[np.intp]:
    """Event ids of what the host ran from the first of some starts to the last of some ends."""
    if not len(start_ns):
        return np.zeros(0, dtype=np.intp)
    host = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    in_time = (trace.end_ns[host] > start_ns.min()) & (trace.start_ns[host] < end_ns.max())
    events: NDArray[np.intp] = host[in_time]
    return events


def _thread_pieces(
    nesting: Nesting,
    thread: int,
    edges: NDArray[np.intp],
    start_ns: Int64Array,
    end_ns: Int64Array,
    sleeps: NDArray[np.bool_],
) -> HostPieces:
    """The pieces along the edges to the calls of one thread."""
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


class ItemName(NamedTuple):
    """Name and place of an item.

    Example: ``ItemName("train_epoch", "train.py:40")``, a line.
    """

    name: str
    where: str | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Items(Frozen):
    """The items of a program.

    Attributes:
        sites: the places of the program.
        names: of each item.
        of_node: intp[n], the item of each node, else ABSENT.
        of_piece: intp[k], the item of each of `pieces`.
        pieces: the host's work.
    """

    sites: Sites
    names: tuple[ItemName, ...]
    of_node: NDArray[np.intp]
    of_piece: NDArray[np.intp]
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

    def _sums(self, item: NDArray[np.intp], values: NDArray[Any]) -> Int64Array:
        return np.rint(np.bincount(item, values, len(self.names))).astype(np.int64)


def lines_of(sites: Sites) -> Items:
    """Group by line of the program's own code, or by function if the line is unknown."""

    def names(events: Int64Array) -> tuple[list[ItemName], NDArray[np.intp]]:
        found = call_sites(sites.timeline, events, sites.lines)
        sites_by_id = {id(site): site for site in found}  # what is alike is mostly one object
        numbers = {key: number for number, key in enumerate(sites_by_id)}
        index = np.fromiter(map(numbers.__getitem__, map(id, found)), np.intp, len(found))
        return list(map(_line_name, sites_by_id.values())), index

    return _host_work_items(sites, OUTSIDE_FUNCTIONS, names)


def operators_of(sites: Sites) -> Items:
    """Group by operator."""
    operators, strings = sites.timeline.operators, sites.timeline.trace.strings
    is_tensor = sites.is_tensor_operator
    is_called_by_one = (operators.parent_index != ABSENT) & is_tensor[operators.parent_index]
    is_outermost = ~(is_tensor & is_called_by_one)

    def names(events: Int64Array) -> tuple[list[ItemName], NDArray[np.intp]]:
        called = operators.around(operators.innermost(events), is_outermost)
        numbers, index = np.unique(operators.names(called), return_inverse=True)
        texts = (OUTSIDE_OPERATORS if x == ABSENT else strings[x] for x in numbers.tolist())
        return list(map(ItemName, texts)), index

    return _host_work_items(sites, OUTSIDE_OPERATORS, names)


def kernels_of(sites: Sites) -> Items:
    """Group by name of the GPU activity, without host work."""
    program, trace = sites.program, sites.timeline.trace
    is_activity = program.kind == NodeKind.ACTIVITY
    names, item = np.unique(trace.name_index[program.event_id[is_activity]], return_inverse=True)
    of_node = np.full(len(program), ABSENT, dtype=np.intp)
    of_node[is_activity] = item
    no_pieces = HostPieces(np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0))
    item_names = tuple(ItemName(trace.strings[name]) for name in names.tolist())
    return Items(sites, item_names, of_node, np.zeros(0, np.intp), no_pieces)


def _host_work_items(
    sites: Sites,
    outside: str,
    names_of: Callable[[Int64Array], tuple[list[ItemName], NDArray[np.intp]]],
) -> Items:
    """Group by the host's work.

    Args:
        sites: the places of the program.
        outside: the name of what ran outside any item.
        names_of: a function of host events (int64[k], event ids) that gives names, and intp[k], the
            index of that of each event; names may repeat.
    """
    program, timeline = sites.program, sites.timeline
    pieces = host_pieces(timeline.trace, program)
    is_activity = program.kind == NodeKind.ACTIVITY
    made_by = program.event_id.copy()
    made_by[is_activity] = timeline.launch_id[program.row[is_activity]]
    events, event = np.unique(np.concatenate((made_by, pieces.event_id)), return_inverse=True)
    is_known = events != ABSENT
    names, name = names_of(events[is_known])
    names.append(ItemName(outside))
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    item_of_name = np.array([numbers[name] for name in names], dtype=np.intp)
    item = np.full(len(events), numbers[ItemName(outside)], dtype=np.intp)
    item[is_known] = item_of_name[name]
    of_node = np.where(made_by == ABSENT, ABSENT, item[event[: len(program)]])
    return Items(sites, tuple(numbers), of_node, item[event[len(program) :]], pieces)


def _line_name(site: CallSite) -> ItemName:
    if site.function is None:
        return ItemName(OUTSIDE_FUNCTIONS)
    line = "" if site.line is None else f":{site.line}"
    return ItemName(site.function, f"{site.file}{line}")
