"""The critical path of a job: the chain of work, from rank to rank, that decided how long it took.

It walks back from the latest end of the last steady step, along the paths of the files. At a
communication kernel that waited, it goes on at the rank that arrived last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np

from tracelab.base.arrays import Record
from tracelab.job.operation_members import Members
from tracelab.job.part import SITE_FIELDS, RankPart
from tracelab.job.part_path import PathPart, PathPlace
from tracelab.measures.critical_path import PathKind
from tracelab.measures.measure import OTHERS, constrained, keyed_by
from tracelab.model.collectives import Operation
from tracelab.model.program.call_sites import NO_CALL_SITE
from tracelab.model.trace import ABSENT

# The largest; the others are summed up by rank and kind.
_MAX_SEGMENTS = 200
_Key = tuple[int, PathKind, PathPlace | None]  # part index, kind, what; None for others
_SIGNED = constrained(minimum=-(2**63))


class PathSegment(Record):
    """All stretches of a job's critical path on one rank, of one kind, in one thing.

    Attributes:
        kind: "compute", "comm" (transfer), "copy", "memset", "launch", "queue", "host", "sync" or
            "unknown".
        name: the activity or call; of "launch" and "queue" the activity that it delayed; of "host"
            the operator or function that the host was in; of communication its operation; "others"
            for all smaller ones of the rank and kind.
        operator, function, file, line, call: where in the program that is, or was launched.
        count: how many stretches of the path, between two communication operations, hold it.
        total_ns: ns.
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


class RankOnPath(Record):
    """Share of a job's critical path that is on one rank.

    Attributes:
        total_ns: ns.
        by_kind: ns; every kind is listed.
    """

    rank: int
    total_ns: int
    by_kind: Annotated[Mapping[str, int], keyed_by(PathKind, complete=True)]


class PathStretch(Record):
    """A time in which a job's critical path stayed on one rank.

    Attributes:
        start_ns, end_ns: ns, on the job's clock; each begins where the one before ends.
    """

    rank: int
    start_ns: int
    end_ns: Annotated[int, _SIGNED]


class JobPath(Record):
    """The critical path of a job's steady steps; of a job without common ones, of its recordings.

    Attributes:
        steps: the steps, by number; empty for the whole recordings.
        start_ns, end_ns: ns, on the job's clock, from when the last rank had begun the first step
            to when the last rank had ended the last one: as long as these steps of the job.
        total_ns: how long that is, ns: the sum of the segments, and of the ranks.
        by_kind: ns; every kind is listed.
        by_rank: how much of it is on each rank.
        segments: what it consists of, the largest first; all that is no segment of its own is in
            "others" of its rank and kind.
        stretches: where it was when, ascending; they tile the window.
    """

    steps: tuple[int, ...]
    start_ns: Annotated[int, _SIGNED]
    end_ns: Annotated[int, _SIGNED]
    total_ns: int
    by_kind: Annotated[Mapping[str, int], keyed_by(PathKind, complete=True)]
    by_rank: tuple[RankOnPath, ...]
    segments: tuple[PathSegment, ...]
    stretches: tuple[PathStretch, ...]


def find_job_path(members: Members) -> JobPath | None:
    """Walk back through a job; None where the ranks have no operation in common.

    The slow reference model is ``tests/reference/job_path.py``.
    """
    parts = members.parts
    ways = [part.ways for part in parts if part.ways is not None]
    if not len(members) or len(ways) < len(parts):
        return None
    steps, start_ns, ends = _window(members, ways)
    walk = _Walk(members, ways, start_ns)
    walk.back_from(ends)
    return _reported(parts, steps, walk)


