"""Steps of each rank: its compute, waits for other ranks, transfers, copies and idle time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.intervals import Int64Array, intersect, measure_within, subtract, union
from tracelab.job.clocks import Clocks
from tracelab.job.part import RankPart
from tracelab.measures.measure import constrained
from tracelab.measures.window_times import WindowMetrics
from tracelab.model.trace import ABSENT


@dataclass(frozen=True, slots=True, repr=False)
class RankStep(OneLine):
    """One step of one rank, on the device that decides; the times after `end_ns` add up to it.

    Attributes:
        step: its number.
        start_ns, end_ns: ns, on the job's clock.
        compute_ns: compute ran.
        wait_ns: communication waited for another rank, and no compute ran beside it.
        transfer_ns: communication only moved data, and no compute ran beside it.
        copy_ns: only copies and memsets ran.
        idle_ns: nothing ran.

    Example row: ``RankStep(step=3, start_ns=9_000, end_ns=19_000, compute_ns=6_000, wait_ns=2_400,
    transfer_ns=600, copy_ns=0, idle_ns=1_000)``.
    """

    step: int
    start_ns: int
    end_ns: int = field(metadata=constrained(minimum=-(2**63)))
    compute_ns: int
    wait_ns: int
    transfer_ns: int
    copy_ns: int
    idle_ns: int
    unmatched_ns: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class RankTimes(OneLine):
    """The steps of one rank.

    Example row: ``RankTimes(rank=1, steps=(RankStep(step=3, ...), RankStep(step=4, ...)))``.
    """

    rank: int
    steps: tuple[RankStep, ...]


def rank_times(
    part: RankPart,
    part_index: int,
    clocks: Clocks,
    wait_ns: Int64Array,
    windows: Sequence[WindowMetrics],
) -> RankTimes:
    """Split each step of a rank into compute, wait, transfer, copies and idle.

    There is no slow reference model: the times of a step add up to its length, and all but the
    wait are those of `window_times`.

    Args:
        part: the rank's file.
        part_index: its place among the parts of the job.
        clocks: the job's clock.
        wait_ns: int64[c], ns, how long the kernel of each operation waited, ABSENT where that is
            not known.
        windows: what was measured of the rank's windows.
    """
    exposed = union(part.exposed_start_ns, part.exposed_end_ns)
    # Beside a transfer of another kernel, too: the rank gets on when both are over.
    waiting = intersect(union(part.start_ns, part.start_ns + np.maximum(wait_ns, 0)), exposed)
    is_unmatched = wait_ns[part.exposed_index] == ABSENT
    unmatched = subtract(
        union(part.exposed_start_ns[is_unmatched], part.exposed_end_ns[is_unmatched]), waiting
    )
    steps_ns = (part.steps.start_ns, part.steps.end_ns)
    columns = (
        part.steps.number,
        *(clocks.job_ns_of(part_index, times_ns) for times_ns in steps_ns),
        measure_within(waiting, *steps_ns),
        measure_within(unmatched, *steps_ns),
    )
    of_step = {number: times for number, *times in zip(*(x.tolist() for x in columns), strict=True)}
    steps = []
    for window in windows:
        number = window.step
        if number is None:
            continue
        start_ns, end_ns, waited_ns, unmatched_ns = of_step[number]
        [device] = [x for x in window.devices if x.device == part.device]
        exposed_ns = device.exposed_comm_ns
        steps.append(
            RankStep(
                step=number,
                start_ns=start_ns,
                end_ns=end_ns,
                compute_ns=device.compute_ns,
                wait_ns=waited_ns,
                transfer_ns=exposed_ns - waited_ns - unmatched_ns,
                copy_ns=device.busy_ns - device.compute_ns - exposed_ns,
                idle_ns=device.idle_ns,
                unmatched_ns=unmatched_ns,
            )
        )
    return RankTimes(part.rank, tuple(steps))
