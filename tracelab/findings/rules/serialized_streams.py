"""TL203 and TL205: two streams that were serialized though the GPU has room for both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, only_one, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Rule, load_rule
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT
from tracelab.model.wording import kernel_text


def _candidates(
    context: Context, rule: Rule, blockers: tuple[OverlapBlocker, ...]
) -> list[Candidate]:
    """Make one candidate for each call site at which streams were serialized by one of these."""
    serialized, timeline = context.serialized_streams, context.timeline
    is_chosen = context.is_inside(serialized.start_ns, serialized.end_ns)
    chosen_index = np.flatnonzero(np.isin(serialized.blocker, blockers) & is_chosen)
    call_id = _call_id(context, chosen_index)
    keys = zip(
        serialized.blocker[chosen_index].tolist(),
        context.call_sites(call_id),
        map(context.kernel_name, serialized.other_row[chosen_index].tolist()),
        strict=True,
    )
    origins = context.origins_of(serialized.row[chosen_index])
    # What a stream does beside one kernel it cannot do beside another as well.
    left_ns = {
        device: _limit_ns(context, device, chosen_index) for device in timeline.device_numbers
    }
    candidates = []
    for (blocker, call_site, other_name), group in grouped(keys).items():
        piece_index = chosen_index[group]
        blocked_name = context.kernel_name(int(serialized.row[piece_index[0]]))
        api = context.call_name(int(call_id[group[0]]))
        # Without room both take as long side by side: nothing is lost.
        has_room = blocker != OverlapBlocker.NO_FREE_SM and _has_room(context, int(piece_index[0]))
        lost = context.time_of_pieces(serialized, piece_index) if has_room else {}
        limit_ns = {
            device: min(left_ns[device], _limit_ns(context, device, piece_index)) for device in lost
        }
        left_ns |= {device: left_ns[device] - limit for device, limit in limit_ns.items()}
        cause = OverlapBlocker(blocker) if has_room else OverlapBlocker.NO_FREE_SM
        candidates.append(
            rule.cases[cause.name.lower()].candidate(
                where(
                    call_site,
                    count=len(piece_index),
                    activity=blocked_name,
                    captured_at=only_one([origins[i] for i in group]) or None,
                    # The call site is that of the call.
                    api=api if cause == OverlapBlocker.HOST_SYNC else None,
                ),
                {"blocked": kernel_text(blocked_name), "other": kernel_text(other_name)},
                evidence=_evidence(context, piece_index),
                lost=lost,
                limit_ns=limit_ns,
                severity_override=None if has_room else INFO,
            )
        )
    return candidates


def _evidence(context: Context, piece_index: NDArray[np.intp]) -> tuple[int, ...]:
    """Event ids of the kernels that were blocked, those that were blocked longest first."""
    serialized = context.serialized_streams
    length_ns = serialized.end_ns[piece_index] - serialized.start_ns[piece_index]
    event_id = context.timeline.event_id[serialized.row[piece_index]]
    return most_expensive(event_id.tolist(), length_ns.tolist())


def _call_id(context: Context, piece_index: NDArray[np.intp]) -> Int64Array:
    """int64[k], the blocking call behind each piece, else the launch of what was blocked."""
    serialized = context.serialized_streams
    call_id = serialized.blocking_call_id[piece_index]
    launch_id = context.timeline.launch_id[serialized.row[piece_index]]
    return np.where(call_id != ABSENT, call_id, launch_id)


def _limit_ns(context: Context, device: int, piece_index: NDArray[np.intp]) -> int:
    """Return the most that overlap of these streams saves: all compute but the busiest's."""
    serialized, timeline = context.serialized_streams, context.timeline
    on_device = timeline.device_number[serialized.row[piece_index]] == device
    piece_index = piece_index[on_device]
    rows = np.concatenate((serialized.row[piece_index], serialized.other_row[piece_index]))
    is_compute = timeline.select(device=device, kind=Kind.COMPUTE)
    compute_ns = [
        measure(context.inside(timeline.start_ns[of_stream], timeline.end_ns[of_stream]))
        for of_stream in (
            is_compute & (timeline.stream_index == stream)
            for stream in np.unique(timeline.stream_index[rows]).tolist()
        )
    ]
    return min(
        int(serialized.bound_ns[piece_index].sum()), sum(compute_ns) - max(compute_ns, default=0)
    )


def _has_room(context: Context, piece_index: int) -> bool:
    """Return True if both kernels of a piece fit on the GPU together, as far as the file says."""
    serialized, timeline = context.serialized_streams, context.timeline
    rows = np.array([serialized.row[piece_index], serialized.other_row[piece_index]])
    event_ids = timeline.event_id[rows].tolist()
    arguments = context.arguments(event_ids)
    counts = map(timeline.trace.info.multiprocessors.get, timeline.device_number[rows].tolist())
    blocks = [
        _blocks_per_multiprocessor(arguments[event_id], count)
        for event_id, count in zip(event_ids, counts, strict=True)
    ]
    known = [count for count in blocks if count is not None]
    return len(known) == len(blocks) and sum(known) <= 1


def _blocks_per_multiprocessor(
    arguments: Mapping[str, Any], multiprocessors: int | None
) -> float | None:
    """Return the number of a kernel's blocks for each multiprocessor; None if not in the file.

    Kineto writes it down; PyTorch's own CUPTI collector only how many blocks the kernel has.

    >>> _blocks_per_multiprocessor({"blocks per SM": 0.5}, None)
    0.5
    >>> _blocks_per_multiprocessor({"grid": [66, 1, 1]}, 132)
    0.5
    """
    blocks, grid = arguments.get("blocks per SM"), arguments.get("grid")
    if isinstance(blocks, int | float):
        return blocks
    if not multiprocessors or not isinstance(grid, list):
        return None
    is_whole = all(type(size) is int for size in grid)
    return math.prod(grid) / multiprocessors if is_whole else None


def _event_waits(context: Context) -> list[Candidate]:
    """Find compute that waited for an event of another computing stream."""
    return _candidates(context, EVENT_WAIT, (OverlapBlocker.EVENT_WAIT,))


def _other_waits(context: Context) -> list[Candidate]:
    """Find streams that the host or the GPU serialized, not an event."""
    blockers = (
        OverlapBlocker.HOST_SYNC,
        OverlapBlocker.HARDWARE_QUEUE,
        OverlapBlocker.NO_FREE_SM,
    )
    return _candidates(context, INDEPENDENT_WORK, blockers)


EVENT_WAIT = load_rule("TL203", _event_waits)
INDEPENDENT_WORK = load_rule("TL205", _other_waits)
