"""How sure it is what activities waited for: ``python tests/benchmarks/unexplained_delays.py``.

For each trace (arguments; by default the bundled ones) the share of the window that lies in delays
of more than 20 us which neither the file nor the times explain, of the device with most of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tracelab import Report, analyze

TRACES = Path(__file__).parents[2] / "traces"


def share_of(report: Report) -> float:
    """The share of the whole trace."""
    return max(row.unexplained_share for row in report.starts if row.step is None)


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(TRACES.glob("*.json.gz"))
    unexplained = {path.name.split(".")[0]: share_of(analyze(path)) for path in paths}
    for name, share in unexplained.items():
        if share:
            print(f"{name:44}{share:8.2%}")
    without = sum(not share for share in unexplained.values())
    print(f"nothing unexplained in {without} of {len(unexplained)} traces")


if __name__ == "__main__":
    main()
