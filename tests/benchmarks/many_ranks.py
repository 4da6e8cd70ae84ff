"""What a job costs per rank, and whether its late rank is found: ``python
tests/benchmarks/many_ranks.py``.

Jobs of 8, 64, 256 and 1,024 ranks are made of the two files of a bundled capture (see
`tests.build.planted_jobs`): each rank's clock is off by up to five seconds and drifts by up to 40
ppm. Once a step each rank comes up to 0.1 ms late, and one of them two milliseconds more, because a
kernel takes longer there. Each job is analyzed as ``tracelab analyze FOLDER --job --no-cache`` does
it, by processes that a new one starts. Columns:

- seconds: of all, and per rank of the job's processes, ms;
- job: of that, what all files' results become together, ms per rank;
- main, worker: the most memory of the process that merges, and of the largest that reads, MB;
- part: what a rank hands over for the job, packed, bytes per step;
- node: the file of parts of the first eight ranks, which has their reports, too, bytes per rank and
  step.

Then, for each job, what the report says of the late rank beside what was planted, and how well it
knows the clocks: the largest residual, and how far off the arrivals of all ranks really are.
"""

from __future__ import annotations

import argparse
import lzma
import resource
import sys
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.build.planted_jobs import PlantedClock, PlantedJob, plant_job
from tracelab.analysis.parts import pack_part, pack_parts
from tracelab.analysis.reports import FileResult, analyze_file, drop_program, merge_results
from tracelab.base.options import Options
from tracelab.cli.many_files import map_files
from tracelab.job.merge import Job
from tracelab.read.sources import find_sources
from tracelab.render.registry import render_as
from tracelab.system.processes import processors

TRACES = Path(__file__).parents[2] / "traces"
CAPTURES = [TRACES / f"ddp_hook_default_stream_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
_LATENESS_NS, _JITTER_NS = 2_000_000, 100_000
_COLLECTIVES_PER_STEP = 8
_RANKS_OF_NODE = 8
_SEED = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """What one job costs, by the names of the columns, and what its report says."""

    figures: dict[str, float]
    found: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256, 1024])
    found = []
    for ranks in parser.parse_args().ranks:
        with TemporaryDirectory() as folder:
            planted = _plant(Path(folder), ranks)
            # A worker of a pool may not start processes, as this one does.
            process = get_context("spawn").Process
            receiver, sender = get_context("spawn").Pipe(duplex=False)
            child = process(target=_measure_for, args=(sender, planted))
            child.start()
            sender.close()  # so that a child that ends early is noticed
            measured = receiver.recv()
            child.join()
        if not found:
            print(*(f"{name:>12}" for name in ("ranks", *measured.figures)))
        print(f"{ranks:12,}", *(f"{value:12,.1f}" for value in measured.figures.values()))
        found.append(f"{ranks:,} ranks: {measured.found}")
    print(*found, sep="\n")


def _measure_for(sender, planted: PlantedJob) -> None:
    sender.send(measure(planted))


def measure(planted: PlantedJob) -> Measured:
    """What a job costs."""
    options, ranks = Options(cache=False, job=True), len(planted.paths)
    begun = time.perf_counter()
    sources = find_sources(planted.paths)
    results = map_files(partial(analyze_file, options=options), sources)
    analyzed = time.perf_counter()
    report = merge_results(results, planted.paths, options)
    render_as(report, "text", recordings=[report], width=100, color=False)
    seconds, job_s = time.perf_counter() - begun, time.perf_counter() - analyzed
    main_mb, worker_mb = map(_peak_mb, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    node = [drop_program(result) for result in results[:_RANKS_OF_NODE]]
    steps = len(node[0].part.steps.number)
    figures = {
        "seconds": seconds,
        "ms per rank": 1e3 * seconds * min(ranks, processors()) / ranks,
        "job ms": 1e3 * job_s / ranks,
        "main MB": main_mb,
        "worker MB": worker_mb,
        "part B/step": len(lzma.compress(pack_part(node[0].part))) / steps,
        "node B/step": len(pack_parts(node, planted.paths, options)) / steps / len(node),
    }
    return Measured(figures, _said(report.job, planted, results))


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
        jitter_ns=_JITTER_NS,
    )


def _said(job: Job, planted: PlantedJob, results: list[FileResult]) -> str:
    """Who is late by the report, and how well it knows the clocks."""
    arrival_ns = planted.arrival_ns[:, planted.late_at]
    late = len(planted.paths) // 2
    others_ns = np.delete(arrival_ns, late, axis=0).max(axis=0)
    planted_ns = float(np.median(arrival_ns[late] - others_ns))
    stragglers = [
        f"rank {x.rank} ({x.cause}) costs {x.cost_ns / 1e6:.3f} ms a step, planted: rank {late}, "
        f"{planted_ns / 1e6:.3f} ms"
        for x in job.stragglers
    ]
    alignment = job.alignment
    reference = alignment.reference_rank
    [origin_ns] = [x.part.origin_ns for x in results if x.part and x.part.rank == reference]
    really_ns = planted.by_clock(reference, planted.arrival_ns) - origin_ns
    seen_ns = np.array([x.arrival_ns for x in job.collectives]).T
    off_us = np.abs(seen_ns - really_ns).max() / 1e3
    return (
        f"{'; '.join(stragglers) or 'no straggler'}; clocks within "
        f"{alignment.residual_ns / 1e3:.1f} us by the report, {off_us:.1f} us in truth"
    )


def _peak_mb(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()
