"""Losses of files: what is missing from the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracelab.base.arrays import Record
from tracelab.model.losses import LOSSES, Loss, listed_names, merged_loss_names
from tracelab.model.lost_work import KINDS
from tracelab.report.schema import TraceInfo

# A rule is about each of these alone.
_JUDGED_ALONE = (
    *KINDS,
    "arrows_without_end",
    "activities_without_launch",
    "overlapping_activities",
    "waits_without_record",
)


class LossCount(Record):
    """One kind of loss, its count in so many files, and the names that these give it, in words."""

    loss: Loss
    count: int
    files: int
    names: str

    @property
    def has_rule(self) -> bool:
        """True if a finding is about it."""
        return self.loss.group is not None or self.loss.name in _JUDGED_ALONE


def losses_of(traces: Sequence[TraceInfo]) -> list[LossCount]:
    """Add up the losses of some files, in the order of the table of losses."""
    counts, files = Counter[str](), Counter[str]()
    for trace in traces:
        counts.update(trace.losses)
        files.update(trace.losses.keys())
    names = [name for trace in traces for name in trace.loss_names]
    shown = merged_loss_names(names) if len(traces) > 1 else names
    unknown = {x: Loss(x, "info", "reader", x, group="unknown") for x in counts if x not in LOSSES}
    return [
        LossCount(
            loss,
            counts[name],
            files[name],
            listed_names([x for x in shown if x.loss == name], counts[name]),
        )
        for name, loss in {**LOSSES, **unknown}.items()
        if name in counts
    ]
