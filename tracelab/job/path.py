"""The critical path of a job: the chain of work, from rank to rank, that decided how long it took.

It walks back from the latest end of the last steady step. On a rank it follows the critical path of
that rank's file. A communication kernel that had to wait for another rank counts from the moment on
at which that rank had arrived, and before that moment the path goes on there: with what made that
rank arrive so late. The parts tile the window to the nanosecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.job.members import Members
from tracelab.job.part import RankPart
from tracelab.job.part_path import PathPlace
from tracelab.measures.critical_path import HOST, PathKind, through_host
from tracelab.measures.measure import constrained, keyed_by
from tracelab.measures.ranking import OTHERS
from tracelab.model.collectives import Operation
from tracelab.model.program.call_sites import NO_CALL_SITE
from tracelab.model.trace import ABSENT

# The largest ones. The others are summed up by rank and kind.
_MAX_SEGMENTS = 200
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
            to when the last rank had ended the last one: as long as these steps of the job.
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
    parts = members.parts
    if not len(members) or not all(len(part.links) for part in parts):
        return None
    steps, start_ns, ends = _window(members)
    walk = _Walk(members, start_ns)
    walk.back_from(ends)
    return _reported(parts, steps, walk)


def _window(members: Members) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Find the steps that are steady on all ranks, when all have begun the first, and their ends.

    Returns:
        their numbers; ns on the job's clock; the index of each rank's last one among its ends.
    """
    parts = members.parts
    common = set[int].intersection(
        *(set(part.steps.number[part.steps.is_steady].tolist()) for part in parts)
    )
    numbers = sorted(common)
    starts_ns, ends = [], []
    for part_index, part in enumerate(parts):
        start_ns, end = np.array([part.links.first_ns]), len(part.links.ends.at_ns) - 1
        if numbers:
            first, last = (np.flatnonzero(part.steps.number == numbers[i]) for i in (0, -1))
            start_ns, end = part.steps.start_ns[first], int(last[0])
        starts_ns.append(int(members.clocks.job_ns_of(part_index, start_ns)[0]))
        ends.append(end)
    return tuple(numbers), max(starts_ns), tuple(ends)


class _Arrivals:
    """Ranks that the kernels of a job waited for."""

    def __init__(self, members: Members) -> None:
        parts = members.parts
        self._members = members
        self._row = members.matches.member_values([part.links.row for part in parts])
        self._by_kernel = np.lexsort((self._row, members.part_index))
        self._begins = np.cumsum([0, *(len(part.links) for part in parts)])
        self._keys = (self._begins[members.part_index] + self._row)[self._by_kernel]

    def awaited(self, part_index: int, row: int) -> tuple[int, int, int] | None:
        """Find the rank that came last of those that a kernel waited for, if it is known.

        Of a kernel that ended before, by the clocks, that is the last of all.

        Returns:
            when it arrived, ns on the job's clock, its part's index, and its kernel's row.
        """
        members, arrival_ns = self._members, self._members.arrival_ns
        key = self._begins[part_index] + row
        first, end = np.searchsorted(self._keys, (key, key + 1))
        found: list[tuple[bool, int, int]] = []
        for member in self._by_kernel[first:end].tolist():
            match = members.match_index[member]
            others = np.arange(members.first[match], members.first[match + 1])
            is_exact = arrival_ns[others] == arrival_ns[member] + members.wait_ns[member]
            last = int(others[np.argmax(is_exact if is_exact.any() else arrival_ns[others])])
            late_ns = arrival_ns[last] - arrival_ns[member]
            if late_ns > max(members.error_ns[member] + members.error_ns[last], 0):
                found.append((bool(is_exact.any()), int(arrival_ns[last]), -last))
        if not found:
            return None
        _, awaited_ns, last = max(found)
        return awaited_ns, int(members.part_index[-last]), int(self._row[-last])


class _Times:
    """Times of one rank's links on the job's clock, ns."""

    def __init__(self, members: Members, part_index: int) -> None:
        links = members.parts[part_index].links

        def job_times(times_ns: Sequence[int] | Int64Array) -> Int64Array:
            return members.clocks.job_ns_of(part_index, np.asarray(times_ns, dtype=np.int64))

        self.start_ns, self.end_ns = job_times(links.start_ns), job_times(links.end_ns)
        self.upstream_end_ns = job_times(links.upstream_end_ns)
        self.ends_ns = job_times(links.ends.at_ns)
        self.samples_ns = {
            thread: job_times(of_thread.begin_ns) for thread, of_thread in links.samples.items()
        }
        self.stalls = replace(
            links.stalls,
            start_ns=tuple(job_times(links.stalls.start_ns).tolist()),
            end_ns=tuple(job_times(links.stalls.end_ns).tolist()),
        )


