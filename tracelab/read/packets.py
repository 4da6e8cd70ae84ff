"""Perfetto's packets (``.pftrace``) as the JSON that PyTorch's own collector writes, too.

In the packets of the collector (`torch.profiler.CuspyConfig`, torch 2.15), calls and operators are
slices of tracks, GPU work stages of rendering; fields have their numbers in Perfetto's definitions.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from tempfile import SpooledTemporaryFile
from types import MappingProxyType
from typing import IO, Any, TypeAlias

import orjson

_Buffer: TypeAlias = bytes | memoryview

# A tag, a length, and fields with the control characters that JSON never has.
_PACKETS = re.compile(rb"\n(?:.{0,40}?[\x00-\x08\x0e-\x1f]){2}", re.DOTALL)

# A packet is field 1 of the file, and has a length. The one with all names has a few megabytes.
_TAG = b"\n"
_MAX_PACKET_BYTES = 64 << 20
_MAX_EVENT_BYTES = 1 << 20
_MAX_BYTES_IN_MEMORY = 64 << 20
_MAX_VARINT_BYTES = 10
_VARINT, _WITH_LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}

# Fields of a packet; those that say nothing are its sequence, its flags and counters.
_CLOCKS, _TIME, _SLICE, _INTERNED, _STAGE, _TRACK = 6, 8, 11, 12, 53, 60
_UNUSED = frozenset((_TIME, _INTERNED, 10, 13, 52))
# Tables of interned texts, and types of slices.
_CATEGORIES, _NAMES, _STAGES = 1, 2, 24
_BEGIN, _END = 1, 2

_STAGE_CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "Kernel": "kernel",
        "Memcpy": "gpu_memcpy",
        "Memset": "gpu_memset",
        "Annotation": "gpu_user_annotation",
        "EventRecord": "graph_event_node",
        "HostNode": "graph_host_node",
    }
)
_JSON_KEYS = {"device id": "device", "context id": "context", "stream id": "original_stream"}
# Alike for all GPU work, and left out where they are 0.
_OF_PROCESS = frozenset(("arch", "process_id", "process_name"))
_ZEROS = {"Memcpy": {"bytes": 0}, "Memset": {"bytes": 0, "memory kind": 0}}
_DIGITS = re.compile(r"[0-9]{1,18}")
# A row of GPU work: "[0007] stream 7".
_LANE = re.compile(r"\[(\d{1,18})\] ")
_SEPARATOR = b",\n"
# The number -1 of a process or a thread, of which the file has 31 bits.
_MINUS_ONE = 0x7FFFFFFF
_NOT_AN_EVENT = (LookupError, TypeError, ValueError, AttributeError, RecursionError, struct.error)
_DAMAGED = b"{?}"


def json_stream(
    stream: io.BufferedReader[Any], require: Callable[[int], None]
) -> io.BufferedReader[Any]:
    """The JSON of a stream of packets; the stream itself if it is something else.

    `require` refuses more bytes of JSON than there may be.
    """
    return io.BufferedReader(_Json(stream, require)) if _PACKETS.match(stream.peek()) else stream


class _Json(io.RawIOBase):
    def __init__(self, stream: io.BufferedIOBase, require: Callable[[int], None]) -> None:
        self._texts, self._require = _texts(stream), require
        self._text = memoryview(b"")
        self._read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._text = self._text or memoryview(next(self._texts, b""))
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        self._read_bytes += count
        self._require(self._read_bytes)
        return count


def _texts(stream: io.BufferedIOBase) -> Iterator[bytes]:
    yield b'{"traceEvents": [{"ph": "M"}'
    with SpooledTemporaryFile(_MAX_BYTES_IN_MEMORY) as begins:
        events = _Events(begins)
        for packet in _packets(stream):
            try:
                yield from events.take(packet)
            except _NOT_AN_EVENT:
                yield _SEPARATOR + _DAMAGED
                yield from events.abandon()
        yield from events.abandon()
    yield b'], "baseTimeNanoseconds": %d}' % events.base_ns


def _packets(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield each packet of a stream; an EOFError if it breaks off, or goes on otherwise."""
    while tag := stream.read(1):
        head = stream.read(1) or b"\0"
        while head[-1] >= 0x80 and len(head) < _MAX_VARINT_BYTES:
            head += stream.read(1) or b"\0"
        length = 0 if head[-1] >= 0x80 else _varint(head, 0)[0]
        packet = stream.read(length) if tag == _TAG and length <= _MAX_PACKET_BYTES else b""
        if not packet or len(packet) < length:
            raise EOFError("the packets break off")
        yield packet


