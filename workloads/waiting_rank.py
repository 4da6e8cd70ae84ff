"""A rank that waits for its peer inside one collective of a step, and not inside its twins.

A step averages two small buffers, twice. Where both ranks arrive together each takes microseconds.
Before the second time one rank has more to compute: the other's next collective lasts until it has
come. The file of the one that waits shows it, because the same collective is fast elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from tracelab.workloads.runner import run

VALUES, ROUNDS, PASSES = 1 << 30, 2, 6
AVERAGED_VALUES = 1 << 20
BUSIER_RANK = 1


def train(*, extra_passes: int) -> Iterator[None]:
    """Compute and average, round after round; one rank computes more in the last round."""
    # What memory limits takes as long on one GPU as on the other; products do not.
    activations = torch.ones(VALUES, device="cuda", dtype=torch.bfloat16)
    means, squares = torch.zeros(2, AVERAGED_VALUES, device="cuda")
    while True:
        for round_number in range(ROUNDS):
            is_busier = dist.get_rank() == BUSIER_RANK and round_number == ROUNDS - 1
            for _ in range(PASSES + (extra_passes if is_busier else 0)):
                activations.mul_(1)
            dist.all_reduce(means)
            dist.all_reduce(squares)
        yield


VARIANTS = {
    "uneven": lambda: train(extra_passes=PASSES),
    "even": lambda: train(extra_passes=0),
}

if __name__ == "__main__":
    sys.exit(run("waiting_rank", VARIANTS, stacks=True))
