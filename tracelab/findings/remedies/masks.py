"""Masks and positions whose number only the data decide: the host needs it, and waits.

To compute on everything with a mask instead (`torch.where`) spares the wait, and makes the GPU
compute what was left out: 28 masks of a graph network made a step 3.5 times slower that way. How
much was left out, no trace says, so that it is not advised.
"""

from __future__ import annotations

from tracelab.findings.remedies.guards import (
    blocks,
    called_directly,
    copies,
    every,
    holds,
    outside,
    recurs,
)
from tracelab.findings.remedy import Instead, Remedy

_NONZERO = "PyTorch documentation: torch.nonzero, which synchronizes"
_NONZERO_URL = "https://docs.pytorch.org/docs/stable/generated/torch.nonzero.html"
_ASSIGNS = r"^aten::(?:_index_put_impl_|index_put_?)$"
_POSITIONS = r"^aten::nonzero$"
_BACKWARD = r"^IndexBackward"

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="index-number",
        name="a Python number assigned to positions of a GPU tensor",
        title="An assignment to some positions copies a Python number to the GPU",
        shows="`aten::index_put_` with a copy of a few bytes from pageable memory, as of "
        "`x[positions] = 3.0`.",
        not_when="A mask instead of positions: `x[mask] = 3.0` fills in place and copies nothing.",
        fixes=(
            Instead(
                "Fill in place: `x.index_fill_(0, positions, 3.0)`. Or assign a tensor that is on "
                "the GPU already."
            ),
        ),
        source="PyTorch source: aten/src/ATen/native/TensorAdvancedIndexing.cpp",
        url="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/"
        "TensorAdvancedIndexing.cpp",
        rules=("TL101", "TL102"),
        edit="remove:{place}",
        operators=r"^aten::to$",
        occurs=every(outside(_ASSIGNS, is_wanted=False), copies("h2d", 8), blocks, recurs),
    ),
    Remedy(
        id="index-on-host",
        name="a GPU tensor that is indexed with a tensor on the CPU",
        title="An index on a GPU tensor copies its positions from the CPU",
        shows="`aten::index` or `aten::index_put_` with a copy from pageable memory inside.",
        not_when="The positions are read from the GPU just before.",
        fixes=(
            Instead(
                "Move the positions to the GPU with the batch: `positions.pin_memory()` where it "
                'is made, then `.to("cuda", non_blocking=True)`. Make them on the GPU where they '
                "can be computed (`torch.arange(..., device=...)`, `torch.randperm(..., "
                "device=...)`).",
                short="Move the positions to the GPU with the batch: `positions.pin_memory()`, "
                'then `positions.to("cuda", non_blocking=True)`.',
            ),
        ),
        source="PyTorch Performance Tuning Guide: avoid unnecessary CPU-GPU synchronization",
        url="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        "#avoid-unnecessary-cpu-gpu-synchronization",
        rules=("TL102", "TL101"),
        edit="prefetch:{place}",
        operators=r"^aten::(?:index|_index_put_impl_|index_put_?)$",
        occurs=every(called_directly, copies("h2d"), blocks),
        by_call_site=True,
    ),
    Remedy(
        id="mask-assignment",
        name="a GPU tensor assigned where a mask is true",
        title="An assignment by a boolean mask makes the CPU wait for the number of elements",
        shows="`aten::index_put_` calls `aten::nonzero`, as of `x[mask] = y`.",
        not_when="The value is a Python number or a tensor of one element: nothing is read then.",
        fixes=(
            Instead(
                "If the mask is the same in every step, find its positions once, before the loop: "
                "`i = mask.nonzero(as_tuple=True)`, then `x[i] = y`. If it comes with the batch, "
                "find them on the CPU, where the batch is made.",
                short="Find the positions once, before the loop, if the mask stays the same: `i = "
                "mask.nonzero(as_tuple=True)`, then `x[i] = y`.",
            ),
        ),
        source=_NONZERO,
        url=_NONZERO_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::index_put_?$",
        occurs=every(called_directly, holds(_POSITIONS), blocks),
        by_call_site=True,
        is_general=True,
        needs_same_sizes=True,
    ),
    Remedy(
        id="boolean-mask",
        name="elements of a GPU tensor chosen by a mask",
        title="",
        shows="`aten::index` or `aten::masked_select` with a copy to the CPU, as of `x[mask]`.",
        not_when="The mask changes in each step, and is made on the GPU.",
        fixes=(
            Instead(
                "The CPU waits for the number of elements. If the mask is the same in every "
                "step, find its positions once, before the loop: `i = "
                "mask.nonzero(as_tuple=True)`, then `x[i]`. If it comes with the batch, "
                "find them on the CPU, where the batch is made.",
                short="Find the positions once, before the loop, if the mask stays the same: `i = "
                "mask.nonzero(as_tuple=True)`, then `x[i]`.",
            ),
        ),
        source=_NONZERO,
        url=_NONZERO_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::(?:index|masked_select)$",
        occurs=every(called_directly, holds(_POSITIONS), blocks),
        by_call_site=True,
        is_general=True,
        needs_same_sizes=True,
    ),
    Remedy(
        id="boolean-mask-backward",
        name="the backward pass of a choice by a mask",
        title="The backward pass of a boolean mask makes the CPU wait for the number of elements",
        shows="`IndexBackward` calls `aten::nonzero`.",
        not_when="The forward pass indexes with positions, not with a mask.",
        fixes=(
            Instead(
                "Index with the positions of the mask, which are then found in the forward pass "
                "alone: `x[mask.nonzero(as_tuple=True)]`."
            ),
        ),
        source=_NONZERO,
        url=_NONZERO_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=_POSITIONS,
        occurs=every(outside(_BACKWARD, is_wanted=False), blocks),
        is_general=True,
    ),
    Remedy(
        id="nonzero",
        name="positions that are not zero",
        title="",
        shows="`aten::nonzero` with a copy to the CPU: `nonzero`, `argwhere`, `torch.where(x)`.",
        not_when="They change in each step, and are found on the GPU.",
        fixes=(
            Instead(
                "The CPU waits for the number of positions. If they are the same in every "
                "step, find them once, before the loop. If they come with the batch, find "
                "them on the CPU, where the batch is made. With several masks, find all "
                "positions in one call.",
                short="Find the positions once, before the loop, if they stay the same, or on the "
                "CPU, where the batch is made.",
            ),
        ),
        source=_NONZERO,
        url=_NONZERO_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        operators=r"^aten::(?:nonzero|nonzero_numpy|argwhere|where)$",
        occurs=every(called_directly, blocks),
        by_call_site=True,
        is_general=True,
        needs_same_sizes=True,
    ),
)