class _Events:
    """The JSON of packets, which are taken in their order; its times count from `base_ns`.

    The collector writes the begins of a group of slices, then their ends in the same order: paired
    by time, slices that touch would get each other's ends. `begins` is an empty file for slices
    that have not ended.
    """

    def __init__(self, begins: IO[bytes]) -> None:
        self.base_ns = 0
        self._tables: dict[int, dict[int, str]] = {_CATEGORIES: {}, _NAMES: {}, _STAGES: {}}
        # Process, thread and the name of the process, by track.
        self._tracks: dict[int, tuple[int, int, str]] = {}
        # A line each: when it began, and its fields.
        self._begins = begins
        self._has_ends = False

    def take(self, packet: bytes) -> Iterator[bytes]:
        """Yield the events that a packet makes whole."""
        fields = dict(_fields(memoryview(packet)))
        if _INTERNED not in fields and len(packet) > _MAX_EVENT_BYTES:
            raise ValueError("no event is that large")
        if _INTERNED in fields:
            for table, entry in _fields(fields[_INTERNED]):
                if table in self._tables:
                    text = dict(_fields(entry))
                    self._tables[table][text[1]] = _text(text[2])
        if _SLICE in fields:
            yield from self._take_slice(fields[_TIME], fields[_SLICE])
        elif _STAGE in fields:
            yield self._activity(fields[_TIME], fields[_STAGE])
        elif _TRACK in fields:
            yield from self._take_track(dict(_fields(fields[_TRACK])))
        elif _CLOCKS in fields:
            self.base_ns = self.base_ns or fields[_TIME]
        elif unknown := fields.keys() - _UNUSED:
            yield b'%b{"ph": "packet %d"}' % (_SEPARATOR, min(unknown))

    def abandon(self) -> Iterator[bytes]:
        """Yield the begins that are left without an end."""
        if not self._has_ends:
            self._begins.seek(0)
        for line in self._begins:
            start_ns, _, fields = line.partition(b" ")
            yield self._timed(b"B", fields, int(start_ns))
        self._begins.seek(0)
        self._begins.truncate()
        self._has_ends = False

    def _take_slice(self, time_ns: int, message: _Buffer) -> Iterator[bytes]:
        values: dict[int, Any] = {}
        arguments: dict[str, Any] = {}
        for number, value in _fields(message):
            if number == 4:
                arguments.update([_annotation(value)])
            else:
                values[number] = value
        process, thread, process_name = self._tracks.get(values[11], (0, values[11], ""))
        lane = {"pid": process, "tid": thread}
        if values[9] == _BEGIN:
            if self._has_ends:
                yield from self.abandon()
            unnamed = "cuda_sync" if "cuda_sync_kind" in arguments else process_name.lower()
            category = self._tables[_CATEGORIES].get(values.get(3, 0), unnamed)
            named = {"cat": category, "name": self._tables[_NAMES][values[10]]}
            self._begins.write(
                b"%d %b\n" % (time_ns, orjson.dumps(named | lane | {"args": arguments}))
            )
        elif values[9] == _END:
            if not self._has_ends:
                self._begins.seek(0)
                self._has_ends = True
            start_ns, _, fields = self._begins.readline().partition(b" ")
            if fields:
                yield self._timed(b"X", fields, int(start_ns), time_ns)
            else:
                yield self._timed(b"E", orjson.dumps(lane), time_ns)

    def _take_track(self, track: Mapping[int, Any]) -> Iterator[bytes]:
        if 3 in track:
            process = dict(_fields(track[3]))
            name = _text(process.get(6, b""))
            self._tracks[track[1]] = (_signed(process.get(1, 0)), 0, name)
        elif 4 in track:
            thread = dict(_fields(track[4]))
            numbers = _signed(thread.get(1, 0)), _signed(thread.get(2, 0))
            name_of_process = self._tracks.get(track.get(5, 0), (0, 0, ""))[2]
            self._tracks[track[1]] = (*numbers, name_of_process)
            event = {"ph": "M", "name": "thread_name", "pid": numbers[0], "tid": numbers[1]}
            event["args"] = {"name": _text(thread.get(5, b""))}
            yield _SEPARATOR + orjson.dumps(event)

    def _activity(self, time_ns: int, message: _Buffer) -> bytes:
        fields = list(_fields(message))
        values = dict(fields)
        stage = self._tables[_STAGES][values[14]]
        arguments: dict[str, Any] = dict(_ZEROS.get(stage, {}))
        for pair in (dict(_fields(value)) for number, value in fields if number == 6):
            key, text = _text(pair[1]), _text(pair.get(2, b""))
            if key not in _OF_PROCESS:
                value = int(text) if _DIGITS.fullmatch(text) else text
                arguments[_JSON_KEYS.get(key, key)] = value
        lane = _LANE.match(self._tables[_STAGES].get(values[13], ""))
        row = int(lane[1]) if lane else arguments.get("original_stream", 0)
        arguments |= {"stream": row, "correlation": arguments.get("correlation", 0)}
        if "graph id" in arguments:
            arguments.setdefault("graph node id", 0)
        if 21 in values:
            launch = dict(_fields(values[21]))
            for key, place in (("grid", 1), ("block", 2)):
                size = dict(_fields(launch.get(place, b"")))
                arguments[key] = [size.get(axis, 0) for axis in (1, 2, 3)]
        name = self._tables[_NAMES].get(values.get(20, 0), stage)
        if "host fn" in arguments:
            name = f"{name}: {arguments['host fn']}"
        event = {
            "cat": _STAGE_CATEGORIES.get(stage, f"stage {stage}"),
            "name": name,
            "pid": values.get(11, 0),
            "tid": row,
            "args": arguments,
        }
        return self._timed(b"X", orjson.dumps(event), time_ns, time_ns + values.get(2, 0))

    def _timed(self, phase: bytes, fields: bytes, time_ns: int, end_ns: int | None = None) -> bytes:
        texts = [
            fields.rstrip()[:-1],
            b'"ph":"%b"' % phase,
            b'"ts":%b' % _us(time_ns - self.base_ns),
        ]
        if end_ns is not None:
            texts.append(b'"dur":%b' % _us(end_ns - time_ns))
        return b"%b%b}" % (_SEPARATOR, b",".join(texts))


