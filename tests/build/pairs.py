"""Bundled captures of a defect and of its fix, and the edit that the fix is."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bundled_traces import files_of, report_of, shared
from tracelab import Report, whatif
from tracelab.report.schema import Prediction, WhatIf

WAITS, COPIES, QUEUES, LOADER, RANKS = "waits", "copies", "queues", "loader", "ranks"
BATCHING, OVERLAP = "batching", "overlap"


@dataclass(frozen=True)
class Pair:
    """A capture with a defect, the edits that its fix is, and the capture of the fix.

    Example: ``Pair("waits", "events_item", ("unblock",), "events_wait")``.

    Attributes:
        sort: what kind of fix it is.
        defect, fix: names of captures, of jobs without the rank.
        edits: as `tracelab whatif` takes them; all of them together are the fix.
    """

    sort: str
    defect: str
    edits: tuple[str, ...]
    fix: str


PAIRS = (
    Pair(WAITS, "events_item", ("unblock",), "events_wait"),
    Pair(WAITS, "events_stream_synchronize", ("unblock",), "events_wait"),
    Pair(WAITS, "events_event_synchronize", ("unblock",), "events_wait"),
    Pair(WAITS, "events_device_synchronize", ("unblock",), "events_wait"),
    Pair(WAITS, "prefetch_copy_stream_synchronize", ("unblock",), "prefetch_copy_stream_pinned"),
    Pair(WAITS, "two_models_pipelined_item", ("unblock",), "two_models_pipelined"),
    Pair(WAITS, "fsdp_item", ("unblock",), "fsdp_prefetch"),
    Pair(WAITS, "two_streams_early_wait", ("no-wait",), "two_streams_medium"),
    Pair(WAITS, "two_streams_host_wait", ("no-wait",), "two_streams_medium"),
    Pair(COPIES, "prefetch_one_stream_pinned", ("prefetch",), "prefetch_copy_stream_pinned"),
    Pair(COPIES, "prefetch_one_stream_pageable", ("pin",), "prefetch_one_stream_pinned"),
    Pair(COPIES, "prefetch_one_stream_pageable", ("prefetch",), "prefetch_copy_stream_pinned"),
    Pair(COPIES, "prefetch_copy_stream_pageable", ("pin",), "prefetch_copy_stream_pinned"),
    Pair(COPIES, "prefetch_loader", ("prefetch",), "prefetch_loader_pinned"),
    Pair(COPIES, "peer_copy_default", ("side-stream:kernel:PtoP",), "peer_copy_both"),
    Pair(
        COPIES,
        "peer_copy_default_blocking",
        ("side-stream:kernel:PtoP",),
        "peer_copy_both_blocking",
    ),
    Pair(COPIES, "peer_copy_sender", ("side-stream:kernel:PtoP",), "peer_copy_both"),
    Pair(
        COPIES, "peer_copy_sender_blocking", ("side-stream:kernel:PtoP",), "peer_copy_both_blocking"
    ),
    Pair(COPIES, "peer_copy_receiver", ("side-stream:kernel:PtoP",), "peer_copy_both"),
    Pair(
        COPIES,
        "peer_copy_receiver_blocking",
        ("side-stream:kernel:PtoP",),
        "peer_copy_both_blocking",
    ),
    Pair(QUEUES, "ddp_hook_side_stream_one_queue", ("queues",), "ddp_hook_side_stream"),
    Pair(LOADER, "inline_loader_numpy", ("load=0",), "inline_loader_workers"),
    Pair(LOADER, "prefetch_loader_alone", ("load=0", "prefetch"), "prefetch_loader_pinned"),
    Pair(RANKS, "straggler_more_work", ("level:rank:0",), "straggler_even"),
    Pair(RANKS, "straggler_slow_loader", ("load=0",), "straggler_even"),
    Pair(RANKS, "waiting_rank_uneven", ("level:rank:1",), "waiting_rank_even"),
    Pair(RANKS, "late_launch_checksum", ("level:rank:0",), "late_launch_even"),
    Pair(RANKS, "backward_delay_logs_gradient", ("remove:log_histogram",), "backward_delay_even"),
    Pair(RANKS, "two_groups_one_late", ("level:rank:1",), "two_groups_even"),
    Pair(RANKS, "tensor_parallel_uneven", ("balance",), "tensor_parallel_even"),
    Pair(RANKS, "uneven_lengths_drawn", ("balance",), "uneven_lengths_bucketed"),
    Pair(BATCHING, "two_streams_small", ("graph",), "two_streams_small_graph"),
    Pair(OVERLAP, "ddp_hook_default_stream", ("side-stream:kernel:nccl",), "ddp_hook_side_stream"),
    Pair(
        OVERLAP,
        "collectives_all_reduce_sync",
        ("side-stream:kernel:nccl",),
        "collectives_all_reduce_async",
    ),
    Pair(
        OVERLAP,
        "collectives_all_gather_sync",
        ("side-stream:kernel:nccl",),
        "collectives_all_gather_async",
    ),
    Pair(
        OVERLAP,
        "collectives_broadcast_sync",
        ("side-stream:kernel:nccl",),
        "collectives_broadcast_async",
    ),
    Pair(
        OVERLAP,
        "collectives_reduce_scatter_sync",
        ("side-stream:kernel:nccl",),
        "collectives_reduce_scatter_async",
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What was predicted of a pair, and what its fix took.

    Attributes:
        pair: which one.
        basis: whether all of it is of steps with the profiler or without it.
        prediction: of all edits of the pair.
        measured_ns: the step of the fix, ns.
    """

    pair: Pair
    basis: str
    prediction: Prediction
    measured_ns: float

    @property
    def error(self) -> float:
        """By how much the predicted step is too long, as a share of the measured one."""
        return self.prediction.predicted_ns / self.measured_ns - 1

    @property
    def holds(self) -> bool:
        """Whether the measured step is in the predicted interval."""
        return self.prediction.low_ns <= self.measured_ns <= self.prediction.high_ns

    @property
    def width(self) -> float:
        """The width of the interval as a share of the step without the fix."""
        return (self.prediction.high_ns - self.prediction.low_ns) / self.prediction.step_ns


def outcomes() -> list[Outcome]:
    """Those of all pairs."""
    return list(map(outcome, PAIRS))


@shared
def outcome(pair: Pair) -> Outcome:
    """Predict a pair's fix from the capture of its defect."""
    found = _whatif(pair)
    return Outcome(
        pair, found.basis, found.predictions[-1], step_ns(report_of(*files_of(pair.fix)))
    )


def step_ns(report: Report) -> int:
    """What a step of a capture takes: what predictions of its own would start from, ns.

    It is the mean of its typical steps, without the profiler where the capture knows that; the
    first recorded step began with an idle GPU and is none of them.
    """
    lengths_ns = [row.step_ns for row in report.savings]
    if report.job is not None and report.job.baseline is not None:
        lengths_ns.append(report.job.baseline.step_ns)
    return max(length_ns for length_ns in lengths_ns if length_ns is not None)


def _whatif(pair: Pair) -> WhatIf:
    some = files_of(pair.defect)
    return whatif(some[0] if len(some) == 1 else some, edits=pair.edits)
