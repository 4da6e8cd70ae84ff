"""Copy the next batch to the GPU while the present one is computed.

A copy overlaps with compute only if it is in a stream of its own *and* its host memory is pinned
*and* the CPU does not wait for it. Each variant below breaks one of these, the last none.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

WIDTH = 2048
ROWS, LAYERS = 8192, 12  # a float32 batch of 64 MiB, and compute of twice its pinned copy
LOADED_ROWS, LOADED_LAYERS = 4096, 96  # what a few worker processes can keep up with


def batches(*, pinned: bool) -> Iterator[torch.Tensor]:
    """A few host batches, over and over."""
    return itertools.cycle([torch.randn(ROWS, WIDTH, pin_memory=pinned) for _ in range(3)])


def model(layers: int) -> torch.nn.Module:
    """A chain of matrix products."""
    chain = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)]
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch.nn.Sequential(*chain).cuda().requires_grad_(False)


def one_stream(source: Iterator[torch.Tensor], *, layers: int = LAYERS) -> Iterator[None]:
    """DEFECT: copy and compute share a stream, so they run one after the other."""
    net = model(layers)
    for batch in source:
        net(batch.to("cuda", non_blocking=True))
        yield


def copy_stream(
    source: Iterator[torch.Tensor], *, layers: int = LAYERS, synchronize: bool = False
) -> Iterator[None]:
    """FIX: the copy of the next batch runs in its own stream during this batch's compute."""
    net = model(layers)
    copies = torch.cuda.Stream()

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


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Rows made on the fly."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        """A whole batch at once, as a good data set gives it."""
        return torch.rand(len(indices), WIDTH)


def loader(*, pinned: bool, workers: int = 8) -> Iterator[torch.Tensor]:
    """Batches from worker processes, or from this one without any."""
    return iter(
        torch.utils.data.DataLoader(
            Samples(),
            batch_size=LOADED_ROWS,
            num_workers=workers,
            pin_memory=pinned,
            collate_fn=lambda batch: batch,
            persistent_workers=workers > 0,
        )
    )


VARIANTS = {
    "one_stream_pinned": lambda: one_stream(batches(pinned=True)),
    "one_stream_pageable": lambda: one_stream(batches(pinned=False)),
    "copy_stream_pageable": lambda: copy_stream(batches(pinned=False)),
    "copy_stream_synchronize": lambda: copy_stream(batches(pinned=True), synchronize=True),
    "copy_stream_pinned": lambda: copy_stream(batches(pinned=True)),
    "loader_alone": lambda: copy_stream(loader(pinned=True, workers=0), layers=LOADED_LAYERS),
    "loader": lambda: one_stream(loader(pinned=False), layers=LOADED_LAYERS),
    "loader_pinned": lambda: copy_stream(loader(pinned=True), layers=LOADED_LAYERS),
}

if __name__ == "__main__":
    sys.exit(run("prefetch", VARIANTS, stacks=True))
