"""The critical path of a job: the chain of work, from rank to rank, that decided how long it took.

It walks back from the latest end of the last steady step. On a rank it follows the critical path of
that rank's file. A communication kernel that had to wait for another rank counts from the moment on
at which that rank had arrived, and before that moment the path goes on there: with what made that
rank arrive so late. The parts tile the window to the nanosecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelab.base.arrays import OneLine
from tracelab.base.intervals import Int64Array
from tracelab.job.clocks import Clocks
from tracelab.job.members import Members
from tracelab.job.part import RankPart
from tracelab.job.part_path import PathPlace
from tracelab.measures.critical_path_links import PathKind
from tracelab.measures.measure import constrained, keyed_by
from tracelab.measures.ranking import OTHERS
from tracelab.model.collectives import Operation
from tracelab.model.program.call_sites import NO_CALL_SITE
from tracelab.model.trace import ABSENT

_MAX_SEGMENTS = 200  # the largest; the rest is summed up by rank and kind
_Key = tuple[int, PathKind, PathPlace | None]  # part index, kind, what; None for others
_SIGNED = constrained(minimum=-(2**63))


@dataclass(frozen=True, slots=True, repr=False)
class PathSegment(OneLine):
    """All stretches of a job's critical path on one rank, of one kind, in one thing.

    Attributes:
        rank: the rank.
        kind: "compute", "comm" (transfer), "copy", "memset", "launch", "queue", "host", "sync" or
            "unknown".
        name: the activity or call; of "launch" and "queue" the activity that it delayed; of "host"
            the operator or function that the host was in; of communication its operation; "others"
            for all smaller ones of the rank and kind.
        operator, function, file, line, call: where in the program that is, or was launched.
        count: how many stretches of the path, between two communication operations, hold it.
        total_ns: ns.

    Example row: ``PathSegment(rank=0, kind="compute", name="gemm", operator="aten::mm",
    function="train", file="train.py", line=None, call="__matmul__", count=5,
    total_ns=98_000_000)``.
    """

    rank: int
    kind: str
    name: str
    operator: str | None
    function: str | None
    file: str | None
    line: int | None
    call: str | None
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class RankOnPath(OneLine):
    """Share of a job's critical path that is on one rank.

    Attributes:
        rank: the rank.
        total_ns: ns.
        by_kind: ns; every kind is listed.

    Example row: ``RankOnPath(rank=0, total_ns=900, by_kind={"compute": 600, "host": 300, ...})``.
    """

    rank: int
    total_ns: int
    by_kind: Mapping[str, int] = field(metadata=keyed_by(PathKind, complete=True))


@dataclass(frozen=True, slots=True, repr=False)
class PathStretch(OneLine):
    """A time in which a job's critical path stayed on one rank.

    Attributes:
        rank: the rank.
        start_ns, end_ns: ns, on the job's clock; each begins where the one before ends.

    Example row: ``PathStretch(rank=0, start_ns=9_000, end_ns=19_000)``.
    """

    rank: int
    start_ns: int
    end_ns: int = field(metadata=_SIGNED)


@dataclass(frozen=True, slots=True, repr=False)
class JobPath(OneLine):
    """The critical path of a job's steady steps; of a job without common ones, of its recordings.

    Attributes:
        steps: the steps, by number; empty for the whole recordings.
        start_ns, end_ns: ns, on the job's clock, from when the last rank had begun the first step
            to when the last rank had ended the last one: as long as so many steps of the job.
        total_ns: how long that is, ns: the sum of the segments, and of the ranks.
        by_kind: ns; every kind is listed.
        by_rank: how much of it is on each rank.
        segments: what it consists of, the largest first; all that is no segment of its own is in
            "others" of its rank and kind.
        stretches: where it was when, ascending; they tile the window.

    Example: ``JobPath(steps=(3, 4), start_ns=9_000, end_ns=29_000, total_ns=20_000,
    by_kind={"compute": 18_000, ...}, by_rank=(RankOnPath(...), ...),
    segments=(PathSegment(...), ...), stretches=(PathStretch(...), ...))``.
    """

    steps: tuple[int, ...]
    start_ns: int = field(metadata=_SIGNED)
    end_ns: int = field(metadata=_SIGNED)
    total_ns: int
    by_kind: Mapping[str, int] = field(metadata=keyed_by(PathKind, complete=True))
    by_rank: tuple[RankOnPath, ...]
    segments: tuple[PathSegment, ...]
    stretches: tuple[PathStretch, ...]


def find_job_path(members: Members) -> JobPath | None:
    """Walk back through a job.

    The slow reference model is ``tests/reference/job_path.py``.

    Returns:
        the path; None where the ranks have no operation in common.
    """
    parts, clocks = members.parts, members.clocks
    if not len(members) or not all(len(part.ways) for part in parts):
        return None
    steps, start_ns, end_nodes = _window(parts, clocks)
    walk = _Walk(parts, clocks, _Arrivals(members), start_ns)
    walk.back_from(end_nodes)
    return _reported(parts, steps, walk)


def _window(
    parts: Sequence[RankPart], clocks: Clocks
) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """The steps that are steady on all ranks, when all have begun the first, and each rank's end.

    Returns:
        their numbers; ns on the job's clock; the node at which each rank's last one ends.
    """
    common = set[int].intersection(
        *(set(part.steps.number[part.steps.is_steady].tolist()) for part in parts)
    )
    numbers = sorted(common)
    starts_ns, nodes = [], []
    for part_index, part in enumerate(parts):
        ways = part.ways
        if numbers:
            [first], [last] = (
                np.flatnonzero(part.steps.number == x) for x in (numbers[0], numbers[-1])
            )
            start_ns, node = part.steps.start_ns[first], ways.end_node[last]
        else:
            start_ns, node = ways.reached_ns[ways.next_node == ABSENT][0], ways.end_node[-1]
        starts_ns.append(int(clocks.to_job_ns(part_index, np.array([start_ns]))[0]))
        nodes.append(int(node))
    return tuple(numbers), max(starts_ns), tuple(nodes)


class _Arrivals:
    """Ranks that the kernels of a job waited for."""

    def __init__(self, members: Members) -> None:
        parts = members.parts
        self._members = members
        self._node = members.matches.of_members([part.ways.node for part in parts])
        self._by_kernel = np.lexsort((self._node, members.part_index))
        self._begins = np.cumsum([0, *(len(part.ways) for part in parts)])
        self._keys = (self._begins[members.part_index] + self._node)[self._by_kernel]

    def awaited(self, part_index: int, node: int) -> tuple[int, int, int] | None:
        """The rank that came last of those that a kernel waited for, if it is known.

        Of a kernel that ended before, by the clocks, that is the last of all.

        Returns:
            when it arrived, ns on the job's clock, its part's index, and its kernel's node.
        """
        members, arrival_ns, wait_ns = (
            self._members,
            self._members.arrival_ns,
            self._members.wait_ns,
        )
        key = self._begins[part_index] + node
        first, end = np.searchsorted(self._keys, (key, key + 1))
        found: list[tuple[bool, int, int]] = []
        for member in self._by_kernel[first:end].tolist():
            match = members.match_index[member]
            others = np.arange(members.first[match], members.first[match + 1])
            until_ns = arrival_ns[member] + wait_ns[member]
            is_exact = arrival_ns[others] == until_ns
            last = int(others[np.argmax(is_exact if is_exact.any() else arrival_ns[others])])
            late_ns = arrival_ns[last] - arrival_ns[member]
            if late_ns > max(members.error_ns[member] + members.error_ns[last], 0):
                found.append((bool(is_exact.any()), int(arrival_ns[last]), -last))
        if not found:
            return None
        _, awaited_ns, last = max(found)
        return awaited_ns, int(members.part_index[-last]), int(self._node[-last])


class _Walk:
    """One walk back through a job.

    Attributes:
        start_ns: where it ends, ns on the job's clock.
        stretches: part index, start and end of each stretch on one rank, the last one first.
        spent: by part index, kind and place how many pieces, and how long, ns.
    """

    def __init__(
        self, parts: Sequence[RankPart], clocks: Clocks, arrivals: _Arrivals, start_ns: int
    ) -> None:
        self._parts, self._arrivals = parts, arrivals
        self._at_ns, self._reached_ns, self._end_ns = (
            [clocks.to_job_ns(i, times_ns).tolist() for i, times_ns in enumerate(columns)]
            for columns in zip(
                *((part.ways.at_ns, part.ways.reached_ns, part.end_ns) for part in parts),
                strict=True,
            )
        )
        self._left: set[tuple[int, int]] = set()
        self._part_index, self._node, self._now_ns = 0, 0, start_ns
        self.start_ns = start_ns
        self.stretches: list[tuple[int, int, int]] = []
        self.spent: dict[_Key, list[int]] = defaultdict(lambda: [0, 0])

    def back_from(self, end_nodes: Sequence[int]) -> None:
        """Walk back from the last of some moments, a node of each rank."""
        ends_ns = [at_ns[node] for at_ns, node in zip(self._at_ns, end_nodes, strict=True)]
        self._part_index = int(np.argmax(ends_ns))
        self._node, self._now_ns = end_nodes[self._part_index], ends_ns[self._part_index]
        while self._now_ns > self.start_ns:
            ways = self._parts[self._part_index].ways
            following = int(ways.next_node[self._node])
            self._spend_way()
            if following == ABSENT:
                self._spend(self._part_index, self.start_ns, PathKind.UNKNOWN, None)
                break
            self._node = following
            if ways.operation_index[following] != ABSENT:
                self._through_operation(int(ways.operation_index[following]))

    def _spend_way(self) -> None:
        """Go back along the way from a node."""
        part_index, node = self._part_index, self._node
        ways, reached_ns = self._parts[part_index].ways, self._reached_ns[part_index][node]
        if reached_ns < self.start_ns:
            # It was not cut here: what of it is in the window is not known.
            self._spend(part_index, self.start_ns, PathKind.UNKNOWN, None)
            return
        pieces = slice(ways.first[node], ways.first[node + 1])
        total_ns = self._go_to(part_index, reached_ns)
        if pieces.start == pieces.stop:  # the clocks alone make it take any time
            self._add(part_index, PathKind.UNKNOWN, None, total_ns)
        lengths_ns = fitted(ways.length_ns[pieces], total_ns)
        for kind, place, piece_ns in zip(
            ways.kind[pieces].tolist(),
            ways.place_index[pieces].tolist(),
            lengths_ns.tolist(),
            strict=True,
        ):
            self._add(
                part_index,
                PathKind(kind),
                None if place == ABSENT else ways.places[place],
                piece_ns,
            )

    def _through_operation(self, operation_index: int) -> None:
        """Pass a communication kernel: go to the rank that it waited for, or to its own start."""
        part_index, node = here = self._part_index, self._node
        place = operation_place(self._parts[part_index], operation_index)
        awaited = self._arrivals.awaited(part_index, node)
        kind, since_ns = PathKind.COMM, self._at_ns[part_index][node]
        if awaited is not None:
            # What goes on before a kernel that it waited for has arrived is no transfer.
            kind = PathKind.UNKNOWN
            is_over = self._now_ns >= min(awaited[0], self._end_ns[part_index][operation_index])
            if is_over and here not in self._left:
                self._left.add(here)
                kind = PathKind.COMM
                since_ns, self._part_index, self._node = awaited
        self._spend(part_index, since_ns, kind, place)

    def _spend(
        self, part_index: int, since_ns: int, kind: PathKind, place: PathPlace | None
    ) -> None:
        """Give the time from then to now to one kind, and go there."""
        length_ns = self._go_to(part_index, since_ns)
        self._add(part_index, kind, place, length_ns)

    def _add(
        self, part_index: int, kind: PathKind, place: PathPlace | None, length_ns: int
    ) -> None:
        if length_ns:
            spent = self.spent[part_index, kind, place]
            spent[0] += 1
            spent[1] += length_ns

    def _go_to(self, part_index: int, since_ns: int) -> int:
        """Go back on a rank, not beyond the window's start; by how much, ns."""
        end_ns = now_ns = self._now_ns
        self._now_ns = since_ns = min(now_ns, max(since_ns, self.start_ns))
        if since_ns < now_ns:
            if self.stretches and self.stretches[-1][0] == part_index:
                _, _, end_ns = self.stretches.pop()
            self.stretches.append((part_index, since_ns, end_ns))
        return now_ns - since_ns


