"""What traces with very many devices, threads or process groups cost: ``python -m
tests.benchmarks.crowds``.

Each trace is analyzed in a process of its own, once with a quarter of the crowd and once with all
of it. Columns: how many there are, the size of the file, the processor's time for the analysis and
the first screen, s, and the most memory that the process had, MB.
"""

from __future__ import annotations

import resource
import time
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.build.crowds import CROWDS, crowd
from tests.build.files import write
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.render.registry import render_as

_COUNTS = dict(zip(CROWDS, (2_000, 10_000, 10_000, 300, 500), strict=True))


def main() -> None:
    print(f"{'':>26} {'count':>7} {'file MB':>8} {'s':>7} {'MB':>7}")
    with TemporaryDirectory() as folder:
        for name, count in _COUNTS.items():
            for some in (count // 4, count):
                path = Path(folder) / "trace.json"
                # Both in a process of their own: a new one begins with the peak of this one.
                with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
                    pool.apply(_write, (path, name, some))
                    seconds, peak_mb = pool.apply(_analyze, (path,))
                size_mb = path.stat().st_size / 1e6
                print(f"{name:>26} {some:>7,} {size_mb:>8.1f} {seconds:>7.1f} {peak_mb:>7.0f}")


def _write(path: Path, name: str, count: int) -> None:
    write(path, crowd(name, count))


def _analyze(path: Path) -> tuple[float, float]:
    begin = time.process_time()
    render_as(analyze(path, Options(cache=False)), "text", width=100, color=False)
    seconds = time.process_time() - begin
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
