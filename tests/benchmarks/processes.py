"""What several processes win for one huge file: ``python tests/benchmarks/processes.py``.

Reads the same file by more and more processes, each time from a fresh one, and prints the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from large_traces import PLAIN, repeat

ROOT = Path(__file__).parents[2]
READ = """
import resource, sys, time
from tracelab.read.reader import read_trace_in_chunks
from tracelab.read.sources import Source
begun = time.perf_counter()
trace = read_trace_in_chunks(Source(sys.argv[1], None, True), int(sys.argv[2]))
print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    processors = len(os.sched_getaffinity(0))
    counts = [count for count in (1, 2, 4, 8, 16, 32) if count <= processors]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        repeat(PLAIN, arguments.megabytes * 1e6, file)
        megabytes = file.stat().st_size / 1e6
        runs: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
        for _ in range(arguments.rounds):
            for count in counts:
                command = [sys.executable, "-c", READ, str(file), str(count)]
                done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
                seconds, peak = map(float, done.stdout.split())
                runs[count].append((seconds, peak))
    print("| processes | seconds | MB/s | peak MB |\n|--:|--:|--:|--:|")
    for count, measured in runs.items():
        seconds, peak = (statistics.median(values) for values in zip(*measured, strict=True))
        print(f"| {count} | {seconds:.2f} | {megabytes / seconds:.0f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
