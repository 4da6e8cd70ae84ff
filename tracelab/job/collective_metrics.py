"""One row for each matched collective: who waited how long for whom, why, and how fast it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise

import numpy as np

from tracelab.base.arrays import OneLine, dataclass
from tracelab.job.bandwidth import Transfers, operation_name
from tracelab.job.lateness import OTHER_COLLECTIVE, Explanation, Lateness, explain
from tracelab.job.members import Members
from tracelab.job.more_work import MoreWork
from tracelab.measures.measure import constrained
from tracelab.model.program.call_sites import NO_CALL_SITE
from tracelab.model.trace import ABSENT


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveMetrics(OneLine):
    """One collective of several ranks, or one send and its receive.

    Attributes:
        group: the process group's name; "" where the files name none.
        operation: "all_reduce" and the like; "send_recv" of a send and its receive.
        sequence: its sequence number in the group, None where the files have none.
        step: the step that launched it on the first of its ranks, None outside all.
        message_bytes: its size as nccl-tests defines it, None where it is not known.
        ranks: those whose files have it, ascending.
        arrival_ns: when each of them started it, ns on the job's clock.
        wait_ns: how long each waited for the last one, ns.
        transfer_ns: what was left of its length, ns.
        last_rank: the one that arrived last; None where all arrived within the clocks' error.
        cause: why it came last, in one word as in `Straggler`, "recording_start" where it was
            behind when the recording began; None where none was last.
        why: the same as a clause that follows "rank N"; "" where none was last.
        algorithm_gbps, bus_gbps: GB/s of the transfer alone; None where the size is not known, a
            rank's file is missing or its kernel does several operations.

    Example row: ``CollectiveMetrics(group="0", operation="all_reduce", sequence=7, step=3,
    message_bytes=134_217_728, ranks=(0, 1), arrival_ns=(15_763_000, 0), wait_ns=(0, 15_763_000),
    transfer_ns=(546_000, 526_000), last_rank=0, cause="more_work", why="has more work in
    `aten::mm` (1.5 times as much)", algorithm_gbps=245.8, bus_gbps=245.8)``.
    """

    group: str
    operation: str
    sequence: int | None
    step: int | None
    message_bytes: int | None
    ranks: tuple[int, ...]
    arrival_ns: tuple[int, ...] = field(
        metadata=constrained(items={"type": "integer", "minimum": -(2**63)})
    )
    wait_ns: tuple[int, ...]
    transfer_ns: tuple[int, ...]
    last_rank: int | None
    cause: str | None
    why: str
    algorithm_gbps: float | None
    bus_gbps: float | None


def collective_rows(
    members: Members,
    more_of: Sequence[MoreWork | None],
    lateness: Lateness,
    transfers: Transfers,
) -> tuple[CollectiveMetrics, ...]:
    """Make the rows of all matches, in their order.

    Args:
        members: the matched operations.
        more_of: what the GPU of each rank does more than those of the others.
        lateness: why the last rank of each match was late.
        transfers: how much each moved, and how fast.
    """
    rank = np.array([part.rank for part in members.parts])[members.part_index]
    rows = []
    for match, (first, end) in enumerate(pairwise(members.first.tolist())):
        part, index = members.place(first)
        step_index, sequence = int(part.step_index[index]), int(part.sequence[index])
        last, message_bytes = int(members.last_member[match]), int(transfers.message_bytes[match])
        why = None if last == ABSENT else _why(members, more_of, lateness, match)
        rows.append(
            CollectiveMetrics(
                group=part.groups[part.group_index[index]].name,
                operation=operation_name(members, match),
                sequence=None if sequence == ABSENT else sequence,
                step=None if step_index == ABSENT else int(part.steps.number[step_index]),
                message_bytes=None if message_bytes == ABSENT else message_bytes,
                ranks=tuple(rank[first:end].tolist()),
                arrival_ns=tuple(members.arrival_ns[first:end].tolist()),
                wait_ns=tuple(members.wait_ns[first:end].tolist()),
                transfer_ns=tuple(members.transfer_ns[first:end].tolist()),
                last_rank=None if why is None else int(rank[last]),
                cause=None if why is None else why.cause,
                why="" if why is None else why.why,
                algorithm_gbps=_rounded(transfers.algorithm_gbps[match]),
                bus_gbps=_rounded(transfers.bus_gbps[match]),
            )
        )
    return tuple(rows)


def _why(
    members: Members, more_of: Sequence[MoreWork | None], lateness: Lateness, match: int
) -> Explanation:
    """Explain why the last rank of a match was late: by its own fault or by that of another one."""
    source = int(lateness.source_match[match])
    if source == match:
        return explain(members, more_of, lateness, [match])
    at_fault = members.place(int(members.last_member[source]))[0].rank
    what = f"waited for rank {at_fault} in another collective"
    return Explanation(OTHER_COLLECTIVE, what, "", NO_CALL_SITE)


def _rounded(gbps: np.floating) -> float | None:
    return None if np.isnan(gbps) else round(float(gbps), 3)
