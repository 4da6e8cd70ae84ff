"""A loop whose host decides, with what is recorded of it counted in the open.

A step of 100 us, in us:

    0 to 100    the step
    5 to 25     an operator, which launches from 10 to 20
    50 to 75    another one, which launches from 60 to 70

So each launch has 2 events in the call, itself and what it launches. From the first to the second
it is one event: the end of an operator and the begin of another one; likewise from there to the
next step, as the steps themselves do not count. That makes 6 a step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.build import rows
from tests.build.rows import US
from tracelab.base.options import PROFILER_STEP
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import FileInfo

STEP_US, EVENTS_A_STEP = 100, 6


def recorded_steps(*, count: int = 4, apart_us: int = 0, kernel_us: int = 8) -> list[rows.Row]:
    """The rows of some such steps; between two of them the profiler's step call.

    A kernel starts 2.112 us after its launch, or 1.6 us after the one before.
    """
    some, free_ns = [], 0
    for number in range(count):
        start = number * (STEP_US + apart_us) * US
        some.append(rows.step(number, start, start + STEP_US * US))
        for index, (begin, end) in enumerate(((5, 25), (50, 75))):
            correlation, call = 1 + 2 * number + index, start + (10 + 50 * index) * US
            some.append(rows.operator("aten::add", start + begin * US, start + end * US))
            some.append(rows.launch(call, call + 10 * US, correlation))
            kernel = max(call + 12_112, free_ns + 1_600)
            free_ns = kernel + kernel_us * US
            some.append(rows.kernel(kernel, free_ns, correlation=correlation))
    return some


def graph_steps(*, host_us: int, count: int = 4) -> list[rows.Row]:
    """The rows of steps of one graph each: ten nodes of 8 us, 0.5 us apart.

    The graph begins 6 us after its call has returned, or 5 us after the one before.
    """
    some, gpu_ns = [], 0
    for number in range(count):
        begin, correlation = number * host_us * US, 1 + number
        some.append(rows.step(number, begin, begin + host_us * US))
        some.append(
            rows.launch(begin + 5 * US, begin + 15 * US, correlation, name="cudaGraphLaunch")
        )
        gpu_ns = max(begin + 21 * US, gpu_ns + 5 * US)
        for _ in range(10):
            some.append(rows.kernel(gpu_ns, gpu_ns + 8 * US, correlation=correlation))
            gpu_ns += 8 * US + 500
        gpu_ns -= 500
    return some


def graph_of(
    *some: rows.Row,
    host_us: float | None = None,
    step_us: float | None = None,
    block_steps: int = 2,
    is_unsteady: bool = False,
    **facts: Any,
) -> Graph:
    """Their graph; the recorder timed blocks of so many steps without the profiler.

    Facts of the file are those of `FileInfo`.
    """
    info = FileInfo(unprofiled_is_unsteady=is_unsteady, **facts)
    if host_us is not None:
        info = FileInfo(
            unprofiled_step_ns=(step_us or host_us) * US,
            unprofiled_host_step_ns=host_us * US,
            unprofiled_block_steps=block_steps,
        )
    trace = replace(rows.trace(*some), info=info)
    return build_graph(observe_host(build_timeline(trace, step_pattern=PROFILER_STEP)))
