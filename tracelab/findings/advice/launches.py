"""Late launches: advise a CUDA graph of what can be captured, after what is in its way.

Only functions of the trace's PyTorch are named, and no larger batch is advised: no trace shows its
work. Sentences are in ``advice.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tracelab.findings.advice.capture import Blocker, Capture, Launched, Segment, Way, find_capture
from tracelab.findings.advice.needs import SENTENCES
from tracelab.findings.advice.repeats import Change, find_change
from tracelab.findings.context import Context
from tracelab.findings.finding import MAX_SHORT_LETTERS, MIN_REPORTED_SHARE, WARNING_SHARE
from tracelab.findings.places import JOINT
from tracelab.findings.remedy import NO_FIX, Instead, is_available
from tracelab.model.phases import Phase

_GRAPH = "graph"  # the edit
# Of the launches, in a compiled program.
_MIN_COMPILED_SHARE = 0.5
_MIN_GRAPH_LAUNCHES = 20
# Times as many launches in one graph are worth the removal of a blocker.
_MIN_GRAPH_GROWTH = 1.5
_MAX_PLACES = 3
_TRAINING = (Phase.BACKWARD, Phase.OPTIMIZER)
_WHOLE = "`with torch.cuda.graph(graph):` around all of it"


class Step(NamedTuple):
    """One thing to do before a capture: a sentence, and a noun for what is in the way."""

    text: str
    avoids: str


class Advice(NamedTuple):
    """Numbered steps with the edit for them; None if its saving cannot be predicted.

    It is possible if all steps launch the same.
    """

    fix: Instead
    edit: str | None
    is_possible: bool = True


class _Plan(NamedTuple):
    """Calls to remove first, the segment to capture then, and what differs in its repetitions."""

    removed: tuple[Blocker, ...]
    segment: Segment
    change: Change | None


_STEPS = {name: Step(**step) for name, step in SENTENCES["steps"].items()}
_SENTENCES: Mapping[str, str] = SENTENCES["launches"]


def advise(context: Context, lost_ns: int) -> Advice:
    """Advise how to launch the steps of a window in less time; late launches cost `lost_ns`."""
    if lost_ns < MIN_REPORTED_SHARE * context.window.length_ns:  # it is not reported
        return Advice(NO_FIX, None)
    capture = find_capture(context)
    if capture is None or not _functions(context, capture):
        return Advice(Instead(_SENTENCES["fuse_small"]), None)
    if capture.launched is not None and capture.launched.is_mostly_replays:
        return _advise_on_replays(context, capture, capture.launched)
    plan = _plan(context, capture, lost_ns)
    edits = dict.fromkeys([*(blocker.edit for blocker in plan.removed), _GRAPH])
    fix, is_possible = _fix(context, capture, plan), _is_possible(context, capture, plan)
    return Advice(fix, JOINT.join(edits), is_possible)


def _advise_on_replays(context: Context, capture: Capture, launched: Launched) -> Advice:
    has_several = launched.replays_per_step > 1
    has_edit = launched.eager_per_step > 0 or (has_several and capture.has_steps)
    if has_several:
        what = "all of it" if capture.has_steps else "replays that always follow one another"
        goal = _SENTENCES["join_graphs"].format(what=what)
    elif launched.eager_per_step:
        goal = _SENTENCES["mark_inputs" if launched.copies_inputs else "extend_graph"]
    else:
        goal = _SENTENCES["several_steps"]
    inside = [blocker for blocker in capture.blockers if blocker.is_inside]
    change = find_change(context, capture.as_is.repetitions) if has_edit else None
    conditions = _conditions(capture, change)
    first = _change_first("cuts_replays", inside, has_steps=capture.has_steps) + conditions
    text = _joined(_describe(launched, capture), _numbered([*(step.text for step in first), goal]))
    fix = _shortened(text, goal, first, inside)
    return Advice(fix, _GRAPH if has_edit else None, is_possible=not conditions)


def _describe(launched: Launched, capture: Capture) -> str:
    graphs, eager = launched.replays_per_step, launched.eager_per_step
    return _SENTENCES["launches" if eager else "replays"].format(
        whole="A step" if capture.has_steps else "The trace",
        graphs="a graph" if graphs == 1 else f"{graphs:,} graphs",
        eager=eager,
        place=launched.eager_at,
    )


def _plan(context: Context, capture: Capture, lost_ns: int) -> _Plan:
    as_is, after = capture.as_is, capture.after_removal
    change = find_change(context, as_is.repetitions)
    removed = tuple(blocker for blocker in capture.blockers if blocker.can_go)
    is_small = lost_ns < WARNING_SHARE * context.window.length_ns
    costs_more = sum(blocker.idle_ns for blocker in removed) > lost_ns  # other findings say so
    if not capture.has_steps or is_small or not removed or costs_more:
        return _Plan((), as_is, change)
    has_sizes = any(blocker.way == Way.SIZE for blocker in removed)
    changes_by_size = has_sizes and change is not None and change.kernel is not None
    is_enough = as_is.is_most and as_is.cut_in is None
    gains = after.launches >= _MIN_GRAPH_GROWTH * as_is.launches
    is_less_cut = as_is.cut_in is not None and after.cut_in is None
    if not changes_by_size and (is_enough or not (gains or is_less_cut)):
        return _Plan((), as_is, change)
    then = None if has_sizes else find_change(context, after.repetitions)
    return _Plan(removed, after, then)


def _fix(context: Context, capture: Capture, plan: _Plan) -> Instead:
    segment, launched = plan.segment, capture.launched
    first = []
    for way in Way:
        removed = [blocker for blocker in plan.removed if blocker.way == way]
        first += _change_first(way.name, removed, has_steps=True)
    first += _conditions(capture, plan.change)
    if segment.cut_in is not None:
        first.append(_step("cut", cut_in=segment.cut_in))
    steps = [step.text for step in first]
    replays = "" if launched is None else _describe(launched, capture)
    shows = _joined(replays, _needed_at_once(capture, segment))
    if not segment.is_whole and segment.launches < _MIN_GRAPH_LAUNCHES:
        fuse = _SENTENCES["fuse"].format(compiled=_compiled(capture))
        few = _SENTENCES["few"].format(launches=segment.launches)
        text = _joined(shows, _numbered([*steps, f"{fuse} {few}"]))
        return _shortened(text, fuse, first, plan.removed)
    has_optimizer = "optimizer" in segment.work
    what, short, size = _goal(capture, segment)
    codes, about = _how(context, capture, has_optimizer=has_optimizer)
    goal = _SENTENCES["capture"].format(what=what, how=" or ".join(codes))
    steps += [*([_SENTENCES["capturable"]] if has_optimizer else []), _joined(goal, about, size)]
    text = _joined(shows, _numbered(steps), *_open_conditions(capture, plan, has_first=bool(first)))
    adam = " (Adam: `capturable=True`)" if has_optimizer else ""
    goal = _SENTENCES["capture"].format(what=short, how=f"{codes[0]}{adam}")
    return _shortened(text, goal, first, plan.removed)


def _step(name: str, **values: str) -> Step:
    return Step(_STEPS[name].text.format(**values), _STEPS[name].avoids)


def _change_first(name: str, blockers: Sequence[Blocker], *, has_steps: bool) -> list[Step]:
    """Ask to change some calls before a capture, by the step of a name; nothing without any."""
    return [_step(name, places=_places(blockers, has_steps=has_steps))] if blockers else []


def _conditions(capture: Capture, change: Change | None) -> list[Step]:
    steps = []
    if change is not None and change.kernel is not None:
        decodes = "backward" not in capture.after_removal.work
        decoding = " (in decoding: a static key-value cache)" if decodes else ""
        steps.append(_step("changes", kernel=change.kernel, decoding=decoding))
    if capture.threads:
        others = list(filter(None, capture.threads)) or ["another thread"]
        steps.append(_step("threads", threads=_enumerated(others)))
    return steps


def _needed_at_once(capture: Capture, segment: Segment) -> str:
    needed = [blocker for blocker in capture.blockers if blocker.is_needed]
    if not needed or segment.is_most:
        return ""
    places = _places(needed, has_steps=capture.has_steps)
    whole = "a step" if capture.has_steps else "the whole"
    return _SENTENCES["needed"].format(places=places, whole=whole)


def _goal(capture: Capture, segment: Segment) -> tuple[str, str, str]:
    of = f" of {segment.of_launches:,}" if segment.launches < segment.of_launches else ""
    is_often = segment.per_step > 1 and capture.has_steps
    times = f", {segment.per_step:,.3g} times a step" if is_often else ""
    work = [*segment.work, *([f"`{segment.module}`"] if segment.module else [])]
    about = f" ({', '.join(work)})" if work else ""
    size = f"{segment.launches:,}{of} launches{times}{about}"
    if segment.is_whole:
        whole = "a step" if capture.has_steps else "what repeats"
        what = f"{whole} as {'a' if capture.launched is None else 'one'} CUDA graph"
        return what, what, _SENTENCES["size"].format(size=size)
    if segment.is_most:
        has_others = segment.of_launches - segment.launches >= _MIN_GRAPH_LAUNCHES
        others = ", and each other part between blocking calls as one of its own"
        what = f"what runs {_ends(segment)} as a CUDA graph{others if has_others else ''}"
        short = "the part between blocking calls as a CUDA graph"
        return what, short, _SENTENCES["size"].format(size=size)
    what = "each part between blocking calls as a CUDA graph"
    return what, what, _SENTENCES["largest"].format(ends=_ends(segment), size=size)


def _ends(segment: Segment) -> str:
    before, after = (end and end.what for end in (segment.before, segment.after))
    if before == after:
        return f"between two calls of {before}"
    if before is None:
        return f"before {after}"
    return f"after {before}" if after is None else f"between {before} and {after}"


def _how(context: Context, capture: Capture, *, has_optimizer: bool) -> tuple[list[str], str]:
    functions, is_compiled = _functions(context, capture), _is_compiled(capture)
    # `torch.compile` cannot differentiate a backward pass again.
    if any("BackwardBackward" in name for name in context.trace.strings):
        return [_WHOLE], _SENTENCES["twice"]
    if capture.launched is not None:
        return [_WHOLE], ""
    if has_optimizer and not is_compiled:
        return [_WHOLE], _SENTENCES["less"].format(function=functions[0])
    fuses = not is_compiled and "torch.compile" in functions[0]
    return functions, _SENTENCES["fuses"] if fuses else ""


def _functions(context: Context, capture: Capture) -> list[str]:
    functions = [("2.0", _compiled(capture, ', mode="reduce-overhead"'))]
    if not _is_compiled(capture):
        functions.append(("1.10", "`torch.cuda.make_graphed_callables(model, (batch,))`"))
    return [
        function if context.torch else f"{function} (since PyTorch {since})"
        for since, function in functions
        if context.torch is None or is_available(since, context.torch)
    ]


def _compiled(capture: Capture, mode: str = "") -> str:
    return f"`torch.compile({'...' if _is_compiled(capture) else 'model'}{mode})`"


def _is_compiled(capture: Capture) -> bool:
    return capture.compiled_share > _MIN_COMPILED_SHARE


def _open_conditions(capture: Capture, plan: _Plan, *, has_first: bool) -> list[str]:
    change = plan.change
    is_met = {
        "free": plan.segment.is_whole and not has_first and change is not None,
        "all_ranks": capture.has_collectives,
        "not_compared": change is None and not plan.removed,
        "no_shapes": change is not None and not (change.kernel or change.has_shapes),
    }
    return [_SENTENCES[name] for name, met in is_met.items() if met]


def _is_possible(context: Context, capture: Capture, plan: _Plan) -> bool:
    is_same = plan.change is not None and plan.change.kernel is None
    if not is_same or capture.has_collectives or capture.threads or plan.segment.cut_in:
        return False
    launch_id = context.timeline.launch_id[np.concatenate(plan.segment.repetitions)]
    return not np.isin(context.phases.phases_of(launch_id), _TRAINING).any()


def _shortened(text: str, goal: str, first: Sequence[Step], calls: Sequence[Blocker]) -> Instead:
    """Pair a fix with its short form: the last step, and what comes first if there is room."""
    if not first:
        return Instead(text, short=goal)
    names = {blocker.call for blocker in calls if blocker.can_go}
    is_named = {step.avoids for step in first} <= {"waits", "blocking calls"} and len(names) == 1
    endings = (
        *([f"avoid the wait in {name}" for name in names if name and is_named]),
        f"avoid {_enumerated(list(dict.fromkeys(step.avoids for step in first)))}",
        "avoid what no graph can hold",
    )
    texts = [f"{goal[:-1]}; first {ending}." for ending in endings]
    short = next((text for text in texts if len(text) <= MAX_SHORT_LETTERS), texts[-1])
    return Instead(text, short=short)


def _places(blockers: Sequence[Blocker], *, has_steps: bool) -> str:
    named = [
        f"{x.what} ({_often(x.per_step, has_steps=has_steps)})" for x in blockers[:_MAX_PLACES]
    ]
    more = len(blockers) - len(named)
    if more:
        named.append(f"{more} more {'place' if more == 1 else 'places'}")
    return _enumerated(named)


def _often(count: float, *, has_steps: bool) -> str:
    if has_steps:
        return f"{count:,.3g} a step"
    return "once" if count == 1 else f"{count:,.3g} times"


def _numbered(steps: Sequence[str]) -> str:
    if len(steps) < 2:
        return "".join(steps)
    return " ".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def _enumerated(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))
