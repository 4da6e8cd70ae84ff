"""What a step of each variant of a workload takes, without a profiler.

    python tests/benchmarks/variants_in_turns.py three_defects

All variants take turns, each in a process of its own. Needs an NVIDIA GPU.
"""

import argparse
import json
from contextlib import nullcontext

from tests.build.workload_turns import ROUNDS, summary, take_turns
from tracelab.workloads.catalog import CATALOG


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    entries = [entry for entry in CATALOG if entry.workload == options.workload]
    for name, turns_ms in take_turns(entries, {}, nullcontext(), options.rounds).items():
        line = {"variant": name, "median_ms": summary(turns_ms)[0], "turns_ms": turns_ms}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
