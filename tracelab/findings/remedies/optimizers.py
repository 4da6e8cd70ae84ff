"""Optimizers that launch more than they need to."""

from __future__ import annotations

from tracelab.findings.remedy import Fix, Remedy

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="optimizer-loop",
        name="an optimizer that updates one parameter at a time",
        title="The optimizer updates one parameter at a time",
        shows="`_single_tensor_adam`, or another optimizer's, runs in `Optimizer.step#`, with a "
        "set of small kernels for each parameter.",
        not_when="The optimizer must be differentiable.",
        fixes=(
            Fix(
                "Pass `fused=True` to the optimizer (Adam, AdamW, SGD), else `foreach=True`. "
                "`foreach` is the default: find what switched it off.",
                since="2.3",
            ),
            Fix("Pass `foreach=True` to the optimizer."),
        ),
        source="PyTorch documentation: torch.optim",
        url="https://docs.pytorch.org/docs/stable/optim.html",
        rules=("TL301",),
        edit="fuse:{place}",
        frames=r"torch/optim/\w+\.py\(\d+\): _single_tensor_\w+$",
    ),
)
