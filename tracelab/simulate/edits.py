"""What can be asked of a what-if: each edit makes another program of one, see `EDITS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tracelab.base.errors import UsageError
from tracelab.simulate.arithmetic import (
    attention,
    channels_last,
    float32,
    fuse_chains,
    half_attention,
    sparse_gradients,
    tf32,
)
from tracelab.simulate.batching import fuse, graph, one_batch
from tracelab.simulate.copies import pin, prefetch
from tracelab.simulate.costs import comm, host, load, on_gpu, python, remove, scale, workers
from tracelab.simulate.edited import Edited, times
from tracelab.simulate.program import NEVER, Program, Via
from tracelab.simulate.side_stream import side_stream
from tracelab.simulate.sites import Selection, Sites
from tracelab.simulate.waits import no_wait, queues, unblock

ONLY_IN_JOB = "it compares the ranks of a job, and needs the files of all of them"


class Kind(NamedTuple):
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


def of_job(program: Program, selection: Selection) -> Edited:  # noqa: ARG001
    """An edit that compares ranks: the program of one alone stays as it is."""
    return Edited.exactly(program, 0, ONLY_IN_JOB)


EDITS: Mapping[str, Kind] = MappingProxyType(
    {
        "unblock": Kind(unblock, "the CPU does not wait there"),
        "pin": Kind(pin, "pageable copies pinned and asynchronous, in their stream"),
        "prefetch": Kind(prefetch, "copies in a stream of their own, one step ahead, pinned"),
        "side-stream": Kind(side_stream, "its activities in a stream of their own"),
        "no-wait": Kind(no_wait, "the stream does not wait there"),
        "queues": Kind(queues, "one hardware queue for each stream"),
        "load": Kind(load, "data loading takes so many times as long", has_value=True),
        "workers": Kind(workers, "so many times as many processes load the data", has_value=True),
        "remove": Kind(
            remove, "the call site costs no CPU time and launches nothing", needs_place=True
        ),
        "scale": Kind(scale, "its GPU activities take so many times as long", has_value=True),
        "host": Kind(host, "its CPU time is so many times as long", has_value=True),
        "on-gpu": Kind(on_gpu, "the GPU computes what the CPU does there", needs_place=True),
        "python": Kind(
            python,
            "the CPU's work there outside of PyTorch is so many times as long",
            has_value=True,
            needs_place=True,
        ),
        "fuse": Kind(fuse, "its launches become one, GPU time stays"),
        "graph": Kind(graph, "its launches replayed as one CUDA graph"),
        "one-batch": Kind(
            one_batch, "its micro-batches become one batch, launched once", needs_place=True
        ),
        "comm": Kind(comm, "its communication takes so many times as long", has_value=True),
        "tf32": Kind(tf32, "its float32 products use TF32"),
        "float32": Kind(float32, "its float64 tensors are float32, and their products use TF32"),
        "channels-last": Kind(channels_last, "its images have their channels last"),
        "attention": Kind(
            attention, "its attention in one operator, instead of by hand", needs_place=True
        ),
        "half-attention": Kind(half_attention, "its attention in half precision, not float32"),
        "fuse-chains": Kind(
            fuse_chains, "its chains of elementwise kernels become one each", needs_place=True
        ),
        "sparse-gradients": Kind(sparse_gradients, "its embeddings have sparse gradients"),
        "level": Kind(of_job, "the rank's work as the median rank's", needs_place=True),
        "balance": Kind(of_job, "all ranks do the mean work"),
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
        return _with_first_use(edited, program, sites)

    kept = sites.edited.get(program)
    if kept is None:
        return apply()
    if edit not in kept:
        kept[edit] = apply()
    edited: Edited = kept[edit]
    return edited


def _with_first_use(edited: Edited, program: Program, sites: Sites) -> Edited:
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

    programs = {id(x): kept(x) for x in (edited.program, edited.low, edited.high)}
    return replace(
        edited,
        program=programs[id(edited.program)],
        low=programs[id(edited.low)],
        high=programs[id(edited.high)],
    )


def _form(name: str, kind: Kind) -> str:
    """How a kind of edit is written."""
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
