"""A batch that is made in the thread that launches the GPU's work, and one from worker processes.

No DataLoader is to be seen in the first: it is a function of numpy that the loop calls. While it
runs, nothing is launched, and the GPU ends what it has. Pinned memory and a copy stream change
nothing about that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import torch

from tracelab.workloads.runner import run

SAMPLES, ROWS = 50_000, 512
SHAPE = (3, 32, 32)
WIDTH, LAYERS = 8192, 16
WORKERS = 4

Images = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


class Samples(torch.utils.data.Dataset[Images]):
    """Small images in memory."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self._images = generator.integers(0, 256, (SAMPLES, *SHAPE), dtype=np.uint8)

    def __len__(self) -> int:
        return SAMPLES

    def __getitems__(self, indices: list[int]) -> Images:
        """A whole batch at once: uint8[rows, channels, height, width]."""
        return self._images[indices]


def collate(samples: Images) -> torch.Tensor:
    """Normalize, flip and disturb: float32[rows, channels * height * width]."""
    generator = np.random.default_rng()
    images = samples.astype(np.float32) / 255
    images -= images.mean(axis=(0, 2, 3), keepdims=True)
    images /= images.std(axis=(0, 2, 3), keepdims=True)
    is_flipped = generator.random(len(images)) < 0.5
    images[is_flipped] = images[is_flipped, :, :, ::-1]
    images += 0.1 * generator.random(images.shape, dtype=np.float32)
    return torch.from_numpy(images.reshape(len(images), -1))


def made_here() -> Iterator[torch.Tensor]:
    """DEFECT: the thread that launches makes each batch itself."""
    samples, generator = Samples(), np.random.default_rng(0)
    while True:
        indices = generator.integers(0, SAMPLES, ROWS).tolist()
        yield collate(samples.__getitems__(indices)).pin_memory()


def made_by_workers() -> Iterator[torch.Tensor]:
    """FIX: worker processes make the batches ahead of the loop."""
    samples = Samples()
    sampler = torch.utils.data.RandomSampler(samples, replacement=True, num_samples=1 << 30)
    return iter(
        torch.utils.data.DataLoader(
            samples,
            batch_size=ROWS,
            sampler=sampler,
            collate_fn=collate,
            num_workers=WORKERS,
            pin_memory=True,
        )
    )


def train(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    """Copy in a stream of its own, forward, backward and update: the CPU waits for nothing."""
    torch.backends.cuda.matmul.allow_tf32 = True
    widths = [int(np.prod(SHAPE)), *[WIDTH] * LAYERS]
    network = torch.nn.Sequential(*map(torch.nn.Linear, widths[:-1], widths[1:])).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    copies = torch.cuda.Stream()

    def load() -> torch.Tensor:
        with torch.cuda.stream(copies):
            return next(batches).to("cuda", non_blocking=True)

    upcoming = load()
    while True:
        compute = torch.cuda.current_stream()
        compute.wait_stream(copies)
        batch, upcoming = upcoming, load()
        batch.record_stream(compute)
        network(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


VARIANTS = {
    "numpy": lambda: train(made_here()),
    "workers": lambda: train(made_by_workers()),
}

if __name__ == "__main__":
    sys.exit(run("inline_loader", VARIANTS, stacks=True))
