"""How long each way to wait for the GPU holds the CPU, measured without a profiler."""

from __future__ import annotations

import statistics
import sys
import time

import torch

from tracelab.workloads.events import (
    PRODUCTS,
    SIZE,
    read_a_value,
    wait_for_device,
    wait_for_event,
    wait_for_stream,
    wait_in_stream,
)

_WAYS = {
    "Event.wait": wait_in_stream,
    "Event.synchronize": wait_for_event,
    "Stream.synchronize": wait_for_stream,
    "torch.cuda.synchronize": wait_for_device,
    "Tensor.item": read_a_value,
}
_REPETITIONS = 20


def main() -> int:
    """Print a line for each way, and what `elapsed_time` says right after `Event.wait`."""
    if not torch.cuda.is_available():
        print("an NVIDIA GPU is needed", file=sys.stderr)
        return 4
    side = torch.cuda.Stream()
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5
    for name, wait in _WAYS.items():
        blocked_us = []
        for _ in range(_REPETITIONS):
            done, product = torch.cuda.Event(), matrix
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                for _ in range(8 * PRODUCTS):
                    product = product @ matrix
                done.record()
            begun = time.perf_counter()
            wait(done, side, product)
            blocked_us.append((time.perf_counter() - begun) * 1e6)
        print(f"{name:22} blocks the CPU for {statistics.median(blocked_us):8.1f} us")
    print(f"elapsed_time right after Event.wait: {_elapsed_time_after_wait(matrix)}")
    return 0


def _elapsed_time_after_wait(matrix: torch.Tensor) -> str:
    begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for _ in range(8 * PRODUCTS):
        matrix @ matrix
    done.record()
    done.wait()
    try:
        return f"{begun.elapsed_time(done):.3f} ms"
    except RuntimeError as error:
        return f"raises {type(error).__name__}: {str(error).splitlines()[0]}"


if __name__ == "__main__":
    sys.exit(main())
