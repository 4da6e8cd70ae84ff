"""What the beginning of a recording makes idle, and the program does not.

When a recording begins, the GPU has nothing to do: the profiler has just started, and what was
launched before is over. A host that launches faster than the GPU works needs some steps to get
ahead of it, and until then the GPU waits for launches. Later it does not. The profiler is slow at
first, too: where the GPU idled longer in the first recorded step of 40 captures of H200s, the host
had taken up to 3.2 times as long since the launch before as at that launch of the other steps, or
4.2 to 43 times, as where a data loader or autograd was used for the first time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, read_only
from tracelab.base.intervals import Int64Array
from tracelab.measures.bubbles import Bubbles, Cause
from tracelab.model.graph import Graph
from tracelab.model.lookup import groups_of, rows_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_BY_HOST = (Cause.HOST_BUSY, Cause.LAUNCH, Cause.EDGE)  # a call that waits is the program's own
_AHEAD = 0.02  # of a typical step: so little the GPU may wait for the launches of a step
_FEWEST_AHEAD = 2  # steps that show that the host runs ahead
_MOST_STEPS = 3  # before it does: more are no start but the program
_FEWEST_ALIKE = 3  # steps that show how long the host usually takes
_STALLED = 4  # times as long as usual


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StartUp(Frozen):
    """Which idle time is there because the recording had just begun; not where the host stalled.

    The host is ahead in a step for whose launches the GPU hardly waits: they return while it works.
    It runs ahead if it is in one of the first four steps, and in most from there on, at least two.

    Attributes:
        not_ahead: bool[bubbles], caused by the host in steps before that first one: the program has
            none of it.
        slow: bool[bubbles], caused by the host in the first step, or before the first launch of the
            second, where the host never runs ahead: the program has it, but not as long.

    Example row: ``(not_ahead=True, slow=False)``.
    """

    not_ahead: NDArray[np.bool_]
    slow: NDArray[np.bool_]


def start_up(graph: Graph, bubbles: Bubbles) -> StartUp:
    """Find the idle time that comes from the start of the recording.

    There is no slow reference model: ``tests/unit/measures/test_start_up.py`` has traces made by
    hand.

    Args:
        graph: the file's dependencies.
        bubbles: the idle time of the whole file.
    """
    timeline = graph.host.timeline
    row = rows_of(timeline.event_id, bubbles.next_id)
    step_index = np.where(row == ABSENT, ABSENT, timeline.step_index[row])
    not_ahead, slow = np.zeros((2, len(row)), dtype=np.bool_)
    if len(timeline.steps) <= _FEWEST_AHEAD:
        return StartUp(read_only(not_ahead), read_only(slow))
    is_launched = step_index != ABSENT
    is_late = is_launched & (graph.binding.launch_ns[row] > _idle_since_ns(bubbles))
    length_ns = bubbles.end_ns - bubbles.start_ns
    most_ns = _AHEAD * float(np.median(timeline.typical_lengths_ns))
    launch_id, step_of_launch = _launches(timeline)
    until_second = launch_id[: np.searchsorted(step_of_launch, 1) + 1]
    for device in timeline.device_numbers:
        on_device = bubbles.device_number == device
        late = np.flatnonzero(on_device & is_late)
        waited_ns = np.bincount(step_index[late], length_ns[late], minlength=len(timeline.steps))
        first = _first_ahead(waited_ns < most_ns)
        if first is None:
            slow |= on_device & np.isin(timeline.launch_id[row], until_second)
        else:
            not_ahead |= on_device & (step_index < first)
    is_chosen = is_launched & np.isin(bubbles.cause, _BY_HOST)
    is_chosen &= ~_is_stalled(timeline, launch_id, step_of_launch)[row]
    return StartUp(read_only(not_ahead & is_chosen), read_only(slow & is_chosen))


def _is_stalled(
    timeline: Timeline, launch_id: Int64Array, step_index: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Whether the host took much longer than usual to launch each activity, or that is not known.

    It took from the end of the launch before. Usual is the median of the launches at the same
    position in all steps that launch as often. The first launch of all has none before it.

    Args:
        timeline: the GPU activities in order.
        launch_id: int64[l], the calls that launched in steps, by step and start.
        step_index: int32[l], the index of the step of each.

    Returns:
        bool[m], by row of the timeline.
    """
    took_ns = np.diff(timeline.trace.end_ns[launch_id].astype(np.float64), prepend=np.nan)
    count = np.bincount(step_index, minlength=1)[step_index]  # of the launches of its step
    is_usual = np.zeros(len(launch_id), dtype=np.bool_)
    is_usual[:1] = True
    for launches, index in groups_of(count):
        of_step = index.reshape(-1, launches)
        if len(of_step) >= _FEWEST_ALIKE:
            usual_ns = np.nanmedian(took_ns[of_step], axis=0)
            is_usual[of_step] |= took_ns[of_step] <= _STALLED * usual_ns
    return ~np.isin(timeline.launch_id, launch_id[is_usual])


def _launches(timeline: Timeline) -> tuple[Int64Array, NDArray[np.int32]]:
    """The calls of all threads that launched in steps, and the index of the step of each.

    They are ordered by step, and by start within each.
    """
    rows = np.flatnonzero(timeline.step_index != ABSENT)
    launch_id, first = np.unique(timeline.launch_id[rows], return_index=True)
    step_index = timeline.step_index[rows[first]]
    order = np.lexsort((timeline.trace.start_ns[launch_id], step_index))
    return launch_id[order], step_index[order]


def _idle_since_ns(bubbles: Bubbles) -> Int64Array:
    """int64[bubbles], ns, when the device of each became idle."""
    touches = (bubbles.start_ns[1:] == bubbles.end_ns[:-1]) & (
        bubbles.device_number[1:] == bubbles.device_number[:-1]
    )
    is_first = np.concatenate(([True], ~touches))[: len(bubbles.start_ns)]
    since_ns: Int64Array = bubbles.start_ns[is_first][np.cumsum(is_first) - 1]
    return since_ns


def _first_ahead(is_ahead: NDArray[np.bool_]) -> int | None:
    """The first step in which the host is ahead; None where it is not one of the first, or rare.

    >>> _first_ahead(np.array([False, False, True, False, True, True]))
    2
    >>> _first_ahead(np.array([False, True, False])), _first_ahead(np.array([False, False]))
    (None, None)
    >>> _first_ahead(np.array([False] * 4 + [True] * 9))
    """
    first = int(np.argmax(is_ahead))
    ahead = int(is_ahead.sum())
    is_usual = ahead >= _FEWEST_AHEAD and 2 * ahead > len(is_ahead) - first
    return first if is_usual and first <= _MOST_STEPS else None
