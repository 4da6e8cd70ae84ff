"""A delay in the backward pass of one rank, which its step time does not show.

DDP averages the gradients in buckets, from the last layer to the first, and in each all-reduce the
ranks wait for each other. Whatever holds one rank up between two buckets holds up all of them:
their steps take equally long, and only who came last to which all-reduce tells whose delay it was.
One rank that logs the histogram of a gradient waits for its GPU, and then formats numbers while the
GPU has nothing to do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 4096, 4, 16384
SLOW_RANK, SLOW_LAYER = 0, 2
BINS = 1 << 15

OnGradient = Callable[[torch.Tensor], None]


class Network(torch.nn.Module):
    """Products, and on one rank something that happens to the gradient between two of them."""

    def __init__(self, on_gradient: OnGradient | None) -> None:
        super().__init__()
        shape = (LAYERS, WIDTH, WIDTH)
        weights = torch.randn(shape, device="cuda", dtype=torch.bfloat16) / WIDTH**0.5
        self.weights = torch.nn.ParameterList(weights.unbind())
        self.on_gradient = on_gradient

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """All products."""
        for layer, weight in enumerate(self.weights):
            if self.on_gradient is not None and layer == SLOW_LAYER:
                rows.register_hook(self.on_gradient)
            rows = rows @ weight
        return rows


def train(on_gradient: OnGradient | None = None) -> Iterator[None]:
    """Forward, backward and update; one rank does more with the gradient of one layer."""
    slow = dist.get_rank() == SLOW_RANK
    network = Network(on_gradient if slow else None)
    bucket_mb = WIDTH * WIDTH * network.weights[0].element_size() / (1 << 20)
    model = DistributedDataParallel(network, bucket_cap_mb=bucket_mb)
    batch = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    while True:
        model(batch).square().mean().backward()
        with torch.no_grad():
            for weight in network.weights:
                weight.sub_(weight.grad, alpha=1e-4)
                weight.grad = None
        yield


def log_histogram(gradient: torch.Tensor) -> None:
    """DEFECT: wait for the gradient, and format it while the GPU waits for the next launch."""
    counts = torch.histc(gradient.float(), BINS).tolist()
    json.dumps(counts)


VARIANTS = {
    "even": train,
    "logs_gradient": lambda: train(log_histogram),
}

if __name__ == "__main__":
    sys.exit(run("backward_delay", VARIANTS, stacks=True))
