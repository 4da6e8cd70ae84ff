"""What one rank's file gives to its job: a few dozen bytes for each communication operation.

Each file is analyzed alone, in whichever process. Of its events only this travels on: when its
communication ran, where in the program it was called, and how the rank spent the time before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen, OneLine
from tracelab.intervals import Int64Array
from tracelab.measures.bubbles import Cause
from tracelab.model.call_sites import CallSite
from tracelab.model.collectives import Group


class Work(IntEnum):
    """How the device that decides spends its time: each moment counts for the first that applies.

    The first four are a `Kind`; the others are idle, by `Cause`.
    """

    COMPUTE = 0
    COMM = 1
    COPY = 2
    MEMSET = 3
    HOST_BLOCKED = 4
    INPUT = 5
    HOST_BUSY = 6
    DEPENDENCY = 7
    LAUNCH = 8
    GRAPH = 9
    EDGE = 10
    PROFILER = 11
    UNKNOWN = 12


IDLE_WORK = {cause: Work[cause.name] for cause in Cause}


@dataclass(frozen=True, slots=True, repr=False)
class Culprit(OneLine):
    """What kept the device idle: the host's call, operator or region, and where it is.

    Example row: ``Culprit(work=Work.INPUT, call="next", site=CallSite(function="train",
    file="train.py", line=33))``.

    Attributes:
        work: the sort of idle.
        call: the event's name as it is shown.
        site: where in the program it is.
    """

    work: Work
    call: str
    site: CallSite


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartSteps(Frozen):
    """The steps of one file, in order.

    Attributes:
        number: int64[s], the user's.
        start_ns, end_ns: int64[s], ns since the file's origin, of each step's window.
        is_steady: bool[s].

    Example row: ``(number=3, start_ns=9_000, end_ns=19_000, is_steady=True)``.
    """

    number: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    is_steady: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RankPart(Frozen):
    """The communication of one rank, and how it spent the time in between; c operations, by start.

    An operation is a collective or, of a kernel that sends and receives, one of its sends and
    receives; those of one kernel share its times. Times are ns since the file's first event.

    Attributes:
        rank: the rank's number in the report.
        path: the file.
        origin_ns: the file's first event by its own clock, ns since 1970 or since the machine
            started.
        device: the device that decides, whose time is followed.
        groups: the process groups.
        sites: where in the program operations were called.
        culprits: what kept the device idle.
        steps: the file's steps.
        start_ns, end_ns: int64[c], ns, of the operation's kernel.
        kernel_id: int64[c], event id of the kernel; the same for operations that share it.
        stream_number: int64[c].
        operation: int8[c], an `Operation`.
        group_index: int32[c], into `groups`.
        sequence: int64[c], the sequence number within the group, ABSENT where the file has none.
        peer_rank: int64[c], the rank that a send or receive is with, else ABSENT.
        in_bytes, out_bytes: int64[c], what goes in and comes out on this rank, ABSENT if unknown.
        step_index: int32[c], into `steps`, of the step that launched it, ABSENT outside all.
        site_index: int32[c], into `sites`.
        gates: bool[c], whether other GPU work waited for its end, as far as the file says.
        constraint: int8[c], the `Constraint` that the kernel's own start met last.
        delay_ns: int64[c], ns, how much earlier it could have started but for that constraint;
            ABSENT where it had no other.
        exposed_index: int64[e], into the operations, of each piece of exposed communication; of
            operations that share a kernel the first.
        exposed_start_ns, exposed_end_ns: int64[e], ns; no compute ran beside it.
        work_at_start_ns, work_at_end_ns: int64[c, len(Work)], ns, how much of each sort of work the
            device had done by the operation's start and end, since its first activity: the
            differences between two moments add up to the time between them.
        culprit_index: int32[c], into `culprits`, what kept the device idle longest since the
            operation before it started; ABSENT without any.
        culprit_ns: int64[c], ns, for how long.

    Example row: ``(start_ns=120_000, end_ns=190_000, kernel_id=17, stream_number=22,
    operation=Operation.ALL_REDUCE, group_index=0, sequence=ABSENT, peer_rank=ABSENT,
    in_bytes=134_217_728, out_bytes=134_217_728, step_index=1, site_index=3, gates=True,
    constraint=Constraint.EVENT, delay_ns=40_000, work_at_start_ns=[90_000, 20_000, 0, ...],
    work_at_end_ns=[90_000, 90_000, 0, ...], culprit_index=ABSENT, culprit_ns=0)``.
    """

    rank: int
    path: str
    origin_ns: int
    device: int
    groups: tuple[Group, ...]
    sites: tuple[CallSite, ...]
    culprits: tuple[Culprit, ...]
    steps: PartSteps
    start_ns: Int64Array
    end_ns: Int64Array
    kernel_id: Int64Array
    stream_number: Int64Array
    operation: NDArray[np.int8]
    group_index: NDArray[np.int32]
    sequence: Int64Array
    peer_rank: Int64Array
    in_bytes: Int64Array
    out_bytes: Int64Array
    step_index: NDArray[np.int32]
    site_index: NDArray[np.int32]
    gates: NDArray[np.bool_]
    constraint: NDArray[np.int8]
    delay_ns: Int64Array
    exposed_index: Int64Array
    exposed_start_ns: Int64Array
    exposed_end_ns: Int64Array
    work_at_start_ns: Int64Array
    work_at_end_ns: Int64Array
    culprit_index: NDArray[np.int32]
    culprit_ns: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)
