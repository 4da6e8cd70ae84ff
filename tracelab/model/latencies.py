"""Latencies of starts: the one place that defines the typical and the unusual ones.

``docs/evidence/latencies.md`` has those of each GPU, from ``python tests/benchmarks/latencies.py``.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int8Array, Int64Array, Record
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of

# Lateness beyond the typical: of 45,347 starts in captures with event records 44,289 came up to 20
# us after all that the file shows was over, 63 up to 30, 118 up to 100 us, and 877 later.
UNEXPLAINED_NS = 20_000
# What a wait delayed starts 1 to 35 us after what it waited for, 7 us in the median. Then come 5 of
# 3,100 up to 45 us, and from there on what also waited for a free multiprocessor.
MAX_WAKE_UP_NS = 35_000
# Where nothing is in the way 95 of 100 start at most 5 us after they could have; a later start is
# due to a wait whose record is not named or a launch call that still ran, if there was one.
MIN_DELAY_NS = 5_000
# A launch takes some microseconds. While a thread allocates it has the driver's lock: calls of
# other threads took 7 and 40 ms beside the cudaHostAlloc of a DataLoader's pin_memory thread.
MAX_CALL_NS = 100_000
# Nothing is recorded for up to 0.4 ms between two operators in captures without Python's stacks;
# for 2 to 23 ms in a trace of DeepEP, whose host reads a counter that the GPU writes.
MAX_SILENCE_NS = 1_000_000
# Between two ProfilerSteps, in the profiler's step call, pass 7 to 60 us in all captures.
MAX_STEP_CALL_NS = 500_000

# To the first node of a graph: 5.9 to 6.1 us on H200 (launches_graph), three times a kernel's.
REPLAY_START_NS = 6_000

# From so many starts on a trace's own median counts; if it needs an explanation itself, events are
# missing.
MIN_STARTS = 20


class Since(IntEnum):
    """Event that a latency is counted from."""

    PREVIOUS = 0  # the end of the activity before it in its stream
    LAUNCH = 1  # the return of its launch call
    EVENT = 2  # the end of what its stream waited for
    AWAITED = 3  # of a blocking call: from the end of what it waited for to its return
    NODE = 4  # of nodes of a graph among the first: the end of the node before it in its stream


class Latency(Record):
    """One latency, and its median in the captures of H200s.

    `previous` is None unless it is counted from the end of the activity before, and `kind` of a
    blocking call and any node of a graph.
    """

    since: Since
    previous: Kind | None
    kind: Kind | None
    typical_ns: int


# By the kind of what starts; a line for each kind of the activity before.
_AFTER_PREVIOUS_NS = (
    (1_600, 1_376, 3_329, 1_536),
    (1_728, 8_544, 1_728, 8_031),
    (6_592, 1_728, 2_592, 7_360),
    (2_048, 1_728, 1_728, 1_728),
)
_AFTER_LAUNCH_NS = (2_112, 1_513, 1_078, 2_019)
_AFTER_EVENT_NS = (8_320, 5_984, 12_736, 10_459)
LATENCIES = (
    *(
        Latency(Since.PREVIOUS, previous, kind, _AFTER_PREVIOUS_NS[previous][kind])
        for previous in Kind
        for kind in Kind
    ),
    *(Latency(Since.LAUNCH, None, kind, _AFTER_LAUNCH_NS[kind]) for kind in Kind),
    *(Latency(Since.EVENT, None, kind, _AFTER_EVENT_NS[kind]) for kind in Kind),
    Latency(Since.AWAITED, None, None, 4_923),
    Latency(Since.NODE, None, None, 128),
)
NODE = len(LATENCIES) - 1
AWAITED = NODE - 1


def previous_index(previous: Int8Array, kind: Int8Array) -> IndexArray:
    """Index into `LATENCIES` of starts after another activity of the stream, by both kinds."""
    return len(Kind) * previous.astype(np.intp) + kind


def launch_index(kind: Int8Array) -> IndexArray:
    """Index into `LATENCIES` of starts after the launch, by kind."""
    return len(Kind) ** 2 + kind.astype(np.intp)


def event_index(kind: Int8Array) -> IndexArray:
    """Index into `LATENCIES` of starts after what a stream waited for, by kind."""
    return launch_index(kind) + len(Kind)


class Latencies(Arrays):
    """Typical latencies of one trace, in the order of `LATENCIES`.

    They are the trace's own medians (`is_own`) where these count, else those of the captures.
    """

    typical_ns: Int64Array
    is_own: BoolArray
    start_count: Int64Array


def measure_latencies(latency_index: IndexArray, latency_ns: Int64Array) -> Latencies:
    """The typical latencies of a trace, of starts by their index into `LATENCIES`."""
    typical_ns = np.array([latency.typical_ns for latency in LATENCIES], dtype=np.int64)
    is_own = np.zeros(len(LATENCIES), dtype=np.bool_)
    for index, of_latency in groups_of(latency_index):
        median_ns = lower_median(latency_ns[of_latency])
        if len(of_latency) >= MIN_STARTS and median_ns <= UNEXPLAINED_NS:
            typical_ns[index], is_own[index] = median_ns, True
    start_count = np.bincount(latency_index, minlength=len(LATENCIES)).astype(np.int64)
    return Latencies(typical_ns, is_own, start_count)


def lower_median(lengths_ns: Int64Array) -> int:
    """The median; of an even number the lower of the two in the middle, which was measured."""
    middle = (len(lengths_ns) - 1) // 2
    return int(np.partition(lengths_ns, middle)[middle])
