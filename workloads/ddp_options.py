"""What a training loop with DistributedDataParallel pays for things it does not need.

One network of many small layers, as real ones have them: once as it should be, and once with each
of five things that cost the ranks a collective or more in every step. A bucket for each gradient
makes 16 all-reduces of two. A search for unused parameters walks the whole graph, and asks the
other ranks. Running statistics are sent to all ranks before each forward pass, though each has its
own. A loss that is averaged and read, or a barrier, keeps the CPU from running ahead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 512, 8, 16384
SELDOM = 100  # steps between two readings of the loss


class Network(torch.nn.Module):
    """Products, each with a norm over the batch that keeps running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [
            (
                torch.nn.Parameter(torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH**0.5),
                torch.nn.Parameter(torch.zeros(WIDTH, device="cuda")),
                torch.zeros(WIDTH, device="cuda"),
                torch.ones(WIDTH, device="cuda"),
            )
            for _ in range(LAYERS)
        ]
        for number, (weight, bias, mean, variance) in enumerate(self.layers):
            self.register_parameter(f"weight_{number}", weight)
            self.register_parameter(f"bias_{number}", bias)
            self.register_buffer(f"mean_{number}", mean)
            self.register_buffer(f"variance_{number}", variance)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """``[rows, WIDTH]`` to the same shape."""
        for weight, bias, mean, variance in self.layers:
            rows = torch.nn.functional.linear(rows, weight, bias)
            rows = torch.nn.functional.batch_norm(rows, mean, variance, training=True)
        return rows


def train(
    *,
    read_every: int = SELDOM,
    barrier: bool = False,
    broadcast_buffers: bool = False,
    set_to_none: bool = True,
    **options: Any,
) -> Iterator[None]:
    """Forward, backward and update of the network."""
    torch.backends.cuda.matmul.allow_tf32 = True
    model = DistributedDataParallel(Network(), broadcast_buffers=broadcast_buffers, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(ROWS, WIDTH, device="cuda")
    steps = 0
    while True:
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % read_every == 0:
            mean = loss.detach()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            mean.item()
        if barrier:
            dist.barrier()
        yield


VARIANTS = {
    "as_needed": train,
    "tiny_buckets": lambda: train(bucket_cap_mb=0.001),
    "unused_searched": lambda: train(find_unused_parameters=True),
    "buffers_sent": lambda: train(broadcast_buffers=True),
    "loss_reduced": lambda: train(read_every=1),
    "barrier": lambda: train(barrier=True),
    "bucket_views": lambda: train(gradient_as_bucket_view=True, set_to_none=False),
}

if __name__ == "__main__":
    sys.exit(run("ddp_options", VARIANTS, stacks=True))
