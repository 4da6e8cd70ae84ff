"""One rank's Python makes all ranks wait: it launches late, and its GPU has nothing queued.

The CPU reads the loss in each step, so that its GPU's queue is empty when the next step begins.
Python code that only one rank runs then, here a checksum of the batch, keeps its own GPU idle, and
every other rank in the collective. No kernel takes longer on any rank.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from tracelab.workloads.runner import run

VALUES, PASSES, LAST_PASSES = 1 << 29, 8, 2  # memory limits them: no GPU takes longer
GRADIENTS, SAMPLES = 1 << 25, 100_000
LATE_RANK = 0


def train(*, has_checksum: bool) -> Iterator[None]:
    """Compute, average and read the result; one rank computes on its CPU first."""
    activations = torch.ones(VALUES, device="cuda", dtype=torch.bfloat16)
    gradients = torch.zeros(GRADIENTS, device="cuda", dtype=torch.bfloat16)
    while True:
        if has_checksum and dist.get_rank() == LATE_RANK:
            checksum(SAMPLES)  # DEFECT: the others have launched by now
        for _ in range(PASSES):
            activations.mul_(1)
        work = dist.all_reduce(gradients, async_op=True)
        for _ in range(LAST_PASSES):
            activations.mul_(1)
        work.wait()  # the stream waits here, the CPU does not
        gradients[0].item()
        yield


def checksum(count: int) -> int:
    """Some milliseconds of Python."""
    total = 0
    for sample in range(count):
        total = (31 * total + sample) & 0xFFFF
    return total


VARIANTS = {
    "checksum": lambda: train(has_checksum=True),
    "even": lambda: train(has_checksum=False),
}

if __name__ == "__main__":
    sys.exit(run("late_launch", VARIANTS, stacks=True))
