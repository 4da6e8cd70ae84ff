"""Edits that a what-if makes: each makes another program of one, see `EDITS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, Int64Array, Record
from tracelab.base.errors import UsageError
from tracelab.model.blocking_calls import Blocking
from tracelab.model.frames import is_backward, is_optimizer_step
from tracelab.model.kernel_kinds import Kind, is_free, is_graph_launch
from tracelab.model.latencies import lower_median
from tracelab.model.lookup import match_names
from tracelab.model.trace import ABSENT, Category
from tracelab.simulate.arithmetic import (
    CHANNELS_LAST,
    FLOAT32,
    ONE_TOKEN,
    USUAL_KERNELS,
    attention,
    fuse_chains,
    scale_by_name,
    sparse_gradients,
    tf32,
)
from tracelab.simulate.program import (
    NEVER,
    Edited,
    NodeKind,
    Program,
    Via,
    replace_cost,
    replace_latency,
    times,
)
from tracelab.simulate.recorded import host_steps
from tracelab.simulate.sites import Selection, Sites
from tracelab.simulate.waits import (
    no_wait,
    pin,
    prefetch,
    queues,
    remove_host_work,
    scale_host_work,
    side_stream,
    unblock,
)

# Launch of a graph, more per node, and gap between nodes, ns: predicted, least, most (H200s). A
# call took 3 to 25 us for 100 nodes, 0.7 us a node with the profiler; gaps 0.1 to 0.5 us.
_CALL_NS, _NODE_NS, _GAP_NS = (10_000, 4_000, 10_000), (0, 0, 700), (500, 100, 700)


def fuse(program: Program, selection: Selection) -> Edited:
    """Its launches become one, as of one fused kernel; their GPU time stays."""
    runs = _find_runs(program, selection)
    within = _within(program, runs)
    middle, low, high = (
        _limit_gaps(_merge_calls(program, runs, np.zeros(len(stays)), stays), within, 0)
        for stays in _stays(selection.sites)
    )
    return Edited(middle, low, high, runs.count)


def graph(program: Program, selection: Selection) -> Edited:
    """Its launches are replayed as one CUDA graph: one call, and short gaps between its nodes."""
    runs = _find_runs(program, selection)
    stays = _stays(selection.sites)
    goes = np.zeros(len(stays[0])) if selection.is_everywhere else selection.host_share
    is_replay = match_names(selection.sites.timeline.trace, program.event_id, is_graph_launch)
    within = _within(program, runs)
    launch, source = program.launch_node[program.target], program.launch_node[program.source]
    in_replay = within & (source == launch) & (launch != ABSENT) & is_replay[launch]
    gaps_ns = _GAP_NS
    is_gap = in_replay & (program.via == Via.STREAM)
    if is_gap.any():  # the trace has gaps of its own
        own_ns = lower_median(program.latency_ns[is_gap])
        gaps_ns = (own_ns, min(own_ns, *gaps_ns), max(own_ns, *gaps_ns))
    bounds = []
    for call_ns, node_ns, gap_ns, stay in zip(_CALL_NS, _NODE_NS, gaps_ns, stays, strict=True):
        merged = _merge_calls(program, runs, goes, stay)
        cost_ns = _call_ns(program, is_replay, runs, call_ns, node_ns)
        merged = replace_cost(merged, runs.is_first, cost_ns)
        bounds.append(_limit_gaps(merged, within & ~in_replay, gap_ns))
    middle, low, high = bounds
    return Edited(middle, low, high, runs.count)


def one_batch(program: Program, selection: Selection) -> Edited:
    """Its micro-batches become one batch, which is launched once; what loads the data stays.

    A kernel then takes between the longest and the sum of theirs: predicted is the mean.
    """
    number = _micro_batches(selection)
    if number < 2:
        return Edited.exactly(program, 0)
    ways = ((1, (1 + number) / (2 * number)), (1, 1 / number), (math.ceil(number / 2), 1))
    middle, low, high = (
        _rebatch(program, selection, batches / number, kernels) for batches, kernels in ways
    )
    return Edited(middle, low, high, int(selection.calls.sum()))


def _micro_batches(selection: Selection) -> int:
    trace = selection.sites.timeline.trace
    passes, steps = (
        events[match_names(trace, events, test)].astype(np.int64)
        for events, test in (
            (trace.of_category(Category.PYTHON), is_backward),
            (trace.of_category(Category.ANNOTATION, Category.OPERATOR), is_optimizer_step),
        )
    )
    passes = passes[selection.made_there(passes)]
    if not len(passes):
        return 0
    batch = np.searchsorted(np.sort(trace.start_ns[steps]), trace.start_ns[passes])
    return lower_median(np.unique(batch, return_counts=True)[1])


def _rebatch(program: Program, selection: Selection, launches: float, kernels: float) -> Program:
    share = selection.host_share * (1 - selection.sites.loading_share)
    changed = replace_cost(program, selection.calls, times(program.cost_ns, launches))
    changed = scale_host_work(changed, share, launches)
    computes = selection.activities & (program.activity_kind == Kind.COMPUTE)
    gaps = (program.via == Via.STREAM) & computes[program.source] & computes[program.target]
    changed = replace_latency(changed, gaps, times(program.latency_ns, launches))
    return replace_cost(changed, computes, times(program.cost_ns, kernels))


def _call_ns(
    program: Program, is_replay: BoolArray, runs: _Runs, call_ns: int, node_ns: int
) -> Int64Array:
    is_call = (program.kind == NodeKind.CALL) & (runs.number != ABSENT)
    replays = is_call & is_replay

    def sum_of(nodes: BoolArray, ns: Int64Array) -> Int64Array:
        sums = np.bincount(runs.number[nodes], ns[nodes], int(runs.number.max(initial=0)) + 1)
        return sums.astype(np.int64)[runs.number]

    replay_count = sum_of(replays, np.ones_like(program.cost_ns))
    of_nodes_ns = sum_of(replays, np.maximum(program.cost_ns - call_ns, 0))
    one_call_ns = call_ns + node_ns * (runs.launch_count - replay_count) + of_nodes_ns
    all_calls_ns = sum_of(is_call, program.cost_ns)
    return np.where(replay_count > 0, np.minimum(one_call_ns, all_calls_ns), one_call_ns)


class _Runs(Arrays):
    """Launches of a place that come one after another on a thread in one step, at least two.

    Blocking calls and other host work end a run; what is in none has ABSENT, and 0 launches.
    """

    number: Int64Array
    is_first: BoolArray
    launch_count: Int64Array

    @property
    def count(self) -> int:
        return int(self.launch_count[self.is_first].sum())


def _find_runs(program: Program, selection: Selection) -> _Runs:
    sites, launch = selection.sites, program.launch_node
    is_call = program.kind == NodeKind.CALL
    chosen = is_call & selection.calls & ~_still_blocks(program, sites)
    number = np.full(len(chosen), ABSENT, dtype=np.int64)
    is_first = np.zeros(len(chosen), dtype=np.bool_)
    step_index = host_steps(sites.timeline, sites.program)
    other_id = program.event_id[sites.program.target[sites.other_work]]
    follows_other_work = np.isin(program.event_id, other_id)
    calls = np.flatnonzero(is_call)
    calls = calls[np.argsort(program.thread_index[calls], kind="stable")]
    goes_on = np.append(False, chosen[calls[:-1]])[: len(calls)]
    for column in (program.thread_index, step_index):
        goes_on[1:] &= np.diff(column[calls]) == 0
    goes_on &= ~follows_other_work[calls]
    is_first[calls] = chosen[calls] & ~goes_on
    number[calls] = np.where(chosen[calls], np.cumsum(is_first[calls]) - 1, ABSENT)
    launches = np.isin(np.arange(len(chosen)), launch)
    count = np.bincount(number[chosen & launches], minlength=int(is_first.sum()) + 1)
    number[~(count[number] > 1)] = ABSENT
    is_launched = launch != ABSENT
    number[is_launched] = number[launch[is_launched]]
    begins = program.kind == NodeKind.BEGIN
    of_event = np.full(len(sites.timeline.trace), ABSENT, dtype=np.int64)
    of_event[program.event_id[is_call]] = number[is_call]
    number[begins] = of_event[program.event_id[begins]]
    in_run = number != ABSENT
    return _Runs(number, is_first & in_run, np.where(in_run, count[number], 0))


def _still_blocks(program: Program, sites: Sites) -> BoolArray:
    waits_now, waited = (
        np.isin(np.arange(len(of)), of.target[(of.via == Via.WAIT) & (of.latency_ns != NEVER)])
        for of in (program, sites.program)
    )
    took_time = sites.program.cost_ns > 0
    is_freed = np.where(waited, ~waits_now, took_time & (program.cost_ns == 0))
    return np.asarray((sites.blocking != ABSENT) & ~is_freed)


def _stays(sites: Sites) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    # Data loading and work outside named regions stay; other long silence stays at most.
    silent, unknown = sites.silent_shares
    stays = np.maximum(np.maximum(sites.loading_share, sites.other_work), unknown)
    return stays, stays, np.maximum(stays, silent)


def _merge_calls(
    program: Program, runs: _Runs, goes: NDArray[np.float64], stays: NDArray[np.float64]
) -> Program:
    """Let only the first call of each run take time, and what stays between calls."""
    is_later = (runs.number != ABSENT) & (program.kind == NodeKind.CALL) & ~runs.is_first
    is_work = np.isin(program.via, (Via.HOST, Via.THREAD))
    is_between = (_within(program, runs) & is_work)[: len(stays)]
    share = np.ones(len(program.via))
    share[: len(stays)] = np.where(is_between, stays, np.maximum(1 - goes, stays))
    changed = replace_cost(program, is_later, 0)
    return replace_latency(changed, share < 1, times(program.latency_ns, share))


def _limit_gaps(program: Program, within: BoolArray, gap_ns: int) -> Program:
    between = within & np.isin(program.via, (Via.STREAM, Via.EVENT))
    return replace_latency(program, between, np.minimum(program.latency_ns, gap_ns))


def _within(program: Program, runs: _Runs) -> BoolArray:
    of_source = runs.number[program.source]
    within: BoolArray = of_source == runs.number[program.target]
    within &= (of_source != ABSENT) & (program.lag == 0)
    return within


# The share of the time between two calls that is work of a place.
_MIN_WORK_SHARE = 0.5


def remove(program: Program, selection: Selection) -> Edited:
    """The call site costs no host time and launches nothing."""
    calls = selection.calls | _allocated_again(selection)
    changed = remove_host_work(program, selection.sites, calls, selection.host_share)
    return Edited.exactly(changed, _count(selection))


def _allocated_again(selection: Selection) -> BoolArray:
    """bool[n], the calls that allocate, if a place has all those that free; else none."""
    sites = selection.sites
    allocates = sites.blocking == Blocking.ALLOCATION
    frees = allocates.copy()
    frees[frees] = match_names(sites.timeline.trace, sites.program.event_id[frees], is_free)
    if not frees.any() or not selection.calls[frees].all():
        return np.zeros(len(frees), dtype=np.bool_)
    return np.asarray(allocates & ~frees)


def host(program: Program, selection: Selection, value: float) -> Edited:
    """Its host time, with all that it calls, takes `value` times as long; the GPU's stays."""
    changed = replace_cost(program, selection.calls, times(program.cost_ns, value))
    changed = scale_host_work(changed, selection.host_share, value)
    return Edited.exactly(changed, _count(selection))


