"""For tests of large jobs: the files of many ranks from those of a few, with one rank late.

A capture whose ranks compute and communicate in turns is repeated rank by rank, and times are
moved, exactly to the nanosecond:

- On the late rank one kernel before each chosen collective takes longer, and all that its GPU does
  afterwards comes later by as much. So it does on all ranks, by a jitter.
- That collective takes longer on each rank by as much as the latest one is later, because it waits,
  and all that its GPU does afterwards comes later.
- The host, which is far ahead of the GPU in these captures, stays where it is, up to the
  synchronization at the end.
- Each rank writes its times by a clock of its own.

Every gap stays as long as it was recorded, and it is known when each rank arrived where.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.build.files import Event
from tracelab.base.arrays import Int64Array

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_event")
_MOST_LISTED = 30  # PyTorch cuts longer lists of ranks


@dataclass(frozen=True, slots=True)
class PlantedClock:
    """A rank's clock: how far ahead it is when the job begins, and how much faster it runs."""

    offset_ns: int = 0
    drift_ppm: float = 0.0


@dataclass(frozen=True, slots=True)
class PlantedJob:
    """A job of which it is known how late each rank came to each collective.

    Attributes:
        paths: its files, by rank.
        clocks: their clocks.
        late_at: intp, the collectives that the straggler is late at.
        arrival_ns: int64[ranks, collectives], ns since 1970, when each rank really arrived.
        begin_ns: when the job really began, ns since 1970.
    """

    paths: tuple[str, ...]
    clocks: tuple[PlantedClock, ...]
    late_at: NDArray[np.intp]
    arrival_ns: Int64Array
    begin_ns: int

    @property
    def wait_ns(self) -> Int64Array:
        """int64[ranks, collectives], ns, how long each rank waited for the last one."""
        return self.arrival_ns.max(axis=0) - self.arrival_ns

    def by_clock(self, rank: int, times_ns: Int64Array) -> Int64Array:
        """int64, ns since 1970, what a rank's clock showed at some moments."""
        clock = self.clocks[rank]
        drifted_ns = np.rint((times_ns - self.begin_ns) * (clock.drift_ppm * 1e-6))
        return times_ns + clock.offset_ns + drifted_ns.astype(np.int64)


def plant_job(
    folder: Path,
    captures: Sequence[Path],
    clocks: Sequence[PlantedClock],
    *,
    straggler: int,
    lateness_ns: int,
    late_every: int,
    jitter_ns: int = 0,
) -> PlantedJob:
    """Write the files of a job with one late rank.

    Args:
        folder: where to.
        captures: the ranks of one recorded job, which are repeated.
        clocks: the clock of each rank of the new job.
        straggler: the rank that is late.
        lateness_ns: by how much before each chosen collective, ns.
        late_every: the first of so many collectives is chosen.
        jitter_ns: by up to how much more each rank is late there, at random, ns.
    """
    recorded = [_Recorded(path) for path in captures]
    late_at = np.arange(0, min(len(each.collective) for each in recorded), late_every)
    of_ranks = [recorded[rank % len(recorded)] for rank in range(len(clocks))]
    late_ns = np.random.default_rng(0).integers(0, jitter_ns + 1, (len(clocks), len(late_at)))
    late_ns[straggler] += lateness_ns
    moved = [
        each.moved(late_at, own_ns, late_ns.max(axis=0) - own_ns)
        for own_ns, each in zip(late_ns, of_ranks, strict=True)
    ]
    paths = tuple(str(folder / f"planted_rank{rank}.json.gz") for rank in range(len(clocks)))
    job = PlantedJob(
        paths=paths,
        clocks=tuple(clocks),
        late_at=late_at,
        arrival_ns=np.stack(
            [start_ns[each.collective] for each, (start_ns, _) in zip(of_ranks, moved, strict=True)]
        ),
        begin_ns=min(int(each.start_ns.min()) for each in recorded),
    )
    for rank, (path, each, times_ns) in enumerate(zip(paths, of_ranks, moved, strict=True)):
        start_ns, end_ns = (job.by_clock(rank, some_ns) for some_ns in times_ns)
        text = each.written(rank, len(clocks), start_ns, end_ns)
        Path(path).write_bytes(gzip.compress(text.encode(), compresslevel=1))
    return job


