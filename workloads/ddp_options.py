"""What a training loop with DistributedDataParallel pays for things it does not need.

One network of many small layers, as real ones have them: once as it should be, and once with each
of five things that cost the ranks a collective or more in every step. A bucket for each gradient
makes 48 all-reduces of two. A search for unused parameters walks the whole graph, and asks the
other ranks. Running statistics are sent to all ranks before each forward pass, though each has its
own. A loss that is averaged and read, or a barrier, keeps the host from running ahead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 512, 12, 16384
SELDOM = 100  # steps between two readings of the loss


def train(
    *,
    read_every: int = SELDOM,
    barrier: bool = False,
    broadcast_buffers: bool = False,
    set_to_none: bool = True,
    **options: Any,
) -> Iterator[None]:
    """Forward, backward and update of a network with batch norms."""
    device = torch.device("cuda", torch.cuda.current_device())
    layers = [
        layer
        for _ in range(LAYERS)
        for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH))
    ]
    network = torch.nn.Sequential(*layers).to(device)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = DistributedDataParallel(
        network, device_ids=[device.index], broadcast_buffers=broadcast_buffers, **options
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(ROWS, WIDTH, device=device)
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
