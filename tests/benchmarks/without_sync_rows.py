"""What is known without synchronization rows: ``python -m tests.benchmarks.without_sync_rows``.

torch.profiler writes them only with ``enable_cuda_sync_events``, and on ROCm there are none. Every
bundled capture with event records is analyzed twice: as it is, and without any such row. What an
activity or a blocking call waited for is right when it is the very activity that the rows tell.
The last lines are of files whose rows lack only what `tests.benchmarks.inferred_waits` takes away.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace

import numpy as np

from tests.benchmarks.inferred_waits import TRACES, captures, without_records, without_streams
from tests.bundled_traces import shared
from tracelab.model.binding import Constraint
from tracelab.model.graph import EdgeKind, Graph, build_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import Category, Trace
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of the blocking calls and activities of files.

    Attributes:
        calls: blocking calls of which the rows name what they waited for last.
        right: those that have the same without the rows.
        other: those that have another one; the rest have none.
        delayed: activities that, by the rows, started when work of another stream had ended.
        found: those for which the same work is found without the rows.
        inferred: activities of which that is found without the rows.
        activities: all.
        same: those of which the binding says the same without the rows.
    """

    calls: int = 0
    right: int = 0
    other: int = 0
    delayed: int = 0
    found: int = 0
    inferred: int = 0
    activities: int = 0
    same: int = 0

    def __add__(self, score: Score) -> Score:
        return Score(*map(operator.add, astuple(self), astuple(score)))


def without_rows(trace: Trace) -> Trace:
    """The trace as it is written by default: no row says what waits or for what."""
    gone = np.isin(trace.category, (Category.SYNC, Category.CUDA_EVENT))
    return replace(trace, category=np.where(gone, np.int8(Category.OTHER), trace.category))


def awaited_last(graph: Graph) -> dict[int, int]:
    """For each blocking call, by event id, the activity that it waited for and that ended last."""
    is_sync = graph.kind == EdgeKind.SYNC
    source_id, target_id = graph.source_id[is_sync], graph.target_id[is_sync]
    order = np.argsort(graph.host.timeline.trace.end_ns[source_id], kind="stable")
    return dict(zip(target_id[order].tolist(), source_id[order].tolist(), strict=True))


def score(trace: Trace, without: Callable[[Trace], Trace] = without_rows) -> Score:
    """Compare what is inferred without the rows to what they say."""
    exact = build_graph(observe_host(build_timeline(trace)))
    blind = build_graph(observe_host(build_timeline(without(trace))))
    named, found = awaited_last(exact), awaited_last(blind)
    delayed, inferred = (graph.binding.constraint == Constraint.EVENT for graph in (exact, blind))
    delayed &= ~exact.binding.event_is_inferred
    same = exact.binding.constraint == blind.binding.constraint
    same &= exact.binding.source_row == blind.binding.source_row
    return Score(
        calls=len(named),
        right=sum(found.get(call) == source for call, source in named.items()),
        other=sum(call in found and found[call] != named[call] for call in named),
        delayed=int(delayed.sum()),
        found=int((delayed & same).sum()),
        inferred=int(inferred.sum()),
        activities=len(same),
        same=int(same.sum()),
    )


def measure(without: Callable[[Trace], Trace] = without_rows) -> dict[str, Score]:
    """The score of the captures with event records, by workload."""
    return {
        workload: sum((score_of(file, without) for file in files), start=Score())
        for workload, files in captures().items()
    }


def score_of(file: str, without: Callable[[Trace], Trace] = without_rows) -> Score:
    """The score of a bundled file."""
    return _score_of(file, without.__name__)


@shared
def _score_of(file: str, without: str) -> Score:
    [source] = find_sources([str(TRACES / file)])
    return score(read_trace(source), globals()[without])


def main() -> None:
    print(
        f"{'':16}{'calls':>7}{'right':>7}{'other':>7}{'delayed':>9}{'found':>7}"
        f"{'inferred':>10}{'activities':>12}{'same':>8}"
    )
    scores = measure()
    for workload, of_workload in scores.items():
        print(_line(workload, of_workload))
    print(_line("total", _total(scores)))
    print(_line("no record named", _total(measure(without_records))))
    print(_line("no stream named", _total(measure(without_streams))))


def _total(scores: dict[str, Score]) -> Score:
    return sum(scores.values(), start=Score())


def _line(name: str, x: Score) -> str:
    return (
        f"{name:16}{x.calls:7,}{x.right:7,}{x.other:7,}{x.delayed:9,}{x.found:7,}"
        f"{x.inferred:10,}{x.activities:12,}{x.same:8,}{x.same / x.activities:8.1%}"
    )


if __name__ == "__main__":
    main()
