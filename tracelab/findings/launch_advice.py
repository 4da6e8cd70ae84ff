"""What to do about steps whose launches come too late, of what the trace shows to be possible.

A CUDA graph comes after what is in its way, in that order, and no function is named that the
trace's PyTorch does not have. A larger batch is not advised: what it adds to the GPU's work, no
trace says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tracelab.findings.context import Context
from tracelab.findings.finding import MAX_SHORT_LETTERS, REPORTED_SHARE, WARNING_SHARE
from tracelab.findings.graph_capture import (
    Capture,
    CaptureBlocker,
    Change,
    Part,
    Way,
    find_capture,
    find_change,
)
from tracelab.findings.places import JOINT
from tracelab.findings.remedy import NO_FIX, Instead, is_available
from tracelab.findings.replay_advice import (
    CAPTURABLE,
    GRAPH,
    Launched,
    advise_on_replays,
    find_launched,
)
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT

_MOST = 0.5  # of the launches, of the activities, of the GPU time
_FEW_LAUNCHES = 20  # are hardly worth a graph
_GAINS = 1.5  # times as many launches in one graph: worth it to remove what is in the way
_TRAINING = (Phase.BACKWARD, Phase.OPTIMIZER)
_MOST_NAMED = 3  # places of a kind

_WAITS, _BLOCKING = "waits", "blocking calls"
# What to do about each kind first, and what is avoided so.
_FIRST: Mapping[Way, tuple[str, str]] = MappingProxyType(
    {
        Way.WAIT: (
            "Do not wait for the GPU at {places}: keep the value there, or read it every N steps.",
            _WAITS,
        ),
        Way.COPY: (
            "Pin the memory of the copies at {places} (`x.pin_memory()`), and pass "
            "`non_blocking=True`.",
            "pageable copies",
        ),
        Way.SIZE: (
            "Find what has the same size in every step once, before the loop: {places}.",
            "reads of sizes",
        ),
        Way.ALLOCATION: (
            "Keep the memory that is returned or requested at {places}.",
            "allocations",
        ),
    }
)


class _Step(NamedTuple):
    """One thing to do before a capture.

    Attributes:
        text: an imperative sentence.
        avoids: what is in the way, as a noun.
    """

    text: str
    avoids: str


class Advice(NamedTuple):
    """What to do, in sentences, and the edit that stands for exactly that.

    Attributes:
        fix: numbered steps, and the first that matters.
        edit: the edit; None where nobody knows what it saves.
        is_possible: whether the trace shows that it can be done: the same launches each time.
    """

    fix: Instead
    edit: str | None
    is_possible: bool = True


def advise(context: Context, lost_ns: int) -> Advice:
    """How the steps of a window can be launched in less time.

    Args:
        context: the window.
        lost_ns: the idle time that late launches cost in it, ns.
    """
    if lost_ns < REPORTED_SHARE * context.window.length_ns:  # it is not reported
        return Advice(NO_FIX, None)
    capture = find_capture(context)
    if capture is None or not _functions(context, capture):
        return Advice(Instead("Launch fewer kernels: fuse small ones."), None)
    launched = find_launched(context) if capture.replayed_share > 0 else None
    has_few = launched is not None and launched.eager <= _FEW_LAUNCHES * launched.replays
    if launched is not None and has_few and capture.replayed_share > _MOST:
        return _advice_on_replays(context, capture, launched)
    plan = _plan(context, capture, lost_ns)
    edits = dict.fromkeys([*(blocker.edit for blocker in plan.removed), GRAPH])
    return Advice(
        _fix(context, capture, plan, launched),
        JOINT.join(edits),
        is_possible=_is_possible(context, capture, plan),
    )


def _advice_on_replays(context: Context, capture: Capture, launched: Launched) -> Advice:
    """What to do about the late launches of a program that replays most of its work."""
    shows, step, edit = advise_on_replays(launched)
    inside = [blocker for blocker in capture.blockers if blocker.is_inside]
    first = _changed_first(inside, "No graph goes beyond a call that waits", capture.has_steps)
    # Steps with a replay and steps without one differ, whatever their shapes.
    is_alike = edit is not None and not launched.is_in_few_steps
    change = find_change(context, capture.as_it_is) if is_alike else None
    conditions = [] if edit is None else _other_conditions(capture, change)
    steps = [*([CAPTURABLE] if launched.has_optimizer else []), step]
    fix = Instead(
        _joined(shows, _numbered([*(x.text for x in (*first, *conditions)), *steps])),
        short=_in_short(step, [*first, *conditions], inside),
    )
    return Advice(fix, edit, is_possible=not conditions)


# With it whole models took 0.6 of a step where launching cost at most 0.04 (H100, judgement).
_FUSES = "Compiled code also fuses elementwise kernels, which the figure leaves out."


class _Plan(NamedTuple):
    """What comes first, what can be captured then, and what changes in that.

    Attributes:
        costlier: what is in the way and costs more than the late launches: other findings are about
            that, and what is saved is said as long as it stays.
        removed: what is in the way else.
        part: what is captured.
        change: what differs between its repetitions; None where that is not known.
    """

    costlier: tuple[CaptureBlocker, ...]
    removed: tuple[CaptureBlocker, ...]
    part: Part
    change: Change | None


def _plan(context: Context, capture: Capture, lost_ns: int) -> _Plan:
    """What to capture, and what comes before that.

    Nothing, where a part between two calls has most of the launches already and can be captured as
    it is, or where hardly more would be in one graph without them. An operator the size of whose
    result changes makes all that follows change.
    """
    as_it_is, without = capture.as_it_is, capture.without
    change = find_change(context, as_it_is)
    removed = tuple(blocker for blocker in capture.blockers if blocker.can_go)
    is_small = lost_ns < WARNING_SHARE * context.window.length_ns
    if not capture.has_steps or is_small or not removed:
        return _Plan((), (), as_it_is, change)
    has_sizes = any(blocker.way == Way.SIZE for blocker in removed)
    changes_by_size = has_sizes and change is not None and change.kernel is not None
    is_enough = as_it_is.is_most and as_it_is.cut_in is None
    gains = without.launches >= _GAINS * as_it_is.launches
    is_less_cut = as_it_is.cut_in is not None and without.cut_in is None
    if not changes_by_size and (is_enough or not (gains or is_less_cut)):
        return _Plan((), (), as_it_is, change)
    if sum(blocker.idle_ns for blocker in removed) > lost_ns:
        return _Plan(removed, (), as_it_is, change)
    # What changes by the size of a result no longer does.
    then = None if has_sizes else find_change(context, without)
    return _Plan((), removed, without, then)


def _fix(context: Context, capture: Capture, plan: _Plan, launched: Launched | None) -> Instead:
    """What is in the way, what to remove first, and what to capture then.

    Args:
        context: the window.
        capture: what a graph would have to hold.
        plan: what comes first, and what to capture.
        launched: what steps launch where they replay graphs already, else None.
    """
    part = plan.part
    is_between = part.before != ABSENT or part.after != ABSENT
    calls = (*plan.costlier, *plan.removed)
    costlier = sorted(plan.costlier, key=lambda blocker: -blocker.idle_ns)
    replays = launched is not None and launched.replays > 0
    first = [
        *_changed_first(costlier, "More idle time comes from there", has_steps=True),
        *_removals(plan.removed),
        *_other_conditions(capture, plan.change),
        *_cut(part),
    ]
    shows = f"{launched.what}." if launched is not None and replays else ""
    shows = _joined(shows, _why_not_all(capture, part))
    if is_between and part.launches < _FEW_LAUNCHES:
        fuse = "Fuse the kernels between two blocking calls"
        fuse += "." if differentiates_twice(context.trace.strings) else f": {_compiled(capture)}."
        few = f"They are no more than {part.launches}, too few for a graph."
        steps = [*(step.text for step in first), f"{fuse} {few} Or let each read serve more."]
        return Instead(_joined(shows, _numbered(steps)), short=_in_short(fuse, first, calls))
    size = f"That is {_size(part, capture.has_steps)}."
    whole = "a step" if capture.has_steps else "what repeats"
    what = short_what = f"{whole} as {'one' if replays else 'a'} CUDA graph"
    if is_between and part.is_most:
        others = part.of_launches - part.launches >= _FEW_LAUNCHES
        more = ", and each other part between blocking calls as one of its own" if others else ""
        what = f"what runs {_ends(capture, part)} as a CUDA graph{more}"
        short_what = "the part between blocking calls as a CUDA graph"
    elif is_between:
        what = short_what = "each part between blocking calls as a CUDA graph"
        size = f"The largest, {_ends(capture, part)}, is {_size(part, capture.has_steps)}."
    codes, about = _how(context, capture, part, replays=replays)
    has_optimizer = Phase.OPTIMIZER.name.lower() in part.work
    steps = [
        *(step.text for step in first),
        *([CAPTURABLE] if has_optimizer else []),
        _joined(f"Capture {what}: {' or '.join(codes)}.", about, size),
    ]
    is_free = not is_between and not first and plan.change is not None
    text = _joined(
        shows,
        _numbered(steps),
        "Nothing in the trace prevents it: no blocking call, and the same kernels each time."
        if is_free
        else "",
        *_conditions(capture, plan),
    )
    adam = " (Adam: `capturable=True`)" if has_optimizer else ""
    goal = f"Capture {short_what}: {codes[0]}{adam}."
    return Instead(text, short=_in_short(goal, first, calls))


def _numbered(steps: Sequence[str]) -> str:
    """Steps in their order, numbered where there are several.

    >>> _numbered(["Compile it."]), _numbered(["Pin it.", "Compile it."])
    ('Compile it.', '1. Pin it. 2. Compile it.')
    """
    if len(steps) < 2:
        return "".join(steps)
    return " ".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def _in_short(goal: str, first: Sequence[_Step], calls: Sequence[CaptureBlocker]) -> str:
    """The step that matters, and what comes before it, as exactly as there is room for.

    Args:
        goal: that step, a sentence.
        first: what comes before it.
        calls: the calls that are to be removed.
    """
    if not first:
        return goal
    names = {blocker.call for blocker in calls if blocker.can_go}
    is_named = {step.avoids for step in first} <= {_WAITS, _BLOCKING} and len(names) == 1
    avoided = _enumerated(list(dict.fromkeys(step.avoids for step in first)))
    endings = (
        *([f"avoid the wait in {name}" for name in names if name and is_named]),
        f"avoid {avoided}",
        "avoid what no graph can hold",
    )
    texts = [f"{goal[:-1]}; first {ending}." for ending in endings]
    return next((text for text in texts if len(text) <= MAX_SHORT_LETTERS), texts[-1])


# --- what comes before the graph ---


def _changed_first(blockers: Sequence[CaptureBlocker], why: str, has_steps: bool) -> list[_Step]:
    """That calls which cost more, or cut a graph, are changed first; nothing without any."""
    if not blockers:
        return []
    return [_Step(f"Change {_places(blockers, has_steps=has_steps)} first. {why}.", _BLOCKING)]


def _removals(removed: Sequence[CaptureBlocker]) -> list[_Step]:
    """What is to be removed, by kind; only of a file with steps anything is."""
    of_ways = {way: [one for one in removed if one.way == way] for way in _FIRST}
    return [
        _Step(text.format(places=_places(of_ways[way], has_steps=True)), avoids)
        for way, (text, avoids) in _FIRST.items()
        if of_ways[way]
    ]


def _places(blockers: Sequence[CaptureBlocker], *, has_steps: bool) -> str:
    """Where they are, and how often in a step."""
    named = [
        f"{x.what} ({_often(x.per_step, has_steps=has_steps)})" for x in blockers[:_MOST_NAMED]
    ]
    more = len(blockers) - len(named)
    if more:
        named.append(f"{more} more {'place' if more == 1 else 'places'}")
    return _enumerated(named)


def _often(count: float, *, has_steps: bool) -> str:
    """How often something happens.

    >>> _often(1.5, has_steps=True), _often(1, has_steps=False), _often(2, has_steps=False)
    ('1.5 a step', 'once', '2 times')
    """
    if has_steps:
        return f"{count:,.3g} a step"
    return "once" if count == 1 else f"{count:,.3g} times"


def _other_conditions(capture: Capture, change: Change | None) -> list[_Step]:
    """What else a capture needs of the program."""
    steps = []
    if change is not None and change.kernel is not None:
        trains = Phase.BACKWARD.name.lower() in capture.without.work
        decoding = "" if trains else " (in decoding: a static key-value cache)"
        text = (
            f"Pad to a few fixed shapes, with a graph for each{decoding}: "
            f"`{change.kernel}` is not launched with the same shape each time."
        )
        steps.append(_Step(text, "changing shapes"))
    if capture.threads:
        others = list(filter(None, capture.threads)) or ["another thread"]
        text = f"Launch from one thread: {_enumerated(others)} launches, too."
        steps.append(_Step(text, "launches from other threads"))
    return steps


def _cut(part: Part) -> list[_Step]:
    """What to do about a call inside of what is captured."""
    if part.cut_in is None:
        return []
    text = (
        f"Move the blocking call out of {part.cut_in}, or capture the modules on either side of it."
    )
    return [_Step(text, _BLOCKING)]


def _why_not_all(capture: Capture, part: Part) -> str:
    """Why a whole step is not one graph."""
    needed = [blocker for blocker in capture.blockers if blocker.is_needed]
    if not needed or part.is_most:
        return ""
    places = _places(needed, has_steps=capture.has_steps)
    whole = "a step" if capture.has_steps else "the whole"
    return f"The CPU needs at once what it reads at {places}: {whole} is not one graph."


# --- the graph ---


def _how(context: Context, capture: Capture, part: Part, *, replays: bool) -> tuple[list[str], str]:
    """By which function of PyTorch; an optimizer's step is captured by one of them alone.

    Where a step replays graphs already, the others have been used, or do not hold all of it.

    Returns:
        the code, the best first, and a sentence about it.
    """
    functions = _functions(context, capture)
    has_optimizer = Phase.OPTIMIZER.name.lower() in part.work
    whole = ["`with torch.cuda.graph(graph):` around all of it"]
    if differentiates_twice(context.trace.strings):
        return whole, "Neither a compiled model nor a graphed callable is differentiated twice."
    if not replays and (not has_optimizer or capture.compiled_share > _MOST):
        fuses = "torch.compile" in functions[0] and capture.compiled_share <= _MOST
        return functions, _FUSES if fuses else ""
    less = f"{functions[0]} is less work, but captures forward and backward alone, and saves less."
    return whole, "" if replays else less


def differentiates_twice(names: Iterable[str]) -> bool:
    """True if a backward pass is differentiated again, which `torch.compile` cannot do.

    >>> differentiates_twice(["TanhBackward0"]), differentiates_twice(["TanhBackwardBackward0"])
    (False, True)
    """
    return any("BackwardBackward" in name for name in names)


def _functions(context: Context, capture: Capture) -> list[str]:
    """The functions that capture a model and that the trace's version of PyTorch has."""
    functions = [("2.0", _compiled(capture, "reduce-overhead"))]
    if capture.compiled_share <= _MOST:
        functions.append(("1.10", "`torch.cuda.make_graphed_callables(model, (batch,))`"))
    return [
        function if context.torch else f"{function} (since PyTorch {since})"
        for since, function in functions
        if context.torch is None or is_available(since, context.torch)
    ]


