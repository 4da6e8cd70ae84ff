"""Copy from one GPU to another beside compute, in all eight ways.

A copy between GPUs runs in the sender's current stream and makes the receiver's current stream wait
for it. So it overlaps with work in the default streams only if *both* sides have a side stream
current. `non_blocking` concerns the CPU alone and changes nothing on the GPUs.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

COPIED = (16384, 8192)  # float32: 512 MiB
SIZE = 4096
PRODUCTS = 10


def peer_copy(*, sender: bool, receiver: bool, non_blocking: bool) -> Iterator[None]:
    """Copy from GPU 0 to GPU 1 while both multiply matrices in their default streams."""
    streams = [torch.cuda.Stream(device) for device in (0, 1)]
    chosen = [stream for stream, side in zip(streams, (sender, receiver), strict=True) if side]
    source = torch.randn(COPIED, device="cuda:0")
    matrices = [
        torch.randn(SIZE, SIZE, device=f"cuda:{device}", dtype=torch.bfloat16) for device in (0, 1)
    ]
    while True:
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        with contextlib.ExitStack() as current:
            for stream in chosen:
                current.enter_context(torch.cuda.stream(stream))
            copied = source.to("cuda:1", non_blocking=non_blocking)
        for _ in range(PRODUCTS):
            for matrix in matrices:
                matrix @ matrix
        for stream in streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
        copied.record_stream(torch.cuda.current_stream(1))
        yield


def chain() -> Iterator[None]:
    """Pass a tensor on from GPU to GPU, each hop waiting for an event of the one before."""
    count = torch.cuda.device_count()
    streams = [torch.cuda.Stream(device) for device in range(count)]
    tensor = torch.randn(COPIED, device="cuda:0")
    while True:
        passed, arrived = tensor, torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(0))
        for before, after in itertools.pairwise(streams):
            before.wait_event(arrived)
            with torch.cuda.stream(before), torch.cuda.stream(after):
                passed = passed.to(after.device, non_blocking=True)
                arrived = torch.cuda.Event()
                arrived.record(after)
                passed = passed * 2
        torch.cuda.current_stream(0).wait_stream(streams[0])
        yield


def _name(*, sender: bool, receiver: bool, non_blocking: bool) -> str:
    """Which sides have a stream of their own, and whether the CPU waits."""
    sides = {(0, 0): "default", (1, 0): "sender", (0, 1): "receiver", (1, 1): "both"}
    return sides[sender, receiver] + ("" if non_blocking else "_blocking")


VARIANTS = {
    _name(sender=s, receiver=r, non_blocking=n): (
        lambda s=s, r=r, n=n: peer_copy(sender=s, receiver=r, non_blocking=n)
    )
    for s, r, n in itertools.product((False, True), (False, True), (True, False))
} | {"chain": chain}

if __name__ == "__main__":
    sys.exit(run("peer_copy", VARIANTS, stacks=True))
