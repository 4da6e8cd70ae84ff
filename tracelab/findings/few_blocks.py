"""A GPU that is busy with a kernel that leaves most of its multiprocessors empty.

Whether other work could run beside it no trace says: that is for the program to know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracelab.base.intervals import clip, measure
from tracelab.findings.context import Context
from tracelab.model.kernel_kinds import Kind

_LEAST_TIME = 0.5  # of the window
_MOST_BLOCKS = 0.5  # for each multiprocessor
_ALONE = 0.001  # of the window may have two activities at once
_MOST_READ = 2_000  # launches: the first so many have their arguments looked up


def few_blocks(context: Context) -> str:
    """A sentence about the kernel that fills most of the file alone, if it has few blocks; or "".

    It counts the blocks of each launch, of many only of the first ones: a block is on one
    multiprocessor. Nothing is said of a single step.
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
    if share < _LEAST_TIME or together_ns > _ALONE * window.length_ns:
        return ""
    chosen = rows[name_index == name_ns.argmax()]
    first = chosen[np.argsort(timeline.start_ns[chosen], kind="stable")][:_MOST_READ]
    event_ids = timeline.event_id[first].tolist()
    arguments = context.arguments(event_ids)
    blocks = [_blocks(arguments[event_id]) for event_id in event_ids]
    known = [number for number in blocks if number is not None]
    if len(known) < len(blocks) or max(known) > _MOST_BLOCKS * count:
        return ""
    least, most = min(known), max(known)
    number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    what = "block leaves" if most == 1 else "blocks leave"
    of_first = f"in its first {_MOST_READ:,} launches " if len(chosen) > _MOST_READ else ""
    return (
        f"For {100 * share:.1f} % of the time GPU {device} runs `{context.kernel_name(chosen[0])}` "
        f"alone: {of_first}its {number} {what} at least {count - most} of {count} multiprocessors "
        "to independent work in another stream, or on another branch of its graph."
    )


def _blocks(arguments: Mapping[str, Any]) -> int | None:
    """How many blocks a kernel was launched with; None where the file does not say.

    >>> _blocks({"grid": [32, 2, 1]})
    64
    """
    grid = arguments.get("grid")
    is_known = isinstance(grid, list) and all(type(size) is int and size > 0 for size in grid)
    return math.prod(grid) if is_known and grid else None
