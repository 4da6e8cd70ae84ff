"""TL203 and TL205: two streams that were serialized though the GPU has room for both."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, Intervals, measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, only_one, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT
from tracelab.model.wording import kernel_text

# The first kernel that was blocked, the last one that ran -> title, fix.
Wording = Callable[[str, str], tuple[str, Instead]]


def _candidates(
    context: Context, edits: Mapping[OverlapBlocker, str | None], wording: Wording, no_room: Instead
) -> list[Candidate]:
    """One candidate for each call site at which streams were serialized.

    Args:
        context: the window.
        edits: by which of these, and the edit of each, as in `Candidate`.
        wording: what to say of a call site.
        no_room: the fix where both kernels would not fit on the GPU.
    """
    serialized, timeline = context.serialized_streams, context.timeline
    is_chosen = context.is_inside(serialized.start_ns, serialized.end_ns)
    chosen_index = np.flatnonzero(np.isin(serialized.blocker, list(edits)) & is_chosen)
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
        origin = only_one([origins[i] for i in group])
        blocked_name = context.kernel_name(int(serialized.row[piece_index[0]]))
        api = context.call_name(int(call_id[group[0]]))
        title, fix = wording(kernel_text(blocked_name), kernel_text(other_name))
        candidate = Candidate(
            title=title,
            cause=OverlapBlocker.NO_FREE_SM.name.lower(),
            where=where(
                call_site,
                count=len(piece_index),
                activity=blocked_name,
                captured_at=origin or None,
            ),
            evidence=_evidence(context, piece_index),
            fix=no_room.text,
            fix_short=no_room.short,
            severity_override=INFO,
        )
        if blocker != OverlapBlocker.NO_FREE_SM and _has_room(context, int(piece_index[0])):
            lost = _lost(context, piece_index)
            limit_ns = {
                device: min(left_ns[device], _limit_ns(context, device, piece_index))
                for device in lost
            }
            left_ns |= {device: left_ns[device] - limit for device, limit in limit_ns.items()}
            candidate = replace(
                candidate,
                cause=OverlapBlocker(blocker).name.lower(),
                fix=fix.text,
                fix_short=fix.short,
                lost=lost,
                limit_ns=limit_ns,
                severity_override=None,
                where=replace(candidate.where, api=api) if _is_host(blocker) else candidate.where,
                edit=edits[OverlapBlocker(blocker)],
            )
        candidates.append(candidate)  # without room both take as long side by side: nothing is lost
    return candidates


def _is_host(blocker: int) -> bool:
    """Return True if a blocking call serialized them: the call site is that call's, then."""
    return blocker == OverlapBlocker.HOST_SYNC


def _evidence(context: Context, piece_index: NDArray[np.intp]) -> tuple[int, ...]:
    """Event ids of the kernels that were blocked, those that were blocked longest first."""
    serialized = context.serialized_streams
    length_ns = serialized.end_ns[piece_index] - serialized.start_ns[piece_index]
    event_id = context.timeline.event_id[serialized.row[piece_index]]
    return most_expensive(event_id.tolist(), length_ns.tolist())


def _lost(context: Context, piece_index: NDArray[np.intp]) -> dict[int, Intervals]:
    """Device to the time in which its streams were serialized."""
    serialized = context.serialized_streams
    return context.group_by_device(
        context.timeline.device_number[serialized.row[piece_index]],
        serialized.start_ns[piece_index],
        serialized.end_ns[piece_index],
    )


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


_TOO_FULL = (
    "Leave it as it is: the kernels fill the GPU (or the file does not say how large they are), so "
    "side by side they would take as long."
)
_TOO_FULL_SHORT = "Leave it as it is: kernels that fill the GPU gain nothing side by side."
_WAIT_LATER = Instead(
    "If it does not need what that stream made, wait later (`wait_stream` or `wait_event` where "
    "the result is used), or for an event recorded before the stream's latest work.",
    short="Wait only where the result is used: call `current.wait_stream(side)` after the work "
    "that does not need it.",
)
_LAUNCH_BOTH = Instead(
    "Launch both streams' work before the CPU waits for either; wait once, at the end."
)
_EDITS: Mapping[OverlapBlocker, str | None] = {
    OverlapBlocker.HOST_SYNC: "unblock:{place}",
    OverlapBlocker.HARDWARE_QUEUE: "queues",
    OverlapBlocker.NO_FREE_SM: None,
}


def _event_waits(context: Context) -> list[Candidate]:
    """Find compute that waited for an event of another computing stream."""
    return _candidates(
        context,
        {OverlapBlocker.EVENT_WAIT: "no-wait:{place}"},
        lambda blocked, other: (f"{blocked} waits for {other} of another stream", _WAIT_LATER),
        Instead(_TOO_FULL, short=_TOO_FULL_SHORT),
    )


def _other_waits(context: Context) -> list[Candidate]:
    """Find streams that the host or the GPU serialized, not an event."""
    no_room = Instead(
        f"{_TOO_FULL} Smaller kernels in several streams help only where each leaves "
        "multiprocessors free.",
        short=_TOO_FULL_SHORT,
    )
    return _candidates(
        context,
        _EDITS,
        lambda blocked, other: (
            f"{blocked} starts only after {other} of another stream, although no event makes it "
            "wait",
            _LAUNCH_BOTH,
        ),
        no_room,
    )


EVENT_WAIT = Rule(
    id="TL203",
    name="streams serialized by an event wait that comes too early or is too wide",
    matters="`wait_stream` waits for everything that the other stream has been given so far, and "
    "everything launched after it waits. A wait before work that does not need the result "
    "serializes the streams.",
    decides="It looks for two streams of a GPU that both compute for at least 5 % of the time and "
    "hardly overlap, and takes the intervals in which the next kernel of one was launched and "
    "waited for an event of the other. Kernels that together need more blocks than the GPU has "
    "multiprocessors gain nothing by overlap (`no_free_sm`) and are reported as `info`. The trace "
    "does not say whether the kernel needs the result.",
    before="current.wait_stream(side)\nindependent_work()\nuse(result)",
    after="independent_work()\ncurrent.wait_stream(side)\nuse(result)",
    find=_event_waits,
)

INDEPENDENT_WORK = Rule(
    id="TL205",
    name="independent work on two streams that never overlaps",
    matters="Two streams are meant to run side by side. If the CPU waits for one before it "
    "launches the other, they alternate, although the GPU has room for both and may never be "
    "idle.",
    decides="It looks for two streams of a GPU that both compute for at least 5 % of the time and "
    "hardly overlap, and takes the switches between them that no event explains: a blocking call "
    "does, or nothing. Kernels that together need more blocks than the GPU has multiprocessors "
    "gain nothing by overlap (`no_free_sm`). Two GPUs that alternate are idle in turn: TL101 and "
    "TL301 say why.",
    before="with torch.cuda.stream(a):\n    f()\na.synchronize()\n"
    "with torch.cuda.stream(b):\n    g()",
    after="with torch.cuda.stream(a):\n    f()\nwith torch.cuda.stream(b):\n    g()\n"
    "torch.cuda.current_stream().wait_stream(a)",
    find=_other_waits,
)
