"""Sequences of uneven length: in each step another rank is the straggler.

Each rank pads its batch to its longest sequence and has as much to compute as that is long. Where
the ranks draw their batches blindly, each step takes as long as its longest batch. Where all
batches are sorted by length first and the ranks take neighbors, they compute as much in all, and no
rank waits.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.functional import gelu, linear, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

from tracelab.workloads.runner import run

WIDTH, HEADS, SEQUENCES = 2048, 16, 8
BATCHES = 8  # of each rank, again and again: a block of steps that is timed goes through all
SHORTEST, LONGEST, MULTIPLE = 512, 4096, 64  # tokens


class Transformer(torch.nn.Module):
    """One layer, without norms: few kernels."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)]
        self.weights = torch.nn.ParameterList(0.02 * torch.randn(shape) for shape in shapes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of [sequences, tokens, width] the same shape."""
        into, out_of, up, down = self.weights
        heads = linear(tokens, into).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        tokens = tokens + linear(seen.transpose(1, 2).flatten(2), out_of)
        return tokens + linear(gelu(linear(tokens, up)), down)


def lengths_drawn(rank: int, ranks: int) -> list[int]:
    """DEFECT: each rank takes the batches that come."""
    return _all_lengths(ranks)[rank::ranks]


def lengths_bucketed(rank: int, ranks: int) -> list[int]:
    """FIX: in each step the ranks take batches of similar length, in turn the longest of them."""
    by_length = sorted(_all_lengths(ranks))
    lengths = [by_length[ranks * step + (rank + step) % ranks] for step in range(BATCHES)]
    random.Random(1).shuffle(lengths)  # the same order on all ranks
    return lengths


def _all_lengths(ranks: int) -> list[int]:
    """The longest sequence of each batch, in the order in which they come."""
    draw = random.Random(7)
    count = ranks * BATCHES
    return [draw.randrange(SHORTEST, LONGEST + 1, MULTIPLE) for _ in range(count)]


def train(*, bucketed: bool) -> Iterator[None]:
    """Forward, backward and update of a small transformer, over batches of several lengths."""
    model = DistributedDataParallel(Transformer().to("cuda", torch.bfloat16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    choose = lengths_bucketed if bucketed else lengths_drawn
    lengths = choose(dist.get_rank(), dist.get_world_size())
    tokens = torch.randn(SEQUENCES, LONGEST, WIDTH, device="cuda", dtype=torch.bfloat16)
    while True:
        for length in lengths:
            optimizer.zero_grad(set_to_none=True)
            model(tokens[:, :length].contiguous()).square().mean().backward()
            optimizer.step()
            yield


VARIANTS = {
    "drawn": lambda: train(bucketed=False),
    "bucketed": lambda: train(bucketed=True),
}

if __name__ == "__main__":
    sys.exit(run("uneven_lengths", VARIANTS))
