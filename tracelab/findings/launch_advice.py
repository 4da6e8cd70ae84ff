"""What to do about steps whose launches come too late, of what the trace shows to be possible.

A CUDA graph comes after what is in its way, in that order, and no function is named that the
trace's PyTorch does not have. A larger batch is not advised: what it adds to the GPU's work, no
trace says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tracelab.findings.context import Context
from tracelab.findings.finding import REPORTED_SHARE, WARNING_SHARE
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
from tracelab.findings.remedy import Instead, is_available
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

_FIRST: Mapping[Way, str] = MappingProxyType(
    {
        Way.WAIT: "do not wait for the GPU at {places}",
        Way.COPY: "pin the memory of the copies at {places} (`pin_memory()`, `non_blocking=True`)",
        Way.SIZE: "find what has the same size in every step once, before the loop: {places}",
        Way.ALLOCATION: "keep the memory that is given back or got at {places}",
    }
)


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
        return Advice(Instead(""), None)
    capture = find_capture(context)
    if capture is None or not _functions(context, capture):
        return Advice(Instead("Launch fewer kernels: fuse small ones."), None)
    launched = find_launched(context) if capture.replayed_share > 0 else None
    has_few = launched is not None and launched.eager <= _FEW_LAUNCHES * launched.replays
    if launched is not None and has_few and capture.replayed_share > _MOST:
        return _advice_on_replays(context, capture, launched)
    plan = _plan(context, capture, lost_ns)
    edits = dict.fromkeys([*(blocker.edit for blocker in plan.removed), GRAPH])
    sentences = _sentences(context, capture, plan, launched)
    return Advice(
        Instead(_joined(*sentences)),
        JOINT.join(edits),
        is_possible=_is_possible(context, capture, plan),
    )


def _advice_on_replays(context: Context, capture: Capture, launched: Launched) -> Advice:
    """What to do about the late launches of a program that replays most of its work."""
    inside = [blocker for blocker in capture.blockers if blocker.is_inside]
    places = _places(inside, has_steps=capture.has_steps)
    sentences, edit = advise_on_replays(launched, places)
    if edit is None:
        return Advice(Instead(_joined(*sentences)), None)
    # Steps with a replay and steps without one differ, whatever their shapes.
    change = None if launched.is_in_few_steps else find_change(context, capture.as_it_is)
    conditions = _other_conditions(capture, change)
    return Advice(
        Instead(_joined(*sentences, _in_order(conditions))), edit, is_possible=not conditions
    )


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


def _sentences(
    context: Context, capture: Capture, plan: _Plan, launched: Launched | None
) -> list[str]:
    """What is in the way, what to remove first, and what to capture then.

    Args:
        context: the window.
        capture: what a graph would have to hold.
        plan: what comes first, and what to capture.
        launched: what steps launch where they replay graphs already, else None.
    """
    part = plan.part
    is_between = part.before != ABSENT or part.after != ABSENT
    first = [*_removals(plan.removed), *_other_conditions(capture, plan.change)]
    costlier = sorted(plan.costlier, key=lambda blocker: -blocker.idle_ns)
    replays = launched is not None and launched.replays > 0
    sentences = [
        f"{launched.what}." if launched is not None and replays else "",
        f"More idle time comes from {_places(costlier, has_steps=True)}: change that first."
        if costlier
        else "",
        _why_not_all(capture, part),
        _in_order(first),
    ]
    if is_between and part.launches < _FEW_LAUNCHES:
        fuse = _compiled(capture)
        return [
            *sentences,
            f"No more than {part.launches} launches come between two of them, too few for a graph: "
            f"fuse them ({fuse}), or let each read serve more.",
        ]
    replay = "Then replay" if first else "Replay"
    size = _size(part, capture.has_steps)
    if is_between and part.is_most:
        others = part.of_launches - part.launches >= _FEW_LAUNCHES
        more = ", and each other part between blocking calls as one of its own" if others else ""
        sentences.append(
            f"{replay} what runs {_ends(capture, part)} as a CUDA graph{more}: {size}."
        )
    elif is_between:
        sentences.append(
            f"{replay} each part between blocking calls as a CUDA graph; the largest, "
            f"{_ends(capture, part)}, is {size}."
        )
    else:
        whole = "a step" if capture.has_steps else "what repeats"
        one = "one" if replays else "a"
        sentences.append(f"{replay} {whole} as {one} CUDA graph: {size}.")
    sentences.append(_how(context, capture, part, replays=replays))
    if not is_between and not first and plan.change is not None:
        sentences.append(
            "Nothing in the trace prevents it: no blocking call, and the same kernels each time."
        )
    return [*sentences, *_conditions(capture, plan)]


# --- what comes before the graph ---


def _removals(removed: Sequence[CaptureBlocker]) -> list[str]:
    """What is to be removed, by kind, as clauses; only of a file with steps anything is."""
    of_ways = {way: [one for one in removed if one.way == way] for way in _FIRST}
    return [
        _FIRST[way].format(places=_places(of_way, has_steps=True))
        for way, of_way in of_ways.items()
        if of_way
    ]


def _places(blockers: Sequence[CaptureBlocker], *, has_steps: bool) -> str:
    """Where they are, and how often in a step."""
    per = "a step" if has_steps else "times"
    named = [f"{one.what} ({one.per_step:,.3g} {per})" for one in blockers[:_MOST_NAMED]]
    more = len(blockers) - len(named)
    if more:
        named.append(f"{more} more {'place' if more == 1 else 'places'}")
    return _enumerated(named)


def _other_conditions(capture: Capture, change: Change | None) -> list[str]:
    """What else a capture needs of the program, as clauses."""
    clauses = []
    if change is not None and change.kernel is not None:
        trains = Phase.BACKWARD.name.lower() in capture.without.work
        decoding = "" if trains else " (in decoding: a static key-value cache)"
        clauses.append(
            f"pad to a few fixed shapes, with a graph for each{decoding}, because "
            f"`{change.kernel}` is not launched with the same shape each time"
        )
    if capture.threads:
        others = list(filter(None, capture.threads)) or ["another thread"]
        clauses.append(f"launch from one thread ({_enumerated(others)} launches, too)")
    return clauses


def _in_order(first: Sequence[str]) -> str:
    """What comes first, as a sentence."""
    if len(first) < 2:
        return "".join(f"First {clause}." for clause in first)
    numbered = "; ".join(f"({number}) {clause}" for number, clause in enumerate(first, 1))
    return f"First, in this order: {numbered}."


def _why_not_all(capture: Capture, part: Part) -> str:
    """Why a whole step is not one graph."""
    needed = [blocker for blocker in capture.blockers if blocker.is_needed]
    if not needed or part.is_most:
        return ""
    places = _places(needed, has_steps=capture.has_steps)
    whole = "a step" if capture.has_steps else "the whole"
    return f"The host needs at once what it reads at {places}: {whole} is not one graph."


# --- the graph ---


def _how(context: Context, capture: Capture, part: Part, *, replays: bool) -> str:
    """By which function of PyTorch; an optimizer's step is captured by one of them alone.

    Where a step replays graphs already, the others have been used, or do not hold all of it.
    """
    if replays:
        return "Use `torch.cuda.graph` around all of it."
    functions = _functions(context, capture)
    has_optimizer = Phase.OPTIMIZER.name.lower() in part.work
    if not has_optimizer or capture.compiled_share > _MOST:
        return f"Use {' or '.join(functions)}."
    return (
        f"Use `torch.cuda.graph` around all of it. {functions[0]} is less work, but captures the "
        "forward and backward passes alone, and saves less."
    )


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
    if plan.part.cut_in is not None:
        conditions.append(
            f"The blocking call is inside {plan.part.cut_in}: move it out, or capture the modules "
            "on either side of it."
        )
    if Phase.OPTIMIZER.name.lower() in plan.part.work:
        conditions.append(CAPTURABLE)
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
