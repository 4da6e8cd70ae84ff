"""Collectives beside compute, waited for at once or only when their result is needed.

A synchronous collective makes the current stream wait for it: compute that does not need its result
waits as well. With `async_op=True` the wait can stand where the result is used, and the collective
runs beside all that comes before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist

from tracelab.workloads.runner import run

NUMBERS = 64 * 1024 * 1024  # bfloat16: 128 MiB
SIZE, PRODUCTS = 8192, 4

Collective = Callable[..., dist.Work | None]


def all_reduce(whole: torch.Tensor, _part: torch.Tensor, **options: bool) -> dist.Work | None:
    return dist.all_reduce(whole, **options)


def broadcast(whole: torch.Tensor, _part: torch.Tensor, **options: bool) -> dist.Work | None:
    return dist.broadcast(whole, src=0, **options)


def reduce_scatter(whole: torch.Tensor, part: torch.Tensor, **options: bool) -> dist.Work | None:
    return dist.reduce_scatter_tensor(part, whole, **options)


def all_gather(whole: torch.Tensor, part: torch.Tensor, **options: bool) -> dist.Work | None:
    return dist.all_gather_into_tensor(whole, part, **options)


def beside_compute(collective: Collective, *, waits_at_once: bool) -> Iterator[None]:
    """A collective and matrix products that do not need its result."""
    whole = torch.zeros(NUMBERS, device="cuda", dtype=torch.bfloat16)
    part = torch.zeros(NUMBERS // dist.get_world_size(), device="cuda", dtype=torch.bfloat16)
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    while True:
        work = collective(whole, part, async_op=not waits_at_once)
        for _ in range(PRODUCTS):
            matrix @ matrix
        if work is not None:
            work.wait()  # the stream waits here, the CPU does not
        whole.mul_(1)  # needs the result
        yield


COLLECTIVES = (all_reduce, broadcast, reduce_scatter, all_gather)
VARIANTS = {
    f"{collective.__name__}{'_sync' if waits else '_async'}": partial(
        beside_compute, collective, waits_at_once=waits
    )
    for collective in COLLECTIVES
    for waits in (True, False)
}

if __name__ == "__main__":
    sys.exit(run("collectives", VARIANTS, stacks=True))
