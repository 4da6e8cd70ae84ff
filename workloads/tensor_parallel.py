"""Tensor parallelism: the ranks share each layer, and the larger share sets the pace.

Each rank holds some columns of a layer's first matrix and the rows of its second that belong to
them; an all-reduce adds the parts up, and nothing can go on beside it. Columns that are shared out
unevenly make the rank with fewer of them wait in each all-reduce. (Real jobs come to this where
attention heads, experts or the vocabulary do not divide by the number of ranks.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from tracelab.workloads.runner import run

WIDTH, ROWS, LAYERS, SHARES = 4096, 4096, 4, 16
COLUMNS = 2048  # of one share
LARGER_RANK = 0


def infer(*, extra_shares: int) -> Iterator[None]:
    """Layers whose matrices the ranks share; one rank may hold more than the others."""
    ranks = dist.get_world_size()
    is_larger = dist.get_rank() == LARGER_RANK
    shares = SHARES // ranks + (extra_shares * (ranks - 1) if is_larger else -extra_shares)
    up = torch.randn(WIDTH, shares * COLUMNS, device="cuda", dtype=torch.bfloat16) / WIDTH**0.5
    down = torch.randn(shares * COLUMNS, WIDTH, device="cuda", dtype=torch.bfloat16) / WIDTH
    tokens = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    while True:
        rows = tokens
        for _ in range(LAYERS):
            rows = torch.nn.functional.gelu(rows @ up) @ down
            dist.all_reduce(rows)
        yield


VARIANTS = {
    "uneven": lambda: infer(extra_shares=2),
    "even": lambda: infer(extra_shares=0),
}

if __name__ == "__main__":
    sys.exit(run("tensor_parallel", VARIANTS))
