"""What a training step does with all its parameters: update, average, clip and clear them.

The network is small, so that its GPU work is short. Whatever is done parameter by parameter is many
launches of next to no work, and whatever is read between the backward pass and the update makes the
CPU wait: it launches the update only once the GPU has nothing left to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 256, 5, 64
# Where the CPU may wait for the backward pass, the GPU has much of it to do.
LARGE_WIDTH, LARGE_LAYERS, LARGE_ROWS = 1024, 3, 32768

Parameters = list[torch.nn.Parameter]
Change = Callable[[Parameters], object]


def network(width: int, layers: int) -> torch.nn.Sequential:
    """Linear layers with bias: twice as many parameters as layers."""
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).cuda()


def train(
    optimizer_of: Callable[[Parameters], torch.optim.Optimizer],
    *,
    changed_after: Change | None = None,
    clears_to_none: bool = True,
) -> Iterator[None]:
    """Forward, backward, the update, and what else is done with the parameters."""
    model = network(WIDTH, LAYERS)
    parameters = [*model.parameters()]
    optimizer = optimizer_of(parameters)
    rows = torch.randn(ROWS, WIDTH, device="cuda")
    while True:
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=clears_to_none)
        if changed_after is not None:
            changed_after(parameters)
        yield


def one_by_one(parameters: Parameters) -> torch.optim.Optimizer:
    """DEFECT: a dozen launches for each parameter."""
    return torch.optim.AdamW(parameters, foreach=False)


def foreach(parameters: Parameters) -> torch.optim.Optimizer:
    """DEFECT: a dozen launches for all parameters together, and Python between them."""
    return torch.optim.AdamW(parameters, foreach=True)


def fused(parameters: Parameters) -> torch.optim.Optimizer:
    """FIX: one launch for all parameters."""
    return torch.optim.AdamW(parameters, fused=True)


def averaged(*, one_by_one: bool) -> Iterator[None]:
    """Keep a moving average of the parameters."""
    averages: list[torch.Tensor] = []

    @torch.no_grad()
    def update(parameters: Parameters) -> None:
        if not averages:
            averages.extend(parameter.detach().clone() for parameter in parameters)
        elif one_by_one:
            for average, parameter in zip(averages, parameters, strict=True):
                average.mul_(0.99).add_(parameter, alpha=0.01)  # DEFECT: two launches for each
        else:
            torch._foreach_lerp_(averages, parameters, 0.01)  # FIX: one for all

    return train(fused, changed_after=update)


def clipped(*, checks: bool) -> Iterator[None]:
    """Clip gradients, whose norm may have to be finite, before a foreach optimizer's update."""
    model = network(LARGE_WIDTH, LARGE_LAYERS).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    rows = torch.randn(LARGE_ROWS, LARGE_WIDTH, device="cuda", dtype=torch.bfloat16)
    while True:
        model(rows).square().mean().backward()
        # DEFECT: an error must be raised here, so the CPU waits for the norm
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=checks)
        optimizer.step()
        optimizer.zero_grad()
        yield


def scaled(*, is_fused: bool) -> Iterator[None]:
    """Train with scaled gradients in float16: an update is left out where one overflowed."""
    model = network(LARGE_WIDTH, LARGE_LAYERS)
    # DEFECT: not fused, the scaler must read on the CPU whether to call the optimizer at all
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=is_fused)
    scaler = torch.amp.GradScaler("cuda")
    rows = torch.randn(LARGE_ROWS, LARGE_WIDTH, device="cuda")
    while True:
        with torch.autocast("cuda", torch.float16):
            loss = model(rows).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        yield


def norms(*, reads_each: bool) -> Iterator[None]:
    """Take the norm of all gradients for a log."""
    model = network(LARGE_WIDTH, LARGE_LAYERS).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    rows = torch.randn(LARGE_ROWS, LARGE_WIDTH, device="cuda", dtype=torch.bfloat16)
    log: list[float | torch.Tensor] = []
    while True:
        model(rows).square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        if reads_each:
            log.append(sum(gradient.norm().item() ** 2 for gradient in gradients) ** 0.5)  # DEFECT
        else:
            log.append(torch.nn.utils.get_total_norm(gradients))  # FIX: it stays on the GPU
        optimizer.step()
        optimizer.zero_grad()
        yield


VARIANTS = {
    "one_by_one": lambda: train(one_by_one),
    "foreach": lambda: train(foreach),
    "fused": lambda: train(fused),
    "average_one_by_one": lambda: averaged(one_by_one=True),
    "average_foreach": lambda: averaged(one_by_one=False),
    "cleared_to_zero": lambda: train(fused, clears_to_none=False),
    "norm_checked": lambda: clipped(checks=True),
    "norm_unchecked": lambda: clipped(checks=False),
    "scaler_reads": lambda: scaled(is_fused=False),
    "scaler_fused": lambda: scaled(is_fused=True),
    "norms_read": lambda: norms(reads_each=True),
    "norms_kept": lambda: norms(reads_each=False),
}

if __name__ == "__main__":
    sys.exit(run("optimizers", VARIANTS, stacks=True))
