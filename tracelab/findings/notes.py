"""Sentences beside the findings: a kernel that leaves most of the GPU empty, a slow start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracelab.base.intervals import clip, measure
from tracelab.findings.context import Context
from tracelab.findings.finding import WARNING_SHARE
from tracelab.model.kernel_kinds import Kind

_MIN_WINDOW_SHARE = 0.5
_MAX_BLOCKS_PER_MULTIPROCESSOR = 0.5
_MAX_SHARED_WINDOW_SHARE = 0.001
# Whose arguments are looked up.
_MAX_LAUNCHES = 2_000


def few_blocks(context: Context) -> str:
    """Describe the kernel that fills most of the file alone, if it has few blocks; else "".

    A block is on one multiprocessor; no trace says whether other work could run beside it. A
    single step gets no sentence.
    """
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
    blocks = [_blocks(arguments[event_id]) for event_id in event_ids]
    known = [number for number in blocks if number is not None]
    if len(known) < len(blocks) or max(known) > _MAX_BLOCKS_PER_MULTIPROCESSOR * count:
        return ""
    least, most = min(known), max(known)
    number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    what = "block leaves" if most == 1 else "blocks leave"
    of_first = f"in its first {_MAX_LAUNCHES:,} launches " if len(chosen) > _MAX_LAUNCHES else ""
    return (
        f"For {100 * share:.1f} % of the time GPU {device} runs `{context.kernel_name(chosen[0])}` "
        f"alone: {of_first}its {number} {what} at least {count - most} of {count} multiprocessors "
        "to independent work in another stream, or on another branch of its graph."
    )


def _blocks(arguments: Mapping[str, Any]) -> int | None:
    """Return how many blocks a kernel was launched with; None if the file does not say.

    >>> _blocks({"grid": [32, 2, 1]})
    64
    """
    grid = arguments.get("grid")
    is_known = isinstance(grid, list) and all(type(size) is int and size > 0 for size in grid)
    return math.prod(grid) if is_known and grid else None


def recording_start(context: Context) -> str:
    """Describe idle time at the start of the recording, from 2 % of the window on; else ""."""
    device, length_ns = context.deciding_device, context.window.length_ns
    idle_ns = measure(context.idle(device, context.start_up.not_ahead))
    if idle_ns == 0 or idle_ns < WARNING_SHARE * length_ns:
        return ""
    return (
        f"For {100 * idle_ns / length_ns:.1f} % of the time GPU {device} is idle because the "
        "recording had just begun and the CPU had not run ahead yet: no finding is about that."
    )
