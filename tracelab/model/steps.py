"""The steps of a program and the windows that their GPU work makes of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import dataclass
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Int64Array
from tracelab.model.lookup import match_names
from tracelab.model.trace import ABSENT, Category, Trace

_NUMBER = re.compile(r"#([0-9]+)")
_MAX_INT64_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the loop: the host's annotation and the window that its GPU work extends.

    Example: ``Step(number=12, event_id=40, start_ns=1_000, end_ns=9_500_000)``.

    Attributes:
        number: the user's own, from the annotation's name; where that has none, the step's place
            among all, from 0. No two steps have the same.
        event_id: the host's annotation.
        start_ns, end_ns: its window, ns.
    """

    number: int
    event_id: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time to measure; `step` is its number, None for the whole trace.

    >>> Window(step=3, start_ns=1_000, end_ns=4_500).length_ns
    3500
    """

    step: int | None
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Length, ns."""
        return self.end_ns - self.start_ns


def bounds_of(stretches: Sequence[Step | Window]) -> tuple[Int64Array, Int64Array]:
    """The starts and the ends of some steps or windows, int64[k] each, ns.

    >>> bounds_of([Window(step=3, start_ns=1_000, end_ns=4_500)])
    (array([1000]), array([4500]))
    """
    bounds_ns = [(stretch.start_ns, stretch.end_ns) for stretch in stretches]
    start_ns, end_ns = np.array(bounds_ns, dtype=np.int64).reshape(-1, 2).T
    return start_ns, end_ns


@dataclass(frozen=True, slots=True)
class UnusedSteps:
    """Annotations of one name that match the pattern of the steps and are not steps.

    Example: ``UnusedSteps(loss="nested_steps", name="step micro-batch", count=8)``.

    Attributes:
        loss: why not: "nested_steps" or "repeated_steps" of `tracelab.model.losses.LOSSES`.
        name: what they are called.
        count: how many there are.
    """

    loss: str
    name: str
    count: int


def find_steps(
    trace: Trace, pattern: str | None, launch_id: Int64Array, activity_end_ns: Int64Array
) -> tuple[tuple[Step, ...], NDArray[np.int32], tuple[UnusedSteps, ...]]:
    """The steps, which of them launched each activity, and the annotations that are not steps.

    A step's window is ``[max(end of the window before, host start), max(host end, end of the last
    activity launched inside it))``: windows do not overlap, and work that the host launched ahead
    of time is counted in the step that launched it. Of steps that overlap, the first one counts it.

    The outermost annotations are the steps: one that lies inside another, on whichever thread, is
    part of that step. One whose name has the number of an earlier step (several recordings in one
    file, several processes, a number for each batch and not for each micro-batch) is not a step:
    its number stands for the earlier one, its work belongs to the whole trace only.

    Args:
        trace: the trace.
        pattern: regular expression of the host annotations that are the steps; None for no steps.
        launch_id: int64[m], event id of the call that launched each activity, else ABSENT.
        activity_end_ns: int64[m], ns.

    Returns:
        the steps, by start; int32[m], the index of each activity's step, else ABSENT; and the other
        annotations: nested in a step, or with an earlier one's number or one too long for a number.

    Raises:
        UsageError: the pattern is not a valid regular expression.
    """
    step_index = np.full(len(launch_id), ABSENT, dtype=np.int32)
    launched = np.flatnonzero(launch_id != ABSENT)
    by_launch = launched[np.argsort(trace.start_ns[launch_id[launched]], kind="stable")]
    launch_ns = trace.start_ns[launch_id[by_launch]]
    steps: list[Step] = []
    window_end_ns = -(2**63)
    outermost, nested = _nested_apart(trace, step_annotations(trace, pattern))
    numbered = _numbered([trace.name_of(event_id) for event_id in outermost])
    for index, (place, number) in enumerate(numbered.items()):
        event_id = outermost[place]
        host_start_ns, host_end_ns = int(trace.start_ns[event_id]), int(trace.end_ns[event_id])
        first, end = np.searchsorted(launch_ns, (host_start_ns, host_end_ns))
        inside = by_launch[first:end]
        inside = inside[step_index[inside] == ABSENT]
        step_index[inside] = index
        start_ns = max(window_end_ns, host_start_ns)
        last_end_ns = int(activity_end_ns[inside].max(initial=start_ns))
        window_end_ns = max(start_ns, host_end_ns, last_end_ns)
        steps.append(Step(number, event_id, start_ns, window_end_ns))
    repeated = [event_id for place, event_id in enumerate(outermost) if place not in numbered]
    unused = Counter[tuple[str, str]]()
    unused.update(("nested_steps", trace.name_of(event_id)) for event_id in nested)
    unused.update(("repeated_steps", trace.name_of(event_id)) for event_id in repeated)
    return tuple(steps), step_index, tuple(UnusedSteps(*key, n) for key, n in unused.items())


def _nested_apart(trace: Trace, annotations: Sequence[int]) -> tuple[list[int], list[int]]:
    """The outermost of these annotations, and those that lie inside one of them."""
    outermost: list[int] = []
    nested: list[int] = []
    reached_ns = -(2**63)
    for event_id in annotations:
        start_ns, end_ns = int(trace.start_ns[event_id]), int(trace.end_ns[event_id])
        if start_ns < reached_ns and end_ns <= reached_ns:
            nested.append(event_id)
        else:
            outermost.append(event_id)
        reached_ns = max(reached_ns, end_ns)
    return outermost, nested


def _numbered(names: Sequence[str]) -> dict[int, int]:
    """The number of each step by its place among all, without those that have none of their own.

    >>> _numbered(["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#8", "ProfilerStep#9"])
    {0: 7, 1: 8, 3: 9}
    >>> _numbered(["warm-up", "step#1", "step#2"])
    {0: 0, 1: 1, 2: 2}
    """
    written = [_NUMBER.search(name) for name in names]
    taken: set[int] = set()
    numbers: dict[int, int] = {}
    free = count()
    # The file's own come first: a place is a number only where no name says it, else what is free.
    for place in sorted(range(len(names)), key=lambda place: written[place] is None):
        digits = written[place]
        if digits and len(digits[1]) > _MAX_INT64_DIGITS:
            continue
        if digits:
            number = int(digits[1])
        elif place not in taken:
            number = place
        else:
            number = next(number for number in free if number not in taken)
        if number not in taken:
            taken.add(number)
            numbers[place] = number
    return dict(sorted(numbers.items()))


def step_annotations(trace: Trace, pattern: str | None) -> list[int]:
    """Event ids of the annotations that match, by start, then by length, the longest first."""
    if not pattern:
        return []
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a valid regular expression: {error}") from None
    # Old files write the steps as operators.
    events = trace.of_category(Category.ANNOTATION, Category.OPERATOR)
    events = events[match_names(trace, events, expression.search)]
    order = np.lexsort((-trace.end_ns[events], trace.start_ns[events]))
    by_start: list[int] = events[order].tolist()
    return by_start