def fitted(lengths_ns: Int64Array, total_ns: int) -> Int64Array:
    """Change lengths by a rank's clock to those on the job's clock: int64[k], ns, with this sum.

    What clocks differ by is the longest one's, of which it is the smallest share.

    >>> fitted(np.array([300, 900]), 1_190).tolist()
    [300, 890]
    """
    off_ns = total_ns - int(lengths_ns.sum())
    fitted_ns = lengths_ns.copy()
    for index in np.argsort(-lengths_ns, kind="stable").tolist():
        added_ns = max(off_ns, -int(fitted_ns[index]))
        fitted_ns[index] += added_ns
        off_ns -= added_ns
    return fitted_ns


def operation_place(part: RankPart, operation_index: int) -> PathPlace:
    """Name a kernel that communicates, and find where it is launched."""
    node, end = part.ways.node, operation_index
    while end < len(part) and node[end] == node[operation_index]:  # those of a kernel in a row
        end += 1
    operations = set(part.operation[operation_index:end].tolist())
    operation = operations.pop() if len(operations) == 1 else Operation.SEND_RECV
    name = Operation(operation).name.lower()
    if operation == Operation.UNKNOWN:
        name = part.kernel_names[part.kernel_name_index[operation_index]]
    site_index = part.site_index[operation_index]
    return PathPlace(name, NO_CALL_SITE if site_index == ABSENT else part.sites[site_index])


