"""Rows of matched collectives: who waited how long for whom and why; and how fast data moved.

Bandwidths are those of nccl-tests (``doc/PERFORMANCE.md`` there), from the last arrival on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, Int64Array, Record
from tracelab.job.lateness import OTHER_COLLECTIVE, Explanation, Lateness, MoreWork, explain
from tracelab.job.matching import ENDS_TOGETHER
from tracelab.job.operation_members import Members
from tracelab.job.part import RankPart
from tracelab.measures.measure import constrained
from tracelab.model.collectives import Operation
from tracelab.model.program.call_sites import NO_CALL_SITE
from tracelab.model.trace import ABSENT

_ADDED: Mapping[str, Any] = {"added": True}  # reports of before have no such key


class CollectiveMetrics(Record):
    """One collective of several ranks, or one send and its receive.

    Attributes:
        group: the process group's name; "" where the files name none.
        operation: "all_reduce" and the like; "send_recv" of a send and its receive.
        sequence: its sequence number in the group, None where the files have none.
        step: the step that launched it on the first of its ranks, None outside all.
        message_bytes: its size as nccl-tests defines it, None where it is not known.
        kernel, batch: in place of such a size, which kernels of CUDA graphs have not: the name of
            the kernel, and phase and number of requests of a step that serves some: "decode 8".
        ranks: those whose files have it, ascending.
        arrival_ns: when each of them started it, ns on the job's clock.
        wait_ns: how long each waited for the last one, ns.
        transfer_ns: what was left of its length, ns.
        skew_ns: by how much its longest kernel exceeds the baseline of its group, operation and
            size, or else kernel and batch, ns: the median of the shortest kernel of each.
        last_rank: the one that arrived last; None where all arrived within the clocks' error.
        cause: why it came last, in one word as in `Straggler`, "recording_start" where it was
            behind when the recording began; None where none was last.
        why: the same as a clause that follows "rank N"; "" where none was last.
        algorithm_gbps, bus_gbps: GB/s of the transfer alone; None where the size is not known, a
            rank's file is missing or its kernel does several operations.
    """

    group: str
    operation: str
    sequence: int | None
    step: int | None
    message_bytes: int | None
    ranks: tuple[int, ...]
    arrival_ns: Annotated[
        tuple[int, ...], constrained(items={"type": "integer", "minimum": -(2**63)})
    ]
    wait_ns: tuple[int, ...]
    transfer_ns: tuple[int, ...]
    last_rank: int | None
    cause: str | None
    why: str
    algorithm_gbps: float | None
    bus_gbps: float | None
    kernel: Annotated[str, _ADDED] = ""
    batch: Annotated[str, _ADDED] = ""
    skew_ns: Annotated[int | None, _ADDED] = None


def collective_rows(
    members: Members, more_of: Sequence[MoreWork | None], lateness: Lateness, transfers: Transfers
) -> tuple[CollectiveMetrics, ...]:
    """Make the rows of all matches, in their order."""
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
                **(_stand_in(part, index) if message_bytes == ABSENT else {}),
            )
        )
    return _add_skews(members, rows)


def _stand_in(part: RankPart, index: int) -> dict[str, Any]:
    step_index, batches = int(part.step_index[index]), part.steps.batch
    return {
        "kernel": part.kernel_names[part.kernel_name_index[index]],
        "batch": batches[step_index] if batches and step_index != ABSENT else "",
    }


def _add_skews(
    members: Members, rows: Sequence[CollectiveMetrics]
) -> tuple[CollectiveMetrics, ...]:
    shortest_ns, longest_ns = (
        members.reduce(ufunc, members.length_ns) for ufunc in (np.minimum, np.maximum)
    )
    equal: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for match, x in enumerate(rows):
        equal[x.group, x.operation, x.message_bytes, x.kernel, x.batch].append(match)
    skew_ns = np.zeros(len(rows), dtype=np.int64)
    for chosen in equal.values():
        baseline_ns = int(np.median(shortest_ns[chosen]))
        skew_ns[chosen] = np.maximum(0, longest_ns[chosen] - baseline_ns)
    return tuple(replace(row, skew_ns=ns) for row, ns in zip(rows, skew_ns.tolist(), strict=True))


def _why(
    members: Members, more_of: Sequence[MoreWork | None], lateness: Lateness, match: int
) -> Explanation:
    late = int(lateness.late_member[match])
    if late == members.last_member[match]:
        return explain(members, more_of, lateness, [match])
    at_fault = members.place(late)[0].rank
    what = f"waited for rank {at_fault} in another collective"
    return Explanation(OTHER_COLLECTIVE, what, "", NO_CALL_SITE)


def _rounded(gbps: np.floating) -> float | None:
    return None if np.isnan(gbps) else round(float(gbps), 3)


# --- bytes and bandwidths ---

# The links carry this multiple of (n - 1) / n of the size.
_SHARES_ON_THE_BUS = {
    Operation.ALL_REDUCE: 2,
    Operation.ALL_GATHER: 1,
    Operation.REDUCE_SCATTER: 1,
    Operation.ALL_TO_ALL: 1,
    Operation.GATHER: 1,
    Operation.SCATTER: 1,
}
_PAIRED = (Operation.SEND, Operation.RECV, Operation.SEND_RECV)
_WHOLE_ON_THE_BUS = (Operation.BROADCAST, Operation.REDUCE, *_PAIRED)
# The size is that of all ranks together: where only one rank's share is known, n times that.
_SHARED_IN = (Operation.ALL_GATHER, Operation.GATHER)
_SHARED_OUT = (Operation.REDUCE_SCATTER, Operation.SCATTER)


class Transfers(Arrays):
    """Bytes and speed of each match; m matches.

    Attributes:
        ranks: int64[m], of the process group; if unknown, how many matched.
        message_bytes: int64[m], by nccl-tests' definition, else ABSENT.
        transfer_ns: int64[m], ns, the kernel's length on the rank that arrived last; of broadcasts,
            sends and the like, from the last arrival to the last end.
        algorithm_gbps, bus_gbps: float64[m], 10**9 bytes/s; NaN if the size is unknown, files of
            ranks are missing or a kernel does several operations.
    """

    ranks: Int64Array
    message_bytes: Int64Array
    transfer_ns: Int64Array
    algorithm_gbps: NDArray[np.float64]
    bus_gbps: NDArray[np.float64]


class BandwidthMetrics(Record):
    """The collectives of one process group, operation and size class; medians.

    Attributes:
        group: the process group's name.
        operation: "all_reduce" and the like.
        size_class: the messages have at least this many bytes, a power of two, and less than
            twice as many.
        count: how many matched collectives.
        ranks: how many ranks take part.
        message_bytes: their size.
        transfer_ns: as in `Transfers`, ns.
        wait_ns: of the ranks that waited, all of each collective added up, ns.
        algorithm_gbps, bus_gbps: GB/s, with the transfer alone.
    """

    group: str
    operation: str
    size_class: int
    count: int
    ranks: int
    message_bytes: int
    transfer_ns: int
    wait_ns: int
    algorithm_gbps: float
    bus_gbps: float


def find_transfers(members: Members) -> Transfers:
    """Find how much each matched operation moved, and how fast."""
    matched = np.diff(members.first)
    operation = members.operation[members.first[:-1]]
    ranks = np.maximum(_group_sizes(members), matched)
    ranks[np.isin(operation, _PAIRED)] = 2
    message_bytes = _message_bytes(members, operation, ranks)
    transfer_ns = _transfer_ns(members, operation)
    is_known = (message_bytes > 0) & (transfer_ns > 0) & (ranks == matched)
    is_known &= ~members.reduce(np.logical_or, members.is_shared)
    algorithm_gbps = np.full(len(ranks), np.nan)
    algorithm_gbps[is_known] = message_bytes[is_known] / transfer_ns[is_known]
    bus_gbps = algorithm_gbps * _bus_factors(operation, ranks)
    return Transfers(ranks, message_bytes, transfer_ns, algorithm_gbps, bus_gbps)


def bandwidths(members: Members, transfers: Transfers) -> tuple[BandwidthMetrics, ...]:
    """Measure the bandwidths of process groups by operation and size class, the largest first."""
    wait_ns = members.reduce(np.add, members.wait_ns)
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for match in np.flatnonzero(~np.isnan(transfers.bus_gbps)).tolist():
        part, index = members.place(int(members.first[match]))
        operation = operation_name(members, match)
        size_class = 1 << (int(transfers.message_bytes[match]).bit_length() - 1)
        name = part.groups[part.group_index[index]].name
        groups[name, operation, size_class].append(match)
    rows = [
        BandwidthMetrics(
            group=name,
            operation=operation,
            size_class=size_class,
            count=len(chosen),
            ranks=int(np.median(transfers.ranks[chosen])),
            message_bytes=int(np.median(transfers.message_bytes[chosen])),
            transfer_ns=int(np.median(transfers.transfer_ns[chosen])),
            wait_ns=int(np.median(wait_ns[chosen])),
            algorithm_gbps=round(float(np.median(transfers.algorithm_gbps[chosen])), 3),
            bus_gbps=round(float(np.median(transfers.bus_gbps[chosen])), 3),
        )
        for (name, operation, size_class), chosen in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.size_class, row.group, row.operation)))


def operation_name(members: Members, match: int) -> str:
    """Name a match: "all_reduce" and the like, "send_recv" of a send and its receive."""
    operation = Operation(int(members.operation[members.first[match]]))
    return (Operation.SEND_RECV if operation in _PAIRED else operation).name.lower()


def _group_sizes(members: Members) -> Int64Array:
    of_groups = (
        np.array([group.size or len(group.ranks) for group in part.groups], np.int64)
        for part in members.parts
    )
    sizes = [x[part.group_index] for x, part in zip(of_groups, members.parts, strict=True)]
    return members.reduce(np.maximum, members.matches.member_values(sizes))


def _message_bytes(members: Members, operation: NDArray[np.int8], ranks: Int64Array) -> Int64Array:
    """int64[m], the larger buffer, of what is shared out or gathered the whole."""
    in_bytes, out_bytes = (
        members.reduce(np.maximum, members.column(name)) for name in ("in_bytes", "out_bytes")
    )
    in_bytes = np.where(np.isin(operation, _SHARED_IN) & (in_bytes > 0), in_bytes * ranks, in_bytes)
    is_shared_out = np.isin(operation, _SHARED_OUT) & (out_bytes > 0)
    out_bytes = np.where(is_shared_out, out_bytes * ranks, out_bytes)
    larger = np.maximum(in_bytes, out_bytes)
    return np.where(larger > 0, larger, ABSENT)


def _transfer_ns(members: Members, operation: NDArray[np.int8]) -> Int64Array:
    length_ns, last = members.length_ns, members.last_member
    shortest_ns = members.reduce(np.minimum, length_ns)
    on_last_ns = np.where(last == ABSENT, shortest_ns, length_ns[last])
    last_end_ns = members.reduce(np.maximum, members.arrival_ns + length_ns)
    to_last_end_ns = last_end_ns - members.last_arrival_ns
    return np.where(np.isin(operation, ENDS_TOGETHER), on_last_ns, to_last_end_ns)


def _bus_factors(operation: NDArray[np.int8], ranks: Int64Array) -> NDArray[np.float64]:
    """float64[m], bus bandwidth / algorithm bandwidth; NaN for operations without a definition."""
    factors = np.full(len(operation), np.nan)
    factors[np.isin(operation, _WHOLE_ON_THE_BUS)] = 1
    for name, shares in _SHARES_ON_THE_BUS.items():
        is_named = operation == name
        factors[is_named] = shares * (ranks[is_named] - 1) / ranks[is_named]
    return factors
