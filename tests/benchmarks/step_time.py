"""How long a step of a script takes, without a profiler.

    python tests/benchmarks/step_time.py [--first 50] [--last 250] [--step-on NAME] SCRIPT [...]

Runs the script as `tracelab run` does, and ends it after its step `last`. The time is the mean
from the end of step `first` on, with the GPU waited for at both ends only.
"""

import argparse
import time

import torch

from tracelab.record.hooks import StepFunction, StopRun, run_program, watch_optimizer_step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=50)
    parser.add_argument("--last", type=int, default=250)
    parser.add_argument("--step-on", metavar="NAME", help="a function, as in `tracelab run`")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    ended_s = []

    def ended():
        ended_s.append(0.0)
        if len(ended_s) in {options.first, options.last}:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            ended_s[-1] = time.perf_counter()
        if len(ended_s) == options.last:
            raise StopRun(0)

    step = StepFunction(options.step_on, ended) if options.step_on else None
    if step is None:
        watch_optimizer_step(ended)
    code = run_program(options.script, options.arguments, as_module=False, step=step)
    if len(ended_s) < options.last:
        raise SystemExit(code or f"there were {len(ended_s)} steps, fewer than {options.last}")
    steps = options.last - options.first
    mean_ms = (ended_s[-1] - ended_s[options.first - 1]) / steps * 1e3
    print(f"{mean_ms:.2f} ms a step, the mean of {steps}")


if __name__ == "__main__":
    main()