def use_gpu(program: Program, selection: Selection) -> Edited:
    """The GPU computes what the host does there, whose time goes with the copies next to it."""
    sites, share = selection.sites, selection.host_share
    on_host = host(program, selection, 0)
    recorded = sites.program
    edges = np.flatnonzero(share >= _MIN_WORK_SHARE)
    is_next = np.zeros(len(recorded.kind), dtype=np.bool_)
    is_next[recorded.source[edges]] = is_next[recorded.target[edges]] = True
    calls = np.isin(recorded.event_id, recorded.event_id[is_next])
    calls &= sites.blocking == Blocking.COPY
    gone = remove_host_work(on_host.program, sites, calls, np.zeros(len(share)))
    return Edited(gone, gone, on_host.program, on_host.count)


def python(program: Program, selection: Selection, value: float) -> Edited:
    """What the host does there beside PyTorch takes `value` times as long: Python, numpy.

    If nothing is left between a copy from the GPU and one to it, both go.
    """
    share = selection.python_share
    changed = scale_host_work(program, share, value)
    count = int((share > 0).sum())
    if value:
        return Edited.exactly(changed, count)
    sites = selection.sites
    copies = selection.calls & (sites.blocking == Blocking.COPY)
    launch = program.launch_node
    directions = sites.copy_direction[(launch != ABSENT) & copies[launch]]
    if not {"d2h", "h2d"} <= {*directions.tolist()}:
        return Edited.exactly(changed, count)
    moved = remove_host_work(changed, sites, copies, np.zeros(len(share)))
    return Edited(moved, moved, changed, count)


