"""Late launches: advise a CUDA graph of what can be captured, after what is in its way.

No function is named that the trace's PyTorch does not have. A larger batch is not advised: no trace
shows how much work it adds to the GPU's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tracelab.findings.advice import sentences
from tracelab.findings.advice.capture import Blocker, Capture, Segment, Way, find_capture
from tracelab.findings.advice.repeats import Change, find_change
from tracelab.findings.advice.replays import Launched, find_launched
from tracelab.findings.context import Context
from tracelab.findings.finding import MIN_REPORTED_SHARE, WARNING_SHARE
from tracelab.findings.places import JOINT
from tracelab.findings.remedy import NO_FIX, Instead, is_available
from tracelab.model.phases import Phase

_GRAPH = "graph"  # the edit
# Of the activities, in a program of replays.
_MIN_REPLAYED_SHARE = 0.5
# Of the launches, in a compiled program.
_MIN_COMPILED_SHARE = 0.5
_MIN_GRAPH_LAUNCHES = 20
# Times as many launches in one graph make it worth it to remove a blocker.
_MIN_GRAPH_GROWTH = 1.5
_TRAINING = (Phase.BACKWARD, Phase.OPTIMIZER)
_WHOLE = ["`with torch.cuda.graph(graph):` around all of it"]
# With it whole models took 0.6 of a step where launching cost at most 0.04 (H100, judgement).
_FUSES = "Compiled code also fuses elementwise kernels, which the figure leaves out."


class Advice(NamedTuple):
    """Sentences, and the edit that stands for exactly that.

    Attributes:
        fix: numbered steps, and the most important one.
        edit: the edit; None if its saving cannot be predicted.
        is_possible: True if the trace shows that it can be done: the same launches each time.
    """

    fix: Instead
    edit: str | None
    is_possible: bool = True


class _Plan(NamedTuple):
    """Changes to make first, the segment to capture then, and the change within it.

    Attributes:
        costlier: calls in the way that cost more than the late launches: other findings are about
            them, and the saving is predicted with them.
        removed: other calls in the way.
        segment: what is captured.
        change: what differs between its repetitions; None if that is not known.
    """

    costlier: tuple[Blocker, ...]
    removed: tuple[Blocker, ...]
    segment: Segment
    change: Change | None


def advise(context: Context, lost_ns: int) -> Advice:
    """Advise how to launch the steps of a window in less time.

    Args:
        context: the window.
        lost_ns: the idle time that late launches cost in it, ns.
    """
    if lost_ns < MIN_REPORTED_SHARE * context.window.length_ns:  # it is not reported
        return Advice(NO_FIX, None)
    capture = find_capture(context)
    if capture is None or not _functions(context, capture):
        return Advice(Instead("Launch fewer kernels: fuse small ones."), None)
    launched = find_launched(context) if capture.replayed_share > 0 else None
    if launched is not None and _mostly_replays(capture, launched):
        return _advise_on_replays(context, capture, launched)
    plan = _plan(context, capture, lost_ns)
    edits = dict.fromkeys([*(blocker.edit for blocker in plan.removed), _GRAPH])
    return Advice(
        _fix(context, capture, plan, launched),
        JOINT.join(edits),
        is_possible=_is_possible(context, capture, plan),
    )


def _mostly_replays(capture: Capture, launched: Launched) -> bool:
    has_few = launched.eager <= _MIN_GRAPH_LAUNCHES * launched.replays
    return has_few and capture.replayed_share > _MIN_REPLAYED_SHARE


def _advise_on_replays(context: Context, capture: Capture, launched: Launched) -> Advice:
    """Advise on the late launches of a program that replays most of its work."""
    replays, eager = launched.replays_per_step, launched.eager_per_step
    has_several, is_one = replays > 1, replays == 1 and not eager
    has_edit = eager > 0 or (has_several and launched.steps > 0)
    if is_one:
        step = sentences.SEVERAL_STEPS
    elif not has_several:
        step = sentences.MARK_INPUTS if launched.copies_inputs else sentences.EXTEND_GRAPH
    else:
        is_known = launched.steps > 0
        what = "all of it" if is_known else "replays that always follow one another"
        step = sentences.JOIN_GRAPHS.format(what=what)
    inside = [blocker for blocker in capture.blockers if blocker.is_inside]
    first = sentences.changed_first(inside, sentences.CUTS_REPLAYS, has_steps=capture.has_steps)
    change = find_change(context, capture.as_is.repetitions) if has_edit else None
    conditions = sentences.conditions(capture, change) if has_edit else []
    steps = [x.text for x in (*first, *conditions)]
    steps += [*([sentences.CAPTURABLE] if launched.has_optimizer else []), step]
    shows = sentences.describe_launched(launched, is_one=is_one)
    text = sentences.joined(shows, sentences.numbered(steps))
    return Advice(
        sentences.shortened(text, step, [*first, *conditions], inside),
        _GRAPH if has_edit else None,
        is_possible=not conditions,
    )


def _plan(context: Context, capture: Capture, lost_ns: int) -> _Plan:
    """Decide what to capture, and what comes before that.

    Nothing comes first if a segment has most of the launches already and can be captured as it is,
    or if hardly more would be in one graph. An operator whose result changes in size changes all
    that follows.
    """
    as_is, after = capture.as_is, capture.after_removal
    change = find_change(context, as_is.repetitions)
    removed = tuple(blocker for blocker in capture.blockers if blocker.can_go)
    is_small = lost_ns < WARNING_SHARE * context.window.length_ns
    if not capture.has_steps or is_small or not removed:
        return _Plan((), (), as_is, change)
    has_sizes = any(blocker.way == Way.SIZE for blocker in removed)
    changes_by_size = has_sizes and change is not None and change.kernel is not None
    is_enough = as_is.is_most and as_is.cut_in is None
    gains = after.launches >= _MIN_GRAPH_GROWTH * as_is.launches
    is_less_cut = as_is.cut_in is not None and after.cut_in is None
    if not changes_by_size and (is_enough or not (gains or is_less_cut)):
        return _Plan((), (), as_is, change)
    if sum(blocker.idle_ns for blocker in removed) > lost_ns:
        return _Plan(removed, (), as_is, change)
    # What changes by the size of a result no longer does.
    then = None if has_sizes else find_change(context, after.repetitions)
    return _Plan((), removed, after, then)


def _fix(context: Context, capture: Capture, plan: _Plan, launched: Launched | None) -> Instead:
    """Put a plan into words: what is in the way, what to remove first, and what to capture then."""
    segment = plan.segment
    calls = (*plan.costlier, *plan.removed)
    costlier = sorted(plan.costlier, key=lambda blocker: -blocker.idle_ns)
    first = [
        *sentences.changed_first(costlier, sentences.COSTS_MORE, has_steps=True),
        *sentences.removals(plan.removed),
        *sentences.conditions(capture, plan.change),
        *sentences.cuts(segment),
    ]
    steps = [step.text for step in first]
    shows = sentences.joined(
        "" if launched is None else sentences.describe_launched(launched),
        sentences.needed_at_once(capture, segment),
    )
    is_twice = _differentiates_twice(context.trace.strings)
    if not segment.is_whole and segment.launches < _MIN_GRAPH_LAUNCHES:
        fuse = sentences.fuse(segment, "" if is_twice else _compiled(capture))
        text = sentences.joined(shows, sentences.numbered([*steps, fuse]))
        return sentences.shortened(text, fuse.partition(" They are")[0], first, calls)
    what, short, size = sentences.goal(
        capture, segment, has_graphs=launched is not None, few=_MIN_GRAPH_LAUNCHES
    )
    has_optimizer = "optimizer" in segment.work
    codes, about = _how(
        _functions(context, capture),
        is_twice=is_twice,
        has_graphs=launched is not None,
        has_optimizer=has_optimizer,
        is_compiled=capture.compiled_share > _MIN_COMPILED_SHARE,
    )
    goal = sentences.joined(f"Capture {what}: {' or '.join(codes)}.", about, size)
    text = sentences.joined(
        shows,
        sentences.numbered([*steps, *([sentences.CAPTURABLE] if has_optimizer else []), goal]),
        *sentences.open_conditions(
            capture, segment, plan.change, first=len(first), removed=len(plan.removed)
        ),
    )
    adam = " (Adam: `capturable=True`)" if has_optimizer else ""
    return sentences.shortened(text, f"Capture {short}: {codes[0]}{adam}.", first, calls)


def _how(
    functions: list[str],
    *,
    is_twice: bool,
    has_graphs: bool,
    has_optimizer: bool,
    is_compiled: bool,
) -> tuple[list[str], str]:
    """Choose the functions of PyTorch, the best first, and a sentence about them.

    Only one of them captures an optimizer's step. A program with graphs has used the others, or
    they do not hold all of it.
    """
    if is_twice:
        return _WHOLE, "Neither a compiled model nor a graphed callable is differentiated twice."
    if has_graphs:
        return _WHOLE, ""
    if has_optimizer and not is_compiled:
        less = "is less work, but captures forward and backward alone, and saves less."
        return _WHOLE, f"{functions[0]} {less}"
    return functions, "" if is_compiled or "torch.compile" not in functions[0] else _FUSES


def _differentiates_twice(names: Iterable[str]) -> bool:
    """Return True if a backward pass is differentiated again, which `torch.compile` cannot do.

    >>> _differentiates_twice(["TanhBackward0"]), _differentiates_twice(["TanhBackwardBackward0"])
    (False, True)
    """
    return any("BackwardBackward" in name for name in names)


def _functions(context: Context, capture: Capture) -> list[str]:
    """List the functions that capture a model and that the trace's version of PyTorch has."""
    functions = [("2.0", _compiled(capture, ', mode="reduce-overhead"'))]
    if capture.compiled_share <= _MIN_COMPILED_SHARE:
        functions.append(("1.10", "`torch.cuda.make_graphed_callables(model, (batch,))`"))
    return [
        function if context.torch else f"{function} (since PyTorch {since})"
        for since, function in functions
        if context.torch is None or is_available(since, context.torch)
    ]


def _compiled(capture: Capture, mode: str = "") -> str:
    """Return the call of `torch.compile`; in compiled code only the mode is new."""
    what = "..." if capture.compiled_share > _MIN_COMPILED_SHARE else "model"
    return f"`torch.compile({what}{mode})`"


def _is_possible(context: Context, capture: Capture, plan: _Plan) -> bool:
    """Tell whether the trace shows that a capture needs nothing more of the program.

    It shows that the launches are the same each time, and not whether an optimizer can be captured,
    gradients and inputs stay at their addresses, or other ranks capture together.
    """
    is_same = plan.change is not None and plan.change.kernel is None
    is_alone = not (capture.threads or capture.has_collectives)
    if not is_same or not is_alone or plan.segment.cut_in is not None:
        return False
    launch_id = context.timeline.launch_id[np.concatenate(plan.segment.repetitions)]
    return not np.isin(context.phases.phases_of(launch_id), _TRAINING).any()
