"""Interval of a predicted step: how far the fixed program may be from the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tracelab.base.intervals import Int64Array
from tracelab.simulate.basis import Bounds
from tracelab.simulate.edits import Edit

# By kind of edit, how far the step of the fixed program was from its prediction, as a share of that
# prediction: shared/REPLAY.md, "what to expect", of 19 fixes that were made and captured. The first
# figure is by how much the step may be shorter, the second by how much it may be longer.
_MARGIN: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "unblock": (0.03, 0.03),
        "pin": (0.03, 0.03),
        "prefetch": (0.03, 0.10),
        "no-wait": (0.03, 0.10),
        "queues": (0.03, 0.10),
        "side-stream": (0.03, 0.10),
        "load": (0.03, 0.10),  # workers share the processors with the thread that launches
        "workers": (0.03, 0.10),
        "remove": (0.15, 0.15),
        "scale": (0.03, 0.03),
        "host": (0.03, 0.03),
        "on-gpu": (0.03, 0.10),
        "python": (0.15, 0.15),
        "fuse": (0.15, 0.15),
        "graph": (0.15, 0.15),
        "one-batch": (0.15, 0.15),
        "tf32": (0.03, 0.03),
        "float32": (0.03, 0.03),
        "channels-last": (0.03, 0.03),
        "attention": (0.15, 0.15),
        "half-attention": (0.03, 0.03),
        "fuse-chains": (0.03, 0.03),
        "sparse-gradients": (0.03, 0.03),
        "level": (0.08, 0.08),
        "balance": (0.08, 0.08),
        "comm": (0.03, 0.03),
    }
)
# By how much kernels may take longer on a GPU that hardly idles any more: the same matrix product
# took 171 us in a step with waits and 191 us in one without (shared/REPLAY.md).
_CLOCKS = 0.1
# What is left of a step often takes less than predicted: by this share of what a fix takes away in
# the median of 31 programs, by more than none in 29 (tests/benchmarks/judgement).
_LIGHTER = 0.4
_UNKNOWN_MARGIN = (0.03, 0.03)  # of a function of the user's own


def bounds_ns(step_ns: int, new_ns: Int64Array, margin: tuple[float, float]) -> Bounds:
    """Predicted length, least and most, ns.

    A fix is not worth less or more by a margin than what it changes: one that changes nothing is
    predicted exactly. But what runs side by side slows each other, so that a step may get longer
    by it. A GPU that idles less runs at lower clocks. What is left often takes less than predicted,
    the more so the more went.

    Args:
        step_ns: the step without the fix.
        new_ns: int64[k], what replays with it say, the likeliest first.
        margin: by which shares of its prediction the step may be shorter and longer.
    """
    predicted_ns, at_most_ns = int(new_ns[0]), abs(step_ns - int(new_ns[0]))
    denser = max(0.0, 1 - predicted_ns / step_ns)
    shorter, longer = margin
    shorter_ns = min(int((shorter + _LIGHTER * denser) * predicted_ns), at_most_ns)
    longer_ns = int((longer + _CLOCKS * denser) * predicted_ns)
    if longer <= shorter or not at_most_ns:
        longer_ns = min(longer_ns, at_most_ns)
    return Bounds(
        predicted_ns,
        max(int(new_ns.min()) - shorter_ns, 0),
        min(int(new_ns.max()) + longer_ns, max(step_ns, predicted_ns + longer_ns)),
    )


def margin_of(changes: Sequence[object]) -> tuple[float, float]:
    """Return the shares by which a step may be shorter and longer than predicted."""
    margins = [
        _MARGIN[change.kind] if isinstance(change, Edit) else _UNKNOWN_MARGIN for change in changes
    ]
    shorter, longer = (max((margin[i] for margin in margins), default=0.0) for i in (0, 1))
    return shorter, longer