def load(program: Program, selection: Selection, value: float) -> Edited:
    """Data loading in the threads that launch takes `value` times as long."""
    sites = selection.sites
    share = sites.loading_share * selection.host_share
    changed = scale_host_work(program, share, value)
    return Edited.exactly(changed, int((share > 0).sum()))


def workers(program: Program, selection: Selection, value: float) -> Edited:
    """So many times as many processes load the data, one step ahead.

    The launching thread waits for its share of what is left, or for twice that if they share a
    processor.
    """
    shares = (1 / max(value, 1), 0.0, min(1.0, 2 / max(value, 1)))
    middle, low, high = (load(program, selection, share) for share in shares)
    return Edited(middle.program, low.program, high.program, middle.count)


def scale(program: Program, selection: Selection, value: float, kind: Kind | None = None) -> Edited:
    """Its GPU activities, or those of a kind, take `value` times as long."""
    nodes = selection.activities
    if kind is not None:
        nodes = nodes & (program.activity_kind == kind)
    changed = replace_cost(program, nodes, times(program.cost_ns, value))
    return Edited.exactly(changed, int(nodes.sum()))


def _count(selection: Selection) -> int:
    return int(selection.calls.sum()) or int((selection.host_share > 0).sum())


ONLY_IN_JOB = "it compares the ranks of a job, and needs the files of all of them"