def _window(
    members: Members, ways: Sequence[PathPart]
) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Return the steps of all ranks, when all have begun, ns, and the indices of their ends."""
    parts, numbers = members.parts, members.steady_numbers
    starts_ns, ends = [], []
    for part_index, (part, of_part) in enumerate(zip(parts, ways, strict=True)):
        start_ns, end = np.array([of_part.first_ns]), len(of_part.end_ns) - 1
        if numbers:
            first, last = (np.flatnonzero(part.steps.number == numbers[i]) for i in (0, -1))
            start_ns, end = part.steps.start_ns[first], int(last[0])
        starts_ns.append(int(members.clocks.job_ns_of(part_index, start_ns)[0]))
        ends.append(end)
    return tuple(numbers), max(starts_ns), tuple(ends)


class _Walk:
    """One walk back through a job.

    Attributes:
        start_ns: where it ends, ns on the job's clock.
        stretches: part index, start and end, the last one first.
        spent: count and ns by part index, kind and place.
    """

    def __init__(self, members: Members, ways: Sequence[PathPart], start_ns: int) -> None:
        self._members, self._ways = members, ways
        self._since_ns = [
            members.clocks.job_ns_of(index, one.since_ns) for index, one in enumerate(ways)
        ]
        self._operation_of = [np.full(len(one.since_ns), ABSENT) for one in ways]
        self._member_of = [np.full(len(one.since_ns), ABSENT) for one in ways]
        for index, one in enumerate(ways):
            operation_index = np.arange(len(one.operation_stretch))
            self._operation_of[index][one.operation_stretch[::-1]] = operation_index[::-1]
            own = members.of_part[index]
            self._member_of[index][one.operation_stretch[members.operation_index[own]]] = own
        self._left: set[tuple[int, int]] = set()
        self._seen: set[_Key] = set()  # since the last operation
        self._part_index, self._now_ns = 0, start_ns
        self.start_ns = start_ns
        self.stretches: list[tuple[int, int, int]] = []
        self.spent: dict[_Key, list[int]] = defaultdict(lambda: [0, 0])

    def back_from(self, ends: Sequence[int]) -> None:
        ends_ns = [
            self._job_ns(index, one.end_ns[end])
            for index, (one, end) in enumerate(zip(self._ways, ends, strict=True))
        ]
        self._part_index = int(np.argmax(ends_ns))
        self._now_ns = ends_ns[self._part_index]
        stretch = int(self._ways[self._part_index].end_stretch[ends[self._part_index]])
        while stretch != ABSENT and self._now_ns > self.start_ns:
            ways = self._ways[self._part_index]
            since_ns = int(self._since_ns[self._part_index][stretch])
            if self._operation_of[self._part_index][stretch] == ABSENT or self._now_ns < since_ns:
                place = ways.places[ways.place_index[stretch]]
                self._spend(since_ns, PathKind(ways.kind[stretch]), place)
            else:
                stretch = self._through_operation(stretch, since_ns)
            stretch = int(self._ways[self._part_index].following[stretch])
        self._spend(self.start_ns, PathKind.UNKNOWN, None)

    def _job_ns(self, part_index: int, time_ns: int) -> int:
        return int(self._members.clocks.job_ns_of(part_index, np.array([time_ns]))[0])

    def _through_operation(self, stretch: int, since_ns: int) -> int:
        """Pass a kernel that communicates; its stretch, or that of the kernel it waited for."""
        members, here = self._members, (self._part_index, stretch)
        part = members.parts[self._part_index]
        operation_index = int(self._operation_of[self._part_index][stretch])
        place, kind = operation_place(part, operation_index), PathKind.COMM
        self._seen.clear()
        member = int(self._member_of[self._part_index][stretch])
        last = int(members.awaited_member[member]) if member != ABSENT else member
        ends = [member, last]
        if np.diff(members.arrival_ns[ends]) > members.error_ns[ends].sum():
            awaited_ns = int(members.arrival_ns[last])
            end_ns = self._job_ns(self._part_index, part.end_ns[operation_index])
            if self._now_ns >= min(awaited_ns, end_ns) and here not in self._left:
                self._left.add(here)
                self._spend(awaited_ns, kind, place)
                self._part_index = int(members.part_index[last])
                ways = self._ways[self._part_index]
                return int(ways.operation_stretch[members.operation_index[last]])
            kind = PathKind.UNKNOWN
        self._spend(since_ns, kind, place)
        return stretch

    def _spend(self, since_ns: int, kind: PathKind, place: PathPlace | None) -> None:
        end_ns = now_ns = self._now_ns
        self._now_ns = since_ns = min(now_ns, max(since_ns, self.start_ns))
        if since_ns == now_ns:
            return
        key = self._part_index, kind, place
        self.spent[key][0] += key not in self._seen
        self.spent[key][1] += now_ns - since_ns
        self._seen.add(key)
        if self.stretches and self.stretches[-1][0] == self._part_index:
            _, _, end_ns = self.stretches.pop()
        self.stretches.append((self._part_index, since_ns, end_ns))


def operation_place(part: RankPart, operation_index: int) -> PathPlace:
    """Name a kernel that communicates, and find where it is launched."""
    kernel_id, end = part.kernel_id, operation_index
    while end < len(part) and kernel_id[end] == kernel_id[operation_index]:  # they stand in a row
        end += 1
    operations = set(part.operation[operation_index:end].tolist())
    operation = operations.pop() if len(operations) == 1 else Operation.SEND_RECV
    name = Operation(operation).name.lower()
    if operation == Operation.UNKNOWN:
        name = part.kernel_names[part.kernel_name_index[operation_index]]
    site_index = part.site_index[operation_index]
    return PathPlace(name, NO_CALL_SITE if site_index == ABSENT else part.sites[site_index])


def _reported(parts: Sequence[RankPart], steps: tuple[int, ...], walk: _Walk) -> JobPath:
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
                **{field: getattr(site, field) for field in SITE_FIELDS},
                count=count,
                total_ns=total_ns,
            )
        )
    return tuple(sorted(segments, key=lambda x: (-x.total_ns, x.rank, x.kind, x.name)))
