"""nn.DataParallel sends the model to the other GPU in each step, and launches from one process.

Its threads take turns at the interpreter's lock, so two GPUs hardly compute at once. A network of
layers this small is faster on one of them; two processes with DistributedDataParallel use both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 1024, 4, 16384


def train(*, gpus: int) -> Iterator[None]:
    """Forward, backward and update of one batch, on so many GPUs."""
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    network = torch.nn.Sequential(*layers).cuda()
    torch.backends.cuda.matmul.allow_tf32 = True
    model = torch.nn.DataParallel(network, device_ids=[0, 1]) if gpus > 1 else network
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(ROWS, WIDTH, device="cuda")
    while True:
        optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        optimizer.step()
        yield


VARIANTS = {
    "data_parallel": lambda: train(gpus=2),  # DEFECT
    "one_gpu": lambda: train(gpus=1),  # FIX
}

if __name__ == "__main__":
    sys.exit(run("data_parallel", VARIANTS, stacks=True))