class _Recorded:
    """A recorded file: its events with a time, and when they began and ended, ns since 1970."""

    def __init__(self, path: Path) -> None:
        self.keys = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
        self.base_ns = int(self.keys["baseTimeNanoseconds"])
        self.events = [event for event in self.keys["traceEvents"] if "ts" in event]
        self.start_ns = self.base_ns + _ns(self.events, "ts")
        self.end_ns = self.start_ns + _ns(self.events, "dur")
        self.on_gpu = _are_on_gpu(self.events)
        is_kernel = np.array([event.get("cat") == "kernel" for event in self.events])
        is_nccl = np.array(["nccl" in event.get("name", "") for event in self.events])
        self.collective = self._by_start(is_kernel & is_nccl)
        self.kernel = self._by_start(is_kernel & ~is_nccl)

    def _by_start(self, is_chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        index = np.flatnonzero(is_chosen)
        return index[np.argsort(self.start_ns[index], kind="stable")]

    def moved(
        self, late_at: NDArray[np.intp], own_ns: Int64Array, wait_ns: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """int64[events], ns, when they begin and end in a job where this rank is late, and waits.

        `own_ns` and `wait_ns` are int64[chosen collectives], ns, by how much.
        """
        waits = self.collective[late_at]
        position = np.searchsorted(self.start_ns[self.kernel], self.start_ns[waits]) - 1
        longer = np.append(self.kernel[position], waits)
        order = np.argsort(self.end_ns[longer], kind="stable")
        longer_ns = np.append(0, np.cumsum(np.append(own_ns, wait_ns)[order]))
        late_ns, gpu_end_ns = self.end_ns[longer][order], self.end_ns[self.on_gpu].max()

        def later(times_ns: Int64Array) -> Int64Array:
            of_gpu = np.searchsorted(late_ns, times_ns, side="right")
            of_host = np.where(times_ns >= gpu_end_ns, len(late_ns), 0)
            return times_ns + longer_ns[np.where(self.on_gpu, of_gpu, of_host)]

        return later(self.start_ns), later(self.end_ns)

    def written(self, rank: int, ranks: int, start_ns: Int64Array, end_ns: Int64Array) -> str:
        """The text of the file of another rank with other times."""
        begin_us, length_us = (start_ns - self.base_ns) / 1000, (end_ns - start_ns) / 1000
        of_rank = _of_rank(rank, ranks)
        times_us = zip(begin_us.tolist(), length_us.tolist(), strict=True)
        for event, (event_begin_us, event_length_us) in zip(self.events, times_us, strict=True):
            event["ts"] = event_begin_us
            if "dur" in event:
                event["dur"] = event_length_us
            if "Process Group Ranks" in event.get("args", {}):
                event["args"] |= of_rank
        everyone = list(range(ranks))
        job = self.keys["distributedInfo"] | {"rank": rank, "world_size": ranks}
        job["pg_config"] = [job["pg_config"][0] | {"pg_size": ranks, "ranks": everyone}]
        without_own = {key: value for key, value in self.keys.items() if key != "tracelab"}
        return json.dumps(without_own | {"distributedInfo": job}, default=float)


def _are_on_gpu(events: Sequence[Event]) -> NDArray[np.bool_]:
    """bool[events], which times are the GPU's; an arrow ends where a GPU's work begins."""
    begins = {_place(event) for event in events if event.get("cat") in _ON_GPU}
    ends = [(event.get("cat"), event["ph"]) == ("ac2g", "f") for event in events]
    return np.array(
        [
            event.get("cat") in _ON_GPU or (is_end and _place(event) in begins)
            for event, is_end in zip(events, ends, strict=True)
        ]
    )


def _place(event: Event) -> tuple[Any, ...]:
    return event["pid"], event["tid"], event["ts"]


def _ns(events: Sequence[Event], key: str) -> Int64Array:
    return np.array([int(event.get(key, 0) * 1000) for event in events], dtype=np.int64)


def _of_rank(rank: int, ranks: int) -> dict[str, Any]:
    """What PyTorch writes to each communication operation of all ranks."""
    listed = ", ".join(map(str, range(min(ranks, _MOST_LISTED))))
    cut = ", ..." if ranks > _MOST_LISTED else ""
    return {"Rank": rank, "Group size": ranks, "Process Group Ranks": f"[{listed}{cut}]"}
