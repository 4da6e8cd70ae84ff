"""Losses of files: what of them is missing from the numbers, and the names that they give it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracelab.base.arrays import Record
from tracelab.findings.finding import INFO, WARNING
from tracelab.model.losses import LOSSES, listed_names, merged_loss_names
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
    """One kind of loss in some files.

    Attributes:
        name: its key in a report's losses.
        count: how often.
        files: in how many of the files.
        text: what is missing, and what that means; the name, if this version does not know it.
        is_counted: False for what happens to a file once.
        is_warning: whether it alone makes figures wrong.
        has_rule: whether a finding is about it.
        names: what the files call that which was lost, in words; "" without names.
    """

    name: str
    count: int
    files: int
    text: str
    is_counted: bool
    is_warning: bool
    has_rule: bool
    names: str


def losses_of(traces: Sequence[TraceInfo]) -> list[LossCount]:
    """Add up the losses of some files, in the order of the table of losses."""
    counts, files = Counter[str](), Counter[str]()
    for trace in traces:
        counts.update(trace.losses)
        files.update(trace.losses.keys())
    names = [name for trace in traces for name in trace.loss_names]
    shown = merged_loss_names(names) if len(traces) > 1 else names
    order = {name: i for i, name in enumerate(LOSSES)}
    rows = []
    for name in sorted(counts, key=lambda name: order.get(name, len(order))):
        loss = LOSSES.get(name)
        rows.append(
            LossCount(
                name=name,
                count=counts[name],
                files=files[name],
                text=loss.text if loss else name,
                is_counted=loss is None or loss.counted,
                is_warning=(loss.severity if loss else INFO) == WARNING,
                has_rule=loss is None or loss.group is not None or name in _JUDGED_ALONE,
                names=listed_names([x for x in shown if x.loss == name], counts[name]),
            )
        )
    return rows
