"""Independent work in two streams: it overlaps only if the GPU has room and the CPU is fast.

Small kernels end before the CPU has launched the next one, so there is nothing to overlap. Large
kernels fill every multiprocessor, so only their tails overlap. Kernels that leave multiprocessors
free and outlast their launch overlap fully, and two streams take half the time of one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch

from tracelab.workloads.runner import run

Streams = list[torch.cuda.Stream]
Kernel = Callable[[], torch.Tensor]


def launch(kernel: Kernel, count: int, streams: Streams) -> None:
    """The same kernels in every stream, launched in turn, between a fork and a join."""
    current = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(current)
    for _ in range(count):
        for stream in streams:
            with torch.cuda.stream(stream):
                kernel()
    for stream in streams:
        current.wait_stream(stream)


def product(size: int) -> Kernel:
    """A product of square matrices; of 8192 it fills the GPU, of 256 it is over in microseconds."""
    matrix = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    return lambda: matrix @ matrix


def row_sums() -> Kernel:
    """Running sums of a few long rows: each row keeps one multiprocessor busy, most stay free."""
    rows = torch.ones(32, 1 << 18, device="cuda")
    return lambda: rows.cumsum(1)


def in_streams(streams: Streams, kernel: Kernel, count: int) -> Iterator[None]:
    """Launch every kernel from Python."""
    while True:
        launch(kernel, count, streams)
        yield


def in_a_graph(streams: Streams, kernel: Kernel, count: int) -> Iterator[None]:
    """FIX for small kernels: record the launches once, repeat them all with one call."""
    with torch.cuda.stream(torch.cuda.Stream()):
        launch(kernel, 1, streams)  # cuBLAS must be ready before it is recorded
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(kernel, count, streams)
    while True:
        graph.replay()
        yield


def wait_early(kernel: Kernel, count: int) -> Iterator[None]:
    """DEFECT: the default stream waits for the side stream before work that needs nothing of it."""
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    while True:
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(count):
                kernel()
        current.wait_stream(side)  # FIX: it belongs behind the next loop
        for _ in range(count):
            kernel()
        yield


def wait_on_the_host(kernel: Kernel, count: int) -> Iterator[None]:
    """DEFECT: the CPU waits for the first stream before it launches the second one's work."""
    first, second = two_sides()
    while True:
        for stream in (first, second):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(count):
                    kernel()
            if stream is first:
                first.synchronize()  # FIX: both streams can be waited for at the end
        torch.cuda.current_stream().wait_stream(second)
        yield


def two_sides() -> Streams:
    return [torch.cuda.Stream(), torch.cuda.Stream()]


def default_and_side() -> Streams:
    return [torch.cuda.default_stream(), torch.cuda.Stream()]


SMALL, MEDIUM, LARGE = 20, 20, 4  # kernels a stream in each step

VARIANTS = {
    "small": lambda: in_streams(two_sides(), product(256), SMALL),
    "small_graph": lambda: in_a_graph(two_sides(), product(256), SMALL),
    "medium": lambda: in_streams(two_sides(), row_sums(), MEDIUM),
    "large": lambda: in_streams(two_sides(), product(8192), LARGE),
    "default_stream": lambda: in_streams([torch.cuda.default_stream()] * 2, row_sums(), MEDIUM),
    "host_wait": lambda: wait_on_the_host(row_sums(), MEDIUM),
    "early_wait": lambda: wait_early(row_sums(), MEDIUM),
    "default_and_side": lambda: in_streams(default_and_side(), row_sums(), MEDIUM),
}

if __name__ == "__main__":
    sys.exit(run("two_streams", VARIANTS))
