"""What the profiler takes to record an event, by its kind.

    python tests/benchmarks/event_costs.py

A function, an operator and the call of a module are called in a loop, with a profiler that records
stacks and without one, in turns. Each row is the difference, us a call, and the events that a call
records: a module's are its own and three functions of ``torch.nn``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

ROUNDS, CALLS = 21, 1_000


class Nothing(torch.nn.Module):
    """A module that does nothing."""

    def forward(self) -> None:
        """Do nothing."""


def nothing() -> None:
    """Do nothing."""


def main() -> None:
    ones = torch.ones(4)
    cases: dict[str, tuple[Callable[[], object], str]] = {
        "function": (nothing, "1 function"),
        "operator": (lambda: torch.neg(ones), "1 operator, 2 functions"),
        "module": (Nothing(), "1 call of a module, 3 functions"),
    }
    print("| | us a call | events |\n|---|---|---|")
    for name, (call, events) in cases.items():
        took_us = [_recorded_us(call) for _ in range(ROUNDS)]
        middle, least, most = statistics.median(took_us), min(took_us), max(took_us)
        print(f"| {name} | {middle:.2f} ({least:.2f} to {most:.2f}) | {events} |", flush=True)


def _recorded_us(call: Callable[[], object]) -> float:
    plain_us = statistics.median(_us(call) for _ in range(5))
    with profile(activities=[ProfilerActivity.CPU], with_stack=True):
        recorded_us = statistics.median(_us(call) for _ in range(3))
    return recorded_us - plain_us


def _us(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begun) / CALLS * 1e6


if __name__ == "__main__":
    main()
