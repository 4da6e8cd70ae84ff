"""Reading Perfetto traces against JSON: ``python -m tests.benchmarks.perfetto_traces``.

A bundled capture is repeated and written in both formats of PyTorch's own CUPTI collector, then
each is read in turns in one process. The ratio counts: seconds depend on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.build import collector_packets, cupti_collector
from tests.build.cupti_collector import Window
from tracelab.read.reader import read_trace

CAPTURE = Path(__file__).parents[2] / "traces/fsdp_prefetch_rank0.pt.trace.json.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=CAPTURE)
    parser.add_argument("--times", type=int, default=10, help="how often it is repeated")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    recorded = cupti_collector.collect(cupti_collector.load(arguments.trace))
    recorded = repeated(recorded, arguments.times)
    with tempfile.TemporaryDirectory() as folder:
        chrome = cupti_collector.chrome(recorded)
        files = {
            "JSON": cupti_collector.write(chrome, Path(folder, "a.json")),
            "JSON, packed": cupti_collector.write(chrome, Path(folder, "a.json.gz")),
            "packets": Path(folder, "a.pftrace"),
            "packets, packed": collector_packets.write(recorded, Path(folder, "b.pftrace")),
        }
        files["packets"].write_bytes(collector_packets.perfetto_trace(recorded))
        events = len(read_trace(files["packets"]))
        seconds: dict[str, list[float]] = {name: [] for name in files}
        for _ in range(arguments.turns):
            for name, path in files.items():
                seconds[name].append(_seconds(lambda path=path: read_trace(path)))
        print(f"{events:,} events")
        base = median(seconds["JSON"])
        for name, path in files.items():
            took = median(seconds[name])
            print(
                f"{name:16} {path.stat().st_size / 1e6:8.1f} MB {took:7.2f} s "
                f"{1e6 * took / events:6.2f} us an event, {took / base:5.2f} x JSON"
            )


def repeated(window: Window, times: int) -> Window:
    """A recording again and again, later each time."""
    all_rows = [row for rows in window.rows.values() for row in rows]
    length_ns = max(row.end_ns for row in all_rows) - min(row.start_ns for row in all_rows)
    complete = [event for event in window.host_events if event["ph"] == "X"]
    others = [event for event in window.host_events if event["ph"] != "X"]
    return replace(
        window,
        host_events=others
        + [
            event | {"ts": event["ts"] + i * length_ns // 1000}
            for i in range(times)
            for event in complete
        ],
        rows={
            category: [
                replace(
                    row,
                    start_ns=row.start_ns + i * length_ns,
                    end_ns=row.end_ns + i * length_ns,
                    args=row.args | {"correlation": row.args.get("correlation", 0) + i * 10**6},
                )
                for i in range(times)
                for row in rows
            ]
            for category, rows in window.rows.items()
        },
    )


def _seconds(run: Callable[[], object]) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
