"""How long one trace of some 10 MB takes: ``python tests/benchmarks/small_trace.py``.

Whole processes, in turn: the analysis with its text, and for comparison a Python that does nothing
but decode the same file with the standard library's json. The ratio is what to quote; the seconds
depend on the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECODE = "import json, sys; json.load(open(sys.argv[1]))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=ROOT / "traces/events_item.pt.trace.json.gz")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        repeat(arguments.trace, arguments.megabytes * 1e6, file)
        commands = {
            "tracelab analyze": [sys.executable, "-m", "tracelab", "analyze", str(file)],
            "json.load": [sys.executable, "-c", DECODE, str(file)],
            "tracelab --help": [sys.executable, "-m", "tracelab", "--help"],
            "python -c pass": [sys.executable, "-c", "pass"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(arguments.runs):
            for name, command in commands.items():
                begun = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
                seconds[name].append(time.perf_counter() - begun)
        print(f"{file.stat().st_size / 1e6:.1f} MB, median of {arguments.runs} runs")
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        print(f"{name:18} {median:7.3f} s  {median / medians['json.load']:6.2f} x json.load")


def repeat(trace: Path, size: float, file: Path) -> None:
    """Write a trace of about this size: the given one again and again, later and renumbered."""
    data = json.loads(gzip.decompress(trace.read_bytes()))
    events = data["traceEvents"]
    timed = [event for event in events if "ts" in event]
    length = max(x["ts"] + x.get("dur", 0) for x in timed) - min(x["ts"] for x in timed)
    ids = 1 + max(x.get("args", {}).get("correlation", 0) for x in events)
    copies = max(1, round(size / len(json.dumps(events))))
    data["traceEvents"] = [
        _moved(event, number * length, number * ids) for number in range(copies) for event in events
    ]
    file.write_text(json.dumps(data))


def _moved(event: dict[str, object], time_us: float, ids: int) -> dict[str, object]:
    moved = dict(event)
    if isinstance(ts := event.get("ts"), float | int):
        moved["ts"] = round(ts + time_us, 3)
    if isinstance(arguments := event.get("args"), dict):
        moved["args"] = {
            key: value + ids if key.endswith(("correlation", "corr_id")) and value > 0 else value
            for key, value in arguments.items()
        }
    return moved


if __name__ == "__main__":
    main()
