"""A replay, node by node: the readable definition of `tracelab.simulate.replay`.

A node is reached once each node before it was, plus the latency between the two, plus what the node
costs itself; a blocking call returns without a further cost once what it waited for has ended. The
edges from the repetition before lead from the times of that one, which the first one lacks.
"""

from __future__ import annotations

from tracelab.simulate.program import NEVER, NodeKind, Program, Via

Times = dict[int, int]


def replay_one(program: Program, base: Program, repetitions: int = 4) -> tuple[int, Times]:
    """What a step of a program takes, ns, and when each node was last reached, ns.

    A program that runs once has ended with its last activity.

    A node to which the base's own repetition has no edge begins the first one: at 0, or, in a
    program that runs once, when it was reached in the recording. A node that cannot be reached is
    left out.

    Args:
        program: what is replayed.
        base: what it is an edit of, or itself.
        repetitions: how often a program is repeated that is.
    """
    begins = set(range(len(base))) - set(base.target[base.lag == 0].tolist())
    first_ns = int(base.moment_ns.min())
    begun = {
        node: 0 if base.is_repeated else int(base.moment_ns[node]) - first_ns for node in begins
    }
    count = repetitions if program.is_repeated else 1
    times: list[Times] = [{}]
    for number in range(count):
        times.append(_once(program, times[-1], begun if number == 0 else {}))
    last = times[-1]
    since = times[-2] if program.is_repeated else dict.fromkeys(last, 0)
    counted = last.keys() & since.keys()
    if not program.is_repeated:
        counted = {node for node in counted if program.kind[node] == NodeKind.ACTIVITY}
    longer_ns = [last[node] - since[node] for node in counted]
    return max(longer_ns, default=NEVER) // program.steps, last


def _once(program: Program, before: Times, begun: Times) -> Times:
    """When each node is reached in one repetition."""
    reached: Times = {}
    for node in range(len(program)):
        arrived = [begun[node]] if node in begun else []
        for edge in _edges_to(program, node):
            times, source = before if program.lag[edge] else reached, int(program.source[edge])
            if source in times:
                arrived.append(times[source] + _weight(program, edge))
        if arrived:
            reached[node] = max(arrived)
    return reached


def _edges_to(program: Program, node: int) -> list[int]:
    """Without those that an edit took away."""
    return [
        edge
        for edge in range(len(program.target))
        if program.target[edge] == node and program.latency_ns[edge] != NEVER
    ]


def _weight(program: Program, edge: int) -> int:
    cost_ns = 0 if program.via[edge] == Via.WAIT else program.cost_ns[program.target[edge]]
    return int(program.latency_ns[edge] + cost_ns)
