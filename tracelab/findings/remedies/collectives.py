"""Collectives that need not be sent, or not like this."""

from __future__ import annotations

from tracelab.findings.recognized_collectives import (
    barriers,
    buffer_broadcasts,
    gradients_of_microbatches,
    in_a_row,
    in_each_step,
    late_gathers,
    reduced_and_read,
    search_for_unused,
    small_buckets,
    small_shards,
    split_sizes,
    with_collectives,
)
from tracelab.findings.remedy import Instead, Remedy

_DDP = "PyTorch documentation: DistributedDataParallel"
_DDP_URL = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
)
_DISTRIBUTED = "PyTorch documentation: torch.distributed"
_DISTRIBUTED_URL = "https://docs.pytorch.org/docs/stable/distributed.html"
_FSDP = "PyTorch documentation: fully_shard"
_FSDP_URL = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_TUNING = "PyTorch tutorial: Performance Tuning Guide"
_TUNING_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
_ISSUED = r"^record_param_comms$"

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="ddp-unused-parameters",
        name="DDP that searches for unused parameters",
        title="DDP searches the graph for unused parameters",
        shows="`search_unused_parameters` after each forward pass, and in the backward pass an "
        "all-reduce of integers, one for each parameter.",
        not_when="The parameters that get no gradient differ from step to step.",
        fixes=(
            Instead(
                "Remove `find_unused_parameters=True` of `DistributedDataParallel`. If the "
                "same parameters are unused in every step: `static_graph=True` instead.",
                since="1.11",
                short="Remove `find_unused_parameters=True`, or pass `static_graph=True` if the "
                "same parameters are unused in every step.",
            ),
            Instead("Remove `find_unused_parameters=True` of `DistributedDataParallel`."),
        ),
        source=_DDP,
        url=_DDP_URL,
        rules=("TL301", "TL202", "TL207"),
        edit="remove:{place}",
        operators=r"^torch\.distributed\.ddp\.reducer::search_unused_parameters$",
        occurs=search_for_unused,
    ),
    Remedy(
        id="ddp-no-sync",
        name="gradient accumulation that averages the gradients of every microbatch",
        title="DDP averages the gradients of every microbatch, not only of the last one",
        shows="Several backward passes before one `Optimizer.step#`, each with the same "
        "all-reduces of all gradients.",
        not_when="The gradients must be averaged before the next microbatch, to be clipped.",
        fixes=(
            Instead(
                "Run the forward and backward pass of all microbatches except the last in `with "
                "model.no_sync():` (Accelerate: `accelerator.accumulate(model)`; FSDP2: "
                "`model.set_requires_gradient_sync(False)`).",
                short="Run all microbatches except the last under `with model.no_sync():` "
                "(Accelerate: `accelerator.accumulate(model)`).",
            ),
        ),
        source=_TUNING,
        url=_TUNING_URL,
        rules=("TL202", "TL301", "TL207"),
        edit="remove:{place}",
        operators=_ISSUED,
        occurs=gradients_of_microbatches,
    ),
    Remedy(
        id="ddp-small-buckets",
        name="DDP with buckets that are too small",
        title="DDP sends the gradients in small buckets, and each costs a latency",
        shows="Many all-reduces of less than 1 MB in each backward pass.",
        not_when="Only the first bucket is small, as it is meant to be, or the backward pass hides "
        "them all.",
        fixes=(
            Instead(
                "Remove `bucket_cap_mb` of `DistributedDataParallel` (the default is 25), "
                "or make it larger: 50 to 200 for large models on fast links."
            ),
        ),
        source=_DDP,
        url=_DDP_URL,
        rules=("TL207", "TL301", "TL202"),
        edit="remove:{place}",
        operators=_ISSUED,
        occurs=small_buckets,
    ),
    Remedy(
        id="loss-all-reduce",
        name="a number that is averaged over the ranks and read in each step",
        title="The program averages a number over the ranks and reads it in each step",
        shows="An all-reduce of a few bytes, and right after it `aten::item`, in each step.",
        not_when="The number decides what the same step does next: then read it one step later.",
        fixes=(
            Instead(
                "Average and read it every N steps. Keep it on the GPU until then (`total += "
                "loss.detach()`), and put all such numbers into one tensor. In Lightning: "
                "`sync_dist=True` only with `on_step=False, on_epoch=True`.",
                short="Average and read it every N steps, and keep it on the GPU until then: "
                "`total += loss.detach()`.",
            ),
        ),
        source="Lightning documentation: logging",
        url="https://lightning.ai/docs/pytorch/stable/extensions/logging.html",
        rules=("TL101", "TL202", "TL301", "TL207"),
        edit="remove:{place}",
        operators=_ISSUED,
        occurs=reduced_and_read,
    ),
    Remedy(
        id="barrier",
        name="a barrier in each step",
        title="A barrier in each step makes the CPU wait for all ranks",
        shows="`c10d::barrier`, an all-reduce of one element, and the CPU waits until it is over.",
        not_when="The ranks hand over a file, or look at one clock.",
        fixes=(
            Instead(
                "Remove `dist.barrier()`: collectives already wait for each other. Keep it "
                "around checkpoints and files."
            ),
        ),
        source=_DISTRIBUTED,
        url=f"{_DISTRIBUTED_URL}#torch.distributed.barrier",
        rules=("TL101", "TL202", "TL301"),
        edit="remove:{place}",
        operators=r"^c10d::(barrier|monitored_barrier_)$",
        occurs=barriers,
    ),
    Remedy(
        id="collectives-in-a-row",
        name="many small collectives in a row",
        title="",
        shows="Four or more collectives of less than 1 MB of one process group, one right after "
        "the other.",
        not_when="The work between them uses the result of the one before.",
        fixes=(
            Instead(
                "Send them as one: pack the tensors into one flat buffer, or issue them inside "
                "`torch.distributed._coalescing_manager()`; gradients are best left to "
                "`DistributedDataParallel`.",
                short="Send them as one: pack the tensors into one buffer, or issue them in "
                "`torch.distributed._coalescing_manager()`.",
            ),
        ),
        source=_DISTRIBUTED,
        url=_DISTRIBUTED_URL,
        rules=("TL207", "TL301"),
        edit="remove:{place}",
        operators=_ISSUED,
        occurs=in_a_row,
    ),
    Remedy(
        id="ddp-buffer-broadcast",
        name="DDP that sends the buffers before each forward pass",
        title="DDP sends the model's buffers to all ranks before each forward pass",
        shows="`_sync_buffers`, or broadcasts, in `DistributedDataParallel.forward`.",
        not_when="All ranks must have the running statistics of rank 0, and not their own.",
        fixes=(
            Instead(
                "Pass `broadcast_buffers=False` to `DistributedDataParallel`, if each rank may "
                "keep running statistics of its own; rank 0's are saved as before. Large "
                "constants are best no buffers: plain tensors are not sent.",
                short="Pass `broadcast_buffers=False` to `DistributedDataParallel`, if each rank "
                "may keep running statistics of its own.",
            ),
        ),
        source=_DDP,
        url=_DDP_URL,
        rules=("TL301", "TL202", "TL207"),
        edit="remove:{place}",
        operators=r"^c10d::broadcast_$",
        occurs=buffer_broadcasts,
    ),
    Remedy(
        id="object-collectives",
        name="Python objects that are sent in each step",
        title="The ranks exchange Python objects in each step",
        shows="`all_gather_object`, `broadcast_object_list` or another in each step: two "
        "collectives of bytes, a read of their length, and pickling.",
        not_when="They are rare messages of control.",
        fixes=(
            Instead(
                "Send a tensor of a fixed layout, allocated once, or use a process group of the "
                "backend gloo for what stays on the CPU. Accelerate: `dispatch_batches=False`, so "
                "that each rank loads its own batches.",
                short="Send a tensor of a fixed layout, allocated once, or use a gloo group for "
                "what stays on the CPU.",
            ),
        ),
        source=_DISTRIBUTED,
        url=f"{_DISTRIBUTED_URL}#torch.distributed.all_gather_object",
        rules=("TL101", "TL301", "TL202"),
        edit="unblock:{place}",
        frames=r"torch/distributed/distributed_c10d\.py\(\d+\): "
        r"(all_gather_object|gather_object|(broadcast|scatter|send|recv)_object_list)$",
        occurs=in_each_step,
    ),
    Remedy(
        id="hf-token-count",
        name="Hugging Face's Trainer that counts the tokens of all ranks",
        title="The Trainer counts the tokens of all ranks in each step",
        shows="A collective of one number in `_get_num_items_in_batch` of `transformers`, before "
        "the first forward pass, and a read.",
        not_when="The ranks' batches have different numbers of tokens: then the loss needs it.",
        fixes=(
            Instead(
                "Pass `average_tokens_across_devices=False` to `TrainingArguments`, if all ranks "
                "have as many tokens in each batch."
            ),
        ),
        source="Transformers documentation: TrainingArguments",
        url="https://huggingface.co/docs/transformers/main_classes/trainer",
        rules=("TL101", "TL202", "TL301"),
        edit="remove:{place}",
        frames=r"transformers/trainer\.py\(\d+\): _get_num_items_in_batch$",
        occurs=with_collectives,
    ),
    Remedy(
        id="moe-split-sizes",
        name="an all-to-all whose splits the CPU reads first",
        title="The CPU reads the splits of an all-to-all before it issues it",
        shows="A copy to the CPU right before an all-to-all with uneven splits, in each layer.",
        not_when="Tokens are dropless and no kernel on the GPU takes the splits: one read a layer "
        "remains.",
        fixes=(
            Instead(
                "Copy the splits of both directions at once, into pinned memory and in a side "
                "stream, during the shared expert or the permutation. Equal splits (a capacity "
                "with padding) or kernels that take the splits on the GPU (DeepEP, "
                "`all_to_all_vdev`) need no read.",
                short="Copy the splits into pinned memory in a side stream while other work runs, "
                "or use equal splits (a capacity with padding).",
            ),
        ),
        source="torchtitan issue 1968",
        url="https://github.com/pytorch/torchtitan/issues/1968",
        rules=("TL101", "TL301"),
        edit="unblock:{place}",
        operators=_ISSUED,
        occurs=split_sizes,
    ),
    Remedy(
        id="sync-batch-norm",
        name="batch norms that average over the ranks",
        title="SyncBatchNorm sends a small collective in each layer and direction",
        shows="The operator `SyncBatchNorm`, with an all-gather or all-reduce of a few kB in each "
        "layer, and one in its backward pass.",
        not_when="The batch of each GPU is so small that the statistics need the others'.",
        fixes=(
            Instead(
                "From about 16 samples a GPU on plain batch norms do; `GroupNorm` needs none. Else "
                "average within a node only: `SyncBatchNorm(process_group=...)`.",
                short="Use plain batch norms from about 16 samples a GPU on, or `GroupNorm`; else "
                "average within a node: `SyncBatchNorm(process_group=...)`.",
            ),
        ),
        source="PyTorch documentation: SyncBatchNorm",
        url="https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html",
        rules=("TL202", "TL301", "TL207"),
        edit=None,
        operators=r"^(SyncBatchNorm|autograd::engine::evaluate_function: SyncBatchNormBackward)$",
    ),
    Remedy(
        id="fsdp-late-gather",
        name="FSDP that gathers a layer only when it is its turn",
        title="FSDP gathers the parameters of a layer too late, and the layer waits for them",
        shows="The compute after `FSDP::all_gather` waits for it, though other compute ran before.",
        not_when="The order of the layers changes, or there is no memory for another layer.",
        fixes=(
            Instead(
                "Prefetch: `layer.set_modules_to_forward_prefetch([next_layer])` and "
                "`layer.set_modules_to_backward_prefetch([previous_layer])` for each layer, two of "
                "them if one is not enough.",
                since="2.5",
                short="Prefetch: `layer.set_modules_to_forward_prefetch([next_layer])` and "
                "`layer.set_modules_to_backward_prefetch([previous_layer])`.",
            ),
        ),
        source=_FSDP,
        url=_FSDP_URL,
        rules=("TL202",),
        edit="side-stream:{place}",
        operators=r"^FSDP::all_gather( \(|$)",
        occurs=late_gathers,
    ),
    Remedy(
        id="fsdp-small-groups",
        name="FSDP with many small groups of parameters",
        title="FSDP gathers many small groups of parameters",
        shows="32 or more all-gathers a step of less than 8 MB each, and the CPU's work around "
        "them.",
        not_when="Few layers are small, such as a norm of its own.",
        fixes=(
            Instead(
                "Call `fully_shard` once for each transformer block and once for the model, or "
                "with a list of small layers: `fully_shard([norm, head])`.",
                since="2.4",
            ),
        ),
        source=_FSDP,
        url=_FSDP_URL,
        rules=("TL301",),
        edit=None,
        operators=r"^FSDP::(pre|post)_(forward|backward)|^FSDP::all_gather",
        occurs=small_shards,
    ),
    Remedy(
        id="fsdp-rate-limiter",
        name="FSDP that makes the CPU wait between its gathers",
        title="FSDP's rate limiter makes the CPU wait for a gather",
        shows="`cudaEventSynchronize` in `FullyShardedDataParallel.rate_limiter`, once a block.",
        not_when="Without the limit memory runs out.",
        fixes=(
            Instead(
                "Use FSDP2 (`fully_shard`), which never makes the CPU wait, or pass "
                "`limit_all_gathers=False` if there is memory.",
                since="2.4",
                short="Use FSDP2 (`fully_shard`), or pass `limit_all_gathers=False` if memory "
                "allows.",
            ),
            Instead("Pass `limit_all_gathers=False` to FSDP if there is memory."),
        ),
        source="PyTorch documentation: FullyShardedDataParallel",
        url="https://docs.pytorch.org/docs/stable/fsdp.html",
        rules=("TL101", "TL301"),
        edit="unblock:{place}",
        operators=r"^FullyShardedDataParallel\.rate_limiter$",
    ),
    Remedy(
        id="tensor-parallel",
        name="tensor parallelism whose collectives stand between products",
        title="",
        shows="Collectives in `torch/distributed/tensor/parallel` or Megatron's `tensor_parallel`, "
        "with no overlapping compute.",
        not_when="The GPUs have no peer-to-peer access, or decode few rows at a time.",
        fixes=(
            Instead(
                "The next work needs them; only pieces overlap: sequence parallelism with "
                "asynchronous tensor parallelism (`torch._inductor.config._micro_pipeline_tp = "
                "True` and `enable_symm_mem_for_group`, under `torch.compile`; Megatron: "
                "`--tp-comm-overlap`), or fewer ranks in the group.",
                since="2.6",
                short="Overlap pieces by asynchronous tensor parallelism under `torch.compile` "
                "(Megatron: `--tp-comm-overlap`), or use fewer ranks.",
            ),
            Instead(
                "The next work needs them. Use fewer ranks in the group, of one NVLink domain "
                "(Megatron: `--tp-comm-overlap`).",
                short="Use fewer ranks in the group, of one NVLink domain (Megatron: "
                "`--tp-comm-overlap`).",
            ),
        ),
        source="PyTorch documentation: torch.distributed._symmetric_memory",
        url="https://docs.pytorch.org/docs/stable/symmetric_memory.html",
        rules=("TL202",),
        edit=None,
        frames=r"torch/distributed/tensor/parallel/\w+\.py\(\d+\): "
        r"|megatron/core/tensor_parallel/\w+\.py\(\d+\): ",
        occurs=with_collectives,
    ),
)
