"""For tests of jobs of several ranks, made by hand: clocks, and ranks that meet in collectives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from tests.build.rows import US, annotation, call, comm, graph, kernel, launch, python, step
from tracelab.job.clocks import Alignment, RankClock
from tracelab.job.matching import Basis, Matches
from tracelab.job.part import rank_part
from tracelab.measures.blocking_calls import blocking_calls
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.idle_culprits import idle_culprits
from tracelab.measures.unprofiled_windows import start_up
from tracelab.measures.window_times import window_times
from tracelab.model.collectives import collectives
from tracelab.model.phases import Phases
from tracelab.model.program.source_lines import SourceLines
from tracelab.simulate.baseline import Baseline, find_baseline


@dataclass(frozen=True)
class KnownClocks:
    """Clocks of which the offsets and residuals are given."""

    offsets: tuple[int, ...]
    residuals: tuple[int | None, ...]

    @property
    def alignment(self):
        per_rank = tuple(
            RankClock(rank, offset, 0.0, 1, residual, "collectives")
            for rank, (offset, residual) in enumerate(
                zip(self.offsets, self.residuals, strict=True)
            )
        )
        return Alignment(max((x or 0 for x in self.residuals), default=0), 0, per_rank)

    def job_ns_of(self, part_index, times_ns):
        return times_ns + self.offsets[part_index]


def one_clock(ranks, residual=0):
    """The clock of ranks that agree to within a residual."""
    return KnownClocks((0,) * ranks, (residual,) * ranks)


def matches_of(*members, basis=Basis.ORDER):
    """Matches of (part, operation) pairs: ``matches_of([(0, 0), (1, 0)], [(0, 1), (1, 1)])``."""
    flat = [member for match in members for member in match]
    return Matches(
        first=np.cumsum([0, *map(len, members)]).astype(np.int64),
        part_index=np.array([part for part, _ in flat], dtype=np.int32),
        operation_index=np.array([index for _, index in flat], dtype=np.int64),
        basis=np.full(len(members), basis, dtype=np.int8),
        unmatched=np.zeros(1, dtype=np.int64),
        unmatched_why=("",),
    )


@dataclass(frozen=True)
class Turn:
    """What a rank does before a collective, us: idle while its host is busy, then compute."""

    compute: int
    idle: int = 0
    beside: int = 0  # compute that runs beside the collective
    loading: int = 0  # how much of the idle time the host waits for a data loader, first


def job_of(*ranks, transfer=10, collectives_per_step=1, groups=None, is_replayed=False):
    """The parts of ranks that meet in an all-reduce after each `Turn`, and their matches.

    The collective moves data for `transfer` us once all of its group have come; the host waits for
    it and for the compute beside it. `groups` are those of each collective of a step, all ranks
    unless given: ``[[(0, 1), (2, 3)], [(0, 2), (1, 3)]]``.
    """
    rows, matches = rows_of_job(
        *ranks, transfer=transfer, collectives_per_step=collectives_per_step, groups=groups
    )
    parts = [part_of(*of_rank, is_replayed=is_replayed) for of_rank in enumerate(rows)]
    return parts, matches


def rows_of_job(*ranks, transfer, collectives_per_step, groups=None):
    """The rows of the ranks of `job_of`, in microseconds, and their matches."""
    turns = [[Turn(x) if isinstance(x, int) else x for x in rank] for rank in ranks]
    groups = groups or [[tuple(range(len(ranks)))]]
    now, begun = [100] * len(ranks), [90] * len(ranks)
    rows = [[] for _ in ranks]
    matches = []
    for number in range(len(turns[0])):
        of_rank = [rank[number] for rank in turns]
        arrivals = [at + x.idle + x.compute for at, x in zip(now, of_rank, strict=True)]
        for group in groups[number % len(groups)]:
            end = max(arrivals[rank] for rank in group) + transfer
            matches.append([(rank, number) for rank in group])
            for rank in group:
                rows[rank] += _rows(of_rank[rank], number, now[rank], arrivals[rank], end)
                now[rank] = max(end, arrivals[rank] + of_rank[rank].beside)
                launched = arrivals[rank] - of_rank[rank].compute + 3
                rows[rank].append(call("cudaStreamSynchronize", launched, now[rank]))
                if (number + 1) % collectives_per_step == 0:
                    rows[rank].append(step(number, begun[rank], launched))
                    begun[rank] = launched
    return rows, matches_of(*matches)


def _rows(turn, number, at, arrival, end):
    """What a rank does in one turn, and the collective after it."""
    correlation, start = 10 * number + 1, at + turn.idle
    rows = [
        launch(start - 1, start, correlation),
        kernel(start, arrival, correlation=correlation),
        launch(start, start + 1, correlation + 1),
        comm(arrival, end, stream=20, correlation=correlation + 1),
    ]
    if turn.loading:
        rows.append(annotation("enumerate(DataLoader)#__next__", at, at + turn.loading))
    if turn.idle > turn.loading:
        rows.append(python("train.py(3): prepare", at + turn.loading, start))
    if turn.beside:
        rows += [
            launch(start + 1, start + 2, correlation + 2),
            kernel(arrival, arrival + turn.beside, correlation=correlation + 2),
        ]
    return rows


def part_of(rank, rows, *, is_replayed=False, windows=None):
    """What a rank's file gives to its job; times of rows are in microseconds."""
    made = _graph_of(rows)
    idle = bubbles(made)
    return rank_part(
        made,
        Phases(made.host),
        collectives(made.host.timeline),
        idle,
        idle_culprits(made, idle),
        exposed(made),
        SourceLines(()),
        rank,
        windows or made.host.timeline.windows,
        find_baseline(made) if is_replayed else Baseline(),
        {},
    )


def tables_of(rows, plain_us):
    """What is measured of ranks, of which a step takes so long without the profiler, us."""
    tables = {"windows": [], "steady": []}
    for rank, made in enumerate(map(_graph_of, rows)):
        timeline, idle = made.host.timeline, bubbles(made)
        windows = window_times(
            made, None, idle, start_up(made, idle), exposed(made), blocking_calls(made, idle)
        )
        tables["windows"] += [replace(window, rank=rank) for window in windows]
        steady, count = timeline.steady, len(timeline.steady.indices)
        length_ns = steady.window.length_ns
        step_ns, plain_ns = length_ns // count, plain_us * US
        tables["steady"].append(
            row(
                rank=rank,
                steps=tuple(timeline.steps[index].number for index in steady.indices),
                step_ns=step_ns,
                length_ns=length_ns,
                unprofiled_step_ns=plain_ns,
                unprofiled_ns=count * plain_ns if 1.1 * plain_ns <= step_ns else None,
            )
        )
    return tables


def _graph_of(rows):
    return graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))


def row(**fields):
    """A row of a table, of which only some columns are looked at."""
    return SimpleNamespace(**fields)
