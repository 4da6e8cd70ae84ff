"""Two process groups whose collectives overlap in time: the long one does not explain the wait.

Each group has a stream of its own. While the gradients are averaged in one group, the ranks add up
something small in the other. Where one rank comes late to the small one, the other waits in it,
beside a long all-reduce in which nobody waits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from tracelab.workloads.runner import run

VALUES = 1 << 29  # what memory limits takes as long on one GPU as on the other
GRADIENTS, STATISTICS = 1 << 29, 1 << 22
PASSES, LATE_RANK = 3, 1


def train(*, extra_passes: int) -> Iterator[None]:
    """Two all-reduces beside compute; one rank has more to compute between them."""
    late = dist.get_rank() == LATE_RANK
    data_parallel, expert_parallel = dist.new_group(), dist.new_group()
    activations = torch.ones(VALUES, device="cuda", dtype=torch.bfloat16)
    gradients = torch.zeros(GRADIENTS, device="cuda", dtype=torch.bfloat16)
    statistics = torch.zeros(STATISTICS, device="cuda")
    while True:
        for _ in range(PASSES):
            activations.mul_(1)
        averaged = dist.all_reduce(gradients, group=data_parallel, async_op=True)
        for _ in range(PASSES + (extra_passes if late else 0)):
            activations.mul_(1)
        exchanged = dist.all_reduce(statistics, group=expert_parallel, async_op=True)
        exchanged.wait()
        for _ in range(PASSES):
            activations.mul_(1)
        averaged.wait()
        yield


VARIANTS = {
    "one_late": lambda: train(extra_passes=2 * PASSES),
    "even": lambda: train(extra_passes=0),
}

if __name__ == "__main__":
    sys.exit(run("two_groups", VARIANTS))
