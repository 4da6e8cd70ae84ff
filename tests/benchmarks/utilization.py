"""What `nvidia-smi` says of programs, beside how busy their recordings are: on a GPU machine.

    python tests/benchmarks/utilization.py

Each program runs for a while without a profiler, `nvidia-smi` is asked once a second, and the
median is printed beside the share of a step in which the bundled recording has work on the GPU.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import tracelab

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    ("two_streams", "default_stream"),
    ("train_step", "clean"),
    ("train_step", "sinful"),
    ("three_defects", "all_three"),
    ("reads", "actions_checked"),
    ("launches", "eager"),
    ("two_streams", "small"),
)
SECONDS, SETTLING_SECONDS = 15, 6
ASK = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]


def utilization(workload: str, variant: str) -> list[int]:
    """Ask while the program runs; percent, once a second."""
    command = [sys.executable, "-m", f"tracelab.workloads.{workload}", variant, "--turns"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdout.readline()
        is_over = threading.Event()

        def drive() -> None:
            while not is_over.is_set():
                program.stdin.write("turn\n")
                program.stdin.flush()
                program.stdout.readline()

        driver = threading.Thread(target=drive)
        driver.start()
        time.sleep(SETTLING_SECONDS)
        asked = []
        for _ in range(SECONDS):
            time.sleep(1)
            asked.append(int(subprocess.check_output(ASK, text=True)))
        is_over.set()
        driver.join()
        program.kill()
    return asked


def main() -> None:
    """Print a row for each program."""
    print("| program | GPU-Util, median (range) | busy in the recording |\n|---|---|---|")
    for workload, variant in PROGRAMS:
        trace = ROOT / "traces" / f"{workload}_{variant}.pt.trace.json.gz"
        asked = utilization(workload, variant)
        [headline] = tracelab.analyze(trace).headline
        print(
            f"| {workload} {variant} | {statistics.median(asked):.0f} % "
            f"({min(asked)} to {max(asked)}) | {headline.busy_share:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
