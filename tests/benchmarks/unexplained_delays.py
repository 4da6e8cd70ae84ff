"""How sure it is what activities waited for: ``python tests/benchmarks/unexplained_delays.py``.

For each trace (arguments; by default the bundled ones) the share of the window that lies in delays
of more than 20 us which neither the file nor the times explain, of the device with most of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tracelab import analyze

TRACES = Path(__file__).parents[2] / "traces"


def shares(paths: Sequence[Path]) -> dict[str, float]:
    """The share of each trace, by its name without ending."""
    return {
        path.name.split(".")[0]: max(
            row.unexplained_share for row in analyze(path).starts if row.step is None
        )
        for path in paths
    }


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(TRACES.glob("*.json.gz"))
    unexplained = shares(paths)
    for name, share in unexplained.items():
        if share:
            print(f"{name:44}{share:8.2%}")
    without = sum(not share for share in unexplained.values())
    print(f"nothing unexplained in {without} of {len(unexplained)} traces")


if __name__ == "__main__":
    main()
