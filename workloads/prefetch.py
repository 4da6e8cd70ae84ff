"""Copy the next batch to the GPU while the present one is computed.

A copy overlaps with compute only if it is in a stream of its own *and* its host memory is pinned
*and* the host does not wait for it. Each variant below breaks one of these, the last none.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import torch

from workloads.runner import run

BATCH = (8192, 2048)  # float32: 64 MiB
WIDTH = 2048
LAYERS = 12


def batches(*, pinned: bool) -> Iterator[torch.Tensor]:
    """A few host batches, over and over."""
    return itertools.cycle([torch.randn(BATCH, pin_memory=pinned) for _ in range(3)])


def model() -> torch.nn.Module:
    """Matrix products that take about as long as one pinned copy."""
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch.nn.Sequential(*layers).cuda().requires_grad_(False)


def one_stream(*, pinned: bool = True) -> Iterator[None]:
    """DEFECT: copy and compute share a stream, so they run one after the other."""
    net = model()
    for batch in batches(pinned=pinned):
        net(batch.to("cuda", non_blocking=True))
        yield


def copy_stream(*, pinned: bool = True, synchronize: bool = False) -> Iterator[None]:
    """FIX: the copy of the next batch runs in its own stream during this batch's compute."""
    net = model()
    copies = torch.cuda.Stream()
    source = batches(pinned=pinned)

    def load() -> torch.Tensor:
        with torch.cuda.stream(copies):
            return next(source).to("cuda", non_blocking=True)

    upcoming = load()
    while True:
        compute = torch.cuda.current_stream()
        compute.wait_stream(copies)  # this batch's copy only: the next is not yet launched
        batch, upcoming = upcoming, load()
        batch.record_stream(compute)
        net(batch)
        if synchronize:
            compute.synchronize()
        yield


VARIANTS = {
    "one_stream_pinned": one_stream,
    "one_stream_pageable": lambda: one_stream(pinned=False),
    "copy_stream_pageable": lambda: copy_stream(pinned=False),
    "copy_stream_synchronize": lambda: copy_stream(synchronize=True),
    "copy_stream_pinned": copy_stream,
}

if __name__ == "__main__":
    sys.exit(run("prefetch", VARIANTS, stacks=True))
