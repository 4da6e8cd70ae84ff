"""Perfetto's packets are cut from any stream, damaged or huge, and known by their content."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from tracelab.read import packets as packets_module
from tracelab.read.packets import PacketReader, begins_with_packets


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def packet(content: bytes) -> bytes:
    return b"\n" + varint(len(content)) + content


def cut(data: bytes) -> tuple[list[bytes], dict[str, int]]:
    reader = PacketReader(io.BytesIO(data))
    found = [one for block in reader for one in block.packets()]
    return found, dict(+reader.losses)


@given(st.lists(st.binary(max_size=300)), st.integers(1, 600))
def test_every_packet_is_found_whatever_the_blocks_are(contents, block_bytes):
    """GIVEN packets of any content
    WHEN they are cut in blocks of any size
    THEN each is there, in order, and nothing is lost."""
    written = [packet(content) for content in contents]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packets_module, "BLOCK_BYTES", block_bytes)
        assert cut(b"".join(written)) == (written, {})


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8), st.data())
def test_a_truncated_file_has_the_packets_before_the_cut(contents, data):
    written = [packet(content) for content in contents]
    whole = b"".join(written)
    size = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, written[: i + 1])) for i in range(len(written))]
    count = sum(end <= size for end in ends)
    is_between = size in (0, *ends)
    assert cut(whole[:size]) == (written[:count], {} if is_between else {"truncated": 1})


def test_damaged_compression_is_an_end():
    whole = gzip.compress(b"".join(packet(bytes([i]) * 50) for i in range(100)), mtime=0)
    reader = PacketReader(io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(whole[:-30]))))
    assert sum(len(block.ends) for block in reader) < 100
    assert +reader.losses == {"truncated": 1}


def test_garbage_between_packets_is_left_out():
    """GIVEN ten packets, 1,000 bytes that are none, and ten more
    THEN all twenty are read, and one stretch of damage is counted."""
    written = [packet(bytes([0x40, i])) for i in range(20)]
    garbage = b"\xff" * 1000
    data = b"".join([*written[:10], garbage, *written[10:]])
    assert cut(data) == (written, {"unparsable_events": 1})


def test_after_two_mib_of_garbage_the_rest_is_given_up():
    written = [packet(bytes([0x40, i])) for i in range(10)]
    found, losses = cut(b"".join(written) + b"\xff" * (3 << 20) + b"".join(written))
    assert (found, losses) == (written, {"unparsable_events": 1, "truncated": 1})


def test_after_a_thousand_damages_the_rest_is_given_up():
    """GIVEN 40 MiB in which a byte that is none follows every three packets
    THEN some of it is read, and no more than a few blocks are in memory at once."""
    data = (packet(b"\x40\x05") * 3 + b"\0") * (40 << 20 >> 4)
    reader = PacketReader(io.BytesIO(data))
    tracemalloc.start()
    count = sum(len(block.ends) for block in reader)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 3 * 1001
    assert dict(+reader.losses) == {"unparsable_events": 1001, "truncated": 1}
    assert peak_bytes < 8 << 20


def test_garbage_at_the_end_is_no_packet():
    written = [packet(bytes([0x40, i])) for i in range(3)]
    assert cut(b"".join(written) + b"\0" * 300) == (written, {"unparsable_events": 1})


@pytest.mark.parametrize("length", [1 << 20, (64 << 20) + 1, 2**31 - 1])
def test_a_length_beyond_the_file_is_a_truncated_file(length):
    """GIVEN a packet that says it is much longer than the file
    THEN what is before it is read, and memory does not grow with its word."""
    data = packet(b"\x40\x05") + b"\n" + varint(length) + b"\x40\x06"
    tracemalloc.start()
    found, losses = cut(data)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found, losses["truncated"]) == ([packet(b"\x40\x05")], 1)
    assert peak_bytes < 8 << 20


class Endless(io.RawIOBase):
    """A stream of pieces that are made when they are read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._unread = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if not self._unread:
            self._unread = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._unread))
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count


def test_more_than_two_gib_in_bounded_memory():
    """GIVEN a packet of 1.5 GiB between small ones, and 1 GiB of packets of 1 MiB after it
    THEN every other packet is read, and no more than a few blocks are in memory at once."""
    small, large = packet(b"\x40\x05"), packet(bytes(1 << 20))
    piece, pieces = bytes(1 << 20), 1536

    def content():
        yield small
        yield b"\n" + varint(pieces << 20)
        yield from (piece for _ in range(pieces))
        yield from (large for _ in range(1024))
        yield small

    reader = PacketReader(io.BufferedReader(Endless(content()), 1 << 20))
    tracemalloc.start()
    count = sum(len(block.ends) for block in reader)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, dict(+reader.losses)) == (1 + 1024 + 1, {"unparsable_events": 1})
    assert reader.end > 2 << 30
    assert peak_bytes < 16 << 20


@pytest.mark.parametrize(
    ("content", "is_one"),
    [
        (packet(b"\x40\x05"), True),
        (packet(b"\x40\x05") + packet(b"\x40\x06"), True),
        (packet(b"\x40\x05" * 100)[:50], True),
        # A packet of 123 bytes has the length that the letter { is.
        (packet(b"\x40" + b"\x85" * 3 + b"\x05" + b"\x32\x74" + b"a" * 116), True),
        (b"", False),
        (b"\n", False),
        (b"\n\n\n\n", False),
        (b'\n{"traceEvents": []}', False),
        (b'\n[\n{"ph": "X"}]', False),
        (b"\n{}", False),
        (b"\nhello world, this is a text that begins with an empty line", False),
        (packet(b"\x40\x05") + b"\xff", False),
        (b"{}", False),
        (b"\x1f\x8b", False),
    ],
)
def test_what_packets_are_is_known_by_their_bytes(content, is_one):
    assert begins_with_packets(io.BufferedReader(io.BytesIO(content))) == is_one
