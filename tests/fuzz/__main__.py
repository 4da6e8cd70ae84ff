"""Give the package inputs that lie, and keep those that are defects: ``make fuzz``.

    python -m tests.fuzz [--seconds 60] [--seed 1] [--plain] [--jobs 2] [TARGET ...]

All targets of ``tests/fuzz/targets.py`` without a name; each gets the same share of the time and a
process of its own, whose memory is limited. Where atheris is installed (``pip install atheris``),
inputs are chosen by the branches that they reach; with ``--plain``, or without it, by chance alone.
A defect is written to ``build/fuzz``; once it is mended, a small form of it belongs in
``tests/fuzz/corpus/TARGET``, which the tests read. Exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.targets import TARGETS

FOLDER = Path("build", "fuzz")
_FIGURES = ("seconds", "inputs", "read", "refused", "megabytes")
# For the start, the inputs that are kept, and a slow one at the end; and on a busy machine.
_MAX_SECONDS_MORE, _MAX_TIMES_LONGER = 120, 20


def main() -> int:
    """Run the targets; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[[], *TARGETS])
    parser.add_argument(
        "--seconds", type=int, default=60, help="of the processor, of all targets together"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    arguments = parser.parse_args()
    names = arguments.targets or [*TARGETS]
    is_guided = not arguments.plain and importlib.util.find_spec("atheris") is not None
    seconds = max(1, arguments.seconds * arguments.jobs // len(names))
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"{seconds} s each, {'by coverage' if is_guided else 'by chance'}", flush=True)
    print(
        "| target | processor, s | inputs | read | refused | memory, MB | defects |\n"
        "|---|---|---|---|---|---|---|",
        flush=True,
    )

    def run(name: str) -> int:
        command = [sys.executable, "-m", "tests.fuzz.run", name, str(seconds), str(arguments.seed)]
        try:
            done = subprocess.run(
                [*command, *(["--guided"] if is_guided else [])],
                check=False,
                capture_output=True,
                text=True,
                timeout=_MAX_TIMES_LONGER * seconds + _MAX_SECONDS_MORE,
            )
        except subprocess.TimeoutExpired:
            print(f"| {name} | it does not end |", flush=True)
            return 1
        said = [line for line in done.stdout.splitlines() if line.startswith('{"inputs"')]
        if not said:
            print(
                f"| {name} | it ended with {done.returncode}: {done.stderr[-2000:]} |", flush=True
            )
            return 1
        row = json.loads(said[-1])
        figures = " | ".join(f"{row[x]:,}" for x in _FIGURES)
        print(f"| {name} | {figures} | {len(row['defects'])} |", flush=True)
        for defect, file in row["defects"].items():
            print(f"  {file}: {defect}", flush=True)
        return len(row["defects"])

    with ThreadPoolExecutor(arguments.jobs) as executor:
        return int(sum(executor.map(run, names)) > 0)


if __name__ == "__main__":
    sys.exit(main())
