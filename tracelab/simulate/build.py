"""The program of a file that a replay runs: its typical steps."""

from __future__ import annotations

from statistics import median

from tracelab.model.graph import Graph
from tracelab.model.timeline import Timeline
from tracelab.simulate.program import Program
from tracelab.simulate.recorded import record_program
from tracelab.simulate.repeat import repeat

# A step so much longer than the median one is not typical.
_IRREGULAR = 2.5
# Steps after those that make up so many nodes are left out: more of them say nothing new.
_MOST_NODES = 40_000


def build_program(graph: Graph) -> Program:
    """The typical steps of a file as a program that is repeated; without steps all of it, once."""
    recorded = record_program(graph)
    steps = typical_steps(graph.host.timeline, len(recorded.program))
    return recorded.program if steps is None else repeat(graph, recorded, *steps)


def typical_steps(timeline: Timeline, node_count: int) -> tuple[int, int] | None:
    """The first and the last of the steps to repeat, as indices into `Timeline.steps`.

    They are the longest run of steady steps without an irregular one, the last of several, and as a
    rule have a step before them, which shows what a step waits for of the one before.

    Args:
        timeline: the GPU activities in order.
        node_count: how many nodes the program of the whole file has.

    Returns:
        None without steady steps.
    """
    steady = timeline.steady
    if steady is None:
        return None
    lengths_ns = [timeline.steps[i].end_ns - timeline.steps[i].start_ns for i in steady.indices]
    longest_ns = _IRREGULAR * median(lengths_ns)
    runs: list[list[int]] = []
    for index, length_ns in zip(steady.indices, lengths_ns, strict=True):
        if length_ns <= longest_ns:
            if not runs or runs[-1][-1] != index - 1:
                runs.append([])
            runs[-1].append(index)
    run = max(reversed(runs), key=len)
    first, last = run[0], run[-1]
    if first == 0 and last > 0:
        first = 1
    most_steps = max(1, _MOST_NODES * len(timeline.steps) // node_count)
    return first, min(last, first + most_steps - 1)
