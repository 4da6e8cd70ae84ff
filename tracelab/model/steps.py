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
    """One pass of the loop: the host's annotation and the window that its GPU work extends."""

    number: int
    event_id: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time to measure; `step` is None for the whole trace."""

    step: int | None
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Length, ns."""
        return self.end_ns - self.start_ns


def find_steps(
    trace: Trace, pattern: str, launch: Int64Array, end: Int64Array
) -> tuple[tuple[Step, ...], NDArray[np.int32]]:
    """The steps, and which of them launched each activity.

    A step's window is ``[max(end of the window before, host start), max(host end, end of the last
    activity launched inside it))``: windows do not overlap, and work that the host launched ahead
    of time is counted in the step that launched it. Of steps that overlap, the first one counts it.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from None
    hosts = trace.of_category(Category.ANNOTATION, Category.OPERATOR)
    hosts = hosts[match_names(trace, hosts, expression.search)]
    hosts = hosts[np.argsort(trace.start_ns[hosts], kind="stable")]
    step = np.full(len(launch), ABSENT, dtype=np.int32)
    launched = np.flatnonzero(launch != ABSENT)
    by_launch = launched[np.argsort(trace.start_ns[launch[launched]], kind="stable")]
    launch_ns = trace.start_ns[launch[by_launch]]
    steps: list[Step] = []
    window_end = -(2**63)
    for index, event in enumerate(hosts.tolist()):
        host_start, host_end = int(trace.start_ns[event]), int(trace.end_ns[event])
        first, last = np.searchsorted(launch_ns, (host_start, host_end))
        inside = by_launch[first:last]
        inside = inside[step[inside] == ABSENT]
        step[inside] = index
        start_ns = max(window_end, host_start)
        window_end = max(start_ns, host_end, int(end[inside].max(initial=start_ns)))
        digits = re.search(r"#(\d+)", trace.name_of(event))
        steps.append(Step(int(digits[1]) if digits else index, event, start_ns, window_end))
    if len({x.number for x in steps}) < len(steps):
        # Two recordings in one file, or a pattern of which only some names have a number.
        steps = [replace(x, number=index) for index, x in enumerate(steps)]
    return tuple(steps), step
