"""An independent account of on which streams events were recorded: slow, call after call.

It takes a timeline's rows, their order and their launches as they are, and of each wait the stream
that waits, the host's call that made the record, and whether the file names the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.build.rows import Row
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS

_SYNCS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


@dataclass(frozen=True)
class Asked:
    """A wait whose record is known.

    Attributes:
        wait: CUPTI's row.
        record: the host's call that made the record.
        is_open: whether the file does not name the record's stream.
    """

    wait: Row
    record: Row
    is_open: bool


@dataclass(frozen=True)
class Answer:
    """What the host's calls tell: a stream (device and number) if any, else whether none can be."""

    stream: tuple[int, int] | None
    is_unresolved: bool


class Calls:
    """The launches, records, waits and synchronizes of the host, and what they gave to whom."""

    def __init__(self, rows: Sequence[Row], timeline: Timeline) -> None:
        streams = [(x.device_number, x.stream_number) for x in timeline.streams]
        self.stream_of_row = [streams[i] for i in timeline.stream_index.tolist()]
        launch_id = timeline.launch_id.tolist()
        self.launched_rows: dict[int, list[int]] = {}
        for row, event_id in enumerate(launch_id):
            if event_id != ABSENT:
                self.launched_rows.setdefault(event_id, []).append(row)
        self.name_of_row = [rows[i].name for i in timeline.event_id.tolist()]
        self.rows = rows
        ranked = [(self.rank(i), i) for i in range(len(rows))]
        chosen = [(rows[i].start, rank, i) for rank, i in ranked if rank is not None]
        self.order = [i for _, _, i in sorted(chosen)]  # of equal starts launches come first

    def rank(self, event_id: int) -> int | None:
        row = self.rows[event_id]
        if event_id in self.launched_rows:
            return 0
        if row.category not in HOST_CALLS:
            return None
        names = {"cudaEventRecord": 1, "cudaStreamWaitEvent": 2} | dict.fromkeys(_SYNCS, 3)
        return names.get(row.name)

    def of_thread(self, call: Row) -> list[int]:
        return [i for i in self.order if self.rows[i].thread == call.thread]

    def place(self, call: Row) -> tuple[list[int], int]:
        """The calls of a call's thread, and where it stands among them."""
        calls = self.of_thread(call)
        return calls, next(i for i, x in enumerate(calls) if self.rows[x] is call)

    def run(self, call: Row) -> tuple[list[int], int | None]:
        """The calls around one that are no launches, and the launch before them."""
        calls, place = self.place(call)
        before = [i for i in range(place) if calls[i] in self.launched_rows]
        after = [i for i in range(place + 1, len(calls)) if calls[i] in self.launched_rows]
        first = before[-1] + 1 if before else 0
        end = after[0] if after else len(calls)
        return calls[first:end], calls[before[-1]] if before else None

    def stream_of(self, launch: int | None) -> tuple[int, int] | None:
        """The stream that a launch gave work to, if it is one."""
        if launch is None:
            return None
        streams = {self.stream_of_row[row] for row in self.launched_rows[launch]}
        return streams.pop() if len(streams) == 1 else None

    def copies_between_devices(self, launch: int) -> bool:
        return any("PtoP" in self.name_of_row[row] for row in self.launched_rows[launch])


def answers(rows: Sequence[Row], timeline: Timeline, asked: Sequence[Asked]) -> list[Answer]:
    """On which stream the record of each wait was made."""
    return Recordings(Calls(rows, timeline), asked).answers()


class Recordings:
    """The rules, each for one wait."""

    def __init__(self, calls: Calls, asked: Sequence[Asked]) -> None:
        self.calls, self.asked = calls, asked

    def answers(self) -> list[Answer]:
        found: list[tuple[int, int] | None] = [None] * len(self.asked)
        for rule in (self.given_before, self.same_event):
            said = [rule(one, list(found)) for one in self.asked]
            for i, one in enumerate(self.asked):
                if one.is_open and found[i] is None:
                    found[i] = said[i]
        return [Answer(stream, stream is None) for stream in found]

    def is_placed(self, one: Asked) -> bool:
        """Whether what made the record is a call that records, or one that launches."""
        return any(self.calls.rows[i] is one.record for i in self.calls.order)

    def call_of(self, one: Asked) -> Row | None:
        calls = [
            x
            for x in self.calls.rows
            if x.category in HOST_CALLS and x.correlation == one.wait.correlation
        ]
        return calls[0] if calls and calls[0].name == "cudaStreamWaitEvent" else None

    def is_adjacent(self, one: Asked) -> bool:
        if not self.is_placed(one):
            return False
        wait = self.call_of(one)
        calls, place = self.calls.place(one.record)
        return place + 1 < len(calls) and self.calls.rows[calls[place + 1]] is wait

    def waiting(self, one: Asked) -> tuple[int, int]:
        return one.wait.device, one.wait.stream

    def given_before(self, one: Asked, _: object) -> tuple[int, int] | None:
        if not self.is_placed(one):
            return None
        run, launch = self.calls.run(one.record)
        stream = self.calls.stream_of(launch)
        if stream is None or not self.is_adjacent(one):
            return stream
        calls, place = self.calls.place(one.record)
        if place and calls[place - 1] == launch and self.calls.copies_between_devices(launch):
            return stream if stream != self.waiting(one) else None
        is_doubtful = any(self.calls.rows[x].name in _SYNCS for x in run)
        for other in self.asked:
            if self.is_adjacent(other) and self.waiting(other) == stream:
                is_doubtful |= self.calls.run(other.record)[1] == launch
        is_of_device = stream[0] == one.wait.device
        fits = is_of_device and not is_doubtful and stream != self.waiting(one)
        return stream if fits else None

    def same_event(self, one: Asked, found: list) -> tuple[int, int] | None:
        streams = {
            stream
            for stream, other in zip(found, self.asked, strict=True)
            if stream is not None and other.wait.event == one.wait.event
        }
        return streams.pop() if one.wait.event != ABSENT and len(streams) == 1 else None
