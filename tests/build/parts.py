"""For tests of jobs: what ranks' files give, made by hand or of captures. Times in nanoseconds.

Every maker of an operation gives one: ``part(0, all_reduce(10, 20), send(30, 40, peer=1))``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from tests.bundled_traces import PATHS
from tests.shared_traces import FOLDER as REAL_FOLDER
from tracelab.base.intervals import union
from tracelab.job.part import PartSteps, RankPart, Work
from tracelab.model.collectives import Group, Operation, collectives
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import ABSENT
from tracelab.read.reader import read_trace_in_chunks
from tracelab.read.sources import find_sources

ALL = Group(name="0", ranks=(0, 1, 2, 3), size=4)
# Those of a part with one value for each operation.
OPERATION_COLUMNS = [
    name
    for name, annotation in RankPart.__annotations__.items()
    if "Array" in annotation and not name.startswith(("exposed", "work_site"))
]


@dataclass(frozen=True)
class Op:
    operation: Operation
    start: int
    end: int
    size: int = 1_000
    sequence: int = ABSENT
    group: Group = ALL
    peer: int = ABSENT
    step: int = ABSENT
    kernel: int = ABSENT


def all_reduce(start, end, **fields):
    """An all-reduce."""
    return Op(Operation.ALL_REDUCE, start, end, **fields)


def all_gather(start, end, **fields):
    """An all-gather, whose sizes may differ between ranks."""
    return Op(Operation.ALL_GATHER, start, end, **fields)


def send(start, end, peer, **fields):
    """A send to a rank."""
    return Op(Operation.SEND, start, end, peer=peer, **fields)


def receive(start, end, peer, **fields):
    """A receive from a rank."""
    return Op(Operation.RECV, start, end, peer=peer, **fields)


def part(rank, *operations, origin=0):
    """The part of one rank; operations that name the same `kernel` share it."""
    rows = sorted(operations, key=lambda op: op.start)
    groups = tuple(dict.fromkeys(op.group for op in rows))
    numbers = sorted({op.step for op in rows if op.step != ABSENT})
    own_kernel = range(1_000, 1_000 + len(rows))
    return _part(
        rank,
        groups,
        numbers,
        origin_ns=origin,
        start_ns=_int64(op.start for op in rows),
        end_ns=_int64(op.end for op in rows),
        kernel_id=_int64(
            own if op.kernel == ABSENT else op.kernel
            for op, own in zip(rows, own_kernel, strict=True)
        ),
        operation=np.array([op.operation for op in rows], dtype=np.int8),
        group_index=np.array([groups.index(op.group) for op in rows], dtype=np.int32),
        sequence=_int64(op.sequence for op in rows),
        peer_rank=_int64(op.peer for op in rows),
        in_bytes=_int64(op.size for op in rows),
        out_bytes=_int64(op.size for op in rows),
        step_index=np.array(
            [ABSENT if op.step == ABSENT else numbers.index(op.step) for op in rows], np.int32
        ),
    )


def parts_of_job(name):
    """The parts of a bundled job of several ranks or of the real one of eight, by rank."""
    return list(_parts_of_job(name))


def eight_ranks():
    """The parts of the real job of eight ranks."""
    return [_part_of_file(path) for path in sorted(REAL_FOLDER.glob("param_dlrm_8ranks/*.gz"))]


def shifted(of, offset=0, ppm=0.0, jump=0, jump_at=0):
    """The same part by another clock: ahead, faster, and set forward at a moment."""

    def moved(times):
        return times + np.rint(times * ppm * 1e-6).astype(np.int64) + jump * (times >= jump_at)

    return replace(
        of,
        origin_ns=of.origin_ns + offset,
        start_ns=moved(of.start_ns),
        end_ns=moved(of.end_ns),
    )


def repeated(of, times, period):
    """The same operations again and again, each time so much later."""
    moved = np.repeat(np.arange(times) * period, len(of))
    columns = {name: np.concatenate([getattr(of, name)] * times) for name in OPERATION_COLUMNS}
    columns |= {name: columns[name] + moved for name in ("start_ns", "end_ns")}
    columns["kernel_id"] = np.arange(times * len(of))
    return replace(of, **columns)


def cut(of, first=0, end=None, *, with_steps=True):
    """The part of a recording that begins and ends at other operations."""
    chosen = slice(first, end)
    columns = {name: getattr(of, name)[chosen] for name in OPERATION_COLUMNS}
    if not with_steps:
        columns["step_index"] = np.full_like(columns["step_index"], ABSENT)
    return replace(of, **columns)


_RANK = re.compile(r"_rank(\d+)\..*")


@cache
def _parts_of_job(name):
    return [_part_of_file(path) for path in PATHS if _RANK.sub("", path.name) == name]


@cache
def _part_of_file(path: Path) -> RankPart:
    [source] = find_sources([str(path)])
    timeline = build_timeline(read_trace_in_chunks(source, 1))
    trace, found = timeline.trace, collectives(timeline)
    row = found.row
    return _part(
        int(_RANK.search(path.name)[1]),
        found.groups,
        [step.number for step in timeline.steps],
        origin_ns=trace.info.clock_base_ns + trace.origin_ns,
        start_ns=timeline.start_ns[row],
        end_ns=timeline.end_ns[row],
        kernel_id=timeline.event_id[row],
        operation=found.operation,
        group_index=found.group_index,
        sequence=found.sequence,
        peer_rank=found.peer_rank,
        in_bytes=found.in_bytes,
        out_bytes=found.out_bytes,
        step_index=timeline.step_index[row],
    )


def _part(rank, groups: Sequence[Group], numbers: Iterable[int], **columns) -> RankPart:
    """A part of which only the operations are known."""
    count, none = len(columns["start_ns"]), _int64([])
    number = _int64(numbers)
    return RankPart(
        rank=rank,
        path=f"rank{rank}.json",
        device=0,
        groups=tuple(groups),
        sites=(),
        culprits=(),
        kernel_names=("ncclDevKernel",),
        work_sites=(),
        work_site_ns=none,
        steps=PartSteps(number, number * 0, number * 0, number >= 0),
        kernel_name_index=np.zeros(count, np.int32),
        site_index=np.full(count, ABSENT, np.int32),
        exposed_index=none,
        exposed_start_ns=none,
        exposed_end_ns=none,
        exposed_blocker=np.zeros(0, np.int8),
        work=(union([], []),) * len(Work),
        culprit_index=np.full(count, ABSENT, np.int32),
        culprit_ns=np.zeros(count, np.int64),
        **columns,
    )


def _int64(values):
    return np.fromiter(values, dtype=np.int64)
