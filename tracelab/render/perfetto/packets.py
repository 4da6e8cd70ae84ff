"""Tracks as packets at the end of a Perfetto trace: its own bytes stay as they are.

A file of packets is one message, and two messages after one another are one, too. Times are integer
nanoseconds there. The file's own slices cannot get arrows, for those are part of a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.read.packet_events import PacketFile, load_protos
from tracelab.read.streams import Source
from tracelab.render.perfetto.events import ABOVE_ALL, rows_of
from tracelab.render.perfetto.findings import FindingTrack
from tracelab.render.perfetto.splice import bytes_of, packed
from tracelab.render.perfetto.tracks import Counter, Texts, Track, Tracks
from tracelab.system.files import writing

_AT_ONCE = 1000  # packets
_SEQUENCE = 31_438  # of ours: names of one sequence are unknown in others
_FIRST_PROCESS = 1000
_LAST_NS = 2**64 - 1  # that a packet can say
_FIRST_TRACK = 2**62  # beyond what programs number their tracks with


def append_packets(source: Source, file: PacketFile, packets: Iterable[Any], path: Path) -> None:
    """Write a Perfetto trace with more packets, packed if the name ends in ``.gz``.

    Args:
        source: the file.
        file: what `locate_packets` says of it.
        packets: what to add.
        path: the file to write.

    Raises:
        UnreadableInputError: the file can no longer be read.
        OutputError: the other cannot be written.
    """
    protos, _ = load_protos(source.path)
    is_packed = path.name.lower().endswith(".gz")
    rest = iter(packets)
    with writing(path) as stream, packed(stream, is_packed=is_packed) as write:
        for block in bytes_of(source, 0, file.end):
            write(block)
        while some := list(islice(rest, _AT_ONCE)):
            write(protos.Trace(packet=some).SerializeToString())


def track_packets(
    source: Source,
    file: PacketFile,
    name: str,
    rank: int,
    tracks: Tracks,
    findings: Sequence[FindingTrack],
    notes: Track,
) -> Iterator[Any]:
    """The packets to put into a file.

    Args:
        source: the file.
        file: what `locate_packets` says of it.
        name: what the process is called.
        rank: the rank, by which processes are sorted.
        tracks: what is shown, below the findings.
        findings: their rows.
        notes: what there is to say of the file, shown last.
    """
    protos, _ = load_protos(source.path)
    rows = rows_of(tracks, findings, notes)
    origin_ns = file.base_ns + tracks.origin_ns
    # The file may have tracks of ours: it has more bytes than they have numbers.
    first = _FIRST_TRACK + file.end
    process = _track(protos, first, 0, name, 0)
    taken = {text for pair in tracks.threads for text in pair}
    free = (number for number in count(_FIRST_PROCESS) if str(number) not in taken)
    process.track_descriptor.process.pid = next(free)
    process.track_descriptor.process.process_name = name
    process.track_descriptor.process.legacy_sort_index = ABOVE_ALL + rank
    process.track_descriptor.child_ordering = protos.TrackDescriptor.EXPLICIT
    yield process
    for order, (track, lane) in enumerate(rows, 1):
        yield _track(protos, first + order, order, track.label, first)
        yield from _slices(protos, first + order, track, lane, origin_ns)
    for order, counter in enumerate(tracks.counters, len(rows) + 1):
        packet = _track(protos, first + order, order, f"{counter.label} {counter.unit}", first)
        packet.track_descriptor.counter.SetInParent()
        yield packet
        yield from _values(protos, first + order, counter, origin_ns)


def _track(protos: Any, uuid: int, order: int, name: str, parent: int) -> Any:
    packet = protos.TracePacket()
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.parent_uuid = parent
    packet.track_descriptor.name = name
    packet.track_descriptor.sibling_order_rank = order
    return packet


def _event(protos: Any, kind: int, uuid: int, time_ns: int) -> Any:
    packet = protos.TracePacket(
        timestamp=min(time_ns, _LAST_NS), trusted_packet_sequence_id=_SEQUENCE
    )
    packet.track_event.type = kind
    packet.track_event.track_uuid = uuid
    return packet


def _slices(
    protos: Any, uuid: int, track: Track, lane: NDArray[np.intp], origin_ns: int
) -> Iterator[Any]:
    """The slices of one row, each with its end before the next one begins."""
    kinds = protos.TrackEvent
    texts = [_argument(key, column) for key, column in track.arguments.items()]
    for index in lane.tolist():
        packet = _event(
            protos, kinds.TYPE_SLICE_BEGIN, uuid, origin_ns + int(track.start_ns[index])
        )
        packet.track_event.name = _text(track.name, index) or ""
        packet.track_event.categories.append(f"tracelab.{track.category}")
        for add in texts:
            add(packet.track_event.debug_annotations, index)
        yield packet
        yield _event(protos, kinds.TYPE_SLICE_END, uuid, origin_ns + int(track.end_ns[index]))


def _argument(key: str, column: Texts | NDArray[np.int64]) -> Callable[[Any, int], None]:
    """What adds an argument to those of a slice, unless it has none."""

    def add(annotations: Any, index: int) -> None:
        if not isinstance(column, Texts):
            annotations.add(name=key, int_value=int(column[index]))
        elif (text := _text(column, index)) is not None:
            annotations.add(name=key, string_value=text)

    return add


def _text(texts: Texts, index: int) -> str | None:
    place = int(texts.index[index])
    return None if place < 0 else texts.table[place]


def _values(protos: Any, uuid: int, counter: Counter, origin_ns: int) -> Iterator[Any]:
    for time_ns, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True):
        packet = _event(protos, protos.TrackEvent.TYPE_COUNTER, uuid, origin_ns + time_ns)
        packet.track_event.counter_value = value
        yield packet
