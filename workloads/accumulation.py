"""Gradient accumulation: DDP averages the gradients of every microbatch, unless it is told not to.

Only the last backward pass before the optimizer needs the other ranks' gradients. Without
``no_sync()`` each one sends them all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS, MICROBATCHES = 4096, 4, 1024, 2


class Network(torch.nn.Module):
    """Products, one after another."""

    def __init__(self) -> None:
        super().__init__()
        shape = (LAYERS, WIDTH, WIDTH)
        weights = torch.randn(shape, device="cuda") / WIDTH**0.5
        self.layers = [torch.nn.Parameter(weight) for weight in weights.unbind()]
        for number, weight in enumerate(self.layers):
            self.register_parameter(f"weight_{number}", weight)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """``[rows, WIDTH]`` to the same shape."""
        for weight in self.layers:
            rows = rows @ weight
        return rows


def train(*, waits_for_last: bool) -> Iterator[None]:
    """Forward and backward of each microbatch, then one update."""
    torch.backends.cuda.matmul.allow_tf32 = True
    model = DistributedDataParallel(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    microbatches = torch.randn(MICROBATCHES, ROWS, WIDTH, device="cuda").unbind()
    while True:
        optimizer.zero_grad(set_to_none=True)
        for batch in microbatches:
            is_last = batch is microbatches[-1]
            with model.no_sync() if waits_for_last and not is_last else nullcontext():
                (model(batch).square().mean() / MICROBATCHES).backward()
        optimizer.step()
        yield


VARIANTS = {
    "every_microbatch": lambda: train(waits_for_last=False),  # DEFECT
    "no_sync": lambda: train(waits_for_last=True),  # FIX
}

if __name__ == "__main__":
    sys.exit(run("accumulation", VARIANTS, stacks=True))
