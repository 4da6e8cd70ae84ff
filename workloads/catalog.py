"""Every variant of every workload: what it shows, what it needs. This imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    """One variant.

    Attributes:
        workload: module of this package.
        variant: key of the module's VARIANTS.
        shows: the lesson, in a sentence.
        gpus: how many NVIDIA GPUs it needs.
        ranks: True if it is one process a GPU, rather than one process.
        environment: variables that must be set before CUDA starts.
        is_bundled: traces/ has a capture of it. The others are only measured, or are still to be
            captured: then the manifest has their lines under "planned".
        fix: the variant that mends it.
    """

    workload: str
    variant: str
    shows: str
    gpus: int = 1
    ranks: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    is_bundled: bool = True
    fix: str = ""


def find(workload: str, variant: str) -> Entry:
    """The entry of a variant.

    >>> find("peer_copy", "chain").gpus
    4

    Raises:
        KeyError: there is no such variant.
    """
    return _BY_NAME[workload, variant]


# Timed beside what they mend, but much like another fix that is captured.
_ONLY_TIMED = {
    "norm_unchecked",
    "number_filled",
    "rows_on_gpu",
    "rows_filled",
    "logged_seldom",
    "pinned",
    "pinned_in_step",
}
_ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}

CATALOG = (
    Entry(
        "prefetch", "one_stream_pinned", "Copy and compute share a stream: no copy is overlapped."
    ),
    Entry(
        "prefetch",
        "one_stream_pageable",
        "The same from pageable memory: the copy is slower and its call blocks the CPU.",
    ),
    Entry(
        "prefetch",
        "copy_stream_pageable",
        "A copy stream does not help pageable memory: the CPU launches nothing while it copies.",
    ),
    Entry(
        "prefetch",
        "copy_stream_synchronize",
        "A copy stream and pinned memory, but the CPU synchronizes after each batch.",
    ),
    Entry(
        "prefetch",
        "copy_stream_pinned",
        "The fix: a copy stream, pinned memory, no synchronize. Copies overlap with compute.",
    ),
    Entry(
        "prefetch",
        "loader_alone",
        "A DataLoader without workers: the GPU waits while the batch is made.",
    ),
    Entry(
        "prefetch",
        "loader",
        "A DataLoader with its defaults: pageable batches, copied when they are needed.",
    ),
    Entry(
        "prefetch",
        "loader_pinned",
        "The fix: pin_memory, non_blocking, and the copy of the next batch in a stream of its own.",
    ),
    Entry("events", "wait", "Event.wait blocks the stream, not the CPU."),
    Entry("events", "event_synchronize", "Event.synchronize blocks the CPU."),
    Entry("events", "stream_synchronize", "Stream.synchronize blocks the CPU."),
    Entry("events", "device_synchronize", "torch.cuda.synchronize blocks the CPU."),
    Entry("events", "item", "Tensor.item blocks the CPU."),
    Entry(
        "events",
        "elapsed_time",
        "Timing every step: elapsed_time needs a finished event, so the CPU waits for it.",
    ),
    Entry(
        "two_streams",
        "small",
        "Small kernels end before the next is launched: nothing overlaps, the GPU waits.",
    ),
    Entry(
        "two_streams",
        "small_graph",
        "The fix: the same kernels as one CUDA graph, launched with one call.",
    ),
    Entry(
        "two_streams", "medium", "Kernels that leave room and outlast their launch: they overlap."
    ),
    Entry("two_streams", "large", "Kernels that fill the GPU: only their tails overlap."),
    Entry(
        "two_streams",
        "default_stream",
        "The medium kernels all in the default stream: one after the other.",
    ),
    Entry(
        "two_streams",
        "host_wait",
        "The CPU waits for one stream before it launches the other: the GPU is half used.",
    ),
    Entry(
        "two_streams",
        "early_wait",
        "The default stream waits for a side stream whose result it does not need yet.",
    ),
    Entry(
        "two_streams",
        "default_and_side",
        "The default stream and a side stream: PyTorch's side streams do not wait for it.",
    ),
    Entry("hiccup", "once", "A healthy loop whose CPU stalls once: nothing in the steps is wrong."),
    Entry("hiccup", "never", "The same loop without the stall."),
    Entry("inline_loader", "numpy", "The thread that launches makes the batches, with numpy."),
    Entry("inline_loader", "workers", "The fix: worker processes make them ahead of the loop."),
    Entry(
        "three_defects", "all_three", "A batch made in the loop, a pageable copy, a number read."
    ),
    Entry("three_defects", "fixed", "The same loop without any of them."),
    *(
        Entry("three_defects", variant, shows, is_bundled=False)
        for variant, shows in (
            ("without_read", "All except the read."),
            ("without_copy", "All except the pageable copy."),
            ("without_batch", "All except the batch made in the loop."),
            ("only_batch", "The batch made in the loop alone: it costs nothing."),
            ("only_copy", "The pageable copy alone."),
            ("only_read", "The read alone."),
        )
    ),
    Entry(
        "first_use",
        "warm_up",
        "A recording without a warm-up: kernels load, and memory is allocated.",
    ),
    Entry("first_use", "settled", "The same steps after a warm-up."),
    Entry("first_use", "growing", "Attention over a growing cache: each length is planned anew."),
    Entry("first_use", "planned_once", "The fix: a cache of one length, planned once."),
    *(
        Entry("optimizers", variant, shows, fix=fix, is_bundled=variant not in _ONLY_TIMED)
        for variant, shows, fix in (
            ("one_by_one", "AdamW without foreach: a dozen launches for each parameter.", "fused"),
            ("foreach", "AdamW with foreach on a CPU-bound step.", "fused"),
            ("cleared_to_zero", "Gradients filled with zeros, to which others are added.", "fused"),
            ("fused", "The fix: AdamW(fused=True), and gradients set to None.", ""),
            (
                "average_one_by_one",
                "A moving average of the parameters, one after the other.",
                "average_foreach",
            ),
            ("average_foreach", "The fix: torch._foreach_lerp_ for all of them.", ""),
            (
                "norm_checked",
                "clip_grad_norm_(error_if_nonfinite=True): the CPU waits for the norm.",
                "norm_unchecked",
            ),
            ("norm_unchecked", "The fix: without the check.", ""),
            (
                "scaler_reads",
                "A GradScaler whose optimizer is not fused reads whether a gradient overflowed.",
                "scaler_fused",
            ),
            ("scaler_fused", "The fix: a fused optimizer leaves the update out by itself.", ""),
            ("norms_read", "The norm of each gradient is read on the CPU.", "norms_kept"),
            ("norms_kept", "The fix: one norm of all, which stays on the GPU.", ""),
        )
    ),
    *(
        Entry("reads", variant, shows, fix=fix, is_bundled=variant not in _ONLY_TIMED)
        for variant, shows, fix in (
            ("mask_chosen", "Rows chosen by a boolean mask: how many is read.", "mask_weighted"),
            ("mask_weighted", "The fix: torch.where, which keeps the shape.", ""),
            ("number_copied", "torch.tensor of a number, on the GPU.", "number_filled"),
            ("number_filled", "The fix: torch.full.", ""),
            ("rows_listed", "Rows chosen by a Python list.", "rows_on_gpu"),
            ("rows_on_gpu", "The fix: by a tensor on the GPU, made once.", ""),
            ("number_assigned", "A number assigned to rows.", "rows_filled"),
            ("rows_filled", "The fix: index_fill_.", ""),
            ("size_read", "repeat_interleave adds up and reads the size it makes.", "size_told"),
            ("size_told", "The fix: output_size.", ""),
            ("logged_each_step", "A number logged in each step.", "logged_seldom"),
            ("logged_seldom", "The fix: in each hundredth step.", ""),
            ("timed_by_host", "synchronize in each step, for a clock.", "timed_by_events"),
            ("timed_by_events", "The fix: timing events, read when they are over.", ""),
            (
                "actions_checked",
                "torch.distributions checks its arguments, and reads each result.",
                "actions_unchecked",
            ),
            ("actions_unchecked", "The fix: validate_args=False.", ""),
            ("boxes_one_by_one", "Boxes chosen in each image by their number.", "boxes_at_once"),
            ("boxes_at_once", "The fix: topk of all images, and zeros.", ""),
        )
    ),
    *(
        Entry("launches", variant, shows, fix=fix)
        for variant, shows, fix in (
            ("cells", "An LSTMCell in a loop over time.", "layer"),
            ("layer", "The fix: nn.LSTM on the whole sequence.", ""),
            ("eager", "Inference of a small network, kernel by kernel.", "graph"),
            ("graph", "The fix: a CUDA graph.", ""),
            (
                "converted_each_step",
                "Inference with autocast converts the weights in each step.",
                "converted_once",
            ),
            ("converted_once", "The fix: weights converted once.", ""),
            ("anomalies", "Training with detect_anomaly.", "no_switches"),
            ("no_switches", "The fix: without switches for debugging.", ""),
            ("small_parts", "Gradients accumulated over four small parts.", "one_part"),
            ("one_part", "The fix: all rows at once.", ""),
            ("planned_lengths", "Attention that cuDNN plans for each length.", "no_plans"),
            ("no_plans", "The fix: enable_cudnn_sdp(False).", ""),
            ("collected", "gc.collect() in each step, over all objects.", "frozen"),
            ("frozen", "The fix: gc.freeze() before the loop.", ""),
        )
    ),
    *(
        Entry("graphs", variant, shows, fix=fix)
        for variant, shows, fix in (
            ("synchronized", "Four CUDA graphs a step, and a synchronize after each.", "parts"),
            ("parts", "The fix: the same four graphs without the synchronizes.", ""),
            ("whole", "The same step as one graph.", ""),
            (
                "read_first",
                "The result of a replay is read, and worked on, before the next is launched.",
                "read_behind",
            ),
            ("read_behind", "The fix: the next replay runs meanwhile.", ""),
            ("work_between", "Python between replays takes longer than the graph.", "work_seldom"),
            ("work_seldom", "The fix: in each sixteenth step.", ""),
            (
                "compiled_break",
                "torch.compile(mode='reduce-overhead') of a model that reads a number.",
                "compiled_whole",
            ),
            ("compiled_whole", "The fix: the GPU decides, and the model is one graph.", ""),
            (
                "decoded_in_pieces",
                "Decoding with a graph between each two attentions, reading each token.",
                "decoded_whole",
            ),
            ("decoded_whole", "The fix: one graph a step, tokens read one step later.", ""),
            (
                "recorded_again",
                "A CUDA graph recorded for each length as it comes.",
                "recorded_once",
            ),
            ("recorded_once", "The fix: one graph of the longest, filled up.", ""),
            ("one_branch", "A graph whose independent branches share a stream.", "forked"),
            ("forked", "The fix: streams that fork and join inside the graph.", ""),
        )
    ),
    Entry(
        "launches",
        "blocking",
        "Training with CUDA_LAUNCH_BLOCKING=1.",
        environment={"CUDA_LAUNCH_BLOCKING": "1"},
        fix="no_switches",
    ),
    *(
        Entry("copies", variant, shows, fix=fix, is_bundled=variant not in _ONLY_TIMED)
        for variant, shows, fix in (
            ("pageable", "Batches copied from pageable memory.", "pinned"),
            (
                "pinned_in_step",
                "Batches pinned in each step, in new memory while the old is still copied.",
                "pinned",
            ),
            ("pinned_blocking", "Batches copied from pinned memory, and waited for.", "pinned"),
            ("pinned", "The fix: pinned before, and non_blocking.", ""),
            ("one_stream", "A copy in the stream that computes.", "own_stream"),
            ("own_stream", "The fix: in a stream of its own, a batch ahead.", ""),
            ("converted_on_host", "to(device, dtype) converts on the CPU.", "converted_on_gpu"),
            ("converted_on_gpu", "The fix: first the device, then the dtype.", ""),
            ("results_pageable", "Results copied to pageable memory.", "results_pinned"),
            ("results_pinned", "The fix: to pinned memory, in a stream of its own.", ""),
            ("memory_given_back", "empty_cache in each step.", "memory_kept"),
            ("memory_kept", "The fix: without it.", ""),
        )
    ),
    Entry("memory", "full", "A cache that torch.cat makes anew, on a full GPU.", fix="reserved"),
    Entry("memory", "reserved", "The fix: reserved once, written in place."),
    *(
        Entry("loading", variant, shows, fix=fix)
        for variant, shows, fix in (
            ("no_workers", "A DataLoader without workers.", "workers"),
            ("one_worker", "A DataLoader whose worker is too slow.", "workers"),
            ("workers", "The fix: six workers.", ""),
        )
    ),
    Entry("recompiled", "each_length", "torch.compile for each length anew.", fix="any_length"),
    Entry("recompiled", "any_length", "The fix: torch.compile(dynamic=True)."),
    Entry("train_step", "sinful", "A training step with six places where the CPU waits."),
    Entry("train_step", "clean", "The same step without them."),
    Entry("two_models", "naive", "Two models, each batch through both: launches run ahead.", 2),
    Entry("two_models", "pipelined", "The same in the order of a pipeline.", 2),
    Entry(
        "two_models",
        "pipelined_streams",
        "The fix for the rest: copies between the GPUs in streams of their own.",
        2,
    ),
    Entry(
        "two_models",
        "pipelined_item",
        "One .item() per batch undoes it: one GPU at a time.",
        2,
        fix="pipelined",
    ),
    Entry("two_models", "pipelined_tiny", "Models too small to outlast their launch.", 2),
    *(
        Entry("peer_copy", name, f"A copy between GPUs with {sides}; {blocking}.", 2)
        for name, sides, blocking in (
            ("default", "no stream of its own", "non_blocking"),
            ("default_blocking", "no stream of its own", "blocking"),
            ("sender", "a stream on the sender only", "non_blocking"),
            ("sender_blocking", "a stream on the sender only", "blocking"),
            ("receiver", "a stream on the receiver only", "non_blocking"),
            ("receiver_blocking", "a stream on the receiver only", "blocking"),
            ("both", "a stream on both sides: it overlaps", "non_blocking"),
            ("both_blocking", "a stream on both sides: it overlaps", "blocking"),
        )
    ),
    Entry(
        "peer_copy", "chain", "From GPU to GPU, each hop waiting for an event of the one before.", 4
    ),
    Entry("ddp_hook", "no_hook", "DDP without a hook overlaps its all-reduces.", 2, True),
    Entry(
        "ddp_hook",
        "default_stream",
        "A hook in the default stream delays the backward pass.",
        2,
        True,
        fix="side_stream",
    ),
    Entry("ddp_hook", "side_stream", "The fix: the hook's work in a side stream.", 2, True),
    Entry(
        "ddp_hook",
        "side_stream_one_queue",
        "The side stream again, with one hardware queue for all streams.",
        2,
        True,
        _ONE_QUEUE,
        fix="side_stream",
    ),
    Entry("ddp_options", "as_needed", "DDP with what this network needs.", 2, True),
    Entry(
        "ddp_options",
        "bucket_views",
        "Gradients that are views of their buckets, set to zero in each step.",
        2,
        True,
        is_bundled=False,
        fix="as_needed",
    ),
    *(
        Entry("ddp_options", variant, shows, 2, True, fix="as_needed")
        for variant, shows in (
            ("tiny_buckets", "A bucket for each gradient: 16 small all-reduces a step."),
            ("unused_searched", "A search for unused parameters that finds none."),
            ("buffers_sent", "Running statistics sent to all ranks before each forward pass."),
            ("loss_reduced", "The loss averaged over the ranks and read in each step."),
            ("barrier", "A barrier in each step: the CPU never runs ahead."),
        )
    ),
    Entry(
        "accumulation",
        "every_microbatch",
        "All gradients averaged twice a step.",
        2,
        True,
        fix="no_sync",
    ),
    Entry("accumulation", "no_sync", "The fix: only the sum is averaged.", 2, True),
    Entry(
        "data_parallel",
        "data_parallel",
        "nn.DataParallel: one process launches for two GPUs.",
        2,
        fix="one_gpu",
    ),
    Entry("data_parallel", "one_gpu", "The same batch on one GPU takes less time."),
    *(
        Entry("collectives", f"{name}_{how}", f"{name} {lesson}", 2, True, fix=fix and name + fix)
        for name in ("all_reduce", "broadcast", "reduce_scatter", "all_gather")
        for how, lesson, fix in (
            ("sync", "waited for at once: compute that does not need it waits too.", "_async"),
            ("async", "waited for where it is needed: it overlaps with compute.", ""),
        )
    ),
    Entry(
        "fsdp", "prefetch", "FSDP2 gathers the next layer while the present one computes.", 2, True
    ),
    Entry("fsdp", "no_prefetch", "FSDP2 without prefetching.", 2, True, fix="prefetch"),
    Entry("fsdp", "item", "FSDP2 with a loss read in each step.", 2, True, fix="prefetch"),
    *(
        Entry(
            "pipeline",
            f"{name}_{size}",
            f"{title}, 2 stages, {count} microbatches.",
            2,
            True,
        )
        for name, title in (("gpipe", "GPipe"), ("1f1b", "1F1B"))
        for size, count in (("few", 4), ("many", 16))
    ),
    Entry(
        "pipeline",
        "1f1b_halves",
        "1F1B, 2 stages, the batch of 4 microbatches in 8.",
        2,
        True,
        is_bundled=False,
    ),
    Entry("waiting_rank", "even", "Ranks arrive together at each small all-reduce.", 2, True),
    Entry("waiting_rank", "uneven", "One rank waits for its peer in the last of four.", 2, True),
    Entry("straggler", "even", "All ranks do the same.", 2, True),
    Entry("straggler", "more_work", "One rank has 1.5 times the work.", 2, True, fix="even"),
    Entry("straggler", "slow_loader", "One slow loader, and a result read in each step.", 2, True),
    Entry(
        "straggler",
        "slow_loader_hidden",
        "One slow loader behind a full queue: it costs nothing.",
        2,
        True,
    ),
    Entry(
        "late_launch",
        "checksum",
        "Python of one rank before its launches, and a result read in each step.",
        2,
        True,
        fix="even",
    ),
    Entry("late_launch", "even", "The same without it: all ranks launch alike.", 2, True),
    Entry("backward_delay", "even", "DDP whose ranks all do the same.", 2, True),
    Entry(
        "backward_delay",
        "logs_gradient",
        "One rank logs a gradient in its backward pass: all ranks' steps take as long.",
        2,
        True,
        fix="even",
    ),
    Entry(
        "uneven_lengths",
        "drawn",
        "Sequences of uneven length: in each step another rank is the straggler.",
        2,
        True,
        fix="bucketed",
    ),
    Entry("uneven_lengths", "bucketed", "The fix: batches of similar length in a step.", 2, True),
    Entry(
        "two_groups",
        "one_late",
        "Two groups at once: one rank is late to the short collective beside the long one.",
        2,
        True,
    ),
    Entry("two_groups", "even", "Two groups at once, and no rank is late.", 2, True),
    Entry(
        "tensor_parallel",
        "uneven",
        "One rank holds a larger share of each layer.",
        2,
        True,
        fix="even",
    ),
    Entry("tensor_parallel", "even", "The fix: equal shares.", 2, True),
)

_BY_NAME = {(entry.workload, entry.variant): entry for entry in CATALOG}