def _us(time_ns: int) -> bytes:
    return b"%d.%03d" % divmod(max(time_ns, 0), 1000)


def _signed(number: int) -> int:
    return -1 if number == _MINUS_ONE else number


def _text(value: _Buffer) -> str:
    return str(value, "utf-8", "replace")


def _annotation(message: _Buffer) -> tuple[str, Any]:
    """The name and the value of an annotation; an empty list is one without a value."""
    name, value = "", None
    entries: dict[str, Any] = {}
    values: list[Any] = []
    for number, field in _fields(message):
        if number == 10:
            name = _text(field)
        elif number == 11:
            entries.update([_annotation(field)])
        elif number == 12:
            values.append(_annotation(field)[1])
        elif number in _SCALARS:
            value = _SCALARS[number](field)
    return name, (entries or values) if value is None else value


_SCALARS: Mapping[int, Callable[[Any], Any]] = MappingProxyType(
    {
        2: bool,
        4: lambda number: number - (number >> 63 << 64),
        5: lambda double: struct.unpack("<d", double)[0],
        6: _text,
    }
)


def _fields(message: _Buffer) -> Iterator[tuple[int, Any]]:
    r"""Yield the number of each field of a message, and an integer or bytes.

    A ValueError if it is not a message, an IndexError if it breaks off.
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        number, position = (
            (_FIXED_BYTES[kind], position) if kind in _FIXED_BYTES else _varint(message, position)
        )
        if kind == _VARINT:
            yield tag >> 3, number
            continue
        if position + number > len(message) or kind not in (_WITH_LENGTH, *_FIXED_BYTES):
            raise ValueError("a field breaks off, or is of an unknown type")
        yield tag >> 3, message[position : position + number]
        position += number


def _varint(message: _Buffer, position: int) -> tuple[int, int]:
    number = message[position]
    position += 1
    if number < 0x80:
        return number, position
    number &= 0x7F
    for bits in range(7, 7 * _MAX_VARINT_BYTES, 7):
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << bits
        if byte < 0x80:
            return number, position
    raise ValueError("a number does not end")
