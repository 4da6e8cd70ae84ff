"""The readable definition of a page's timeline: reads the bytes back, one number at a time."""

from __future__ import annotations

import gzip
from dataclasses import dataclass


@dataclass(frozen=True)
class PageLane:
    """A lane as it is read back; `columns` has "start", "end" and "kind" (a name), and the others.

    Where a column says none, it has None. `bins` is the busy time of each bin by kind, ns.
    """

    meta: dict
    columns: dict[str, list]
    bins: dict[str, list[int]]

    def busy_ns(self, start, end, kinds=None):
        """How long the lane has anything in a range (of these kinds, ns), each moment once."""
        covered, reached = 0, start
        rows = zip(*(self.columns[x] for x in ("start", "end", "kind")), strict=True)
        for first, last, kind in sorted(rows):
            if kinds is None or kind in kinds:
                until = min(last, end)
                covered += max(0, until - max(first, reached))
                reached = max(reached, until)
        return covered

    def by_kind(self, start, end):
        """How long the lane has each kind in a range, ns, without kinds that it has not at all."""
        times = {kind: self.busy_ns(start, end, [kind]) for kind in self.meta["kinds"]}
        return {kind: time for kind, time in times.items() if time}


def read_lanes(data) -> list[list[PageLane]]:
    """The lanes of each group of a page's timeline (`TimelineData`)."""
    content = _Reader(gzip.decompress(data.columns))
    groups = [
        [_read_lane(content, lane) for lane in group["lanes"]] for group in data.meta["groups"]
    ]
    assert content.at == len(content.content)
    for lanes in groups:
        rows = []
        # Streams first: the times of other lanes refer to those of their activities.
        for lane in sorted(lanes, key=lambda lane: lane.meta["type"] != "stream"):
            _add_times(lane, data.meta["start"], rows)
            if lane.meta["type"] == "stream":
                rows += zip(lane.columns["start"], lane.columns["end"], strict=True)
    return groups


class _Reader:
    def __init__(self, content):
        self.content, self.at = content, 0

    def numbers(self, count, size):
        """Unsigned numbers: all their lowest bytes, then all their second bytes, and so on."""
        numbers = [0] * count
        for plane in range(size):
            for i in range(count):
                numbers[i] += self.content[self.at + plane * count + i] << (8 * plane)
        self.at += count * size
        return numbers


def _read_lane(reader, meta):
    columns, refers = {}, _refers(meta)
    for name, size, code in meta["columns"]:
        numbers = reader.numbers(meta["count"], size)
        if code == "delta":
            for i in range(1, len(numbers)):
                numbers[i] = (numbers[i] + numbers[i - 1]) % 2**32
        if name == "gap" or (name == "dur" and refers):
            columns[name] = [x - 2**32 if x >= 2**31 else x for x in numbers]
        else:
            none = 256**size - 1
            columns[name] = [None if x == none else x for x in numbers]
    for name in ("gap", "dur", "cost"):
        for i, value in meta["escapes"].get(name, ()):
            columns[name][i] = value
    columns["kind"] = [meta["kinds"][kind] for kind in columns["kind"]]
    bins = {}
    if meta["bins"]:
        bins = {kind: reader.numbers(meta["bins"]["count"], 4) for kind in meta["bins"]["kinds"]}
    return PageLane(meta, columns, bins)


def _refers(meta):
    """Whether the times of a lane are told by those of the activities in its column "row"."""
    return "row" in [name for name, *_ in meta["columns"]]


def _add_times(lane, start, rows):
    """Replace "gap" and "dur" by "start" and "end"."""
    columns = lane.columns
    gaps, lengths = columns.pop("gap"), columns.pop("dur")
    refers = _refers(lane.meta)
    before, columns["start"], columns["end"] = start, [], []
    for i, (gap, length) in enumerate(zip(gaps, lengths, strict=True)):
        row = columns["row"][i] if refers else None
        follows = max(before, rows[row - 1][1]) if row else before
        begun = follows + gap
        reached = begun
        if row is not None:
            row_start, row_end = rows[row]
            reached = row_start if begun < row_start else row_end
        before = reached + length
        columns["start"].append(begun)
        columns["end"].append(before)
