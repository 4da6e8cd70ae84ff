"""Two models on two GPUs: the second needs what the first made, batch by batch.

The forum's question: CUDA is asynchronous, so why does the training of two models that only meet in
the forward pass take as long as both together? Not for the order of the loop: launches run ahead,
so even the plain loop works on two batches at once, as long as nothing waits on the CPU. One
`.item()` undoes that in any order, and of models too small to keep a GPU busy longer than their
launch takes, nothing overlaps at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

BATCHES = 4  # per step
LARGE, TINY = 4096, 64


class Stage:
    """A model on its own GPU, trained on its own loss; its output feeds the next stage."""

    def __init__(self, device: int, width: int) -> None:
        self.device = torch.device("cuda", device)
        layers = [torch.nn.Linear(width, width) for _ in range(4)]
        self.model = torch.nn.Sequential(*layers).to(self.device, torch.bfloat16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def train(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One forward, backward and update; returns the detached output and the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        output = self.model(batch.to(self.device, non_blocking=True))
        loss = output.float().square().mean()
        loss.backward()
        self.optimizer.step()
        return output.detach(), loss


def batches(width: int) -> list[torch.Tensor]:
    """What a step is trained on, already on the first GPU."""
    return [torch.randn(8192, width, device="cuda:0", dtype=torch.bfloat16) for _ in range(BATCHES)]


def pipelined(*, width: int = LARGE, read_loss: bool = False) -> Iterator[None]:
    """Launch the first model's next batch before the second model's present one."""
    first, second, data = Stage(0, width), Stage(1, width), batches(width)
    output = None
    while True:
        for batch in data:
            ready, (output, _) = output, first.train(batch)
            if ready is not None:
                _, loss = second.train(ready)
                if read_loss:
                    loss.item()
        yield


def pipelined_streams() -> Iterator[None]:
    """FIX: the output travels in streams of its own, beside both models' next batches."""
    first, second, data = Stage(0, LARGE), Stage(1, LARGE), batches(LARGE)
    sides = [torch.cuda.Stream(device) for device in (0, 1)]

    def send(output: torch.Tensor) -> torch.Tensor:
        sides[0].wait_stream(torch.cuda.current_stream(0))
        with torch.cuda.stream(sides[0]), torch.cuda.stream(sides[1]):
            sent = output.to("cuda:1", non_blocking=True)
        output.record_stream(sides[0])
        sent.record_stream(torch.cuda.current_stream(1))
        return sent

    on_its_way: torch.Tensor | None = None
    while True:
        for batch in data:
            arriving = on_its_way
            output, _ = first.train(batch)
            on_its_way = send(output)
            if arriving is not None:
                second.train(arriving)
            # The next batch of the second model needs what is on its way now.
            torch.cuda.current_stream(1).wait_stream(sides[1])
        yield


def naive() -> Iterator[None]:
    """Each batch passes both models before the next is touched."""
    first, second, data = Stage(0, LARGE), Stage(1, LARGE), batches(LARGE)
    while True:
        for batch in data:
            output, _ = first.train(batch)
            second.train(output)
        yield


VARIANTS = {
    "naive": naive,
    "pipelined": pipelined,
    "pipelined_streams": pipelined_streams,
    "pipelined_item": lambda: pipelined(read_loss=True),
    "pipelined_tiny": lambda: pipelined(width=TINY),
}

if __name__ == "__main__":
    sys.exit(run("two_models", VARIANTS, stacks=True))
