"""A loop with three defects at once, and with every choice of them fixed.

Each step makes a batch, copies it to the GPU, computes features and updates the direction in which
they vary most, by many small kernels. The batch is made in the thread that launches, the copy is of
pageable memory, and a number is read in the middle. What a fix saves depends on the others: once
nothing waits, the CPU makes its batch while the GPU works, and making it costs nothing.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import numpy as np
import torch

from tracelab.workloads.runner import run

SAMPLES, ROWS, PIXELS = 20_000, 1024, 3 * 32 * 32
WIDTH, PRODUCTS = 8192, 40  # the large kernels
SKETCH, ROUNDS = 512, 60  # the small ones
KEPT = 100

Samples = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


def collate(samples: Samples, rows: np.ndarray, into: torch.Tensor) -> torch.Tensor:
    """Choose images and normalize them: float32[rows, pixels]."""
    np.multiply(samples[rows], np.float32(1 / 128), out=into.numpy())
    into.numpy()[...] -= 1
    return into


def made(buffers: Iterator[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Makes one batch of random images with each call."""
    generator = np.random.default_rng(0)
    samples = generator.integers(0, 256, (SAMPLES, PIXELS), dtype=np.uint8)
    return lambda: collate(samples, generator.integers(0, SAMPLES, ROWS), next(buffers))


def made_here(make: Callable[[], torch.Tensor]) -> Iterator[torch.Tensor]:
    """DEFECT: the thread that launches makes each batch itself."""
    while True:
        yield make()


def made_ahead(make: Callable[[], torch.Tensor]) -> Iterator[torch.Tensor]:
    """FIX: another thread makes the next batch meanwhile."""
    with ThreadPoolExecutor(1) as executor:
        upcoming = executor.submit(make)
        while True:
            batch, upcoming = upcoming.result(), executor.submit(make)
            yield batch


def pageable() -> Iterator[torch.Tensor]:
    """DEFECT: ordinary memory, from which the CPU copies itself, and waits."""
    return cycle([torch.empty(ROWS, PIXELS) for _ in range(2)])


def pinned() -> Iterator[torch.Tensor]:
    """FIX: pinned memory, which PyTorch gives out anew once its copy is done."""
    while True:
        yield torch.empty(ROWS, PIXELS, pin_memory=True)


def copied_when_needed(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """DEFECT: the copy is in the stream that computes."""
    for batch in batches:
        yield batch.to("cuda")


def copied_ahead(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """FIX: the copy of the next batch runs in a stream of its own."""
    copies, compute = torch.cuda.Stream(), torch.cuda.current_stream()

    def load() -> torch.Tensor:
        with torch.cuda.stream(copies):
            return next(batches).to("cuda", non_blocking=True)

    upcoming = load()
    while True:
        compute.wait_stream(copies)
        images, upcoming = upcoming, load()
        images.record_stream(compute)
        yield images


def loop(*fixed: str) -> Iterator[None]:
    """The loop with some of its defects fixed: "read", "copy", "batch"."""
    make = made(pinned() if "copy" in fixed else pageable())
    batches = made_ahead(make) if "batch" in fixed else made_here(make)
    on_gpu = copied_ahead(batches) if "copy" in fixed else copied_when_needed(batches)
    first = torch.randn(PIXELS, WIDTH, device="cuda", dtype=torch.bfloat16) / PIXELS**0.5
    matrix = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) / WIDTH**0.5
    direction = torch.ones(SKETCH, device="cuda")
    sizes: deque[float | torch.Tensor] = deque(maxlen=KEPT)
    for images in on_gpu:
        features = images.bfloat16() @ first
        for _ in range(PRODUCTS):
            features = features @ matrix
        size = features.square().mean()
        if "read" in fixed:
            sizes.append(size)  # FIX: it stays on the GPU until somebody looks at it
        else:
            sizes.append(size.item())  # DEFECT: the CPU waits for one number
        sketch = features[:, :SKETCH].float()
        spread = sketch.T @ sketch
        for _ in range(ROUNDS):
            direction = spread @ direction
            direction = direction / direction.norm()
        yield


VARIANTS = {
    "all_three": loop,
    "without_read": lambda: loop("read"),
    "without_copy": lambda: loop("copy"),
    "without_batch": lambda: loop("batch"),
    "only_batch": lambda: loop("read", "copy"),
    "only_copy": lambda: loop("read", "batch"),
    "only_read": lambda: loop("copy", "batch"),
    "fixed": lambda: loop("read", "copy", "batch"),
}

if __name__ == "__main__":
    sys.exit(run("three_defects", VARIANTS, stacks=True))
