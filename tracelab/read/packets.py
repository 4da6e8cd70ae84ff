"""Cut a trace of Perfetto into its packets, without knowing what they say.

Such a file is one protobuf message, and each of its fields a packet: a tag, a length, so many
bytes. No parser of protobuf reads a message of more than 2 GiB, or a part of one, so the packets
are cut by hand, many at once, and blocks of whole packets are parsed.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tracelab.read.streams import READ_ERRORS, read_as_far

BLOCK_BYTES = 1 << 20
# A larger packet is left out unread: those of programs have a few hundred bytes, and the one with
# all names a few megabytes.
LARGEST_PACKET = 64 << 20
_TAG = 0x0A  # field 1 of a message, with a length
_LONGEST_MESSAGE = 2**31  # in protobuf
_LONGEST_VARINT = 10  # bytes
# After so many bytes without a packet nothing readable will come any more.
_DAMAGE_LIMIT_BYTES = 2 << 20
_MOST_DAMAGES = 1000  # after so many stretches of it neither
_CHAIN = 3  # so many packets in a row do not come about by chance
_KEPT_BYTES = 1 << 16  # in which so many packets have room
_LOOK_BYTES = 1 + _LONGEST_VARINT
_JSON = re.compile(rb'\s*[\[{]\s*["\[\]{}]')
_HEAD_BYTES = 4096
_FIXED_BYTES = {1: 8, 5: 4}  # by the wire types of protobuf
_VARINT, _WITH_LENGTH = 0, 2


class Block(NamedTuple):
    r"""Whole packets, one after the other.

    Example: ``Block(data=b"\n\x02\x40\x05", ends=[4])``.

    Attributes:
        data: a message of nothing but these packets.
        ends: where each ends in it.
    """

    data: bytes
    ends: list[int]

    def packets(self) -> Iterator[bytes]:
        """Each packet as a message of its own."""
        begin = 0
        for end in self.ends:
            yield self.data[begin:end]
            begin = end


class PacketReader:
    r"""Iterate over the packets of a stream in blocks of bounded size.

    >>> reader = PacketReader(io.BytesIO(b"\n\x02\x40\x05\n\x02\x40"))
    >>> [block.ends for block in reader], reader.losses["truncated"]
    ([[4]], 1)

    Args:
        stream: the decompressed bytes.

    Attributes:
        losses: counts by the names in `tracelab.model.losses.LOSSES`; complete when the iteration
            is.
        end: where the last packet that is whole ends, a byte of the stream; known then.
    """

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self.losses: Counter[str] = Counter()
        self.end = self._position = 0
        self._stream = stream
        self._is_over = False

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of packets; damage ends nothing as long as packets follow it soon."""
        rest, is_damaged, damaged_bytes, damages = b"", False, 0, 0
        is_stuck, is_over = True, False
        while True:
            if not is_over and (is_stuck or len(rest) < BLOCK_BYTES):
                read = self._read(max(BLOCK_BYTES, min(len(rest), LARGEST_PACKET)))
                rest, is_over = rest + read if rest else read, not read
            before = self._position
            if is_damaged:
                skipped, is_damaged = _until_packets(rest, is_all=is_over)
                damaged_bytes += skipped
                rest = self._after(rest, skipped)
                if damaged_bytes > _DAMAGE_LIMIT_BYTES or damages > _MOST_DAMAGES:
                    self.losses["truncated"] = 1
                    return
            if not is_damaged and (ends := _ends(rest)):
                block, damaged_bytes = Block(rest[: ends[-1]], ends), 0
                rest = self._after(rest, ends[-1])
                self.end = self._position
                yield block
            if is_over and (not rest or is_damaged):
                return
            length = None if is_damaged else _length_of_packet(rest)
            if length is None:
                self.losses["unparsable_events"] += not is_damaged
                damages += not is_damaged
                is_damaged = True
            elif length > LARGEST_PACKET:
                self.losses["unparsable_events"] += 1
                missing = length - len(rest)
                rest = self._after(rest, min(length, len(rest)))
                self._skip(missing)
            elif is_over:  # the last packet is not whole
                self.losses["truncated"] = 1
                return
            is_stuck = self._position == before

    def _after(self, data: bytes, count: int) -> bytes:
        """What follows so many bytes that are done with."""
        self._position += count
        return data[count:]

    def _read(self, wanted: int) -> bytes:
        if self._is_over:
            return b""
        read, is_damaged = read_as_far(self._stream, wanted)
        if is_damaged:
            self._is_over = True
            self.losses["truncated"] = 1
        return read

    def _skip(self, count: int) -> None:
        """Leave out so many bytes of the stream."""
        self._position += max(0, count)
        while count > 0 and (read := self._read(min(count, BLOCK_BYTES))):
            count -= len(read)
        if count > 0:
            self.losses["truncated"] = 1


