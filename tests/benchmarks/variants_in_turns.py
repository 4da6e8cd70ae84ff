"""What a step of each variant of a workload takes, without a profiler.

    python tests/benchmarks/variants_in_turns.py three_defects

All variants take turns in one process: a host that becomes slower meanwhile is slower for all of
them. Needs an NVIDIA GPU.
"""

import argparse
import importlib
import json
import statistics
import time

import torch

SETTLING_STEPS, STEPS_BETWEEN = 15, 4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="of a variant in a round")
    options = parser.parse_args()
    variants = importlib.import_module(f"tracelab.workloads.{options.workload}").VARIANTS
    loops = {name: variant() for name, variant in variants.items()}
    for loop in loops.values():
        step_ms(loop, SETTLING_STEPS)
    rounds_ms = {name: [] for name in loops}
    for _ in range(options.rounds):
        for name, loop in loops.items():
            step_ms(loop, STEPS_BETWEEN)
            rounds_ms[name].append(round(step_ms(loop, options.steps), 3))
    for name, blocks_ms in rounds_ms.items():
        line = {"variant": name, "median_ms": statistics.median(blocks_ms), "blocks_ms": blocks_ms}
        print(json.dumps(line), flush=True)


def step_ms(loop, steps):
    """The mean time of the next steps, in milliseconds, the GPU's work included."""
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    for _ in range(steps):
        next(loop)
    torch.cuda.synchronize()
    return (time.perf_counter() - start_s) * 1000 / steps


if __name__ == "__main__":
    main()