def _compiled(capture: Capture, mode: str = "") -> str:
    """The call of `torch.compile`; of code that is compiled already only the mode is new."""
    what = "..." if capture.compiled_share > _MOST else "model"
    how = f', mode="{mode}"' if mode else ""
    return f"`torch.compile({what}{how})`"


def _is_possible(context: Context, capture: Capture, plan: _Plan) -> bool:
    """Tell whether the trace shows that a capture needs nothing more of the program.

    It shows that the launches are the same each time, and not whether an optimizer can be captured,
    gradients and inputs stay at their addresses, or other ranks capture at once.
    """
    is_same = plan.change is not None and plan.change.kernel is None
    is_alone = not (capture.threads or capture.has_collectives)
    if not is_same or not is_alone or plan.part.cut_in is not None:
        return False
    launch_id = context.timeline.launch_id[np.concatenate(plan.part.repetitions)]
    return not np.isin(context.phases.of_events(launch_id), _TRAINING).any()


def _conditions(capture: Capture, plan: _Plan) -> list[str]:
    """What a capture needs that the trace shows, or does not."""
    conditions = []
    if capture.has_collectives:
        conditions.append(
            "All ranks capture their collectives at once, under DDP after at least 11 steps."
        )
    if plan.change is None and not plan.removed:
        conditions.append("The trace has nothing to compare it with: shapes must not change.")
    elif plan.change is not None and plan.change.kernel is None and not plan.change.has_shapes:
        conditions.append("Shapes, which are not in the trace, must not change.")
    return conditions


def _size(part: Part, has_steps: bool) -> str:
    """How much it is, and of what."""
    of = f" of {part.of_launches:,}" if part.launches < part.of_launches else ""
    times = f", {part.per_step:,.3g} times a step" if part.per_step > 1 and has_steps else ""
    what = [*part.work, *([f"`{part.module}`"] if part.module else [])]
    about = f" ({', '.join(what)})" if what else ""
    return f"{part.launches:,}{of} launches{times}{about}"


def _ends(capture: Capture, part: Part) -> str:
    """Between what it runs."""
    before, after = (
        None if index == ABSENT else capture.blockers[index].what
        for index in (part.before, part.after)
    )
    if before == after:
        return f"between two calls of {before}"
    if before is None:
        return f"before {after}"
    return f"after {before}" if after is None else f"between {before} and {after}"


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _enumerated(names: Sequence[str]) -> str:
    """Names as one phrase.

    >>> _enumerated(["a"]), _enumerated(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
