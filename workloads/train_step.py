"""A small transformer's training step with the usual sins, and the same step cleaned.

The sins: batches in pageable memory, moved when they are needed; a loss read in every step for the
log; a gradient norm compared on the CPU; a boolean mask, whose size the CPU must know; a buffer
made on the CPU in each step; the allocator's memory given back to CUDA after each step, only to be
asked for again. Each makes the CPU wait for the GPU, and then the GPU for the CPU.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import torch
from torch.profiler import record_function

from tracelab.workloads.runner import run

VOCABULARY, WIDTH, HEADS, LAYERS = 8192, 1024, 16, 4
ROWS, LENGTH = 32, 512
PADDING = 0


class Network(torch.nn.Module):
    """Embedding, encoder layers and a head that shares its width."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Int64[rows, length] tokens to float[rows, length, vocabulary] scores."""
        return self.head(self.layers(self.embed(tokens)))


def batches(*, pinned: bool) -> Iterator[torch.Tensor]:
    """A few host batches, over and over; some tokens are padding."""
    made = [torch.randint(0, VOCABULARY, (ROWS, LENGTH)) for _ in range(3)]
    return itertools.cycle([batch.pin_memory() if pinned else batch for batch in made])


def sinful() -> Iterator[None]:
    """DEFECT: six places where the CPU waits."""
    network = Network().cuda()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    log = []
    for host_tokens in batches(pinned=False):
        tokens = host_tokens.to("cuda")
        with record_function("forward"), torch.autocast("cuda", torch.bfloat16):
            scores = network(tokens)
        known = tokens != PADDING
        losses = torch.nn.functional.cross_entropy(
            scores[known].float(), tokens[known], reduction="none"
        )
        weights = torch.ones(losses.shape[0]).to("cuda")
        loss = (losses * weights).mean()
        with record_function("backward"):
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        if norm < 1e6:  # the CPU must know the norm to decide
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        log.append(loss.item())
        torch.cuda.empty_cache()
        yield


def clean() -> Iterator[None]:
    """FIX: nothing waits; the log is read once, after the last step."""
    network = Network().cuda()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    copies = torch.cuda.Stream()
    source = batches(pinned=True)
    log: list[torch.Tensor] = []

    def load() -> torch.Tensor:
        with torch.cuda.stream(copies):
            return next(source).to("cuda", non_blocking=True)

    upcoming = load()
    while True:
        compute = torch.cuda.current_stream()
        compute.wait_stream(copies)
        tokens, upcoming = upcoming, load()
        tokens.record_stream(compute)
        with record_function("forward"), torch.autocast("cuda", torch.bfloat16):
            scores = network(tokens)
        loss = torch.nn.functional.cross_entropy(
            scores.float().flatten(0, 1), tokens.flatten(), ignore_index=PADDING
        )
        with record_function("backward"):
            loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        log.append(loss.detach())
        yield


VARIANTS = {"sinful": sinful, "clean": clean}

if __name__ == "__main__":
    sys.exit(run("train_step", VARIANTS, stacks=True))