class _Walk:
    """One walk back through a job.

    Attributes:
        start_ns: where it ends, ns on the job's clock.
        stretches: part index, start and end of each stretch on one rank, the last one first.
        spent: by part index, kind and place how many stretches, and how long, ns.
    """

    def __init__(self, members: Members, start_ns: int) -> None:
        self._parts, self._arrivals = members.parts, _Arrivals(members)
        self._times = [_Times(members, index) for index in range(len(members.parts))]
        self._left: set[tuple[int, int]] = set()
        self._seen: set[_Key] = set()  # since the last operation
        self._part_index, self._now_ns = 0, start_ns
        self.start_ns = start_ns
        self.stretches: list[tuple[int, int, int]] = []
        self.spent: dict[_Key, list[int]] = defaultdict(lambda: [0, 0])

    def back_from(self, ends: Sequence[int]) -> None:
        """Walk back from the last of some ends of windows, one of each rank."""
        ends_ns = [int(times.ends_ns[end]) for times, end in zip(self._times, ends, strict=True)]
        self._part_index = int(np.argmax(ends_ns))
        self._now_ns = ends_ns[self._part_index]
        end, of_part = ends[self._part_index], self._parts[self._part_index].links.ends
        row = int(of_part.row[end])
        if row == HOST:
            row = self._through_host(int(of_part.thread_index[end]))
        while row != ABSENT and self._now_ns > self.start_ns:
            row = self._before(self._through_activity(row))
        self._spend(self.start_ns, PathKind.UNKNOWN, None)

    def _through_activity(self, row: int) -> int:
        """Pass an activity; the row to go on before, of the rank that it waited for if any."""
        links, times = self._parts[self._part_index].links, self._times[self._part_index]
        operation_index, start_ns = int(links.operation_index[row]), int(times.start_ns[row])
        if operation_index == ABSENT or self._now_ns < start_ns:
            self._spend(start_ns, PathKind(links.kind[row]), self._place(links.place_index[row]))
            return row
        here = self._part_index, row
        place = operation_place(self._parts[self._part_index], operation_index)
        self._seen.clear()
        awaited, kind = self._arrivals.awaited(*here), PathKind.COMM
        if awaited is not None:
            awaited_ns, part_index, awaited_row = awaited
            if self._now_ns >= min(awaited_ns, times.end_ns[row]) and here not in self._left:
                self._left.add(here)
                self._spend(awaited_ns, kind, place)
                self._part_index = part_index
                return awaited_row
            # What goes on before a kernel that it waited for has arrived is no transfer.
            kind = PathKind.UNKNOWN
        self._spend(start_ns, kind, place)
        return row

    def _before(self, row: int) -> int:
        """Pass what an activity waited for; the row before it, or ABSENT at the beginning."""
        links, times = self._parts[self._part_index].links, self._times[self._part_index]
        since_ns, kind = int(times.upstream_end_ns[row]), PathKind(links.kind_between[row])
        if kind == PathKind.HOST:
            self._spend_on_host(since_ns, ABSENT)
        else:
            is_known = kind != PathKind.UNKNOWN
            self._spend(since_ns, kind, self._place(links.place_index[row]) if is_known else None)
        upstream_row = int(links.upstream_row[row])
        if upstream_row == HOST:
            return self._through_host(int(links.thread_index[row]))
        return upstream_row

    def _through_host(self, thread: int) -> int:
        """Go back on the host to the activity that it last waited for, or ABSENT at the start."""
        links, times = self._parts[self._part_index].links, self._times[self._part_index]
        row, stretches = through_host(
            times.stalls, times.end_ns, thread, ABSENT, self._now_ns, self.start_ns
        )
        for stretch in stretches:
            if stretch.kind == PathKind.HOST:
                self._spend_on_host(stretch.since_ns, stretch.thread_index)
            else:
                place = links.stall_place.get(stretch.event_id, ABSENT)
                self._spend(stretch.since_ns, stretch.kind, self._place(place))
        return row

    def _spend_on_host(self, since_ns: int, thread: int) -> None:
        """Give the time from then to now to what the host was in, and go there."""
        links, times = self._parts[self._part_index].links, self._times[self._part_index]
        since_ns = min(self._now_ns, max(since_ns, self.start_ns))
        begin_ns, place_index = times.samples_ns[thread], links.samples[thread].place_index
        first = max(0, int(begin_ns.searchsorted(since_ns, "right")) - 1)
        end = max(first + 1, int(begin_ns.searchsorted(self._now_ns)))
        bounds_ns = np.concatenate(([since_ns], begin_ns[first + 1 : end], [self._now_ns]))
        total_ns = np.zeros(len(links.places) + 1, dtype=np.int64)
        np.add.at(total_ns, place_index[first:end], np.diff(bounds_ns))  # ABSENT is the last one
        for place in np.flatnonzero(total_ns).tolist():
            named = self._place(place if place < len(links.places) else ABSENT)
            self._add(self._part_index, PathKind.HOST, named, int(total_ns[place]))
        self._go_to(self._part_index, since_ns)

    def _place(self, place_index: int) -> PathPlace | None:
        links = self._parts[self._part_index].links
        return None if place_index == ABSENT else links.places[place_index]

    def _spend(self, since_ns: int, kind: PathKind, place: PathPlace | None) -> None:
        """Give the time from then to now to one kind, and go there."""
        self._add(self._part_index, kind, place, self._go_to(self._part_index, since_ns))

    def _add(
        self, part_index: int, kind: PathKind, place: PathPlace | None, length_ns: int
    ) -> None:
        if length_ns:
            key = part_index, kind, place
            self.spent[key][0] += key not in self._seen
            self.spent[key][1] += length_ns
            self._seen.add(key)

    def _go_to(self, part_index: int, since_ns: int) -> int:
        """Go back on a rank, not beyond the window's start; by how much, ns."""
        end_ns = now_ns = self._now_ns
        self._now_ns = since_ns = min(now_ns, max(since_ns, self.start_ns))
        if since_ns < now_ns:
            if self.stretches and self.stretches[-1][0] == part_index:
                _, _, end_ns = self.stretches.pop()
            self.stretches.append((part_index, since_ns, end_ns))
        return now_ns - since_ns


def operation_place(part: RankPart, operation_index: int) -> PathPlace:
    """Name a kernel that communicates, and find where it is launched."""
    row, end = part.links.row, operation_index
    while end < len(part) and row[end] == row[operation_index]:  # those of a kernel in a row
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
