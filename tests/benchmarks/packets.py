"""Processor time of reading ``.pftrace`` and JSON: ``python -m tests.benchmarks.packets``.

The files have the same events: those of `tests/data`, each repeated in itself.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tracelab.read.reader import read_trace

FOLDER = Path(__file__).parents[1] / "data/torch_2.15"
REPEATS = 300


def main() -> None:
    packets = gzip.decompress((FOLDER / "cuspy.pftrace.gz").read_bytes())
    trace = json.loads(gzip.decompress((FOLDER / "cuspy.json.gz").read_bytes()))
    contents = {
        "step.pftrace": packets * REPEATS,
        "step.json": json.dumps(trace | {"traceEvents": trace["traceEvents"] * REPEATS}).encode(),
    }
    per_event_us = {}
    with TemporaryDirectory() as folder:
        for name, content in contents.items():
            path = Path(folder, name)
            path.write_bytes(content)
            start_s = time.process_time()
            events = len(read_trace(path))
            per_event_us[name] = (time.process_time() - start_s) / events * 1e6
            print(f"{name}: {events:,} events, {per_event_us[name]:.1f} us each")
    print(f"{per_event_us['step.pftrace'] / per_event_us['step.json']:.1f} times")


if __name__ == "__main__":
    main()
