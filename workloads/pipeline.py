"""Pipeline parallelism: the bubble shrinks with the number of microbatches.

Each rank holds one stage. A stage has nothing to do until the first microbatch reaches it, and
nothing after its last has left: of p stages and m microbatches (p-1)/(m+p-1) of the schedule is
lost at least, with GPipe as with 1F1B (which saves memory, not time).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 4096, 4, 2048  # rows of one microbatch


def train(
    schedule: type[ScheduleGPipe] | type[Schedule1F1B], *, microbatches: int, rows: int = ROWS
) -> Iterator[None]:
    """Forward, backward and update of one stage a rank."""
    rank, stages = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device())
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    network = torch.nn.Sequential(*layers).to(device, torch.bfloat16)
    stage = PipelineStage(network, rank, stages, device)
    steps = schedule(
        stage,
        n_microbatches=microbatches,
        loss_fn=lambda output, target: torch.nn.functional.mse_loss(output.float(), target),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    rows_of_batch = rows * microbatches
    batch = torch.randn(rows_of_batch, WIDTH, device=device, dtype=torch.bfloat16)
    target = torch.zeros(rows_of_batch, WIDTH, device=device)
    while True:
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            steps.step(batch)
        elif rank == stages - 1:
            steps.step(target=target)
        else:
            steps.step()
        optimizer.step()
        yield


VARIANTS = {
    f"{name}_{size}": (lambda schedule=schedule, count=count: train(schedule, microbatches=count))
    for name, schedule in (("gpipe", ScheduleGPipe), ("1f1b", Schedule1F1B))
    for size, count in (("few", 4), ("many", 16))
} | {"1f1b_halves": lambda: train(Schedule1F1B, microbatches=8, rows=ROWS // 2)}

if __name__ == "__main__":
    sys.exit(run("pipeline", VARIANTS))
