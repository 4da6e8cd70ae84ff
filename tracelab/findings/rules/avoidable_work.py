"""TL401 to TL410: what keeps the GPU busy though less work would do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import GENERIC, WARNING_SHARE
from tracelab.findings.remedy import NO_FIX, Instead, Remedy
from tracelab.findings.rule import Rule
from tracelab.measures.independent_work import launched_in_backward
from tracelab.model.arithmetic import (
    are_convolutions,
    is_batched_product,
    is_elementwise,
    is_float64,
    is_layout_change,
    launched_by,
    products_without_tf32,
)
from tracelab.model.lookup import match_names
from tracelab.model.nesting import Nesting
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.arithmetic import left_in_tf32, left_of_table_gradients

# The timeline rows that count, bool[m].
Rows = Callable[[Timeline], NDArray[np.bool_]]

_MIN_CHAIN_WINDOW_SHARE = 0.25
_TF32_SWITCH = '`torch.set_float32_matmul_precision("high")`'
_CUDNN_SWITCH = "`torch.backends.cudnn.allow_tf32 = True`"
_PRECISION = (
    "TF32 rounds the factors to 10 bits after the point and adds in float32. With `with "
    'torch.autocast("cuda", dtype=torch.bfloat16):` around the forward pass, products are faster '
    "still."
)
_FLOAT32 = Instead(
    "Unless the result needs double precision, make tensors float32 where they are made: "
    "`torch.as_tensor(array, dtype=torch.float32)` (NumPy's arrays are float64), `model.float()`, "
    'and allow TF32: `torch.set_float32_matmul_precision("high")`.',
    short="Make tensors float32 where they are made, unless the result needs double precision: "
    "`torch.as_tensor(array, dtype=torch.float32)`, `model.float()`.",
)
_SPARSE_GRADIENTS = Instead(
    "Pass `sparse=True` to `nn.Embedding`, and update that table with `torch.optim.SparseAdam`, or "
    "with `torch.optim.SGD` or `Adagrad`, which take sparse gradients, too; all other parameters "
    "keep their optimizer. Moments and weights of a row change only in steps that use the row. "
    "Weight decay and `clip_grad_norm_` take no sparse gradients.",
    short="Pass `sparse=True` to `nn.Embedding`, and update its table with "
    "`torch.optim.SparseAdam`, other parameters as before.",
)


def _named(test: Callable[[str], object]) -> Rows:
    return lambda timeline: match_names(timeline.trace, timeline.event_id, test)


def _beside_batched_products(timeline: Timeline) -> NDArray[np.bool_]:
    return ~launched_by(timeline, is_batched_product)


def _work_of_remedies(
    rule_id: str,
    cause: str,
    *,
    counts: Rows | None = None,
    in_forward: bool = True,
    at_events: bool = False,
) -> Callable[[Context], list[Candidate]]:
    """Return a rule's `find`: one candidate for the GPU work of each of its remedies.

    Args:
        rule_id: the rule.
        cause: of the candidates.
        counts: which of the activities count that were launched inside a remedy's events; all of
            them without it.
        in_forward: as of `_candidate`.
        at_events: True for the place of those events instead of that of a launch.
    """

    def find(context: Context) -> list[Candidate]:
        candidates = []
        for remedy, event_id in context.recognized.events_of:
            if rule_id in remedy.rules:
                around = _events_around(context, event_id)
                candidates += _candidate(
                    context,
                    (around != ABSENT) & (True if counts is None else counts(context.timeline)),
                    cause=cause,
                    remedy=remedy,
                    in_forward=in_forward,
                    made_by=around if at_events else None,
                )
        return candidates

    return find


def _events_around(context: Context, event_id: Int64Array) -> Int64Array:
    """int64[m], the innermost of some host events that launched each timeline row, else ABSENT."""
    launch_id = context.timeline.launch_id
    around = np.full(len(launch_id), ABSENT, dtype=np.int64)
    rows = np.flatnonzero(launch_id != ABSENT)
    nesting = Nesting(context.trace, event_id)
    index = nesting.innermost(launch_id[rows])
    around[rows] = np.where(index == ABSENT, ABSENT, nesting.event_id[index])
    return around


def _candidate(
    context: Context,
    is_chosen: NDArray[np.bool_],
    *,
    cause: str,
    title: str = "",
    fix: Instead = NO_FIX,
    edit: str | None = None,
    remedy: Remedy | None = None,
    max_saved: NDArray[np.float64] | None = None,
    in_forward: bool = False,
    made_by: Int64Array | None = None,
) -> list[Candidate]:
    """Make one candidate of some GPU work, at the call site and kernel that take most of it.

    It needs a saving that is worth a warning.

    Args:
        context: the window.
        is_chosen: bool[m], timeline rows.
        cause: as in `Candidate`.
        title: as in `Candidate`; that of a remedy counts.
        fix: as in `Candidate`; that of a remedy counts.
        edit: as in `Candidate`.
        remedy: as in `Candidate`.
        max_saved: float64[m], the share of each row that the fix saves at most; all without it.
        in_forward: True if a place in the forward pass comes before those in the backward pass.
        made_by: int64[m], event ids of the host events whose call sites count; those of the
            launches without it.
    """
    timeline = context.timeline
    rows = np.flatnonzero(is_chosen & context.is_inside(timeline.start_ns, timeline.end_ns))
    lost = context.time_of(rows)
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    saved_ns = length_ns if max_saved is None else length_ns * max_saved[rows]
    device_number = timeline.device_number[rows]
    limit_ns = {
        device: min(measure(time), round(float(saved_ns[device_number == device].sum())))
        for device, time in lost.items()
    }
    most_ns = max(limit_ns.values(), default=0)
    if not most_ns or most_ns < WARNING_SHARE * context.window.length_ns:
        return []
    sites = context.call_sites((timeline.launch_id if made_by is None else made_by)[rows])
    names = [context.kernel_name(row) for row in rows.tolist()]
    is_place = ~(launched_in_backward(timeline)[rows] & in_forward)
    counted_ns = length_ns * (is_place | ~is_place.any())
    places = grouped(zip(sites, names, strict=True)).values()
    top = max(places, key=lambda place: int(counted_ns[place].sum()))[0]
    return [
        Candidate(
            title=title,
            cause=cause,
            where=where(
                sites[top],
                count=len(rows),
                activity=names[top],
                captured_at=context.origins_of(rows[[top]])[0] or None,
            ),
            evidence=most_expensive(timeline.event_id[rows].tolist(), length_ns.tolist()),
            fix=fix.text,
            fix_short=fix.short,
            lost=lost,
            limit_ns=limit_ns,
            edit=edit,
            remedy=remedy,
        )
    ]


def _float32_work(context: Context) -> list[Candidate]:
    """Find float32 products without TF32, and float32 attention in a half-precision program."""
    return [*_products_without_tf32(context), *_float32_attention(context)]


_float32_attention = _work_of_remedies("TL401", "float32_attention")


def _products_without_tf32(context: Context) -> list[Candidate]:
    """Find the float32 products of the window, on GPUs that are faster in TF32."""
    timeline = context.timeline
    chosen = products_without_tf32(timeline)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []
    is_convolution = are_convolutions(timeline, rows)
    switches = [] if is_convolution.all() else [_TF32_SWITCH]
    switches += [_CUDNN_SWITCH] if is_convolution.any() else []
    short = f"Allow TF32 once, before the loop: {' and '.join(switches)}."
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    max_saved = np.zeros(len(chosen))
    max_saved[rows] = 1 - left_in_tf32(timeline, rows, length_ns)[:, 0]
    is_mostly = 2 * int(length_ns[is_convolution].sum()) > int(length_ns.sum())
    what = "Convolutions run" if is_mostly else "Matrix products run"
    return _candidate(
        context,
        chosen,
        title=f"{what} in float32 without TF32",
        fix=Instead(f"{short} {_PRECISION}", short=short),
        cause="float32_products",
        edit="tf32",
        max_saved=max_saved,
    )


def _double_precision(context: Context) -> list[Candidate]:
    return _candidate(
        context,
        _named(is_float64)(context.timeline),
        title="The GPU computes in double precision",
        fix=_FLOAT32,
        cause="float64",
        edit="float32",
    )


def _table_gradients(context: Context) -> list[Candidate]:
    """Find the kernels that fill, add and update whole embedding tables."""
    left = left_of_table_gradients(context.timeline)[:, 1]
    return _candidate(
        context,
        left < 1,
        title="Each step goes through whole embedding tables, of which it uses few rows",
        fix=_SPARSE_GRADIENTS,
        cause="table_gradients",
        edit="sparse-gradients",
        max_saved=1 - left,
    )


def _long_chains(context: Context) -> list[Candidate]:
    """Find the elementwise kernels of one function and its backward pass, if they are a quarter."""
    min_ns = _MIN_CHAIN_WINDOW_SHARE * context.window.length_ns
    found = _chains(context)
    return [replace(x, role=GENERIC) for x in found if max(x.limit_ns.values()) >= min_ns]


_chains = _work_of_remedies("TL408", "elementwise_chains", counts=_named(is_elementwise))

RULES = (
    Rule(
        id="TL401",
        name="float32 products without TF32",
        matters="From Ampere on, tensor cores multiply float32 matrices in TF32 several times as "
        "fast as the CUDA cores do in float32. PyTorch leaves that off for matrix products, and on "
        "for convolutions, unless the program says otherwise.",
        decides="It sums the kernels of cuBLAS and cuDNN that multiply in float32 without tensor "
        "cores (`sgemm`, `f32f32_f32f32`), on GPUs for which the manufacturer lists TF32 as "
        "faster. It is silent if any product in the file uses TF32, because then the switch is on, "
        "and if TF32 can save less than 2 % of the time. Convolutions have a switch of their own "
        "and are counted separately; RNNs are not counted, because cuDNN chooses for them. The GPU "
        "is busy in this time, not idle. The saving is an interval, because small products gain "
        "little.",
        before="model(batch)  # float32, on an H100",
        after='torch.set_float32_matmul_precision("high")\nmodel(batch)',
        find=_float32_work,
    ),
    Rule(
        id="TL402",
        name="convolutions that change the layout of images",
        matters="The tensor cores' convolutions want the channels of an image last in memory "
        "(NHWC). Tensors are NCHW unless the program says otherwise, and cuDNN then changes the "
        "layout before and after each convolution.",
        decides="It sums cuDNN's kernels `nchwToNhwc` and `nhwcToNchw`, time in which the GPU is "
        "busy. It is silent if they take less than 2 % of the time, or if group or instance "
        "normalization takes at least a tenth as long: it copies images with the channels last. "
        "The fix may save more, because batch normalization and pooling also get faster, or "
        "nothing, where a layer copies images back. Interpolation of nearest neighbors takes up to "
        "2.3 times as long with the channels last; the prediction includes that.",
        before="loss = model(images)",
        after="model = model.to(memory_format=torch.channels_last)  # once\n"
        "loss = model(images.to(memory_format=torch.channels_last))",
        find=_work_of_remedies(
            "TL402", "layout", counts=_named(is_layout_change), in_forward=False
        ),
    ),
    Rule(
        id="TL403",
        name="double precision",
        matters="A float64 tensor is twice as many bytes to move, and most GPUs compute in double "
        "precision at 1/32 or 1/64 of the speed of float32. One NumPy array is enough: everything "
        "computed with it is float64, too.",
        decides="It sums the kernels whose tensors are float64 by their names (`dgemm`, `f64f64`, "
        "`<double`). A single Python number in double precision does not count. It is silent if "
        "they take less than 2 % of the time. The GPU is busy in this time, not idle.",
        before="x = torch.from_numpy(array).cuda()  # float64",
        after="x = torch.as_tensor(array, dtype=torch.float32).cuda()",
        find=_double_precision,
    ),
    Rule(
        id="TL404",
        name="gradients that no optimizer uses",
        matters="The backward pass computes the gradients of every parameter with `requires_grad`, "
        "whether an optimizer trains it or not: a frozen backbone costs twice its forward pass, "
        "and a generator's loss computes the discriminator's gradients.",
        decides="It looks at the first backward pass since an optimizer's step. If a gradient is "
        "added to another, that one was never cleared, so no step uses it. The work for such "
        "gradients is useless: the additions, the products that they add, everything after the "
        "last gradient that is stored new, and the gradients of operators that ran before any "
        "parameter that is trained was used, by autograd's sequence numbers. It is silent if all "
        "gradients of a pass are added, as after `zero_grad(set_to_none=False)`, and if the file "
        "does not tell the passes apart. The GPU is busy in this time, not idle.",
        before="optimizer = AdamW(model.head.parameters())\nmodel(batch).backward()",
        after="model.backbone.requires_grad_(False)\noptimizer = AdamW(model.head.parameters())\n"
        "model(batch).backward()",
        find=_work_of_remedies("TL404", "untrained", in_forward=False),
    ),
    Rule(
        id="TL405",
        name="a forward pass that is computed twice",
        matters="Activation checkpointing keeps less of the forward pass, and computes it again in "
        "the backward pass. That costs up to a third more work, and gains nothing if memory is "
        "left.",
        decides="It sums the GPU's work for `recompute_fn` of torch/utils/checkpoint.py or, if no "
        "Python functions were recorded, for operators of the forward pass inside nodes of the "
        "backward pass. It is silent below 2 % of the time. The file does not say how much memory "
        "is left, so the saving of a replay without this work is an upper bound.",
        before="x = checkpoint(block, x, use_reentrant=False)",
        after="x = block(x)  # if memory allows",
        find=_work_of_remedies("TL405", "recomputation", in_forward=False),
    ),
    Rule(
        id="TL406",
        name="attention whose scores are stored in memory",
        matters="Attention written by hand stores a score for each pair of positions in memory. It "
        "reads the scores again to scale them, to mask them, for softmax, for dropout and for the "
        "product with the values, and the backward pass does the same. One fused operator keeps "
        "the scores on the chip.",
        decides="It sums the work between a batched product, softmax and a second product, and "
        "between their nodes in the backward pass. It is silent below 2 % of the time, if the "
        "weights are used in another way before the second product, with a learned bias, and "
        "unless the products are in half precision: in float32 the fused operators take longer "
        "than products in TF32. The price also covers the products: on an H100 the fused operator "
        "took 1.1 times their time with 128 positions and half of it with 2,048, and the name of "
        "the softmax kernel tells how many there are. The GPU is busy in this time, not idle.",
        before="scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n"
        "y = scores.masked_fill(mask, -math.inf).softmax(-1) @ v",
        after="y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        find=_work_of_remedies("TL406", "attention_scores", counts=_beside_batched_products),
    ),
    Rule(
        id="TL407",
        name="gradients of whole embedding tables",
        matters="The gradient of `nn.Embedding` is as large as its table, unless it is sparse. "
        "Each backward pass fills it with zeros, for each use of the table, and adds these "
        "gradients. An optimizer such as Adam then reads and writes all rows, and their moments. "
        "With millions of rows, of which a batch uses thousands, that is most of a step.",
        decides="It compares the time in which `aten::embedding_dense_backward` fills gradients "
        "with the time in which it sums up the rows that were used, and is silent unless the fill "
        "takes longer: so it does for the vocabularies of language models. Part of the optimizer's "
        "time belongs to the tables: 3.6 (SGD), 10 (fused Adam) or 22 times (other optimizers) "
        "that of a fill, as measured on an H100. Sums in the backward pass count as well. It is "
        "silent if they say that another layer has the same weight, and if sparse gradients save "
        "less than 2 % of the time. The GPU is busy in this time, not idle.",
        before="self.items = nn.Embedding(12_000_000, 64)\noptimizer = Adam(model.parameters())",
        after="self.items = nn.Embedding(12_000_000, 64, sparse=True)\n"
        "optimizers = Adam(others), SparseAdam(model.items.parameters())",
        find=_table_gradients,
    ),
    Rule(
        id="TL408",
        name="chains of elementwise kernels",
        matters="Each elementwise kernel reads its inputs from memory and writes its result to it. "
        "Where one follows another, the GPU moves the same numbers again and again, and computes "
        "hardly anything. A compiler makes one kernel of such a chain.",
        decides="It takes the function of the program that launches most elementwise kernels, "
        "reductions and copies of PyTorch's in chains, each right after a different one, and adds "
        "those of their nodes in the backward pass. Functions of libraries and the loop over steps "
        "do not count, because a program does not compile these; nor do optimizers, CUDA graphs "
        "and compiled kernels. It is silent unless they are a quarter of the time. The prediction "
        "is that a chain takes as long as its longest kernel, or between 0.15 and 2 times as long: "
        "ten functions and their backward passes took 0.05 to 0.45 of their time compiled, on an "
        "H100.",
        before="def distances(x):\n    return ((x[None] - x[:, None]) ** 2).sum(2)",
        after="@torch.compile\ndef distances(x):\n    return ((x[None] - x[:, None]) ** 2).sum(2)",
        find=_long_chains,
    ),
    Rule(
        id="TL409",
        name="work that could be done once, before the loop",
        matters="Each step computes something of weights or inputs that never change: adapters "
        "next to the layers that they could be merged into, the normalization or the order of one "
        "graph.",
        decides="It sums the GPU's work inside of functions that are known to compute such things: "
        "`forward` of peft/tuners/lora/layer.py without its base layer, in a program without a "
        "backward pass, `gcn_norm` of PyTorch Geometric, and `aten::_coalesce` inside sparse "
        "products. It is silent below 2 % of the time. If graphs differ in size from step to step, "
        "the figure is an upper bound. The GPU is busy in this time, not idle.",
        before="model = PeftModel.from_pretrained(base, adapter)\n"
        "for batch in batches: model(batch)",
        after="model = PeftModel.from_pretrained(base, adapter).merge_and_unload()\n"
        "for batch in batches: model(batch)",
        find=_work_of_remedies("TL409", "unprepared"),
    ),
    Rule(
        id="TL410",
        name="a compiled function that runs eagerly",
        matters="`torch.compile` compiles a function anew when a guard fails, up to 8 times. "
        "From then on, calls that fit none of these versions run eagerly. Only a warning at that "
        "moment says so.",
        decides="It sums the GPU's work for kernels that compiled code fuses, element by element "
        "and reductions, in calls of compiled functions that look for compiled code in each step, "
        "find none and compile nothing, and in their backward pass. It is silent below 2 % of the "
        "time. What a compiler makes of a function no file says: the figure is an upper bound. The "
        "GPU is busy in this time, not idle.",
        before="self.updates += 1  # in a compiled module: a guard on a Python number",
        after='self.register_buffer("updates", torch.zeros(()))\nself.updates += 1',
        find=_work_of_remedies(
            "TL410", "uncompiled", counts=_named(is_elementwise), at_events=True
        ),
    ),
)
