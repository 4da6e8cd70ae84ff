"""What a job costs per rank, and whether its late rank is found: ``python
tests/benchmarks/many_ranks.py``.

Jobs of 2, 8, 32 and 64 ranks are made of the two files of a bundled capture (see
`tests.build.planted_jobs`): each rank's clock is off by up to five seconds and drifts by up to 40
ppm, and once a step one rank comes two milliseconds late, because a kernel takes longer there. Each
job is analyzed in a process of its own. Columns, all but the second per rank; the last line is the
largest job beside the smallest:

- file: the time of analyzing a file alone, ms;
- peak: by how much the process grew while it analyzed all files, one after another, MB;
- part: how much of a file reaches the job, kB, and how much that is for each operation, bytes;
- job: the time of all that the files' results become together, ms, and the memory it takes, kB;
- match, align, members: the time of three parts of that, ms.

Then, for each job, what the report says of the late rank, and how well it knows the clocks: the
largest residual, and how far off the arrivals of all ranks really are.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.build.planted_jobs import PlantedClock, PlantedJob, plant_job
from tracelab.analysis.reports import FileResult, analyze_file, merge_results
from tracelab.base.options import Options
from tracelab.job.clocks import align
from tracelab.job.matching import match
from tracelab.job.merge import Job
from tracelab.job.operation_members import find_members
from tracelab.read.sources import find_sources

TRACES = Path(__file__).parents[2] / "traces"
CAPTURES = [TRACES / f"ddp_hook_default_stream_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
_LATENESS_NS = 2_000_000
_COLLECTIVES_PER_STEP = 8
_SEED = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """What one job costs; times and memory per rank.

    Attributes:
        ranks: how many it has.
        figures: by their names in the table.
        found: what its report says.
    """

    ranks: int
    figures: dict[str, float]
    found: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 32, 64])
    jobs = []
    for ranks in parser.parse_args().ranks:
        with TemporaryDirectory() as folder, get_context("spawn").Pool(1) as pool:
            jobs.append(pool.apply(measure, (_plant(Path(folder), ranks),)))
    print(_line("ranks", jobs[0].figures))
    for job in jobs:
        print(_line(str(job.ranks), [f"{value:.2f}" for value in job.figures.values()]))
    pairs = zip(jobs[0].figures.values(), jobs[-1].figures.values(), strict=True)
    print(_line("ratio", [f"{last / first:.2f}" if first else "-" for first, last in pairs]))
    for job in jobs:
        print(f"{job.ranks} ranks: {job.found}")


def _line(first: str, cells: Iterable[str]) -> str:
    return " ".join(f"{cell:>11}" for cell in (first, *cells))


def measure(planted: PlantedJob) -> Measured:
    """What a job costs."""
    ranks = len(planted.paths)
    options = Options(cache=False, job=True)
    sources = find_sources(planted.paths)
    analyze_file(sources[0], options)  # what is imported on the way is no part of it
    before_mb, begun = _peak_mb(), time.perf_counter()
    results = [analyze_file(source, options) for source in sources]
    file_ms = 1e3 * (time.perf_counter() - begun) / ranks
    peak_mb = _peak_mb() - before_mb
    parts = [result.part for result in results if result.part is not None]
    part_bytes = sum(len(pickle.dumps(part)) for part in parts)
    matches, match_ms = _timed(match, parts)
    clocks, align_ms = _timed(align, parts, matches)
    _, members_ms = _timed(find_members, parts, matches, clocks)
    report, job_ms = _timed(merge_results, results, planted.paths, options)
    figures = {
        "file ms": file_ms,
        "peak MB": peak_mb,
        "part kB": part_bytes / ranks / 1e3,
        "B/operation": part_bytes / sum(map(len, parts)),
        "job ms": job_ms / ranks,
        "job kB": _most_bytes(merge_results, results, planted.paths, options) / ranks / 1e3,
        "match ms": match_ms / ranks,
        "align ms": align_ms / ranks,
        "members ms": members_ms / ranks,
    }
    return Measured(ranks, figures, _said(report.job, planted, results))


def _plant(folder: Path, ranks: int) -> PlantedJob:
    random = np.random.default_rng(_SEED)
    offsets_ns = random.integers(-5_000_000_000, 5_000_000_000, ranks)
    clocks = [
        PlantedClock(offset_ns, drift_ppm)
        for offset_ns, drift_ppm in zip(
            offsets_ns.tolist(), random.uniform(-40, 40, ranks).tolist(), strict=True
        )
    ]
    return plant_job(
        folder,
        CAPTURES,
        clocks,
        straggler=ranks // 2,
        lateness_ns=_LATENESS_NS,
        late_every=_COLLECTIVES_PER_STEP,
    )


def _said(job: Job, planted: PlantedJob, results: list[FileResult]) -> str:
    """Who is late by the report, and how well it knows the clocks."""
    stragglers = [
        f"rank {x.rank} ({x.cause}) costs {x.cost_ns / 1e6:.3f} ms a step, "
        f"{x.cost_ns / _LATENESS_NS:.2f} of what was planted"
        for x in job.stragglers
    ]
    alignment = job.alignment
    reference = alignment.reference_rank
    [origin_ns] = [x.part.origin_ns for x in results if x.part and x.part.rank == reference]
    really_ns = planted.by_clock(reference, planted.arrival_ns) - origin_ns
    arrival_ns = np.array([x.arrival_ns for x in job.collectives]).T
    off_us = np.abs(arrival_ns - really_ns).max() / 1e3
    return (
        f"{'; '.join(stragglers) or 'no straggler'}; clocks within "
        f"{alignment.residual_ns / 1e3:.1f} us by the report, {off_us:.1f} us in truth"
    )


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """A result, and how many ms it took; the second of two calls counts."""
    function(*arguments)
    begun = time.perf_counter()
    result = function(*arguments)
    return result, 1e3 * (time.perf_counter() - begun)


def _most_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """The most memory that was taken at once, bytes."""
    tracemalloc.start()
    function(*arguments)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()
