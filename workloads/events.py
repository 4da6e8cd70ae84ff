"""Five ways to wait for a GPU result: one blocks a stream, four block the CPU.

A consumer in the default stream needs what a producer made in a side stream. `Event.wait` puts the
wait into the stream and returns at once, so the CPU goes on launching. Every other way makes the
CPU sit until the GPU is done, and the GPU then runs dry while the CPU prepares the next launch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch

from tracelab.workloads.runner import run

SIZE = 4096
PRODUCTS = 8

Wait = Callable[[torch.cuda.Event, torch.cuda.Stream, torch.Tensor], object]


def produce_and_consume(wait: Wait) -> Iterator[None]:
    """Produce in a side stream, wait in the way under test, consume in the default stream."""
    side = torch.cuda.Stream()
    done = torch.cuda.Event()
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5
    while True:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            product = matrix
            for _ in range(PRODUCTS):
                product = product @ matrix
            done.record()
        wait(done, side, product)
        product.record_stream(torch.cuda.current_stream())
        for _ in range(PRODUCTS):
            product = product @ matrix
        yield


def wait_in_stream(done: torch.cuda.Event, _side: torch.cuda.Stream, _: torch.Tensor) -> None:
    """FIX: the stream waits, the CPU does not."""
    done.wait()


def wait_for_event(done: torch.cuda.Event, _side: torch.cuda.Stream, _: torch.Tensor) -> None:
    """DEFECT: the CPU waits for the event."""
    done.synchronize()


def wait_for_stream(_done: torch.cuda.Event, side: torch.cuda.Stream, _: torch.Tensor) -> None:
    """DEFECT: the CPU waits for the stream."""
    side.synchronize()


def wait_for_device(_done: torch.cuda.Event, _side: torch.cuda.Stream, _: torch.Tensor) -> None:
    """DEFECT: the CPU waits for everything."""
    torch.cuda.synchronize()


def read_a_value(done: torch.cuda.Event, _side: torch.cuda.Stream, product: torch.Tensor) -> None:
    """DEFECT: the CPU waits for one number."""
    done.wait()
    product[0, 0].item()


def timed_every_step() -> Iterator[None]:
    """DEFECT: `elapsed_time` needs events that were reached, so every reading makes the CPU wait.

    Right after `Event.wait`, which does not wait on the CPU, it raises instead.
    """
    begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    while True:
        begun.record()
        for _ in range(2 * PRODUCTS):
            matrix @ matrix
        done.record()
        done.synchronize()
        begun.elapsed_time(done)
        yield


VARIANTS = {
    "wait": lambda: produce_and_consume(wait_in_stream),
    "event_synchronize": lambda: produce_and_consume(wait_for_event),
    "stream_synchronize": lambda: produce_and_consume(wait_for_stream),
    "device_synchronize": lambda: produce_and_consume(wait_for_device),
    "item": lambda: produce_and_consume(read_a_value),
    "elapsed_time": timed_every_step,
}

if __name__ == "__main__":
    sys.exit(run("events", VARIANTS, stacks=True))
