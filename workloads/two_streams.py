"""Independent work in two streams: it overlaps only if the GPU has room and the host is fast.

Small kernels end before the host has launched the next one, so there is nothing to overlap. Large
kernels fill every multiprocessor, so only their tails overlap. Kernels of half a GPU that outlast
their launch overlap almost fully.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from workloads.runner import run

Streams = list[torch.cuda.Stream]


def multiply(streams: Streams, left: torch.Tensor, right: torch.Tensor, products: int) -> None:
    """The same matrix products in every stream, launched in turn, between a fork and a join."""
    current = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(current)
    for _ in range(products):
        for stream in streams:
            with torch.cuda.stream(stream):
                left @ right
    for stream in streams:
        current.wait_stream(stream)


def matrices(rows: int, inner: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two factors whose product is small and takes ``rows * rows * inner`` multiplications."""
    left = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
    return left, torch.randn(inner, rows, device="cuda", dtype=torch.bfloat16)


def in_streams(streams: Streams, *, rows: int, inner: int, products: int) -> Iterator[None]:
    """Launch every product from Python."""
    left, right = matrices(rows, inner)
    while True:
        multiply(streams, left, right, products)
        yield


def in_a_graph(streams: Streams, *, rows: int, inner: int, products: int) -> Iterator[None]:
    """FIX for small kernels: record the products once, launch them all with one call."""
    left, right = matrices(rows, inner)
    with torch.cuda.stream(torch.cuda.Stream()):
        multiply(streams, left, right, 1)  # cuBLAS must be ready before it is recorded
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        multiply(streams, left, right, products)
    while True:
        graph.replay()
        yield


def two_sides() -> Streams:
    return [torch.cuda.Stream(), torch.cuda.Stream()]


SMALL = {"rows": 256, "inner": 256, "products": 20}  # launch bound
MEDIUM = {"rows": 1024, "inner": 32768, "products": 20}  # half a GPU each
LARGE = {"rows": 8192, "inner": 8192, "products": 4}  # no free multiprocessor

VARIANTS = {
    "small": lambda: in_streams(two_sides(), **SMALL),
    "small_graph": lambda: in_a_graph(two_sides(), **SMALL),
    "medium": lambda: in_streams(two_sides(), **MEDIUM),
    "large": lambda: in_streams(two_sides(), **LARGE),
    "default_stream": lambda: in_streams([torch.cuda.default_stream()] * 2, **MEDIUM),
    "default_and_side": lambda: in_streams(
        [torch.cuda.default_stream(), torch.cuda.Stream()], **MEDIUM
    ),
}

if __name__ == "__main__":
    sys.exit(run("two_streams", VARIANTS))
