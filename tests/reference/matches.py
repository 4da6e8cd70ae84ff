"""The definition of a match, one operation after another.

For recordings of whole steps, in which every operation has its step: an operation is known by its
group, its step and how many of the group came before it in that step; a message by who sends it to
whom. What is known so by several ranks is one operation.
"""

from collections import defaultdict

from tracelab.model.collectives import Operation


def matches(parts):
    """The matches as sets of (rank, index of the operation)."""
    members = defaultdict(set)
    for part in parts:
        seen = defaultdict(int)
        for index in range(len(part)):
            operation = part.operation[index]
            group = part.groups[part.group_index[index]]
            unit = (group, *_ends(part, index, operation))
            step = int(part.steps.number[part.step_index[index]])
            members[(unit, step, seen[unit, step])].add((part.rank, index))
            seen[unit, step] += 1
    return {frozenset(found) for found in members.values() if len(found) > 1}


def _ends(part, index, operation):
    peer = int(part.peer_rank[index])
    if operation == Operation.SEND:
        return part.rank, peer
    if operation == Operation.RECV:
        return peer, part.rank
    return ()
