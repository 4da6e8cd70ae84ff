"""A healthy training loop, and the same loop with one stall of the CPU among its steps.

The work of a step is launched long before the GPU comes to it, so the GPU is never idle. Then one
step reads an option for the first time, and reading it takes longer than the work in the queue. The
GPU is idle for the rest of it. That happens once: taking it out of the loop makes no step faster.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import FIRST_RECORDED_STEP, run

WIDTH, ROWS, LAYERS = 4096, 8192, 8
READING_S = 0.06  # longer than the steps that are in the queue by then
STALLED_STEP = FIRST_RECORDED_STEP + 2


class Options:
    """Options that are read from a slow disk when they are first asked for."""

    def __getattr__(self, name: str) -> float:
        """Read an option and keep it: Python asks only for what is not there yet."""
        time.sleep(READING_S)
        setattr(self, name, 1e-3)
        return 1e-3


def train(*, stalled_step: int | None = None) -> Iterator[None]:
    """Forward, backward and update; one step may ask for an option that no other asked for."""
    layers = [
        torch.nn.Linear(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)
    ]
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    batch = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    options, step = Options(), 0
    while True:
        if step == stalled_step:
            for group in optimizer.param_groups:
                group["lr"] = options.learning_rate
        network(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        yield


VARIANTS = {"once": lambda: train(stalled_step=STALLED_STEP), "never": train}

if __name__ == "__main__":
    sys.exit(run("hiccup", VARIANTS, stacks=True))
