"""What waits for a peer: ``python tests/benchmarks/peer_waits.py``.

From how many times the length of its fastest twin on had a collective waited? The bundled jobs have
the files of all ranks, so it is known how long each collective waited: its length, less the
shortest length of the same collective on any rank. Collectives are matched by kernel and order;
send and receive, whose partners are not all ranks, are left out. One line for each range of
lengths, in the columns of the table in ``tracelab/docs/evidence/findings.md``: how many there are,
of how many less than half of what exceeds the fastest twin was waiting, and what share of all that
was.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from tracelab.measures.collective_costs import peer_waits
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import Timeline, build_timeline
from tracelab.model.trace import ABSENT
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources

TRACES = Path(__file__).parents[2] / "traces"
_FROM = (1.5, 2.0, 2.5, 3.0, 5.0)  # times the fastest twin
_LENGTHS = dict[str, list[tuple[int, int]]]


def lengths(timeline: Timeline) -> _LENGTHS:
    """By kernel, in order: how long each collective took, and its fastest twin, ns."""
    fastest_ns = peer_waits(timeline).fastest_ns
    of_kernel: _LENGTHS = defaultdict(list)
    rows = np.flatnonzero(timeline.kind == Kind.COMM)
    for row in rows[np.argsort(timeline.start_ns[rows], kind="stable")].tolist():
        name = timeline.trace.name_of(int(timeline.event_id[row]))
        length_ns = int(timeline.end_ns[row] - timeline.start_ns[row])
        of_kernel[name].append((length_ns, int(fastest_ns[row])))
    return of_kernel


def jobs() -> list[list[_LENGTHS]]:
    """The ranks of each bundled job of several."""
    files: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(TRACES.glob("*_rank*.json.gz")):
        files[path.name.partition("_rank")[0]].append(path)
    return [
        [lengths(build_timeline(read_trace(source))) for source in find_sources(map(str, paths))]
        for paths in files.values()
    ]


def main() -> None:
    waits: dict[float, list[tuple[int, int]]] = defaultdict(list)  # what exceeds, and is waiting
    count = 0
    for ranks in jobs():
        for name in set.intersection(*map(set, ranks)):
            if "SendRecv" in name or len({len(rank[name]) for rank in ranks}) > 1:
                continue
            for same in zip(*(rank[name] for rank in ranks), strict=True):
                transfer_ns = min(length_ns for length_ns, _ in same)
                for length_ns, fastest_ns in same:
                    if fastest_ns == ABSENT:
                        continue
                    count += 1
                    reached = [times for times in _FROM if length_ns >= times * fastest_ns]
                    if reached:
                        beyond_ns = length_ns - fastest_ns
                        waited_ns = min(length_ns - transfer_ns, beyond_ns)
                        waits[reached[-1]].append((beyond_ns, waited_ns))
    for start, end in zip(_FROM, (*_FROM[1:], None), strict=True):
        beyond_ns, waited_ns = (sum(column) for column in zip(*waits[start], strict=True))
        wrong = sum(2 * waited < beyond for beyond, waited in waits[start])
        words = f"{start:g} to {end:g}" if end else f"more than {start:g}"
        share = f"{100 * waited_ns / beyond_ns:.0f} %"
        print(f"| {words} | {len(waits[start])} | {wrong} | {share} |")
    print(f"of {count} collectives")


if __name__ == "__main__":
    main()
