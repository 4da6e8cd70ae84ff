"""One slow rank: when the others wait for it, and when its slowness costs nothing.

In each step the ranks average a buffer beside their last products, as a bucket of gradients is
averaged beside the backward pass: even ranks never notice. Half as much work again on one rank
keeps all others waiting in the collective. A slow loader does so where the CPU reads a result in
each step and so has no work queued; where the queue is full, the GPU never notices.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from tracelab.workloads.runner import run

SIZE, PRODUCTS, LAST_PRODUCTS = 8192, 9, 3
SLOW_RANK = 0


def train(
    *, extra_products: int = 0, loading_s: float = 0, reads_result: bool = False
) -> Iterator[None]:
    """Load, compute and average; one rank computes or loads longer."""
    slow = dist.get_rank() == SLOW_RANK
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    gradients = torch.zeros(SIZE * SIZE, device="cuda", dtype=torch.bfloat16)
    while True:
        with torch.profiler.record_function("data_loading"):
            time.sleep(loading_s if slow else 0)
        for _ in range(PRODUCTS + (extra_products if slow else 0)):
            matrix @ matrix
        work = dist.all_reduce(gradients, async_op=True)
        for _ in range(LAST_PRODUCTS):
            matrix @ matrix
        work.wait()  # the stream waits here, the CPU does not
        if reads_result:
            gradients[0].item()
        yield


VARIANTS = {
    "even": train,
    "more_work": lambda: train(extra_products=(PRODUCTS + LAST_PRODUCTS) // 2),
    "slow_loader": lambda: train(loading_s=0.006, reads_result=True),
    "slow_loader_hidden": lambda: train(loading_s=0.006),
}

if __name__ == "__main__":
    sys.exit(run("straggler", VARIANTS, stacks=True))
