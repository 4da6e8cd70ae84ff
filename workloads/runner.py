"""What every workload shares: its command line, its processes, its loop under the capture."""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping

import torch
import torch.distributed as dist

from tracelab.record.collector import COLLECTOR_SETTINGS
from tracelab.record.recorder import Recorder
from tracelab.workloads.catalog import Entry, find

# A variant is a generator: each `yield` ends one step of its loop.
Variant = Callable[[], Iterator[None]]

_LONGEST_WAIT = datetime.timedelta(minutes=10)  # for a turn
SETTLING_STEPS = 10  # load modules, fill the allocator's cache
TURN_STEPS, STEPS_BEFORE_TURN = 16, 4  # of a variant that takes turns with others
BASELINE_STEPS, WARMUP_STEPS = 6, 2  # timed without the profiler, and with the profiler armed
# Of steps that are not so short that the recorder times more of them.
FIRST_RECORDED_STEP = SETTLING_STEPS + BASELINE_STEPS + WARMUP_STEPS
TIMED_BLOCKS, TIMED_STEPS = 5, 8  # without any profiler: so many blocks of so many steps


def run(
    workload: str,
    variants: Mapping[str, Variant],
    *,
    stacks: bool = False,
    cold: Container[str] = (),
) -> int:
    """Run the variant that the command line names, and write its traces.

    Example:
        if __name__ == "__main__":
            sys.exit(run("events", {"wait": wait, "item": item}))

    Args:
        workload: the program's name, as of the catalog.
        variants: each makes the generator of its loop, whose every ``yield`` ends a step.
        stacks: record Python functions, so that lines are named.
        cold: variants that are recorded from their second step on; the others settle before.

    Returns:
        the exit code: 4 without enough GPUs; else 0, or in a job that of its launcher.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tracelab.workloads.{workload}")
    parser.add_argument("variant", choices=[*variants])
    parser.add_argument("--output", help="the trace to write; {rank} in it is replaced")
    parser.add_argument("--gpus", type=int, help="GPUs to use (default: what the variant needs)")
    parser.add_argument("--steps", type=int, default=5, help="steps to record (default: 5)")
    parser.add_argument("--shapes", action="store_true", help="record shapes of inputs")
    parser.add_argument("--memory", action="store_true", help="record what the allocator holds")
    parser.add_argument("--plain", action="store_true", help="without CUDA event records")
    parser.add_argument(
        "--collector",
        choices=COLLECTOR_SETTINGS,
        default="kineto",  # the bundled captures have its event records
        help="who records the GPU (default: kineto)",
    )
    parser.add_argument(
        "--time", action="store_true", help="print what a step takes without a profiler instead"
    )
    parser.add_argument(
        "--turns", action="store_true", help="do what the lines of standard input say, see turns.py"
    )
    arguments = parser.parse_args()
    entry = find(workload, arguments.variant)
    os.environ.update(entry.environment)
    gpus, available = arguments.gpus or entry.gpus, torch.cuda.device_count()
    if available < gpus:
        print(f"{workload} needs {gpus} NVIDIA GPU(s), but found {available}", file=sys.stderr)
        return 4
    if entry.ranks and "RANK" not in os.environ:
        return _start_ranks(entry, gpus)
    if entry.ranks:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    loop, is_cold = variants[entry.variant](), entry.variant in cold
    if arguments.turns:
        _take_turns(loop)
    if arguments.time:
        print(json.dumps(_timed(entry, loop, is_cold=is_cold)))
    else:
        _record(entry, loop, arguments, stacks=stacks, is_cold=is_cold)
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


def _take_turns(loop: Iterator[None]) -> None:
    """Answer each line of standard input: steps without a profiler, until one says "record"."""
    torch.cuda.init()
    _answer("ready")
    for line in _lines():
        if line == "record\n":
            return
        _steps_ms(loop, SETTLING_STEPS if line == "settle\n" else STEPS_BEFORE_TURN)
        _answer(0 if line == "settle\n" else _steps_ms(loop, TURN_STEPS))
    sys.exit("the program that gives the turns has ended")


def _lines() -> Iterator[str]:
    """The lines of standard input; in a job the first rank reads them, and tells the others.

    Not by a collective: that would keep the GPUs busy while they wait.
    """
    if "RANK" not in os.environ:
        yield from sys.stdin
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=_LONGEST_WAIT)
    for number in itertools.count():
        if dist.get_rank() == 0:
            store.set(f"line {number}", sys.stdin.readline())
        line = store.get(f"line {number}").decode()
        if not line:
            return
        yield line


def _answer(what: str | float) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(what, flush=True)


def _timed(entry: Entry, loop: Iterator[None], *, is_cold: bool) -> dict[str, str | int | float]:
    """What a step takes without a profiler, in milliseconds: the median of blocks of steps.

    Of a loop that is recorded cold also its second step, which is the first that is recorded.
    """
    next(loop)
    first_ms = {"first_ms": round(_steps_ms(loop, 1), 3)} if is_cold else {}
    _steps_ms(loop, SETTLING_STEPS)
    blocks_ms = [_steps_ms(loop, TIMED_STEPS) for _ in range(TIMED_BLOCKS)]
    return {
        "workload": entry.workload,
        "variant": entry.variant,
        "rank": int(os.environ.get("RANK", "0")),
        **first_ms,
        "median_ms": round(statistics.median(blocks_ms), 3),
        "shortest_ms": round(min(blocks_ms), 3),
        "longest_ms": round(max(blocks_ms), 3),
    }


def _steps_ms(loop: Iterator[None], steps: int) -> float:
    """The mean time of the next steps, in milliseconds, the GPU's work included."""
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    for _ in range(steps):
        next(loop)
    torch.cuda.synchronize()
    return (time.perf_counter() - start_s) * 1000 / steps


def _record(
    entry: Entry,
    loop: Iterator[None],
    arguments: argparse.Namespace,
    *,
    stacks: bool,
    is_cold: bool,
) -> None:
    """Let the loop settle, unless it is to be seen cold, then capture some of its steps."""
    suffix = "_rank{rank}" if entry.ranks else ""
    output = arguments.output or f"{entry.workload}_{entry.variant}{suffix}.pt.trace.json.gz"
    for _ in range(0 if is_cold else SETTLING_STEPS):
        next(loop)
    with Recorder(
        output.replace("{rank}", os.environ.get("RANK", "0")),
        steps=arguments.steps,
        warmup=1 if is_cold else WARMUP_STEPS,
        baseline=0 if is_cold else BASELINE_STEPS,
        stacks=stacks,
        shapes=arguments.shapes,
        memory=arguments.memory,
        event_records=False if arguments.plain else None,
        collector=arguments.collector,
        metadata={"workload": entry.workload, "variant": entry.variant},
    ) as recorder:
        while not recorder.over:
            next(loop)
            recorder.step()
    print(recorder.path)
