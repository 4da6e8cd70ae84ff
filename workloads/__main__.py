"""Capture the bundled traces anew: ``python -m workloads traces``.

The folder's ``manifest.json`` lists them. Each one is captured by its command in a process of its
own, then its line is completed with what it was made on and its checksum. What a trace must show
is written by hand and stays.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import torch


def main() -> int:
    """Capture every trace of a manifest; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m workloads", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder with manifest.json")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("the captures need an NVIDIA GPU, and found none", file=sys.stderr)
        return 4
    manifest_path = arguments.folder / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    machine = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": _driver(),
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    for trace in manifest["traces"]:
        path = arguments.folder / trace["file"]
        module, options = f"workloads.{trace['workload']}", trace["arguments"]
        command = [sys.executable, "-m", module, *options, "--output", str(path)]
        subprocess.run(command, check=True, timeout=300)
        trace.update(machine, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    manifest_path.write_text(json.dumps(manifest, indent=2) + "\n")
    return 0


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
    return answer.stdout.splitlines()[0].strip()


if __name__ == "__main__":
    sys.exit(main())