def begins_with_packets(stream: io.BufferedIOBase) -> bool:
    r"""Whether a stream is a trace of Perfetto, by its first bytes; they are not read.

    The first byte could be a blank before JSON, so that the first packet's fields are looked at.

    >>> begins_with_packets(io.BufferedReader(io.BytesIO(b"\n\x02\x40\x05")))
    True
    >>> begins_with_packets(io.BufferedReader(io.BytesIO(b'\n{"traceEvents": []}')))
    False
    """
    try:
        return is_head_of_packets(stream.peek(_HEAD_BYTES))  # type: ignore[attr-defined]
    except READ_ERRORS:  # its reader says what is wrong with it
        return False


def is_head_of_packets(head: bytes) -> bool:
    """The same for the first bytes of a stream, or all of them."""
    length = _length_of_packet(head)
    if not length or _JSON.match(head) or not head.strip():
        return False
    if len(head) > length and head[length] != _TAG:
        return False
    begin = _varint(head, 1)[1]
    return begin < length and _has_fields(head[begin:length])


def _has_fields(message: bytes) -> bool:
    """Whether these bytes are fields of a message; the last one may break off."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if position < 0:  # it breaks off
            return True
        if number == 0:
            return False
        if wire_type == _VARINT:
            position = _varint(message, position)[1]
            if position < 0:
                return True
        elif wire_type == _WITH_LENGTH:
            length, position = _varint(message, position)
            if position < 0:
                return True
            position += length
        elif wire_type in _FIXED_BYTES:
            position += _FIXED_BYTES[wire_type]
        else:
            return False
    return True


def _ends(data: bytes) -> list[int]:
    """Where the packets end that are whole at the beginning of some bytes."""
    ends: list[int] = []
    size, position = len(data), 0
    while position + 1 < size and data[position] == _TAG:
        length, begin = data[position + 1], position + 2
        if length >= 0x80:
            length, begin = _varint(data, position + 1)
            if begin < 0:
                break
        position = begin + length
        if position > size or length > LARGEST_PACKET:
            break
        ends.append(position)
    return ends


def _length_of_packet(data: bytes) -> int | None:
    """How many bytes the packet at the beginning has, with its tag and length.

    Returns:
        0 where too little of it is there to say, None where no packet begins.
    """
    if not data:
        return 0
    if data[0] != _TAG:
        return None
    length, begin = _varint(data, 1)
    if begin < 0:
        return 0 if len(data) <= _LONGEST_VARINT else None
    return begin + length if length < _LONGEST_MESSAGE else None


def _until_packets(data: bytes, *, is_all: bool) -> tuple[int, bool]:
    """How many bytes to leave out until packets follow, and whether none were found.

    Args:
        data: what is damaged at its beginning.
        is_all: nothing comes after it.
    """
    position = data.find(_TAG)
    while position >= 0:
        packets, end = 0, position
        while packets < _CHAIN and (length := _length_of_packet(data[end : end + _LOOK_BYTES])):
            end += length
            packets += 1
        if (packets == _CHAIN and end <= len(data)) or (is_all and packets and end == len(data)):
            return position, False
        position = data.find(_TAG, position + 1)
    return len(data) if is_all else max(0, len(data) - _KEPT_BYTES), True


def _varint(data: bytes, position: int) -> tuple[int, int]:
    r"""A number of protobuf, and where it ends; -1 where it does not end in these bytes.

    >>> _varint(b"\xac\x02", 0), _varint(b"\xac", 0)
    ((300, 2), (0, -1))
    """
    number = 0
    for index, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    return 0, -1
