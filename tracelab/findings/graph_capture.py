"""What keeps the steady steps from being captured as a CUDA graph, and which part of them can be.

While a graph is captured, no call may wait for the GPU, copy pageable memory or give memory back,
and a replay repeats the same kernels with the same launch dimensions. What runs between two
blocking calls can be a graph of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import OneLine
from tracelab.base.intervals import Int64Array
from tracelab.findings.candidates import grouped, where
from tracelab.findings.compiled_regions import compiled_regions
from tracelab.findings.context import Context
from tracelab.findings.host_needs import Need, cannot_go
from tracelab.findings.places import JOINT, edit_text
from tracelab.findings.same_sizes import have_same_sizes
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import is_free, is_graph_launch
from tracelab.model.frames import called_name
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT, Category
from tracelab.model.wording import called, describe

_USUAL = 0.5  # of the steps: what is in fewer of them is not part of a step
_MOST = 0.5  # of the launches
_ALIKE = 0.75  # of the repetitions of a part: the others are exceptions. And of its launches
_NOTABLE = 0.02  # of the launches of a part
_FEW = 0.05  # of the launches of a step
# Of how many kernels, in how many repetitions, the launch dimensions and shapes are looked up.
_MOST_COMPARED, _REPETITIONS = 64, 3
_RULES_OF_CALLS = ("TL101", "TL102", "TL103")
_NAMED_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


class Way(IntEnum):
    """What is in the way of a capture, in the order in which it is to be removed."""

    WAIT = 0  # the host waits for the GPU
    COPY = 1  # of pageable memory
    SIZE = 2  # an operator the size of whose result the host must know
    ALLOCATION = 3  # memory is got, given back or pinned


@dataclass(frozen=True, slots=True, repr=False)
class CaptureBlocker(OneLine):
    """The calls of one place that no capture can hold.

    Example: ``CaptureBlocker(way=Way.WAIT, what="`item` in train (train.py:40)", call="`item()`",
    per_step=2.0, idle_ns=40_000, is_needed=False, is_inside=True, edit="unblock:train.py:40")``.

    Attributes:
        way: why not.
        what: the place in words.
        call: what is called there.
        per_step: how often it is in a step; in the window, where there are no steps.
        idle_ns: ns, the idle time that its calls caused in all steps.
        is_needed: whether the host needs the value at once, so that the call stays.
        is_inside: whether there are launches on both sides of it in a step, more than a few.
        edit: what takes it away in a replay.
    """

    way: Way
    what: str
    call: str
    per_step: float
    idle_ns: int
    is_needed: bool
    is_inside: bool
    edit: str

    @property
    def can_go(self) -> bool:
        """Whether it is to be removed before a step can be captured."""
        return self.is_inside and not self.is_needed


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part(OneLine):
    """The largest part of the steps between two calls that stay, or from end to end of a step.

    Example: ``Part(launches=190, per_step=7.0, of_launches=1_420, before=0, after=0,
    work=("forward",), module="GPT2LMHeadModel", cut_in=None, repetitions=(array([12, ...]),))``.

    Attributes:
        launches: how many calls launch it; the median of its repetitions.
        per_step: how often it is in a step.
        of_launches: how many calls launch a step; the median.
        before, after: index of the blockers around it, ABSENT at an end of the step.
        work: what it does, by `Phase`.
        module: the outermost module that launches most of it; None without one.
        cut_in: what the calls at its ends are inside of, so that it cannot be captured as a whole:
            "the backward pass", or a module; None where they are in neither.
        repetitions: intp[k] each, the first timeline row of each launch.
    """

    launches: int
    per_step: float
    of_launches: int
    before: int
    after: int
    work: tuple[str, ...]
    module: str | None
    cut_in: str | None
    repetitions: tuple[NDArray[np.intp], ...]

    @property
    def is_most(self) -> bool:
        """Whether one repetition has most of the launches of a step."""
        return self.launches > _MOST * self.of_launches


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Capture(OneLine):
    """What a graph of the steady steps would have to hold.

    Example: ``Capture(blockers=(), as_it_is=Part(...), without=Part(...), threads=("thread 2",),
    has_steps=True, has_collectives=False, compiled_share=0.0, replayed_share=0.0)``.

    Attributes:
        blockers: in the order in which they are to be removed, those of most calls first.
        as_it_is: the largest part between all of them.
        without: the largest part once those are gone that can go.
        threads: other threads than the main thread and autograd's that launch.
        has_steps: whether the file has steady steps; else it is about the window.
        has_collectives: whether the steps communicate.
        compiled_share: of the launches, those of code that `torch.compile` made.
        replayed_share: of the GPU activities, those that a CUDA graph launched.
    """

    blockers: tuple[CaptureBlocker, ...]
    as_it_is: Part
    without: Part
    threads: tuple[str, ...]
    has_steps: bool
    has_collectives: bool
    compiled_share: float
    replayed_share: float


@dataclass(frozen=True, slots=True, repr=False)
class Change(OneLine):
    """What differs between the repetitions of a part.

    Example: ``Change(kernel="at::native::CatArrayBatchedCopy", has_shapes=False)``.

    Attributes:
        kernel: the first that is another, or has other dimensions or shapes; None where none does.
        has_shapes: whether shapes were compared.
    """

    kernel: str | None
    has_shapes: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """Launches, or blocking calls, of the steps, by start.

    Attributes:
        event_id: int64[k].
        start_ns: int64[k], ns.
        step: intp[k], which of the chosen steps each is in.
    """

    event_id: Int64Array
    start_ns: Int64Array
    step: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.event_id)


def find_capture(context: Context) -> Capture | None:
    """What is in the way of a graph of the steady steps, or of the window where there are none.

    None where nothing was launched.
    """
    timeline, trace = context.timeline, context.trace
    step_of_row = _chosen_step(context, timeline.step_index, trace.start_ns[timeline.launch_id])
    rows = np.flatnonzero((timeline.launch_id != ABSENT) & (step_of_row != ABSENT))
    if not len(rows):
        return None
    launch_id, first = np.unique(timeline.launch_id[rows], return_index=True)
    order = np.argsort(trace.start_ns[launch_id], kind="stable")
    launch_id, first = launch_id[order], rows[first][order]
    launches = _Calls(launch_id, trace.start_ns[launch_id], step_of_row[first])
    blockers, calls, blocker_of = _blockers(context, launches)
    stays = np.array([not one.can_go for one in blockers], dtype=np.bool_)[blocker_of]
    parts = [
        _largest_part(context, launches, first, _chosen(calls, keep), blocker_of[keep])
        for keep in (np.ones(len(calls), dtype=np.bool_), stays)
    ]
    return Capture(
        blockers=blockers,
        as_it_is=parts[0],
        without=parts[1],
        threads=_other_threads(context, launches, first),
        has_steps=context.timeline.steady is not None,
        has_collectives=bool((timeline.kind[rows] == Kind.COMM).any()),
        compiled_share=_compiled_share(context, launches),
        replayed_share=float(match_names(trace, timeline.launch_id[rows], is_graph_launch).mean()),
    )


def _chosen_step(
    context: Context, step_index: NDArray[np.int32], start_ns: Int64Array
) -> NDArray[np.intp]:
    """intp[k], which steady step host calls are in, else ABSENT; 0 in a window without any.

    Args:
        context: the window.
        step_index: int32[k], index into `Timeline.steps`.
        start_ns: int64[k], ns.
    """
    steady = context.timeline.steady
    if steady is None:
        is_inside = (start_ns >= _first_launch_ns(context)) & (start_ns < context.window.end_ns)
        return np.where(is_inside, 0, ABSENT)
    number = np.full(len(context.timeline.steps) + 1, ABSENT, dtype=np.intp)
    number[list(steady.indices)] = np.arange(len(steady.indices))
    return number[step_index]


def _first_launch_ns(context: Context) -> int:
    """When the first activity of the window was launched, ns; that may be before the window."""
    timeline, begin_ns = context.timeline, context.window.start_ns
    is_inside = context.is_inside(timeline.start_ns, timeline.end_ns)
    launch_id = timeline.launch_id[is_inside & (timeline.launch_id != ABSENT)]
    return int(context.trace.start_ns[launch_id].min(initial=begin_ns))


def _chosen(calls: _Calls, keep: NDArray[np.bool_]) -> _Calls:
    return _Calls(calls.event_id[keep], calls.start_ns[keep], calls.step[keep])


# --- what is in the way ---


def _blockers(
    context: Context, launches: _Calls
) -> tuple[tuple[CaptureBlocker, ...], _Calls, NDArray[np.intp]]:
    """What is in the way, its calls by start, and which blocker each call (intp[k]) is part of."""
    costs, trace = context.blocking_calls, context.trace
    calls, steps = costs.calls, int(launches.step.max()) + 1
    step = _chosen_step(context, costs.step_index, calls.start_ns)
    launches_there = np.unique(trace.thread_index[launches.event_id])
    index = np.flatnonzero((step != ABSENT) & np.isin(calls.thread_index, launches_there))
    is_allocation = calls.kind[index] == Blocking.ALLOCATION
    is_inside = np.zeros(len(calls), dtype=np.bool_)
    is_inside[index] = _are_inside(launches, calls.start_ns[index], step[index])
    found = [
        *_of_waits(context, index[~is_allocation], is_inside, step, steps),
        *_of_allocations(context, index[is_allocation], steps),
    ]
    found.sort(key=lambda one: (one[0].way, -one[0].per_step))
    index = np.concatenate([np.zeros(0, dtype=np.intp), *(group for _, group in found)])
    blocker_of = np.repeat(np.arange(len(found)), [len(group) for _, group in found])
    order = np.argsort(calls.start_ns[index], kind="stable")
    index, blocker_of = index[order], blocker_of[order]
    in_way = _Calls(calls.event_id[index], calls.start_ns[index], step[index])
    return tuple(blocker for blocker, _ in found), in_way, blocker_of


def _are_inside(
    launches: _Calls, moments_ns: Int64Array, step: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """bool[k], whether more than a few launches of their step are on either side of moments."""
    first = np.searchsorted(launches.step, step)
    end = np.searchsorted(launches.step, step, side="right")
    before = np.clip(np.searchsorted(launches.start_ns, moments_ns) - first, 0, end - first)
    few = _FEW * (end - first)
    inside: NDArray[np.bool_] = (before > few) & (end - first - before > few)
    return inside


def _of_waits(
    context: Context,
    index: NDArray[np.intp],
    is_inside: NDArray[np.bool_],
    step: NDArray[np.intp],
    steps: int,
) -> Iterator[tuple[CaptureBlocker, NDArray[np.intp]]]:
    """The blockers of calls that wait (index of blocking calls), by place, and their calls.

    Args:
        context: the window.
        index: intp[k], index of blocking calls.
        is_inside: bool[blocking calls], which have launches on both sides.
        step: intp[blocking calls], which step each is in.
        steps: how many there are.
    """
    costs = context.blocking_calls
    event_id = costs.calls.event_id[index]
    names = [context.trace.name_of(event) for event in event_id.tolist()]
    sites = [costs.call_sites[i] for i in index.tolist()]
    pageable = context.copies_pageable_memory(event_id, sites)
    needs, remedies = context.host_needs[index], _edits_of_remedies(context, event_id)
    for group in grouped(map(describe, sites, names)).values():
        if len(np.unique(step[index[group]])) < _USUAL * steps:
            continue
        way = Way.COPY if pageable[group].any() else Way.WAIT
        if (needs[group] == Need.SIZE).all():
            way = Way.SIZE
        # A copy and the synchronize behind it are one call of the program.
        [(api, times), *_] = Counter(names[i] for i in group).most_common(1)
        site, edit_of_remedy = sites[group[0]], remedies[group[0]]
        # With such a remedy nothing is asked for any more; others only say when else to ask.
        removes = edit_of_remedy is not None and edit_of_remedy.startswith("remove:")
        edit = edit_of_remedy or ("pin:{place}" if way == Way.COPY else "unblock:{place}")
        needs_size = way == Way.SIZE and not have_same_sizes(context, event_id[group])
        blocker = CaptureBlocker(
            way=way,
            what=describe(site, api),
            call=called(site, api),
            per_step=times / steps,
            idle_ns=int(costs.caused_idle_ns[index[group]].sum()),
            is_needed=(cannot_go(needs[group]) or needs_size) and not removes,
            is_inside=bool(is_inside[index[group]].any()),
            edit=edit_text(edit, where(site, count=len(group), api=api)) or "",
        )
        yield blocker, index[group]


def _of_allocations(
    context: Context, index: NDArray[np.intp], steps: int
) -> Iterator[tuple[CaptureBlocker, NDArray[np.intp]]]:
    """The blocker of what gives memory back in the steps, or else of what gets it; and its calls.

    Without the first there would be none of the second.

    Args:
        context: the window.
        index: intp[k], index of the allocator's calls among the blocking calls.
        steps: how many steps there are.
    """
    event_id = context.blocking_calls.calls.event_id
    index = index[~context.first_use.holds(event_id[index])]
    if not len(index):
        return
    names = [context.trace.name_of(event) for event in event_id[index].tolist()]
    gives_back = [position for position, name in enumerate(names) if is_free(name)]
    blamed = gives_back or list(range(len(names)))
    sites = [context.blocking_calls.call_sites[i] for i in index[blamed].tolist()]
    [(site, _), *_] = Counter(sites).most_common(1)
    blocker = CaptureBlocker(
        way=Way.ALLOCATION,
        what=describe(site, names[blamed[0]]),
        call=called(site, names[blamed[0]]),
        per_step=len(blamed) / steps,
        idle_ns=int(context.blocking_calls.caused_idle_ns[index].sum()),
        is_needed=False,
        is_inside=True,
        edit=JOINT.join(f"remove:{name}" for name in sorted(set(names))),
    )
    yield blocker, index[blamed]


def _edits_of_remedies(context: Context, call_id: Int64Array) -> list[str | None]:
    """What takes each call (event ids) away where a remedy is recognized; None without one."""
    edits: list[str | None] = [None] * len(call_id)
    for rule_id in _RULES_OF_CALLS:
        remedies = context.recognized.remedies(call_id, rule_id)
        edits = [
            edit or (remedy.edit_of_finding if remedy and not remedy.is_general else None)
            for edit, remedy in zip(edits, remedies, strict=True)
        ]
    return edits


def _other_threads(context: Context, launches: _Calls, rows: NDArray[np.intp]) -> tuple[str, ...]:
    """The names of the threads, but for autograd's and the main one, that launch much of a step."""
    trace = context.trace
    thread = trace.thread_index[launches.event_id[~context.in_backward[rows]]]
    launched = {number: len(index) for number, index in groups_of(thread)}
    main = max(launched, key=lambda number: launched[number], default=ABSENT)
    return tuple(
        trace.threads[number].name
        for number, count in launched.items()
        if number != main and count >= _NOTABLE * len(launches)
    )


