"""How batches get to the GPU and results back, and what memory costs.

Each step multiplies large matrices and reads none of what it computes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch

from tracelab.workloads.runner import run

SIZE, PRODUCTS = 4096, 6
ROWS = 4096
IMAGES, SHAPE = 128, (3, 128, 128)
SMALL = 16
HELD = 12

Load = Callable[[], torch.Tensor]  # a batch on the GPU


def network() -> Callable[[torch.Tensor], torch.Tensor]:
    """Some small kernels, and products of features with a matrix."""
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5

    def call(features: torch.Tensor) -> torch.Tensor:
        scales = features[0].float()
        for _ in range(SMALL):
            scales = scales / scales.norm()
        features = features * scales.bfloat16()
        for _ in range(PRODUCTS):
            features = features @ matrix
        return features

    return call


def compute(load: Load) -> Iterator[None]:
    """Load a batch, compute."""
    call = network()
    while True:
        call(load())
        yield


def rows(*, pinned: bool) -> torch.Tensor:
    """A batch on the CPU: bfloat16[rows, size]."""
    batch = torch.randn(ROWS, SIZE).bfloat16()
    return batch.pin_memory() if pinned else batch


def pageable() -> Iterator[None]:
    """DEFECT: from ordinary memory, through a buffer of the driver's, while the CPU waits."""
    batch = rows(pinned=False)
    return compute(lambda: batch.to("cuda"))


def pinned_in_step() -> Iterator[None]:
    """DEFECT: the thread that launches copies each batch to pinned memory first."""
    batch = rows(pinned=False)
    return compute(lambda: batch.pin_memory().to("cuda", non_blocking=True))


def pinned_blocking() -> Iterator[None]:
    """DEFECT: from pinned memory, but the CPU waits until the copy is done."""
    batch = rows(pinned=True)
    return compute(lambda: batch.to("cuda"))


def pinned() -> Iterator[None]:
    """FIX: pinned before, and the CPU goes on."""
    batch = rows(pinned=True)
    return compute(lambda: batch.to("cuda", non_blocking=True))


def own_stream() -> Iterator[None]:
    """FIX: the copy of the next batch runs in a stream of its own."""
    batch, call, copies = rows(pinned=True), network(), torch.cuda.Stream()

    def load() -> torch.Tensor:
        with torch.cuda.stream(copies):
            return batch.to("cuda", non_blocking=True)

    upcoming = load()
    while True:
        torch.cuda.current_stream().wait_stream(copies)
        features, upcoming = upcoming, load()
        features.record_stream(torch.cuda.current_stream())
        call(features)
        yield


def images(*, converted_on_host: bool) -> Iterator[None]:
    """Images of bytes become numbers: on the CPU (DEFECT), or on the GPU after the copy (FIX)."""
    batch = torch.randint(0, 256, (IMAGES, *SHAPE), dtype=torch.uint8).pin_memory()

    def load() -> torch.Tensor:
        if converted_on_host:
            pixels = batch.to("cuda", torch.float32)
        else:
            pixels = batch.to("cuda", non_blocking=True).to(torch.float32)
        return (pixels / 255).bfloat16().view(-1, SIZE).repeat(4, 1)

    return compute(load)


def results(*, pinned: bool) -> Iterator[None]:
    """Results go to the CPU: into ordinary memory (DEFECT), or pinned, in a stream of its own."""
    call, copies = network(), torch.cuda.Stream()
    features = torch.randn(ROWS, SIZE, device="cuda", dtype=torch.bfloat16)
    buffer = torch.empty(ROWS, SIZE, dtype=torch.bfloat16, pin_memory=True)
    while True:
        result = call(features)
        if pinned:
            copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(copies):
                buffer.copy_(result, non_blocking=True)  # FIX: to be read after an event
            result.record_stream(copies)
        else:
            result.cpu()
        yield


def memory(*, is_given_back: bool) -> Iterator[None]:
    """Compute, and maybe give the memory back to CUDA, which must be asked for it again."""
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    while True:
        held = [matrix @ matrix for _ in range(HELD)]
        del held
        if is_given_back:
            torch.cuda.empty_cache()  # DEFECT
        yield


VARIANTS = {
    "pageable": pageable,
    "pinned_in_step": pinned_in_step,
    "pinned_blocking": pinned_blocking,
    "pinned": pinned,
    "one_stream": pinned,
    "own_stream": own_stream,
    "converted_on_host": lambda: images(converted_on_host=True),
    "converted_on_gpu": lambda: images(converted_on_host=False),
    "results_pageable": lambda: results(pinned=False),
    "results_pinned": lambda: results(pinned=True),
    "memory_given_back": lambda: memory(is_given_back=True),
    "memory_kept": lambda: memory(is_given_back=False),
}

if __name__ == "__main__":
    sys.exit(run("copies", VARIANTS, stacks=True))