def _reported(parts: Sequence[RankPart], steps: tuple[int, ...], walk: _Walk) -> JobPath:
    """Describe a walk as it is reported."""
    ranks = [part.rank for part in parts]
    by_rank = [dict.fromkeys(PathKind, 0) for _ in parts]
    for (part_index, kind, _), (_, length_ns) in walk.spent.items():
        by_rank[part_index][kind] += length_ns
    stretches = tuple(
        PathStretch(ranks[part_index], start_ns, end_ns)
        for part_index, start_ns, end_ns in walk.stretches[::-1]
    )
    start_ns, end_ns = walk.start_ns, max([walk.start_ns, *(x.end_ns for x in stretches)])
    return JobPath(
        steps=steps,
        start_ns=start_ns,
        end_ns=end_ns,
        total_ns=end_ns - start_ns,
        by_kind={kind.name.lower(): sum(of[kind] for of in by_rank) for kind in PathKind},
        by_rank=tuple(
            RankOnPath(rank, sum(of.values()), {kind.name.lower(): of[kind] for kind in PathKind})
            for rank, of in zip(ranks, by_rank, strict=True)
        ),
        segments=_segments(ranks, walk.spent),
        stretches=stretches,
    )


def _segments(ranks: Sequence[int], spent: Mapping[_Key, Sequence[int]]) -> tuple[PathSegment, ...]:
    """The largest by rank, kind and place, and all others by rank and kind; the largest first."""
    named = sorted((key for key in spent if key[2] is not None), key=lambda key: -spent[key][1])
    sums: dict[_Key, list[int]] = {key: list(spent[key]) for key in named[:_MAX_SEGMENTS]}
    for key in spent.keys() - sums.keys():
        of_others = sums.setdefault((key[0], key[1], None), [0, 0])
        of_others[0] += spent[key][0]
        of_others[1] += spent[key][1]
    segments = []
    for (part_index, kind, place), (count, total_ns) in sums.items():
        name, site = (OTHERS, NO_CALL_SITE) if place is None else (place.name, place.site)
        segments.append(
            PathSegment(
                rank=ranks[part_index],
                kind=kind.name.lower(),
                name=name,
                operator=site.operator,
                function=site.function,
                file=site.file,
                line=site.line,
                call=site.call,
                count=count,
                total_ns=total_ns,
            )
        )
    return tuple(sorted(segments, key=lambda x: (-x.total_ns, x.rank, x.kind, x.name)))
