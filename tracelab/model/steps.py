"""The steps of a program and the windows that their GPU work makes of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tracelab.errors import UsageError
from tracelab.intervals import Int64Array
from tracelab.model.lookup import match_names
from tracelab.model.trace import ABSENT, Category, Trace


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the loop: the host's annotation and the window that its GPU work extends.

    Example: ``Step(number=12, event_id=40, start_ns=1_000, end_ns=9_500_000)``.

    Attributes:
        number: the user's own, from the annotation's name; else the step's index.
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


def find_steps(
    trace: Trace, pattern: str | None, launch_id: Int64Array, activity_end_ns: Int64Array
) -> tuple[tuple[Step, ...], NDArray[np.int32]]:
    """The steps, and which of them launched each activity.

    A step's window is ``[max(end of the window before, host start), max(host end, end of the last
    activity launched inside it))``: windows do not overlap, and work that the host launched ahead
    of time is counted in the step that launched it. Of steps that overlap, the first one counts it.

    Args:
        trace: the trace.
        pattern: regular expression of the host annotations that are the steps; None for no steps.
        launch_id: int64[m], event id of the call that launched each activity, else ABSENT.
        activity_end_ns: int64[m], ns.

    Returns:
        the steps, by start, and int32[m], the index of each activity's step, else ABSENT.

    Raises:
        UsageError: the pattern is no regular expression.
    """
    step_index = np.full(len(launch_id), ABSENT, dtype=np.int32)
    launched = np.flatnonzero(launch_id != ABSENT)
    by_launch = launched[np.argsort(trace.start_ns[launch_id[launched]], kind="stable")]
    launch_ns = trace.start_ns[launch_id[by_launch]]
    steps: list[Step] = []
    window_end_ns = -(2**63)
    for index, event_id in enumerate(_step_annotations(trace, pattern)):
        host_start_ns, host_end_ns = int(trace.start_ns[event_id]), int(trace.end_ns[event_id])
        first, end = np.searchsorted(launch_ns, (host_start_ns, host_end_ns))
        inside = by_launch[first:end]
        inside = inside[step_index[inside] == ABSENT]
        step_index[inside] = index
        start_ns = max(window_end_ns, host_start_ns)
        last_end_ns = int(activity_end_ns[inside].max(initial=start_ns))
        window_end_ns = max(start_ns, host_end_ns, last_end_ns)
        digits = re.search(r"#(\d+)", trace.name_of(event_id))
        number = int(digits[1]) if digits else index
        steps.append(Step(number, event_id, start_ns, window_end_ns))
    if len({step.number for step in steps}) < len(steps):
        # Two recordings in one file, or a pattern of which only some names have a number.
        steps = [replace(step, number=index) for index, step in enumerate(steps)]
    return tuple(steps), step_index


def _step_annotations(trace: Trace, pattern: str | None) -> list[int]:
    """Event ids of the host annotations that are the steps, by start."""
    if not pattern:
        return []
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from None
    # Old files write the steps as operators.
    events = trace.of_category(Category.ANNOTATION, Category.OPERATOR)
    events = events[match_names(trace, events, expression.search)]
    by_start: list[int] = events[np.argsort(trace.start_ns[events], kind="stable")].tolist()
    return by_start
