"""What a rank gives to the picture of its job: when its GPU did what, reduced to what is seen.

Each file is analyzed alone, in whichever process. Which steps the picture shows is known once all
ranks are read: so the steps in the middle travel on, in bins finer than a pixel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import OneLine
from tracelab.base.intervals import Int64Array, Intervals, clip, union
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.phases import Phase, Phases
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.render.picture.coverage import gather
from tracelab.render.picture.lanes import KIND_MARKS, Mark

_MOST_STEPS = 8
_BINS = 8192  # of a step; a picture has some hundred pixels for it

_PHASE_MARKS = {Phase.FORWARD: Mark.FORWARD, Phase.BACKWARD: Mark.BACKWARD}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RankWork(OneLine):
    """When the GPU of one rank did what; of several it is the one that decides.

    Attributes:
        path: the file.
        origin_ns: the file's first event by its own clock, ns.
        windows: the whole trace and every step, or one step, ns since the file's first event.
        steps: the numbers of those that may be drawn.
        start_ns, end_ns: the time in which `work` is known, ns since the file's first event.
        bin_ns: what is shorter is up to two of these, ns, from where it was.
        work: when there was work of each sort, ns since the file's first event.

    Example: ``RankWork(path="rank0.json", origin_ns=0, windows=(Window(step=2, ...), ...),
    steps=(2, 3), start_ns=0, end_ns=29_000_000, bin_ns=1_187, work={Mark.FORWARD: ...})``.
    """

    path: str
    origin_ns: int
    windows: tuple[Window, ...]
    steps: tuple[int, ...]
    start_ns: int
    end_ns: int
    bin_ns: int
    work: Mapping[Mark, Intervals]


def reduce_work(graph: Graph, windows: Sequence[Window], device: int) -> RankWork:
    """Reduce a file to what the picture of its job needs.

    Args:
        graph: the file's dependencies.
        windows: what is measured: the whole trace and every step, or one step.
        device: the number of the device that decides.
    """
    timeline = graph.host.timeline
    steps = _steps(timeline, windows)
    start_ns, end_ns = _known_time(timeline, windows, steps)
    lengths = len(steps) + 2 if steps else 1
    bin_ns = max(1, (end_ns - start_ns) // lengths // _BINS)
    mark, is_shown = _marks(graph), timeline.device_number == device
    work = {}
    for index, name in enumerate(Mark):
        rows = np.flatnonzero(is_shown & (mark == index))
        if len(rows):
            covered = clip(union(timeline.start_ns[rows], timeline.end_ns[rows]), start_ns, end_ns)
            work[name] = gather(covered, bin_ns)
    return RankWork(
        path=timeline.trace.path,
        origin_ns=timeline.trace.info.clock_base_ns + timeline.trace.origin_ns,
        windows=tuple(windows),
        steps=steps,
        start_ns=start_ns,
        end_ns=end_ns,
        bin_ns=bin_ns,
        work=work,
    )


def _steps(timeline: Timeline, windows: Sequence[Window]) -> tuple[int, ...]:
    """The numbers of the steps that may be drawn: the only one, or steady ones in the middle."""
    if windows[0].step is not None:
        return (windows[0].step,)
    indices = timeline.steady.indices if timeline.steady else ()
    left_out = max(0, len(indices) - _MOST_STEPS) // 2
    return tuple(timeline.steps[i].number for i in indices[left_out : left_out + _MOST_STEPS])


def _known_time(
    timeline: Timeline, windows: Sequence[Window], steps: Sequence[int]
) -> tuple[int, int]:
    """From when to when, ns: the steps and a step's length around them, in which others' lie."""
    whole = timeline.windows[0]
    if not steps:
        return whole.start_ns, whole.end_ns
    chosen = [window for window in windows if window.step in steps]
    around_ns = max(window.length_ns for window in chosen)
    return (
        max(whole.start_ns, chosen[0].start_ns - around_ns),
        min(whole.end_ns, chosen[-1].end_ns + around_ns),
    )


def _marks(graph: Graph) -> NDArray[np.int8]:
    """int8[r], the place in `Mark` of each GPU activity; compute by its phase, where known."""
    timeline = graph.host.timeline
    places = {mark: index for index, mark in enumerate(Mark)}
    mark = np.empty(len(timeline.kind), dtype=np.int8)
    for kind in Kind:
        mark[timeline.kind == kind] = places[KIND_MARKS[kind]]
    phase = _phases(graph, timeline.launch_id)
    is_compute = timeline.kind == Kind.COMPUTE
    if (phase[is_compute] == Phase.BACKWARD).any():
        mark[is_compute] = places[Mark.OTHER_COMPUTE]
        for of_phase, name in _PHASE_MARKS.items():
            mark[is_compute & (phase == of_phase)] = places[name]
    return mark


def _phases(graph: Graph, launch_id: Int64Array) -> NDArray[np.int8]:
    """int8[r], the `Phase` of each launch."""
    phase = np.full(len(launch_id), Phase.UNKNOWN, dtype=np.int8)
    is_launched = launch_id != ABSENT
    phase[is_launched] = Phases(graph.host).of_events(launch_id[is_launched])
    return phase