# Shares by which a step was shorter and longer than predicted: 19 captured fixes
# (shared/REPLAY.md).
NEAR = (0.03, 0.03)
_LONGER = (0.03, 0.10)  # also as workers share the processors with the thread that launches
_ROUGH = (0.15, 0.15)
_OF_RANKS = (0.08, 0.08)


class EditKind(NamedTuple):
    """One kind of edit.

    Attributes:
        apply: a function of a program, a `Selection`, and the value if it has one.
        about: what it does, a clause.
        margin: shares by which a step may be shorter and longer.
        has_value: whether it is written with a value.
        needs_place: whether everywhere makes no sense.
    """

    apply: Callable[..., Edited]
    about: str
    margin: tuple[float, float] = NEAR
    has_value: bool = False
    needs_place: bool = False


def compare_ranks(program: Program, selection: Selection) -> Edited:  # noqa: ARG001
    """An edit that compares ranks: the program of one alone stays as it is."""
    return Edited.exactly(program, 0, ONLY_IN_JOB)


EDITS: Mapping[str, EditKind] = MappingProxyType(
    {
        "unblock": EditKind(unblock, "the CPU does not wait there"),
        "pin": EditKind(pin, "pageable copies pinned and asynchronous, in their stream"),
        "prefetch": EditKind(
            prefetch, "copies in a stream of their own, one step ahead, pinned", _LONGER
        ),
        "side-stream": EditKind(side_stream, "its activities in a stream of their own", _LONGER),
        "no-wait": EditKind(no_wait, "the stream does not wait there", _LONGER),
        "queues": EditKind(queues, "one hardware queue for each stream", _LONGER),
        "load": EditKind(load, "data loading takes so many times as long", _LONGER, has_value=True),
        "workers": EditKind(
            workers, "so many times as many processes load the data", _LONGER, has_value=True
        ),
        "remove": EditKind(
            remove, "the call site costs no CPU time and launches nothing", _ROUGH, needs_place=True
        ),
        "scale": EditKind(scale, "its GPU activities take so many times as long", has_value=True),
        "host": EditKind(host, "its CPU time is so many times as long", has_value=True),
        "on-gpu": EditKind(
            use_gpu, "the GPU computes what the CPU does there", _LONGER, needs_place=True
        ),
        "python": EditKind(
            python,
            "the CPU's work there outside of PyTorch is so many times as long",
            _ROUGH,
            has_value=True,
            needs_place=True,
        ),
        "fuse": EditKind(fuse, "its launches become one, GPU time stays", _ROUGH),
        "graph": EditKind(graph, "its launches replayed as one CUDA graph", _ROUGH),
        "one-batch": EditKind(
            one_batch, "its micro-batches become one batch, launched once", _ROUGH, needs_place=True
        ),
        "comm": EditKind(
            partial(scale, kind=Kind.COMM),
            "its communication takes so many times as long",
            has_value=True,
        ),
        "tf32": EditKind(tf32, "its float32 products use TF32"),
        "float32": EditKind(
            partial(scale_by_name, left=FLOAT32),
            "its float64 tensors are float32, and their products use TF32",
        ),
        "channels-last": EditKind(
            partial(scale_by_name, left=CHANNELS_LAST), "its images have their channels last"
        ),
        "attention": EditKind(
            attention, "its attention in one operator, instead of by hand", _ROUGH, needs_place=True
        ),
        "one-token": EditKind(
            partial(scale_by_name, left=ONE_TOKEN),
            "it computes one token of each sequence, and keeps what it computed of the others",
            needs_place=True,
        ),
        "usual-kernels": EditKind(
            partial(scale_by_name, left=USUAL_KERNELS),
            "its kernels are those of other sizes, operators or formats",
            needs_place=True,
        ),
        "fuse-chains": EditKind(
            fuse_chains, "its chains of elementwise kernels become one each", needs_place=True
        ),
        "sparse-gradients": EditKind(sparse_gradients, "its embeddings have sparse gradients"),
        "level": EditKind(
            compare_ranks, "the rank's work as the median rank's", _OF_RANKS, needs_place=True
        ),
        "balance": EditKind(compare_ranks, "all ranks do the mean work", _OF_RANKS),
    }
)


