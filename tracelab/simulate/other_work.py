"""Host time between launches that is more than launching: no batch of launches takes it away."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, Intervals, gaps, join, subtract
from tracelab.model.host import Host
from tracelab.model.launching import Doing, work_at
from tracelab.model.timeline import Timeline
from tracelab.model.trace import Category, Trace
from tracelab.simulate.program import Program, Via

# PyTorch takes 5 to 50 us from one launch to the next. Longer stretches in its own functions, such
# as the preparation of an optimizer's step, are gone once their launches are replayed.
_LONG_NS = 200_000
# The file does not say what the host did meanwhile.
_LONG_UNKNOWN_NS = 1_000_000
# In a silence no thread has an event for longer than launching takes.
_MIN_SILENCE_NS = 50_000
_DOING = ("profiler", "blocked", "input", "recorded", "waiting")  # of a thread's state


def other_work(timeline: Timeline, program: Program) -> NDArray[np.bool_]:
    """Return the stretches between two calls of a thread that are work of another kind.

    These are stretches of at least `_LONG_NS` in a Python function that is not PyTorch's: an
    environment's step, a tokenizer.

    Args:
        timeline: the file.
        program: its typical steps.

    Returns:
        bool[e], of the program's edges.
    """
    trace = timeline.trace
    is_other = (program.via == Via.HOST) & (program.latency_ns >= _LONG_NS)
    edges = np.flatnonzero(is_other)
    start_ns, end_ns = times_of(trace, program, edges)
    middle_ns = start_ns + (end_ns - start_ns) // 2
    work = work_at(timeline, program.thread_index[program.target[edges]], middle_ns)
    is_long = program.latency_ns[edges] >= _LONG_UNKNOWN_NS
    is_other[edges] = (work == Doing.OTHER) | (is_long & (work == Doing.UNKNOWN))
    found: NDArray[np.bool_] = is_other
    return found


def times_of(
    trace: Trace, program: Program, edges: NDArray[np.intp]
) -> tuple[Int64Array, Int64Array]:
    """Return the start and end of host-work edges in the file: int64[k] each, ns.

    Of an edge from the repetition before, it is the time just before its target.
    """
    end_ns = trace.start_ns[program.event_id[program.target[edges]]]
    source_ns = trace.end_ns[program.event_id[program.source[edges]]]
    is_own = program.lag[edges] == 0
    return np.where(is_own, source_ns, end_ns - program.latency_ns[edges]), end_ns


class Silence(NamedTuple):
    """Intervals in which nothing was recorded, thread by thread.

    Attributes:
        all: index into `Trace.threads` to these times, where they are longer than launches take, or
            unknown.
        unknown: those outside all regions that somebody named, a step for one. Of a thread of which
            the file has nothing but calls that is all of its time between them.
    """

    all: Mapping[int, Intervals]
    unknown: Mapping[int, Intervals]


def find_silence(host: Host) -> Silence:
    """Find the intervals in which the file does not say what the host did."""
    trace = host.timeline.trace
    recorded = trace.thread_index[trace.of_category(Category.OPERATOR, Category.PYTHON)]
    all_, unknown = {}, {}
    for thread, own in host.states.items():
        states = (own, host.other_threads(thread))
        known = functools.reduce(
            join, (getattr(state, doing) for state in states for doing in _DOING)
        )
        if len(known):
            silent = gaps(known, int(known.starts[0]), int(known.ends[-1]))
            is_long = silent.ends - silent.starts > _MIN_SILENCE_NS
            long = Intervals(silent.starts[is_long], silent.ends[is_long])
            named = join(own.annotated, states[1].annotated)
            unknown[thread] = subtract(long if (recorded == thread).any() else silent, named)
            all_[thread] = join(long, unknown[thread])
    return Silence(all_, unknown)
