"""A DataLoader that cannot keep up: without worker processes, with too few, with enough.

Making a sample takes the processor some time. One process makes a batch in about twice the time of
a step, so that three are enough.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

ROWS, PIXELS = 16, 8192
NOISE = 32  # numbers drawn for each
SIZE, PRODUCTS = 8192, 5


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that take some work to make: float32[pixels]."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(PIXELS, NOISE).mean(1)


def train(workers: int) -> Iterator[None]:
    """Compute with batches of a DataLoader; each is copied from pinned memory."""
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Samples(), ROWS, num_workers=workers, pin_memory=True)
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5
    for batch in loader:
        features = batch.to("cuda", non_blocking=True).bfloat16().repeat(SIZE // ROWS, 1)
        for _ in range(PRODUCTS):
            features = features @ matrix
        yield


VARIANTS = {
    "no_workers": lambda: train(0),
    "one_worker": lambda: train(1),
    "workers": lambda: train(6),
}

if __name__ == "__main__":
    sys.exit(run("loading", VARIANTS, stacks=True))
