"""Perfetto's packets, made by hand: messages as dictionaries of their fields' numbers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

# Fields of a packet, and of what it holds.
TIME, SLICE, INTERNED, STAGE, TRACK, CLOCKS = 8, 11, 12, 53, 60, 6
BEGIN, END = 1, 2
BASE_NS = 1_790_857_026_000_000_000


def message(fields: Mapping[int, Any]) -> bytes:
    """The bytes of a message; a list is a field that is there several times.

    >>> message({1: 150, 2: "ab", 5: {1: True}})
    b'\\x08\\x96\\x01\\x12\\x02ab*\\x02\\x08\\x01'
    """
    return b"".join(
        _field(number, value)
        for number, values in fields.items()
        for value in (values if isinstance(values, list) else [values])
    )


def _field(number: int, value: Any) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = message(value) if isinstance(value, Mapping) else value
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    if number < 0x80:
        return bytes([number])
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def file_of(*packets: Mapping[int, Any] | bytes) -> bytes:
    """A file of packets, each with what the collector writes before all others."""
    return b"".join(message({1: packet}) for packet in (*HEAD, *packets))


def begin(time_ns: int, name: int = 1, track: int = 2, **annotations: Any) -> dict[int, Any]:
    values = [{10: key, **value_of(value)} for key, value in annotations.items()]
    fields = {9: BEGIN, 11: track, 10: name, 3: 1, 4: values}
    return {TIME: BASE_NS + time_ns, SLICE: fields}


def end(time_ns: int, track: int = 2) -> dict[int, Any]:
    return {TIME: BASE_NS + time_ns, SLICE: {9: END, 11: track}}


def value_of(value: Any) -> dict[int, Any]:
    """The field of an annotation that holds a value."""
    if isinstance(value, Mapping):
        return {11: [{10: key, **value_of(inner)} for key, inner in value.items()]}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {12: [value_of(inner) for inner in value]}
    return {{bool: 2, int: 4, float: 5, str: 6}[type(value)]: value}


def kernel(time_ns: int, length_ns: int, **more: str) -> dict[int, Any]:
    """A kernel on stream 7."""
    arguments = {"device id": "0", "stream id": "7", "correlation": "5", **more}
    pairs = [{1: key, 2: value} for key, value in arguments.items()]
    fields = {2: length_ns, 11: 0, 13: 100, 14: 1, 20: 2, 6: pairs}
    return {TIME: BASE_NS + time_ns, STAGE: fields}


HEAD: Sequence[Mapping[int, Any]] = (
    {TIME: BASE_NS, 10: 1, CLOCKS: {1: {1: 6, 2: BASE_NS}}},
    {TRACK: {1: 1, 3: {1: 4211, 6: "python"}}},
    {TRACK: {1: 2, 5: 1, 4: {1: 4211, 2: 4212, 5: "pt_main"}}},
    {
        10: 1,
        13: 1,
        INTERNED: {
            1: [{1: 1, 2: "cpu_op"}],
            2: [{1: 1, 2: "aten::mm"}, {1: 2, 2: "gemm"}],
            24: [{1: 1, 2: "Kernel"}, {1: 100, 2: "[007] stream 7"}],
        },
    },
)
