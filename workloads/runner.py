"""What every workload shares: its command line, its processes, its loop under the capture."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import torch
import torch.distributed as dist

from tracelab.record.recorder import Recorder
from tracelab.workloads.catalog import Entry, find

# A variant is a generator: each `yield` ends one step of its loop.
Variant = Callable[[], Iterator[None]]

SETTLING_STEPS = 10  # load modules, fill the allocator's cache


def run(workload: str, variants: Mapping[str, Variant], *, stacks: bool = False) -> int:
    """Run the variant that the command line names, and write its traces.

    Example:
        if __name__ == "__main__":
            sys.exit(run("events", {"wait": wait, "item": item}))

    Args:
        workload: the program's name, as of the catalog.
        variants: each makes the generator of its loop, whose every ``yield`` ends a step.
        stacks: record Python functions, so that lines are named.

    Returns:
        the exit code: 4 without enough GPUs; else 0, or in a job that of its launcher.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tracelab.workloads.{workload}")
    parser.add_argument("variant", choices=[*variants])
    parser.add_argument("--output", help="the trace to write; {rank} in it is replaced")
    parser.add_argument("--gpus", type=int, help="GPUs to use (default: what the variant needs)")
    parser.add_argument("--steps", type=int, default=5, help="steps to record (default: 5)")
    parser.add_argument("--plain", action="store_true", help="without CUDA event records")
    arguments = parser.parse_args()
    entry = find(workload, arguments.variant)
    gpus, available = arguments.gpus or entry.gpus, torch.cuda.device_count()
    if available < gpus:
        print(f"{workload} needs {gpus} NVIDIA GPU(s), and found {available}", file=sys.stderr)
        return 4
    if entry.ranks and "RANK" not in os.environ:
        return _start_ranks(entry, gpus)
    if entry.ranks:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    _record(entry, variants[entry.variant](), arguments, stacks=stacks)
    if entry.ranks:
        dist.destroy_process_group()
    return 0


def _start_ranks(entry: Entry, gpus: int) -> int:
    """Run this command again as one process a GPU; returns its exit code."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
    module = ["-m", f"tracelab.workloads.{entry.workload}", *sys.argv[1:]]
    environment = {"OMP_NUM_THREADS": "4", **os.environ, **entry.environment}
    command = [sys.executable, "-m", *launcher, *module]
    return subprocess.run(command, env=environment, check=False).returncode


def _record(
    entry: Entry, loop: Iterator[None], arguments: argparse.Namespace, *, stacks: bool
) -> None:
    """Let the loop settle, then capture some of its steps."""
    suffix = "_rank{rank}" if entry.ranks else ""
    output = arguments.output or f"{entry.workload}_{entry.variant}{suffix}.pt.trace.json.gz"
    for _ in range(SETTLING_STEPS):
        next(loop)
    with Recorder(
        output.replace("{rank}", os.environ.get("RANK", "0")),
        steps=arguments.steps,
        stacks=stacks,
        event_records=False if arguments.plain else None,
        metadata={"workload": entry.workload, "variant": entry.variant},
    ) as recorder:
        for _ in range(recorder.calls):
            next(loop)
            recorder.step()
    print(recorder.path)
