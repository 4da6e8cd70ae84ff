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

from tracelab.base.arrays import dataclass
from tracelab.base.errors import UsageError
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import is_free
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import match_names
from tracelab.model.trace import ABSENT
from tracelab.simulate.arithmetic import (
    CHANNELS_LAST,
    FLOAT32,
    HALF_ATTENTION,
    attention,
    fuse_chains,
    scale_by_name,
    sparse_gradients,
    tf32,
)
from tracelab.simulate.batching import fuse, graph, one_batch
from tracelab.simulate.program import NEVER, Edited, Program, Via, replace_cost, times
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

# The share of the time between two calls that is work of a place.
_MIN_WORK_SHARE = 0.5


def remove(program: Program, selection: Selection) -> Edited:
    """The call site costs no host time and launches nothing.

    Without any call that frees memory, as of ``empty_cache``, none has to be allocated again.
    """
    calls = selection.calls | _allocated_again(selection)
    changed = remove_host_work(program, selection.sites, calls, selection.host_share)
    return Edited.exactly(changed, _count(selection))


def _allocated_again(selection: Selection) -> NDArray[np.bool_]:
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
    """The GPU computes what the host does there, whose time goes with the copies next to it.

    Its input may have to be copied instead: at worst these copies stay.
    """
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

    Operators and functions of PyTorch's stay as they are. But if nothing is left of work between a
    copy from the GPU and one to it, that may be done there, and these two go.
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

    As long as they have a processor each, the thread that launches waits for none of it, or for
    its share of what is left; where they share one, for twice that share.
    """
    shares = (1 / max(value, 1), 0.0, min(1.0, 2 / max(value, 1)))
    middle, low, high = (load(program, selection, share) for share in shares)
    return Edited(middle.program, low.program, high.program, middle.count)


def scale(program: Program, selection: Selection, value: float) -> Edited:
    """Its GPU activities take `value` times as long."""
    return _scaled(program, selection.activities, value)


def comm(program: Program, selection: Selection, value: float) -> Edited:
    """Its communication takes `value` times as long."""
    is_comm = program.activity_kind == Kind.COMM
    return _scaled(program, selection.activities & is_comm, value)


def _scaled(program: Program, nodes: NDArray[np.bool_], factor: float) -> Edited:
    changed = replace_cost(program, nodes, times(program.cost_ns, factor))
    return Edited.exactly(changed, int(nodes.sum()))


def _count(selection: Selection) -> int:
    return int(selection.calls.sum()) or int((selection.host_share > 0).sum())


ONLY_IN_JOB = "it compares the ranks of a job, and needs the files of all of them"


class EditKind(NamedTuple):
    """One kind of edit.

    Attributes:
        apply: a function of a program, the part of it that a place is, and the value if it has one.
        about: what it does, a clause.
        has_value: whether it is written with a value.
        needs_place: whether everywhere makes no sense.
    """

    apply: Callable[..., Edited]
    about: str
    has_value: bool = False
    needs_place: bool = False


def compare_ranks(program: Program, selection: Selection) -> Edited:  # noqa: ARG001
    """An edit that compares ranks: the program of one alone stays as it is."""
    return Edited.exactly(program, 0, ONLY_IN_JOB)


EDITS: Mapping[str, EditKind] = MappingProxyType(
    {
        "unblock": EditKind(unblock, "the CPU does not wait there"),
        "pin": EditKind(pin, "pageable copies pinned and asynchronous, in their stream"),
        "prefetch": EditKind(prefetch, "copies in a stream of their own, one step ahead, pinned"),
        "side-stream": EditKind(side_stream, "its activities in a stream of their own"),
        "no-wait": EditKind(no_wait, "the stream does not wait there"),
        "queues": EditKind(queues, "one hardware queue for each stream"),
        "load": EditKind(load, "data loading takes so many times as long", has_value=True),
        "workers": EditKind(
            workers, "so many times as many processes load the data", has_value=True
        ),
        "remove": EditKind(
            remove, "the call site costs no CPU time and launches nothing", needs_place=True
        ),
        "scale": EditKind(scale, "its GPU activities take so many times as long", has_value=True),
        "host": EditKind(host, "its CPU time is so many times as long", has_value=True),
        "on-gpu": EditKind(use_gpu, "the GPU computes what the CPU does there", needs_place=True),
        "python": EditKind(
            python,
            "the CPU's work there outside of PyTorch is so many times as long",
            has_value=True,
            needs_place=True,
        ),
        "fuse": EditKind(fuse, "its launches become one, GPU time stays"),
        "graph": EditKind(graph, "its launches replayed as one CUDA graph"),
        "one-batch": EditKind(
            one_batch, "its micro-batches become one batch, launched once", needs_place=True
        ),
        "comm": EditKind(comm, "its communication takes so many times as long", has_value=True),
        "tf32": EditKind(tf32, "its float32 products use TF32"),
        "float32": EditKind(
            partial(scale_by_name, left=FLOAT32),
            "its float64 tensors are float32, and their products use TF32",
        ),
        "channels-last": EditKind(
            partial(scale_by_name, left=CHANNELS_LAST), "its images have their channels last"
        ),
        "attention": EditKind(
            attention, "its attention in one operator, instead of by hand", needs_place=True
        ),
        "half-attention": EditKind(
            partial(scale_by_name, left=HALF_ATTENTION),
            "its attention in half precision, not float32",
        ),
        "fuse-chains": EditKind(
            fuse_chains, "its chains of elementwise kernels become one each", needs_place=True
        ),
        "sparse-gradients": EditKind(sparse_gradients, "its embeddings have sparse gradients"),
        "level": EditKind(compare_ranks, "the rank's work as the median rank's", needs_place=True),
        "balance": EditKind(compare_ranks, "all ranks do the mean work"),
    }
)


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a program, as it is written: ``KIND[:PLACE][=VALUE]``.

    >>> str(Edit("unblock", "train.py:40")), str(Edit("load", value=0.0))
    ('unblock:train.py:40', 'load=0')

    Attributes:
        kind: one of `EDITS`.
        place: a line, a function, what a function calls (``train.item``), an operator, a call,
            ``kernel:REGEX`` or ``rank:N``; what a finding names of its own, such as
            ``train.py:40@pageable-batch``; None for everywhere.
        value: of the kinds that have one.
    """

    kind: str
    place: str | None = None
    value: float | None = None

    def __str__(self) -> str:
        place = "" if self.place is None else f":{self.place}"
        value = "" if self.value is None else f"={self.value:g}"
        return f"{self.kind}{place}{value}"


