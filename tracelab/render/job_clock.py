"""The clock of a job in each of its files: what pictures and pages of its ranks have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.model.steps import Window
from tracelab.report.schema import CollectiveMetrics, Job


class RankFile(Protocol):
    """What must be known of the file of a rank."""

    @property
    def origin_ns(self) -> int:
        """The file's first event by its own clock, ns."""

    @property
    def windows(self) -> tuple[Window, ...]:
        """The whole trace and every step, or one step, ns since the file's first event."""

    @property
    def start_ns(self) -> int:
        """Some moment of it, ns since the file's first event."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JobTime(Frozen):
    """How the times of a rank's file are related to the job's clock: evenly between known moments.

    Attributes:
        own_ns: int64[k], ns since the file's first event, ascending, at least one.
        shift_ns: int64[k], ns, what to add to each for the job's clock.

    Example row: ``own_ns=9_000, shift_ns=-1_204_000``.
    """

    own_ns: Int64Array
    shift_ns: Int64Array

    def __call__(self, moments_ns: Int64Array) -> Int64Array:
        """int64[n], moments of the file on the job's clock."""
        shift_ns = np.interp(moments_ns, self.own_ns, self.shift_ns)
        return moments_ns + np.rint(shift_ns).astype(np.int64)


def job_times(job: Job, files: Mapping[int, RankFile]) -> dict[int, JobTime]:
    """How to bring each rank's times to the job's clock: by its steps, which are known on both.

    A file without steps has the offset of its clock, and no drift.

    Args:
        job: the steps of its ranks.
        files: of all its ranks, by number.
    """
    clocks = {x.rank: x.offset_ns for x in job.alignment.per_rank} if job.alignment else {}
    reference = files.get(job.alignment.reference_rank) if job.alignment else None
    times = {}
    for x in job.per_rank:
        file = files[x.rank]
        own = {window.step: window for window in file.windows}
        pairs = [
            (own_ns, job_ns - own_ns)
            for step in x.steps
            if (window := own.get(step.step))
            for own_ns, job_ns in (
                (window.start_ns, step.start_ns),
                (window.end_ns, step.end_ns),
            )
        ]
        if not pairs:
            ahead_ns = file.origin_ns - (reference.origin_ns if reference else file.origin_ns)
            pairs = [(file.start_ns, ahead_ns - clocks.get(x.rank, 0))]
        own_ns, shift_ns = np.array(pairs, dtype=np.int64).T
        own_ns, first = np.unique(own_ns, return_index=True)
        times[x.rank] = JobTime(own_ns, shift_ns[first])
    return times


def collective_times(job: Job) -> Iterator[tuple[CollectiveMetrics, int, int, int, int]]:
    """Of each collective and rank: when the rank began, all had arrived, and it ended.

    Returns:
        the collective, the rank's number, and three moments on the job's clock, ns.
    """
    for collective in job.collectives:
        for rank, start_ns, wait_ns, transfer_ns in zip(
            collective.ranks,
            collective.arrival_ns,
            collective.wait_ns,
            collective.transfer_ns,
            strict=True,
        ):
            arrived_ns = start_ns + wait_ns
            yield collective, rank, start_ns, arrived_ns, arrived_ns + transfer_ns
