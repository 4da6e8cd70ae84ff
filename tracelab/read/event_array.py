"""Byte positions of a file's events, for code that adds to a file or cuts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import orjson

from tracelab.base.arrays import Arrays, Record
from tracelab.base.intervals import Int64Array
from tracelab.model.losses import DAMAGE
from tracelab.read.json.array import ArrayReader
from tracelab.read.json.events import decode_texts, mapping
from tracelab.read.reader import EVENTS, collector_paused
from tracelab.read.streams import Source, open_source

Id = int | float | str | None  # of a process or thread, as files write it


class Head(msgspec.Struct, gc=False):
    """Fields that tell events apart; as written."""

    ph: Id = None
    cat: Id = None
    pid: Id = None
    tid: Id = None
    ts: Id = None
    id: Id = None


class EventArray(Record):
    """Position of a file's array of events in its unpacked bytes: see `ArrayReader`.

    `threads` are every process and thread as the file writes them, by the texts of both.
    """

    begin: int
    end: int
    is_bare: bool
    breaks_off: bool
    metadata: Mapping[str, Any]
    losses: Mapping[str, int]
    threads: Mapping[tuple[str, str], tuple[Id, Id]]

    @property
    def is_damaged(self) -> bool:
        """True if the file is not JSON, even where it would not break off."""
        return not self.losses.keys().isdisjoint({*DAMAGE} - {"truncated"})


class Selection(Arrays):
    """Selection of a file's events to keep.

    Complete events are chosen one by one, by their indices in the file's array (ascending). Of the
    others the metadata are kept, begins and ends (half a pair would be damage), the arrows of the
    chosen launches (by correlation, ascending), and what happened in the time, in the file's clock.
    """

    file_index: Int64Array
    correlation: Int64Array
    start_us: float
    end_us: float

    def chosen(self, first_index: int, count: int) -> set[int]:
        """The events, among a number from an index on, that are chosen one by one."""
        low, high = np.searchsorted(self.file_index, (first_index, first_index + count))
        return set(self.file_index[low:high].tolist())

    def keeps(self, head: Head) -> bool:
        """Return True if an event that is not complete is kept."""
        if head.ph in ("M", "B", "E"):
            return True
        if head.ph == "X":
            return False
        try:
            time_us = float(head.ts or 0)
        except ValueError:
            return False
        is_arrow = head.ph in ("s", "t", "f") and head.cat != "fwdbwd"
        return self.start_us <= time_us < self.end_us or (is_arrow and self._has_arrow(head.id))

    def _has_arrow(self, number: Id) -> bool:
        if not isinstance(number, int) or not len(self.correlation):
            return False
        index = min(int(np.searchsorted(self.correlation, number)), len(self.correlation) - 1)
        return bool(self.correlation[index] == number)


def locate_events(source: Source) -> EventArray:
    """Find the array of events in a file, however damaged, as its reader does."""
    threads: dict[tuple[Id, Id], None] = {}
    with open_source(source) as stream, collector_paused():
        reader = ArrayReader(stream, source.path, EVENTS, _decode_heads, _is_event)
        for heads in reader:
            threads.update(dict.fromkeys((head.pid, head.tid) for head in heads))
    return EventArray(
        begin=reader.begin,
        end=reader.end,
        is_bare=reader.is_bare,
        breaks_off=reader.breaks_off,
        metadata=MappingProxyType(reader.metadata),
        losses=MappingProxyType(dict(+reader.losses)),
        threads=MappingProxyType({_texts(pair): pair for pair in reversed(threads)}),
    )


def selected_events(source: Source, selection: Selection | None) -> Iterator[list[bytes]]:
    """The texts of the events that are kept, or of all, piece by piece, in the file's order."""
    with open_source(source) as stream, collector_paused():
        first_index = 0
        reader = ArrayReader(stream, source.path, EVENTS, _decode_pairs, _is_pair_of_event)
        for pairs in reader:
            chosen = selection.chosen(first_index, len(pairs)) if selection else ()
            yield [
                text
                for index, (head, text) in enumerate(pairs, first_index)
                if selection is None or index in chosen or selection.keeps(head)
            ]
            first_index += len(pairs)


_decode = msgspec.json.Decoder(list[Head]).decode


def _decode_heads(text: bytes) -> list[Head]:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):  # not JSON, or some value is of an unusual type
        return [_head(mapping(element)) for element in orjson.loads(text)]


def _decode_pairs(text: bytes) -> list[tuple[Head, bytes]]:
    """The head and the text of each event; as much is lost as when the events were numbered."""
    texts = decode_texts(text)
    return list(zip(_decode_heads(text), texts, strict=True))


def _head(fields: Mapping[str, Any]) -> Head:
    usual = {
        name: value if isinstance(value, int | float | str) else None
        for name in Head.__struct_fields__
        for value in [fields.get(name)]
    }
    return Head(**usual)


def _is_event(head: Head) -> bool:
    return head.ph is not None


def _is_pair_of_event(pair: tuple[Head, bytes]) -> bool:
    return _is_event(pair[0])


def _texts(pair: tuple[Id, Id]) -> tuple[str, str]:
    process, thread = ("" if one is None else str(one) for one in pair)
    return process, thread
