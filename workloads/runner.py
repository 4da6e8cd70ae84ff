"""What every workload shares: its command line, and its loop under the capture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from tracelab.capture import Capture

# A variant is a generator: each `yield` ends one step of its loop.
Variant = Callable[[], Iterator[None]]

SETTLING_STEPS = 10  # load modules, fill the allocator's cache


def run(workload: str, variants: Mapping[str, Variant], *, stacks: bool = False) -> int:
    """Run the variant named on the command line and write its trace; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m workloads.{workload}")
    parser.add_argument("variant", choices=[*variants])
    parser.add_argument("--output", type=Path, help="the trace to write")
    parser.add_argument("--steps", type=int, default=5, help="steps to record (default: 5)")
    parser.add_argument("--plain", action="store_true", help="without CUDA event records")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"{workload}: this workload needs an NVIDIA GPU, and found none", file=sys.stderr)
        return 4
    output = arguments.output or Path(f"{workload}_{arguments.variant}.pt.trace.json.gz")
    loop = variants[arguments.variant]()
    for _ in range(SETTLING_STEPS):
        next(loop)
    # Nothing that was launched before the recording may still run in it: it would lack its launch.
    torch.cuda.synchronize()
    with Capture(
        output,
        steps=arguments.steps,
        warmup=1,
        stacks=stacks,
        event_records=False if arguments.plain else None,
        metadata={"workload": workload, "variant": arguments.variant},
    ) as capture:
        for _ in range(capture.calls):
            next(loop)
            capture.step()
    print(output)
    return 0
