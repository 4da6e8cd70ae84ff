"""Capture the bundled traces anew: ``python -m tests.build.capture_workloads traces --gpus 2``.

The folder's ``manifest.json`` lists them. Each line that was captured is completed with what it was
made on and its checksums; where a variant has a fix, also with what a step of both takes without a
profiler, timed in turns in the same run. What a trace must show is written by hand and stays. Lines
under "planned" have no capture yet; one that gets it joins the others.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from tests.build.workload_turns import summary, take_turns, takes_turns_with
from tracelab.system.files import write_file
from tracelab.workloads.catalog import Entry, find

_TIMEOUT_S = 120
_GROUPS_AT_ONCE = 3  # one uses the GPU while the processes of the next start


def main() -> int:
    """Capture the traces of a manifest; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.build.capture_workloads", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="the folder with manifest.json")
    parser.add_argument("--gpus", type=int, help="only those for exactly so many GPUs")
    parser.add_argument("--only", default="", help="only files whose name begins like this")
    parser.add_argument("--times", action="store_true", help="only time variants and their fixes")
    arguments = parser.parse_args()
    available = torch.cuda.device_count()
    gpus = arguments.gpus or available
    if not 1 <= gpus <= available:
        message = f"the captures need {max(gpus, 1)} NVIDIA GPUs, but found {available}"
        print(message, file=sys.stderr)
        return 4
    path = arguments.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    lines = [
        line
        for line in (*manifest["traces"], *manifest.get("planned", ()))
        if (line["gpus"] == gpus or (arguments.gpus is None and line["gpus"] < gpus))
        and line["files"][0].startswith(arguments.only)
    ]
    machine, failures, gpu = _machine(), 0, Lock()
    with ThreadPoolExecutor(_GROUPS_AT_ONCE) as executor:
        groups = _groups(lines)
        capture = _time_group if arguments.times else _capture_group
        begun = [executor.submit(capture, group, arguments.folder, gpu) for group in groups]
        for group, captured in zip(groups, begun, strict=True):
            if captured.result():
                for line in () if arguments.times else group:
                    _leave_listed(line, arguments.folder)
                    line.update(machine, sha256=_checksums(line, arguments.folder))
                    manifest = with_captured(manifest, line)
                write_file(path, (json.dumps(manifest, indent=2) + "\n").encode())
            else:
                failures += 1
                print(f"not captured: {group[0]['files'][0]}", file=sys.stderr)
    return min(failures, 1)


def with_captured(manifest: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """The manifest with a line that has a capture now among those that have one."""
    planned = [other for other in manifest.get("planned", ()) if other is not line]
    is_new = all(other is not line for other in manifest["traces"])
    traces = [*manifest["traces"], *([line] if is_new else [])]
    others = {key: value for key, value in manifest.items() if key != "planned"}
    return {**others, "traces": traces, **({"planned": planned} if planned else {})}


def _groups(lines: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Lines whose variants take turns belong together; every other line is alone."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in lines:
        turns = _turns(line)
        names = [line["workload"], *(x.variant for x in turns)] if turns else line["files"]
        groups.setdefault(tuple(names), []).append(line)
    return [*groups.values()]


def _turns(line: dict[str, Any]) -> tuple[Entry, ...]:
    """The variants that the one of a line takes turns with; none of a plain capture."""
    if "--plain" in line["arguments"]:
        return ()
    return takes_turns_with(find(line["workload"], line["arguments"][0]))


def _capture_group(group: list[dict[str, Any]], folder: Path, gpu: Lock) -> bool:
    """Capture lines whose variants take turns, or a line that is alone."""
    if not _turns(group[0]):
        with gpu:
            return _capture(group[0], folder)
    arguments = {
        line["arguments"][0]: [*line["arguments"][1:], "--output", _output(line, folder)]
        for line in group
    }
    return _take_turns(group, arguments, gpu)


def _time_group(group: list[dict[str, Any]], _folder: Path, gpu: Lock) -> bool:
    """Time lines whose variants take turns, and leave their captures as they are."""
    return not _turns(group[0]) or _take_turns(group, {}, gpu)


def _take_turns(group: list[dict[str, Any]], arguments: dict[str, list[str]], gpu: Lock) -> bool:
    """Time the variants of a group and record those that are given arguments."""
    try:
        turns_ms = take_turns(_turns(group[0]), arguments, gpu)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return False
    for line in group:
        line["without_profiler_ms"] = {name: summary(some) for name, some in turns_ms.items()}
    return True


def _output(line: dict[str, Any], folder: Path) -> str:
    """Where a line's capture goes, each rank's to a file of its own."""
    return str(folder / re.sub(r"_rank\d+\.", "_rank{rank}.", line["files"][0]))


def _capture(line: dict[str, Any], folder: Path) -> bool:
    """Run a line's command in a process of its own: a later profiler in one was seen to hang."""
    module = f"tracelab.workloads.{line['workload']}"
    output = _output(line, folder)
    command = [sys.executable, "-m", module, *line["arguments"], "--output", output]
    try:
        return subprocess.run(command, check=False, timeout=_TIMEOUT_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _leave_listed(line: dict[str, Any], folder: Path) -> None:
    """Remove what other ranks wrote where a line lists one rank only."""
    for path in folder.glob(re.sub(r"_rank\d+\.", "_rank*.", line["files"][0])):
        if path.name not in line["files"]:
            path.unlink()


def _checksums(line: dict[str, Any], folder: Path) -> dict[str, str]:
    """The sha256 of each of a line's files, by name."""
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in line["files"]
    }


def _machine() -> dict[str, str | None]:
    """What the captures are made on, as a line of the manifest says it."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": driver.stdout.splitlines()[0].strip(),
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


if __name__ == "__main__":
    sys.exit(main())
