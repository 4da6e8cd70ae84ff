"""For tests and benchmarks of size: a real trace again and again, as a longer run would have it.

Every copy has steps, launches and collectives of its own, and takes a little longer or shorter in
every place: time itself is stretched and squeezed by a few per cent, so that order, nesting and
what waits for what stay as they were, and no two copies have the same nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult
from tracelab.base.arrays import Int64Array
from tracelab.base.options import DEFAULTS, Options
from tracelab.model.trace import ABSENT, GroupText, Messages, SparseColumn, Trace
from tracelab.read.reader import read_trace
from tracelab.read.streams import Source

KNOT_NS = 20_000  # how often the speed of time changes
JITTER = 0.04
STEP = "ProfilerStep#"


def repeated(trace: Trace, times: int, *, seed: int = 0) -> Trace:
    """The events of a trace, `times` times after one another.

    Args:
        trace: of a few steps.
        times: how often.
        seed: of what changes from copy to copy.
    """
    copy_index = np.repeat(np.arange(times), len(trace))
    length_ns = int(trace.end_ns.max() - trace.start_ns.min())
    warped = _warp(times * length_ns, np.random.default_rng(seed))

    def tiled(column: Any) -> np.ndarray:
        return np.tile(np.asarray(column[:]), times)

    def renumbered(column: Any) -> Int64Array:
        values = np.asarray(column[:], dtype=np.int64)
        width = int(values.max(initial=0)) + 1
        return np.where(tiled(column) == ABSENT, ABSENT, tiled(column) + copy_index * width)

    def moved(times_ns: Int64Array) -> Int64Array:
        return warped(tiled(times_ns) - int(trace.start_ns.min()) + copy_index * length_ns)

    start_ns = moved(trace.start_ns)
    strings, name_index = _steps_renamed(trace, tiled(trace.name_index), copy_index, times)
    message_row = tiled(trace.message_row)
    columns = {
        name: tiled(column)
        for name in Trace.__struct_fields__
        if isinstance(column := getattr(trace, name), np.ndarray | SparseColumn)
    }
    columns |= {
        "start_ns": start_ns,
        "duration_ns": moved(trace.end_ns) - start_ns,
        "name_index": name_index,
        "correlation": renumbered(trace.correlation),
        "wait_correlation": renumbered(trace.wait_correlation),
        "message_row": np.where(
            message_row == ABSENT, ABSENT, message_row + copy_index * len(trace.messages)
        ),
    }
    return replace(
        trace,
        **columns,
        messages=_messages_repeated(trace.messages, times),
        strings=strings,
        objects=trace.objects * times,
    )


def as_rank(trace: Trace, rank: int, ranks: int) -> Trace:
    """A trace as that of one rank of a job in which every group has all ranks."""
    listed = str(list(range(ranks)))
    groups = tuple(GroupText(x.name, listed, ranks, 0, 1) for x in trace.messages.groups)
    info = replace(trace.info, rank=rank, rank_source="metadata", world_size=ranks)
    return replace(
        trace,
        path=f"rank{rank}.json",
        messages=replace(trace.messages, groups=groups),
        metadata=MappingProxyType({}),
        info=info,
    )


def read(path: Path) -> Trace:
    """The trace in a file."""
    return read_trace(Source(str(path), None, named=True))


def result_of(
    trace: Trace, path: Path, then: Callable[[Analysis], Any], options: Options = DEFAULTS
) -> FileResult:
    """What becomes of a trace in place of the file that it was made from."""
    source = Source(str(path), None, named=True)
    analysis = Analysis(source, options)
    analysis.trace = trace
    return FileResult(source, analysis.report, part=analysis.part, more=then(analysis))


def _warp(length_ns: int, random: np.random.Generator) -> Callable[[Int64Array], Int64Array]:
    """A clock that runs faster and slower than the given one, but never backward."""
    knots = np.arange(0, length_ns + 2 * KNOT_NS, KNOT_NS)
    speed = random.uniform(1 - JITTER, 1 + JITTER, len(knots) - 1)
    reached = np.concatenate(([0], np.cumsum(speed * KNOT_NS)))
    return lambda times_ns: np.rint(np.interp(times_ns, knots, reached)).astype(np.int64)


def _steps_renamed(
    trace: Trace, name_index: np.ndarray, copy_index: np.ndarray, times: int
) -> tuple[tuple[str, ...], np.ndarray]:
    """The strings with the steps of every copy, and each event's index into them."""
    steps = [x for x in trace.strings if x.startswith(STEP)]
    numbers = [int(x.removeprefix(STEP)) for x in steps]
    width = max(numbers, default=0) + 1 - min(numbers, default=0)
    renamed = [f"{STEP}{n + copy * width}" for copy in range(1, times) for n in numbers]
    place = np.full(len(trace.strings), ABSENT)
    place[[trace.strings.index(x) for x in steps]] = np.arange(len(steps))
    of_event = place[name_index]
    later = len(trace.strings) + (copy_index - 1) * len(steps) + of_event
    is_renamed = (of_event != ABSENT) & (copy_index > 0)
    return (*trace.strings, *renamed), np.where(is_renamed, later, name_index)


def _messages_repeated(messages: Messages, times: int) -> Messages:
    """The messages of every copy; the numbers of operations go on from copy to copy."""

    def tiled(column: np.ndarray) -> np.ndarray:
        return np.concatenate([np.tile(column[:-1], times), column[-1:]])

    copy_index = np.concatenate([np.repeat(np.arange(times), len(messages)), [0]])
    sequence = tiled(messages.sequence)
    width = int(messages.sequence.max()) + 1
    return replace(
        messages,
        name_index=tiled(messages.name_index),
        group_index=tiled(messages.group_index),
        sequence=np.where(sequence == ABSENT, ABSENT, sequence + copy_index * width),
        peer_rank=tiled(messages.peer_rank),
        in_bytes=tiled(messages.in_bytes),
        out_bytes=tiled(messages.out_bytes),
    )
