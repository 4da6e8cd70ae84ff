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


def two_streams(*, rows: int, inner: int, products: int) -> Iterator[None]:
    """The same matrix products in two side streams, launched in turn."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    left = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(inner, rows, device="cuda", dtype=torch.bfloat16)
    while True:
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        for _ in range(products):
            for stream in streams:
                with torch.cuda.stream(stream):
                    left @ right
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        yield


VARIANTS = {
    "small": lambda: two_streams(rows=256, inner=256, products=20),  # launch bound
    "medium": lambda: two_streams(rows=1024, inner=32768, products=20),  # overlaps
    "large": lambda: two_streams(rows=8192, inner=8192, products=4),  # no free multiprocessor
}

if __name__ == "__main__":
    sys.exit(run("two_streams", VARIANTS))