class Edit(Record):
    """One change of a program, as it is written: ``KIND[:PLACE][=VALUE]``.

    >>> str(Edit("unblock", "train.py:40")), str(Edit("load", value=0.0))
    ('unblock:train.py:40', 'load=0')

    Attributes:
        kind: one of `EDITS`.
        place: a line, a function, what a function calls (``train.item``), an operator, a call,
            ``kernel:REGEX``, ``rank:N``, or a finding's ``train.py:40@pageable-batch``; None for
            everywhere.
    """

    kind: str
    place: str | None = None
    value: float | None = None

    def __str__(self) -> str:
        place = "" if self.place is None else f":{self.place}"
        value = "" if self.value is None else f"={self.value:g}"
        return f"{self.kind}{place}{value}"


def parse_edit(text: str) -> Edit:
    """The edit that a text is, or a `UsageError`.

    >>> parse_edit("scale:kernel:gemm=0.5")
    Edit(kind='scale', place='kernel:gemm', value=0.5)
    """
    head, equals, last = text.rpartition("=")
    name = text.partition(":")[0].partition("=")[0]
    kind = EDITS.get(name)
    if kind is None:
        raise UsageError(f"{text!r} is not an edit: there is {', '.join(EDITS)}")
    if kind.has_value and not equals:
        raise UsageError(f"{text!r} lacks its value: write it as {name}:PLACE=0.5 or {name}=0.5")
    place = (head if kind.has_value else text).removeprefix(name)
    if place and (place == ":" or place[0] != ":"):
        raise UsageError(f"{text!r} is not an edit: write it as {_form(name, kind)}")
    if kind.needs_place and not place:
        raise UsageError(f"{text!r} lacks its place: write it as {_form(name, kind)}")
    return Edit(name, place[1:] or None, _value(last, text) if kind.has_value else None)


def apply_edit(edit: Edit, program: Program, sites: Sites) -> Edited:
    """Change a program once, kept by the places; a `UsageError` if the place is not one."""
    kept = sites.edited.get(program, {})
    if edit not in kept:
        values = () if edit.value is None else (edit.value,)
        changed = EDITS[edit.kind].apply(program, sites.select(edit.place), *values)
        kept[edit] = _keep_first_use(changed, program, sites)
    edited: Edited = kept[edit]
    return edited


def _keep_first_use(edited: Edited, program: Program, sites: Sites) -> Edited:
    if not len(sites.first_use):
        return edited
    is_once, share = sites.is_first_use, sites.first_use_share

    def kept(changed: Program) -> Program:
        before_ns = program.latency_ns[: len(share)]
        least_ns = np.where(share > 0, times(before_ns, share), NEVER)
        waits = (program.via[: len(share)] == Via.WAIT) & is_once[program.target[: len(share)]]
        latency_ns = changed.latency_ns.copy()
        latency_ns[: len(share)] = np.maximum(
            latency_ns[: len(share)], np.where(waits, before_ns, least_ns)
        )
        cost_ns = np.where(is_once, np.maximum(changed.cost_ns, program.cost_ns), changed.cost_ns)
        return replace(changed, latency_ns=latency_ns, cost_ns=cost_ns)

    middle, low, high = edited.call_each(kept)
    return replace(edited, program=middle, low=low, high=high)


def _form(name: str, kind: EditKind) -> str:
    place = ":PLACE" if kind.needs_place else "[:PLACE]"
    return f"{name}{place}{'=VALUE' if kind.has_value else ''}"


def _value(text: str, edit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{edit!r}: {text!r} is not a number from 0 on")
    return value
