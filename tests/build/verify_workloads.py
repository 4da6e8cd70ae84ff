"""Capture workloads and check what they show: ``python -m tests.build.verify_workloads traces``.

Each line of the folder's ``manifest.json`` says what its capture must show. The exit code is 1
where one does not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.build.expectations import Check, check_job, check_report
from tracelab.analysis.reports import analyze
from tracelab.base.errors import MissingSupportError

_TIMEOUT_S = 180


def main(arguments: list[str] | None = None) -> int:
    """Capture and check the lines of a manifest; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.build.verify_workloads", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="the folder with manifest.json")
    parser.add_argument("--gpus", type=int, default=1, help="only those for up to so many GPUs")
    parser.add_argument("--only", default="", help="only files whose name begins like this")
    given = parser.parse_args(arguments)
    manifest = json.loads((given.folder / "manifest.json").read_text())
    lines = [
        line
        for line in (*manifest["traces"], *manifest.get("planned", ()))
        if line["gpus"] <= given.gpus and line["files"][0].startswith(given.only)
    ]
    lines.sort(key=lambda line: -line["gpus"])  # what this machine lacks is reported first
    failed = 0
    for line in lines:
        with tempfile.TemporaryDirectory() as folder:
            problem = capture(line, folder)
            if problem == MissingSupportError.exit_code:
                return MissingSupportError.exit_code
            failed += print_checks(line, Path(folder), problem)
    print(f"{len(lines) - failed} passed, {failed} failed")
    return min(failed, 1)


def capture(line: dict[str, Any], folder: str) -> str | int | None:
    """Capture the files of a line into a folder; return the reason or exit code for none."""
    ranks = "_rank{rank}" if "_rank" in line["files"][0] else ""
    module = f"tracelab.workloads.{line['workload']}"
    output = f"{folder}/trace{ranks}.json.gz"
    command = [sys.executable, "-m", module, *line["arguments"], "--output", output]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"gave up after {_TIMEOUT_S} s"
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    if done.returncode == MissingSupportError.exit_code:
        print(last, file=sys.stderr)
        return done.returncode
    return f"{' '.join(command)} failed: {last}" if done.returncode else None


def print_checks(line: dict[str, Any], folder: Path, problem: str | int | None) -> bool:
    """Print what was found and expected of one capture; return True if anything failed."""
    if problem is not None:
        checks = [Check("capture", str(problem), "a trace", False)]
    else:
        files = [str(folder / f"trace{_rank_in(name)}.json.gz") for name in line["files"]]
        checks = check_report(analyze(files[line["rank"]]), line["expect"])
        if "job" in line:
            checks += check_job(analyze(files), line["job"])
    failed = not all(check.passed for check in checks)
    print(f"{'FAIL' if failed else 'pass'}  {line['workload']} {' '.join(line['arguments'])}")
    for check in checks:
        mark = " " if check.passed else "!"
        print(f"    {mark} {check.quantity}: {check.measured} (expected {check.expected})")
    return failed


def _rank_in(name: str) -> str:
    """Return the rank in the name of a file, as it stands there: "_rank1"; "" without one."""
    _, mark, rank = name.partition(".")[0].rpartition("_rank")
    return mark + rank if mark else ""


if __name__ == "__main__":
    sys.exit(main())
