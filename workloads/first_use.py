"""What a program does for the first time, in the steps that are recorded.

Without a warm-up the first recorded step loads the kernels, makes the libraries' handles and asks
CUDA for memory; the steps after it are healthy, and so is the program. Attention over a cache that
grows is another matter: cuDNN plans it for each length that it has not met, which is each step's.
Over a cache of one length it is planned once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

CHANNELS, SIDE, IMAGES, CONVOLUTIONS = 256, 64, 64, 12
SEQUENCES, HEADS, HEAD_WIDTH, LAYERS = 128, 32, 128, 8
PROMPT, LONGEST = 4096, 4224


def train() -> Iterator[None]:
    """A convolutional network; its first `yield` comes before any of its work."""
    layers = [torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(CONVOLUTIONS)]
    network = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    shape = (IMAGES, CHANNELS, SIDE, SIDE)
    images = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
    yield
    while True:
        network(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


def decode(*, grows: bool) -> Iterator[None]:
    """Decode a token a step; all layers share a cache of keys and values, to save memory."""
    width = HEADS * HEAD_WIDTH
    made_on = {"device": "cuda", "dtype": torch.bfloat16}
    projections = [
        torch.nn.Linear(width, 3 * width, bias=False, **made_on).requires_grad_(False)
        for _ in range(LAYERS)
    ]
    keys, values = torch.zeros(2, SEQUENCES, HEADS, LONGEST, HEAD_WIDTH, **made_on)
    tokens = torch.randn(SEQUENCES, width, **made_on)
    positions = torch.arange(LONGEST, device="cuda")
    for length in range(PROMPT, LONGEST):
        attended = length + 1 if grows else LONGEST
        mask = None if grows else (positions <= length).expand(SEQUENCES, HEADS, 1, LONGEST)
        hidden = tokens
        for project in projections:
            query, key, value = project(hidden).view(SEQUENCES, 3, HEADS, HEAD_WIDTH).unbind(1)
            keys[:, :, length], values[:, :, length] = key, value
            result = torch.nn.functional.scaled_dot_product_attention(
                query[:, :, None], keys[:, :, :attended], values[:, :, :attended], attn_mask=mask
            )
            hidden = result.reshape(SEQUENCES, width)
        yield


VARIANTS = {
    "warm_up": train,
    "settled": train,
    "growing": lambda: decode(grows=True),
    "planned_once": lambda: decode(grows=False),
}

if __name__ == "__main__":
    sys.exit(run("first_use", VARIANTS, stacks=True, cold={"warm_up"}))