def _compiled_share(context: Context, launches: _Calls) -> float:
    """Of the launches, the share of code that `torch.compile` made."""
    regions = compiled_regions(context.trace)
    return float((regions.innermost(launches.event_id) != ABSENT).mean())


# --- what can be captured ---


def _largest_part(
    context: Context,
    launches: _Calls,
    rows: NDArray[np.intp],
    calls: _Calls,
    blocker_of: NDArray[np.intp],
) -> Part:
    """The part between two calls that has most launches, with all its repetitions.

    Args:
        context: the window.
        launches: those of the steps.
        rows: intp[launches], the first timeline row of each.
        calls: the calls that end a part.
        blocker_of: intp[calls], what each of them is.
    """
    steps = int(launches.step.max()) + 1
    number = np.searchsorted(calls.start_ns, launches.start_ns)
    step_of_call = np.append(calls.step, (ABSENT, ABSENT))  # behind the last, and before the first
    blocker = np.append(blocker_of, (ABSENT, ABSENT))
    before, after = (
        np.where(step_of_call[at] == launches.step, blocker[at], ABSENT)
        for at in (number - 1, number)
    )
    _, first_of_part, part_of, count = np.unique(
        launches.step * (len(calls) + 1) + number,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    kind = before[first_of_part] * (len(calls) + 2) + after[first_of_part]
    kinds, kind_of_part = np.unique(kind, return_inverse=True)
    top = int(np.argmax(np.bincount(kind_of_part, weights=count, minlength=len(kinds))))
    of_kind = np.where(kind_of_part == top, count, 0)
    parts = np.flatnonzero(of_kind >= _ALIKE * _usual_length(of_kind))
    chosen = np.isin(part_of, parts)
    first_part = first_of_part[parts[0]]
    ends = [calls.event_id[blocker_of == end[first_part]] for end in (before, after)]
    length, in_step = int(np.median(count[parts])), np.bincount(launches.step, minlength=steps)
    return Part(
        launches=length,
        per_step=len(parts) / steps,
        of_launches=int(np.median(in_step)),
        before=int(before[first_part]),
        after=int(after[first_part]),
        work=_phases_of(context, launches.event_id[chosen]),
        module=_module_of(context, launches.event_id[chosen]),
        cut_in=next(filter(None, (_where_cut(context, end) for end in ends)), None),
        repetitions=tuple(rows[part_of == part] for part in parts.tolist()),
    )


def _usual_length(lengths: Int64Array) -> int:
    """The length of the parts that hold most: half of all is in parts that are no longer.

    >>> _usual_length(np.array([1, 1, 1, 1, 40, 42, 42]))
    42
    """
    in_order = np.sort(lengths)
    held = np.cumsum(in_order)
    return int(in_order[np.searchsorted(held, held[-1] / 2)])


def _phases_of(context: Context, launch_id: Int64Array) -> tuple[str, ...]:
    """What launches are for; nothing where the file hardly says."""
    phase = context.phases.of_events(launch_id)
    share = {phase_: float((phase == phase_).mean()) for phase_ in _NAMED_PHASES}
    if sum(share.values()) <= _MOST:
        return ()
    return tuple(phase_.name.lower() for phase_ in _NAMED_PHASES if share[phase_] >= _NOTABLE)


def _where_cut(context: Context, call_id: Int64Array) -> str | None:
    """What most of the calls at an end of a part are inside of, in words."""
    if not len(call_id):
        return None
    is_backward = context.phases.of_events(call_id) == Phase.BACKWARD
    if is_backward.mean() > _MOST:
        return "the backward pass"
    module = _module_of(context, call_id)
    return f"`{module}`" if module else None


def _module_of(context: Context, event_id: Int64Array) -> str | None:
    """The outermost module that most of these host events are in; None without one."""
    trace = context.trace
    frames = trace.of_category(Category.PYTHON)
    is_module = match_names(trace, frames, lambda name: name.startswith("nn.Module:"))
    modules = Nesting(trace, frames[is_module])
    index = modules.innermost(event_id)
    inside = np.flatnonzero(index != ABSENT)
    while len(inside):
        parent = modules.parent_index[index[inside]]
        inside = inside[parent != ABSENT]
        index[inside] = parent[parent != ABSENT]
    names = Counter(
        called_name(trace.name_of(int(modules.event_id[i]))) for i in index[index != ABSENT]
    )
    [(name, count)] = names.most_common(1) or [("", 0)]
    return name if count > _MOST * len(event_id) else None


def find_change(context: Context, part: Part) -> Change | None:
    """What differs between the repetitions of a part; None where there is only one.

    Kernels are compared by name; where these are alike, the launch dimensions and, where the file
    has them, the shapes of some of the first repetitions.
    """
    timeline, trace = context.timeline, context.trace
    kernels = [rows[timeline.kind[rows] == Kind.COMPUTE] for rows in part.repetitions]
    names = [trace.name_index[timeline.event_id[rows]] for rows in kernels]
    groups = grouped(name.tobytes() for name in names)
    usual = max(groups.values(), key=len)
    if len(kernels) < 2 or (len(usual) < 2 and len(groups) < 2):
        return None
    if len(usual) < _ALIKE * len(names):
        other = next(group for group in groups.values() if group is not usual)
        first_row = _first_difference(context, kernels[usual[0]], kernels[other[0]])
        return Change(context.kernel_name(first_row), has_shapes=False)
    rows = np.stack([kernels[i] for i in usual[:_REPETITIONS]])
    chosen = np.unique(np.linspace(0, max(0, rows.shape[1] - 1), _MOST_COMPARED).astype(np.intp))
    rows = rows[:, chosen[: rows.shape[1]]]
    operators = timeline.operators
    operator = operators.innermost(timeline.launch_id[rows.ravel()])
    operator_id = np.append(operators.event_id, ABSENT)[operator]
    kernel_id = timeline.event_id[rows]
    known_id = np.union1d(kernel_id, operator_id[operator_id != ABSENT])
    arguments = context.arguments(known_id.tolist())
    shapes = np.array([_shapes(arguments.get(i, {})) for i in operator_id.tolist()], dtype=object)
    differs = [
        len(set(map(_dimensions, map(arguments.__getitem__, column)))) > 1
        or len(set(shapes_there)) > 1
        for column, shapes_there in zip(
            kernel_id.T.tolist(), shapes.reshape(rows.shape).T.tolist(), strict=True
        )
    ]
    at = context.kernel_name(int(rows[0, differs.index(True)])) if any(differs) else None
    return Change(at, has_shapes=any(shapes))


def _dimensions(arguments: Mapping[str, Any]) -> str:
    """The launch dimensions of a kernel, by its arguments."""
    return repr([arguments.get(key) for key in ("grid", "block", "blocks per SM")])


def _shapes(arguments: Mapping[str, Any]) -> str:
    """The shapes that an operator was called with, by its arguments; "" where there are none."""
    shapes = arguments.get("Input Dims", arguments.get("Input dims"))
    return "" if shapes is None else repr(shapes)


def _first_difference(context: Context, rows: NDArray[np.intp], others: NDArray[np.intp]) -> int:
    """The timeline row of the first kernel in which two sequences of rows differ by name."""
    event_id, name_index = context.timeline.event_id, context.trace.name_index
    length = min(len(rows), len(others))
    differs = name_index[event_id[rows[:length]]] != name_index[event_id[others[:length]]]
    longer = rows if len(rows) > length else others
    return int(rows[np.argmax(differs)] if differs.any() else longer[length])
