"""For tests of replays of jobs: the program of one rank, made by hand. Times in nanoseconds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NodeKind, Program, Via


def compute(cost, *, host=0, stream=0):
    """A kernel, and for how long the host works before it launches it."""
    return Kind.COMPUTE, cost, host, stream


def comm(cost, *, host=0, stream=0):
    """A kernel that needs other ranks."""
    return Kind.COMM, cost, host, stream


def rank_of(*activities, steps=1):
    """A rank that launches some activities and begins again; nothing else takes time.

    Node 2 * i is the call that launches activity i, which is node 2 * i + 1.
    """
    kind, cost, host, stream = (np.array(column) for column in zip(*activities, strict=True))
    count = len(activities)
    call, activity = 2 * np.arange(count), 2 * np.arange(count) + 1
    edges = [(before, call[i], Via.HOST, 0, host[i]) for i, before in enumerate(call[:-1], 1)]
    edges.append((call[-1], call[0], Via.HOST, 1, host[0]))
    edges += [(call[i], activity[i], Via.LAUNCH, 0, 0) for i in range(count)]
    for number in np.unique(stream):
        own = activity[stream == number]
        edges += [(a, b, Via.STREAM, 0, 0) for a, b in pairwise(own)]
        edges.append((own[-1], own[0], Via.STREAM, 1, 0))
    source, target, via, lag, latency = np.array(edges, dtype=np.int64).T
    is_activity = np.arange(2 * count) % 2 == 1
    return Program(
        kind=np.where(is_activity, NodeKind.ACTIVITY, NodeKind.CALL).astype(np.int8),
        event_id=np.arange(2 * count),
        row=np.where(is_activity, np.arange(2 * count) // 2, ABSENT),
        cost_ns=np.where(is_activity, np.repeat(cost, 2), 0),
        moment_ns=np.arange(2 * count) * 10,
        thread_index=np.where(is_activity, ABSENT, 0).astype(np.int32),
        stream_index=np.where(is_activity, np.repeat(stream, 2), ABSENT),
        activity_kind=np.where(is_activity, np.repeat(kind, 2), ABSENT).astype(np.int8),
        launch_node=np.where(is_activity, np.arange(2 * count) - 1, ABSENT),
        source=source,
        target=target,
        via=via.astype(np.int8),
        lag=lag.astype(np.int8),
        latency_ns=latency,
        steps=steps,
        length_ns=int(cost.sum()) * steps,
        is_repeated=True,
    )
