"""FSDP2: gather the next layer's parameters while the present layer computes, or not.

`fully_shard` gathers each layer's parameters before the layer runs. By default the gather of the
next layer is launched early enough to run beside the present one; without that, every layer waits
for its own. A loss that is read in each step makes the CPU wait for the GPU, which then waits for
the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch.distributed.fsdp import FSDPModule, fully_shard

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 4096, 8, 16384


class Block(torch.nn.Module):
    """Two matrix products with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = torch.nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.narrow = torch.nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[rows, WIDTH]`` to the same shape."""
        return x + self.narrow(torch.nn.functional.gelu(self.widen(x)))


def train(*, prefetch: bool = True, read_loss: bool = False) -> Iterator[None]:
    """Forward, backward and update of a sharded network."""
    blocks = [Block().to("cuda", torch.bfloat16) for _ in range(LAYERS)]
    network = torch.nn.Sequential(*blocks)
    for block in blocks:
        fully_shard(block)
    fully_shard(network)
    sharded = [block for block in network if isinstance(block, FSDPModule)]
    for i, block in enumerate(sharded):
        # One layer ahead in both directions; none means that a layer gathers only for itself.
        block.set_modules_to_forward_prefetch(sharded[i + 1 : i + 2] if prefetch else [])
        block.set_modules_to_backward_prefetch(sharded[max(0, i - 1) : i] if prefetch else [block])
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    batch = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad(set_to_none=True)
        loss = network(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        if read_loss:
            loss.item()
        yield


VARIANTS = {
    "prefetch": train,
    "no_prefetch": lambda: train(prefetch=False),
    "item": lambda: train(read_loss=True),
}

if __name__ == "__main__":
    sys.exit(run("fsdp", VARIANTS))