def parse_edit(text: str) -> Edit:
    """The edit that a text is.

    Raises:
        UsageError: it is not one.

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
    if place not in ("", *[f":{place[1:]}"][: len(place[1:])]):
        raise UsageError(f"{text!r} is not an edit: write it as {_form(name, kind)}")
    if kind.needs_place and not place:
        raise UsageError(f"{text!r} lacks its place: write it as {_form(name, kind)}")
    return Edit(name, place[1:] or None, _value(last, text) if kind.has_value else None)


def apply_edit(edit: Edit, program: Program, sites: Sites) -> Edited:
    """A program with one change; what it makes of the programs of the places is kept with them.

    Raises:
        UsageError: the edit's place is not one.
    """
    values = () if edit.value is None else (edit.value,)

    def apply() -> Edited:
        edited: Edited = EDITS[edit.kind].apply(program, sites.select(edit.place), *values)
        return _keep_first_use(edited, program, sites)

    kept = sites.edited.get(program)
    if kept is None:
        return apply()
    if edit not in kept:
        kept[edit] = apply()
    edited: Edited = kept[edit]
    return edited


def _keep_first_use(edited: Edited, program: Program, sites: Sites) -> Edited:
    """The same, where what comes once takes as long as before the edit.

    Args:
        edited: what an edit made of the program.
        program: the program before it.
        sites: whose places they are.
    """
    if not len(sites.first_use):
        return edited
    is_once, share = sites.is_first_use, sites.first_use_share

    def kept(changed: Program) -> Program:
        before_ns = program.latency_ns[: len(share)]
        least_ns = np.where(share > 0, times(before_ns, share), NEVER)
        # A call that waited still does.
        waits = (program.via[: len(share)] == Via.WAIT) & is_once[program.target[: len(share)]]
        latency_ns = changed.latency_ns.copy()
        latency_ns[: len(share)] = np.maximum(
            latency_ns[: len(share)], np.where(waits, before_ns, least_ns)
        )
        cost_ns = np.where(is_once, np.maximum(changed.cost_ns, program.cost_ns), changed.cost_ns)
        return replace(changed, latency_ns=latency_ns, cost_ns=cost_ns)

    return edited.after(kept)


def _form(name: str, kind: EditKind) -> str:
    """Return the written form of a kind of edit."""
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
