"""TL203 and TL205: serialized streams, and kernels that leave most of the GPU empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracelab.base.arrays import IndexArray
from tracelab.base.intervals import clip, measure
from tracelab.findings.candidates import Candidate, grouped, only_one, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Rule, load_rule
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind, blocks_of
from tracelab.model.trace import ABSENT
from tracelab.model.wording import kernel_text

_MIN_WINDOW_SHARE = 0.5
_MAX_BLOCKS_PER_MULTIPROCESSOR = 0.5
_MAX_SHARED_WINDOW_SHARE = 0.001
_MAX_LAUNCHES = 2_000


def _candidates(
    context: Context, rule: Rule, blockers: tuple[OverlapBlocker, ...]
) -> list[Candidate]:
    serialized, timeline = context.serialized_streams, context.timeline
    is_chosen = context.is_inside(serialized.start_ns, serialized.end_ns)
    chosen_index = np.flatnonzero(np.isin(serialized.blocker, blockers) & is_chosen)
    # The blocking call behind each piece, else the launch of what was blocked.
    call_id = serialized.blocking_call_id[chosen_index]
    launch_id = timeline.launch_id[serialized.row[chosen_index]]
    call_id = np.where(call_id != ABSENT, call_id, launch_id)
    keys = zip(
        serialized.blocker[chosen_index].tolist(),
        context.call_sites(call_id),
        map(context.kernel_name, serialized.other_row[chosen_index].tolist()),
        strict=True,
    )
    origins = context.origins_of(serialized.row[chosen_index])
    # What a stream does beside one kernel it cannot do beside another as well.
    left_ns = {x: _limit_ns(context, x, chosen_index) for x in timeline.device_numbers}
    candidates = []
    for (blocker, call_site, other_name), group in grouped(keys).items():
        piece_index = chosen_index[group]
        length_ns = serialized.end_ns[piece_index] - serialized.start_ns[piece_index]
        blocked_name = context.kernel_name(int(serialized.row[piece_index[0]]))
        api = context.call_name(int(call_id[group[0]]))
        has_room = blocker != OverlapBlocker.NO_FREE_SM and _has_room(context, int(piece_index[0]))
        lost = context.time_of_pieces(serialized, piece_index) if has_room else {}
        limit_ns = {
            device: min(left_ns[device], _limit_ns(context, device, piece_index)) for device in lost
        }
        left_ns |= {device: left_ns[device] - limit for device, limit in limit_ns.items()}
        cause = OverlapBlocker(blocker) if has_room else OverlapBlocker.NO_FREE_SM
        place = where(
            call_site,
            count=len(piece_index),
            activity=blocked_name,
            captured_at=only_one([origins[i] for i in group]) or None,
            api=api if cause == OverlapBlocker.HOST_SYNC else None,  # the call site is its
        )
        candidates.append(
            rule.cases[cause.name.lower()].candidate(
                place,
                {"blocked": kernel_text(blocked_name), "other": kernel_text(other_name)},
                evidence=context.evidence(serialized.row[piece_index], length_ns),
                lost=lost,
                limit_ns=limit_ns,
                severity_override=None if has_room else INFO,
            )
        )
    return candidates


def _limit_ns(context: Context, device: int, piece_index: IndexArray) -> int:
    """Return the most that overlap of these streams saves: all compute but the busiest's."""
    serialized, timeline = context.serialized_streams, context.timeline
    on_device = timeline.device_number[serialized.row[piece_index]] == device
    piece_index = piece_index[on_device]
    rows = np.concatenate((serialized.row[piece_index], serialized.other_row[piece_index]))
    is_compute = timeline.select(device=device, kind=Kind.COMPUTE)
    streams = np.unique(timeline.stream_index[rows]).tolist()
    of_streams = [is_compute & (timeline.stream_index == stream) for stream in streams]
    compute_ns = [
        measure(context.inside(timeline.start_ns[x], timeline.end_ns[x])) for x in of_streams
    ]
    overlap_ns = sum(compute_ns) - max(compute_ns, default=0)
    return min(int(serialized.bound_ns[piece_index].sum()), overlap_ns)


def _has_room(context: Context, piece_index: int) -> bool:
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
    blocks = arguments.get("blocks per SM")
    if isinstance(blocks, int | float):
        return blocks
    launched = blocks_of(arguments)
    return launched / multiprocessors if multiprocessors and launched else None


_OTHER_BLOCKERS = (
    OverlapBlocker.HOST_SYNC,
    OverlapBlocker.HARDWARE_QUEUE,
    OverlapBlocker.NO_FREE_SM,
)
EVENT_WAIT: Rule = load_rule(
    "TL203", lambda context: _candidates(context, EVENT_WAIT, (OverlapBlocker.EVENT_WAIT,))
)
INDEPENDENT_WORK: Rule = load_rule(
    "TL205", lambda context: _candidates(context, INDEPENDENT_WORK, _OTHER_BLOCKERS)
)


def few_blocks(context: Context) -> str:
    """Describe the kernel that fills most of the file alone, if it has few blocks; else ""."""
    if context.window.step is not None:
        return ""
    timeline, window, device = context.timeline, context.window, context.deciding_device
    count = timeline.trace.info.multiprocessors.get(device)
    is_here = timeline.select(device=device)
    is_here &= context.is_inside(timeline.start_ns, timeline.end_ns)
    rows = np.flatnonzero(is_here & (timeline.kind == Kind.COMPUTE))
    if not count or not len(rows) or window.length_ns <= 0:
        return ""
    starts_ns = np.maximum(timeline.start_ns, window.start_ns)
    length_ns = np.minimum(timeline.end_ns, window.end_ns) - starts_ns
    busy_ns = measure(clip(timeline.busy(is_here), window.start_ns, window.end_ns))
    name_index = timeline.trace.name_index[timeline.event_id[rows]]
    name_ns = np.bincount(name_index, weights=length_ns[rows])
    share = name_ns.max() / window.length_ns
    together_ns = int(length_ns[is_here].sum()) - busy_ns
    if share < _MIN_WINDOW_SHARE or together_ns > _MAX_SHARED_WINDOW_SHARE * window.length_ns:
        return ""
    chosen = rows[name_index == name_ns.argmax()]
    first = chosen[np.argsort(timeline.start_ns[chosen], kind="stable")][:_MAX_LAUNCHES]
    event_ids = timeline.event_id[first].tolist()
    arguments = context.arguments(event_ids)
    blocks = [blocks_of(arguments[event_id]) for event_id in event_ids]
    least, most = min(blocks), max(blocks)
    if not 0 < least <= most <= _MAX_BLOCKS_PER_MULTIPROCESSOR * count:
        return ""
    number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    what = "block leaves" if most == 1 else "blocks leave"
    of_first = f"in its first {_MAX_LAUNCHES:,} launches " if len(chosen) > _MAX_LAUNCHES else ""
    return (
        f"For {100 * share:.1f} % of the time GPU {device} runs `{context.kernel_name(chosen[0])}` "
        f"alone: {of_first}its {number} {what} at least {count - most} of {count} multiprocessors "
        "to independent work in another stream, or on another branch of its graph."
    )
