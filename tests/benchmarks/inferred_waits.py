"""How often inferred waits are right: ``python -m tests.benchmarks.inferred_waits``.

Every bundled capture with event records is analysed as it is, which names what every wait waited
for, and as other profilers write it: stock Kineto, where no wait names its record, and PyTorch's
own CUPTI collector, where waits name the call that recorded and not its stream. An inferred source
is right when it is the very activity that the records tell, and wrong when it is any other, however
plausible.

The last four columns are of all that streams waited for, whether that delayed anything or not. A
source is implied where the records tell a later activity of the same stream.
"""

from __future__ import annotations

import json
import operator
from collections import defaultdict
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bundled_traces import shared
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import observe_host
from tracelab.model.stream_progress import StreamProgress, StreamQueues
from tracelab.model.stream_waits import resolve_waits
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import ABSENT, Category, Trace
from tracelab.model.wait_records import find_wait_records
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources

TRACES = Path(__file__).parents[2] / "traces"

# An activity was free to start when its launch call and the activity before it on its stream had
# ended. A wait held it up if what it waited for ended after that, and it started late after that
# and soon after what it waited for.
LATE_NS = 5_000
SOON_NS = 50_000


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of rows of a timeline.

    Attributes:
        inferred: rows whose source is inferred.
        right: those whose source is the one that the records tell.
        delayed: rows that the source which the records tell held up.
        found: those whose inferred source is that one.
        activities: all rows.
        same: those of which the binding says the same with and without the records.
        recorded: what rows waited for on other streams, by the records.
        matching: as much of that is inferred.
        implied: what else is inferred, where the records tell a later row of the same stream.
        wrong: whatever else is inferred.
    """

    inferred: int = 0
    right: int = 0
    delayed: int = 0
    found: int = 0
    activities: int = 0
    same: int = 0
    recorded: int = 0
    matching: int = 0
    implied: int = 0
    wrong: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(*map(operator.add, astuple(self), astuple(other)))

    @property
    def precision(self) -> float:
        """Share of the inferred sources that are right."""
        return self.right / self.inferred if self.inferred else 1.0

    @property
    def recall(self) -> float:
        """Share of the sources that held something up that are found."""
        return self.found / self.delayed if self.delayed else 1.0


def without_records(trace: Trace) -> Trace:
    """The trace as a stock profiler would have written it: no wait names its record."""
    is_sync = trace.category == Category.SYNC
    return replace(
        without_streams(trace),
        wait_correlation=np.where(is_sync, ABSENT, trace.wait_correlation),
    )


def without_streams(trace: Trace) -> Trace:
    """The trace as PyTorch's own CUPTI collector writes it: waits name the call that recorded.

    Kineto names none of another device; there the record is what `find_wait_records` tells.
    """
    records = find_wait_records(trace)
    wait_correlation = trace.wait_correlation[:].copy()
    wait_correlation[records.wait_id] = records.correlation
    is_sync = trace.category == Category.SYNC
    is_record = trace.category == Category.CUDA_EVENT
    return replace(
        trace,
        category=np.where(is_record, np.int8(Category.OTHER), trace.category),
        wait_stream_number=np.where(is_sync, ABSENT, trace.wait_stream_number),
        wait_correlation=wait_correlation,
    )


def held_up(graph: Graph) -> NDArray[np.bool_]:
    """bool[m], the rows that what they waited for held up."""
    timeline, source = graph.host.timeline, graph.binding.event_row
    before = np.roll(timeline.end_ns, 1)
    before[[lane.first_row for lane in timeline.streams]] = 0
    free = np.maximum(timeline.trace.end_ns[timeline.launch_id], before)
    ended = timeline.end_ns[source]
    known = (source != ABSENT) & (timeline.launch_id != ABSENT) & (ended >= free)
    late = timeline.start_ns - free > LATE_NS
    return known & late & (timeline.start_ns - ended <= SOON_NS)


def score(trace: Trace, without: Callable[[Trace], Trace] = without_records) -> Score:
    """Compare what is inferred without the records to what the records tell."""
    exact = build_graph(observe_host(build_timeline(trace)))
    blind = build_graph(observe_host(build_timeline(without(trace))))
    # What is inferred even with the records cannot judge what is inferred without them.
    inferred = blind.binding.event_is_inferred & ~exact.binding.event_is_inferred
    right = inferred & (blind.binding.event_row == exact.binding.event_row)
    delayed = held_up(exact) & ~exact.binding.event_is_inferred
    same = exact.binding.constraint == blind.binding.constraint
    same &= exact.binding.source_row == blind.binding.source_row
    recorded, found = _sources(exact), _sources(blind)
    stream_index = exact.host.timeline.stream_index
    implied = {
        (row, source)
        for row, source in found - recorded
        for waiting, later in recorded
        if waiting == row and later > source and stream_index[later] == stream_index[source]
    }
    return Score(
        inferred=int(inferred.sum()),
        right=int(right.sum()),
        delayed=int(delayed.sum()),
        found=int((delayed & right).sum()),
        activities=len(same),
        same=int(same.sum()),
        recorded=len(recorded),
        matching=len(recorded & found),
        implied=len(implied),
        wrong=len(found - recorded - implied),
    )


def _sources(graph: Graph) -> set[tuple[int, int]]:
    """Rows, and what each one waited for on another stream."""
    timeline = graph.host.timeline
    queues = StreamQueues(timeline)
    waits = resolve_waits(timeline, queues, StreamProgress(timeline, queues))
    return set(zip(waits.row.tolist(), waits.source_row.tolist(), strict=True))


def captures() -> dict[str, list[str]]:
    """The files with event records, by workload."""
    files: dict[str, list[str]] = defaultdict(list)
    for line in json.loads((TRACES / "manifest.json").read_text())["traces"]:
        if "--plain" not in line["arguments"]:
            files[line["workload"]] += line["files"]
    return files


def measure(without: Callable[[Trace], Trace] = without_records) -> dict[str, Score]:
    """The score of every capture with event records, by file."""
    return {file: score_of(file, without) for files in captures().values() for file in files}


def score_of(file: str, without: Callable[[Trace], Trace]) -> Score:
    """The score of a bundled file."""
    return _score_of(file, without.__name__)


@shared
def _score_of(file: str, without: str) -> Score:
    [source] = find_sources([str(TRACES / file)])
    return score(read_trace(source), globals()[without])


def main() -> None:
    print("Stock Kineto since CUDA 12.9: no wait names its record")
    _print_table(measure(without_records))
    print("\nPyTorch's own CUPTI collector: waits name the call that recorded, not its stream")
    _print_table(measure(without_streams))


def _print_table(scores: dict[str, Score]) -> None:
    print(
        f"{'':16}{'inferred':>10}{'right':>8}{'precision':>11}{'delayed':>9}{'found':>7}{'recall':>9}"
        f"{'activities':>12}{'same':>8}{'recorded':>10}{'right':>8}{'implied':>9}{'wrong':>7}"
    )
    total = Score()
    for workload, files in captures().items():
        of_workload = sum((scores[file] for file in files), start=Score())
        total += of_workload
        print(_line(workload, of_workload))
    print(_line("total", total))


def _line(name: str, x: Score) -> str:
    return (
        f"{name:16}{x.inferred:10,}{x.right:8,}{x.precision:11.1%}"
        f"{x.delayed:9,}{x.found:7,}{x.recall:9.1%}{x.activities:12,}{x.same:8,}"
        f"{x.recorded:10,}{x.matching:8,}{x.implied:9,}{x.wrong:7,}"
    )


if __name__ == "__main__":
    main()
