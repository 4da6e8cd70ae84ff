"""Sentences about late launches: what the trace shows, what comes first, and what to capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tracelab.findings.advice.capture import Blocker, Capture, Segment, Way
from tracelab.findings.advice.repeats import Change
from tracelab.findings.advice.replays import Launched
from tracelab.findings.finding import MAX_SHORT_LETTERS
from tracelab.findings.remedy import Instead

_MAX_PLACES = 3

_BLOCKING, _WAITS = "blocking calls", "waits"


class Step(NamedTuple):
    """One thing to do before a capture.

    Attributes:
        text: an imperative sentence.
        avoids: what is in the way of a capture, as a noun.
    """

    text: str
    avoids: str


# What to do first about each kind of call that a capture cannot hold.
_REMOVE: Mapping[Way, Step] = MappingProxyType(
    {
        Way.WAIT: Step(
            "Do not wait for the GPU at {places}: keep the value there, or read it every N steps.",
            _WAITS,
        ),
        Way.COPY: Step(
            "Pin the memory of the copies at {places} (`x.pin_memory()`), and pass "
            "`non_blocking=True`.",
            "pageable copies",
        ),
        Way.SIZE: Step(
            "Find what has the same size in every step once, before the loop: {places}.",
            "reads of sizes",
        ),
        Way.ALLOCATION: Step(
            "Keep the memory that is returned or requested at {places}.", "allocations"
        ),
    }
)
COSTS_MORE = "More idle time comes from there."
CUTS_REPLAYS = "No graph goes beyond a call that waits."
CAPTURABLE = "Pass `capturable=True` to Adam and similar optimizers, to capture them, too."
_ALL_RANKS = "All ranks capture their collectives at once, under DDP after at least 11 steps."
_FREE = "Nothing in the trace prevents it: no blocking call, and the same kernels each time."
_NOT_COMPARED = "The trace has nothing to compare it with: shapes must not change."
_NO_SHAPES = "Shapes, which are not in the trace, must not change."

# What to do with replays, by what a step has next to the first: the sentence and its edit.
MARK_INPUTS = (
    "Keep the inputs of the graph at one address, fill them in place, and mark them: "
    "`torch._dynamo.mark_static_address(x)`."
)
EXTEND_GRAPH = (
    "Capture the other launches in the graph, too: copies into its inputs as its first nodes, uses "
    "of its results as its last."
)
JOIN_GRAPHS = "Capture {what} as one graph: `with torch.cuda.graph(graph):`."
SEVERAL_STEPS = "Capture several steps in one graph: `with torch.cuda.graph(graph):`."


def changed_first(blockers: Sequence[Blocker], why: str, *, has_steps: bool) -> list[Step]:
    """Ask to change calls first that cost more, or that cut a graph; nothing without any."""
    if not blockers:
        return []
    return [Step(f"Change {_places(blockers, has_steps=has_steps)} first. {why}", _BLOCKING)]


def removals(removed: Sequence[Blocker]) -> list[Step]:
    """Ask to remove calls, by kind; only in a file with steps any are removed."""
    steps = []
    for way, (text, avoids) in _REMOVE.items():
        places = [one for one in removed if one.way == way]
        if places:
            steps.append(Step(text.format(places=_places(places, has_steps=True)), avoids))
    return steps


def conditions(capture: Capture, change: Change | None) -> list[Step]:
    """Ask for the same launches each time, and for one thread."""
    steps = []
    if change is not None and change.kernel is not None:
        decodes = "backward" not in capture.after_removal.work
        text = (
            "Pad to a few fixed shapes, with a graph for each"
            f"{' (in decoding: a static key-value cache)' if decodes else ''}: "
            f"`{change.kernel}` is not launched with the same shape each time."
        )
        steps.append(Step(text, "changing shapes"))
    if capture.threads:
        others = list(filter(None, capture.threads)) or ["another thread"]
        text = f"Launch from one thread: {_enumerated(others)} launches, too."
        steps.append(Step(text, "launches from other threads"))
    return steps


def cuts(segment: Segment) -> list[Step]:
    """Ask to move a call out of what is captured, if one is inside."""
    if segment.cut_in is None:
        return []
    text = (
        f"Move the blocking call out of {segment.cut_in}, or capture the modules on either side of "
        "it."
    )
    return [Step(text, _BLOCKING)]


def describe_launched(launched: Launched, *, is_one: bool = False) -> str:
    """Describe what is replayed and launched; `is_one` if a step is one replay and nothing else."""
    whole, graphs = "A step" if launched.steps else "The trace", launched.replays_per_step
    if is_one:
        return f"{whole} is one replay already, and the GPU is done with one before the next."
    replays = f"{whole} replays {'a graph' if graphs == 1 else f'{graphs:,} graphs'}"
    eager = launched.eager_per_step
    if not eager:
        return f"{replays}, and the GPU is done with one before the next."
    more = "once more by itself" if eager == 1 else f"{eager:,} times more, one by one, mostly"
    return f"{replays} and launches {more}{',' if eager == 1 else ''} at {launched.eager_at}."


def needed_at_once(capture: Capture, segment: Segment) -> str:
    """Explain why a whole step is not one graph; "" if it may be one."""
    needed = [blocker for blocker in capture.blockers if blocker.is_needed]
    if not needed or segment.is_most:
        return ""
    places = _places(needed, has_steps=capture.has_steps)
    whole = "a step" if capture.has_steps else "the whole"
    return f"The CPU needs at once what it reads at {places}: {whole} is not one graph."


def fuse(segment: Segment, compiled: str) -> str:
    """Ask to fuse the kernels between two calls, `compiled` if that is possible, else ""."""
    kernels = f"Fuse the kernels between two blocking calls{compiled and ': '}{compiled}."
    few = f"They are no more than {segment.launches}, too few for a graph."
    return f"{kernels} {few} Or let each read serve more."


def goal(capture: Capture, segment: Segment, *, has_graphs: bool, few: int) -> tuple[str, str, str]:
    """Name what to capture, the same in short, and its size in a sentence.

    Args:
        capture: the contents of a graph.
        segment: the segment to capture.
        has_graphs: True if a step replays graphs already.
        few: a number of launches that is hardly worth a graph.
    """
    size = _size(segment, has_steps=capture.has_steps)
    if segment.is_whole:
        whole = "a step" if capture.has_steps else "what repeats"
        what = f"{whole} as {'one' if has_graphs else 'a'} CUDA graph"
        return what, what, f"That is {size}."
    if segment.is_most:
        has_others = segment.of_launches - segment.launches >= few
        others = ", and each other part between blocking calls as one of its own"
        what = f"what runs {_ends(segment)} as a CUDA graph{others if has_others else ''}"
        return what, "the part between blocking calls as a CUDA graph", f"That is {size}."
    what = "each part between blocking calls as a CUDA graph"
    return what, what, f"The largest, {_ends(segment)}, is {size}."


def open_conditions(
    capture: Capture, segment: Segment, change: Change | None, *, first: int, removed: int
) -> list[str]:
    """List what a capture needs that the trace shows, or does not show.

    Args:
        capture: the contents of a graph.
        segment: the segment to capture.
        change: as of `find_change`.
        first: the number of steps before the capture.
        removed: the number of calls that these remove.
    """
    is_free = segment.is_whole and not first and change is not None
    return [
        *([_FREE] if is_free else []),
        *([_ALL_RANKS] if capture.has_collectives else []),
        *([_NOT_COMPARED] if change is None and not removed else []),
        *([_NO_SHAPES] if change and not (change.kernel or change.has_shapes) else []),
    ]


def numbered(steps: Sequence[str]) -> str:
    """Join steps, numbered if there are several.

    >>> numbered(["Compile it."]), numbered(["Pin it.", "Compile it."])
    ('Compile it.', '1. Pin it. 2. Compile it.')
    """
    if len(steps) < 2:
        return "".join(steps)
    return " ".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def shortened(text: str, goal: str, first: Sequence[Step], calls: Sequence[Blocker]) -> Instead:
    """Pair a fix with its short form: the last step, and what comes first if there is room.

    Args:
        text: the fix.
        goal: the last step, a sentence.
        first: what comes before it.
        calls: the calls that are to be removed.
    """
    if not first:
        return Instead(text, short=goal)
    names = {blocker.call for blocker in calls if blocker.can_go}
    is_named = {step.avoids for step in first} <= {_WAITS, _BLOCKING} and len(names) == 1
    endings = (
        *([f"avoid the wait in {name}" for name in names if name and is_named]),
        f"avoid {_enumerated(list(dict.fromkeys(step.avoids for step in first)))}",
        "avoid what no graph can hold",
    )
    texts = [f"{goal[:-1]}; first {ending}." for ending in endings]
    short = next((text for text in texts if len(text) <= MAX_SHORT_LETTERS), texts[-1])
    return Instead(text, short=short)


def joined(*sentences: str) -> str:
    """Join sentences that are not empty."""
    return " ".join(filter(None, sentences))


def _places(blockers: Sequence[Blocker], *, has_steps: bool) -> str:
    named = [
        f"{x.what} ({_often(x.per_step, has_steps=has_steps)})" for x in blockers[:_MAX_PLACES]
    ]
    more = len(blockers) - len(named)
    if more:
        named.append(f"{more} more {'place' if more == 1 else 'places'}")
    return _enumerated(named)


def _often(count: float, *, has_steps: bool) -> str:
    """Describe how often something happens.

    >>> _often(1.5, has_steps=True), _often(1, has_steps=False), _often(2, has_steps=False)
    ('1.5 a step', 'once', '2 times')
    """
    if has_steps:
        return f"{count:,.3g} a step"
    return "once" if count == 1 else f"{count:,.3g} times"


def _size(segment: Segment, *, has_steps: bool) -> str:
    of = f" of {segment.of_launches:,}" if segment.launches < segment.of_launches else ""
    is_often = segment.per_step > 1 and has_steps
    times = f", {segment.per_step:,.3g} times a step" if is_often else ""
    what = [*segment.work, *([f"`{segment.module}`"] if segment.module else [])]
    about = f" ({', '.join(what)})" if what else ""
    return f"{segment.launches:,}{of} launches{times}{about}"


def _ends(segment: Segment) -> str:
    before, after = (end and end.what for end in (segment.before, segment.after))
    if before == after:
        return f"between two calls of {before}"
    if before is None:
        return f"before {after}"
    return f"after {before}" if after is None else f"between {before} and {after}"


def _enumerated(names: Sequence[str]) -> str:
    """Join names to a phrase.

    >>> _enumerated(["a"]), _enumerated(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
