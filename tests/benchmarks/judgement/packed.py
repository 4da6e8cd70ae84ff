"""Pack traces to a sixth of what gzip leaves of them, and unpack them byte for byte.

    python tests/benchmarks/judgement/packed.py pack TRACE.json.gz TRACE.packed
    python tests/benchmarks/judgement/packed.py unpack TRACE.packed TRACE.json.gz

Numbers are taken out of the text, by the key before them: times and ids, which grow from event to
event, are stored as differences. What is left of an event is one of a few thousand templates.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

SEPARATOR = "\n  },\n  {\n"
# At most 15 digits before and 3 after the point: an integer of 64 bits holds it.
NUMBER = re.compile(r'(?<=": )(?:0|[1-9]\d{0,14})(?:\.\d{3})?(?=[,\s}])')
KEY = re.compile(r'"([^"]*)": $')


def pack(text: str) -> bytes:
    """Pack a trace's text.

    >>> text = '{"a": 12.500, "b": 7}'
    >>> unpack(pack(text)) == text
    True
    """
    templates: dict[str, int] = {}
    order: list[int] = []
    columns: dict[str, list[int]] = defaultdict(list)
    for event in text.split(SEPARATOR):
        pieces, numbers = NUMBER.split(event), NUMBER.findall(event)
        marks = ["\2" if "." in number else "\1" for number in numbers]
        template = "".join(map("".join, zip(pieces, [*marks, ""], strict=True)))
        order.append(templates.setdefault(template, len(templates)))
        for piece, number in zip(pieces, numbers, strict=False):
            columns[_key(piece)].append(int(number.replace(".", "")))
    head = {"templates": list(templates), "columns": list(columns)}
    arrays = [order, *columns.values()]
    head["lengths"] = [len(values) for values in arrays]
    planes = [_planes(np.array(values, dtype=np.int64)) for values in arrays]
    packed = json.dumps(head).encode()
    return lzma.compress(b"%d\n%b" % (len(packed), packed) + b"".join(planes), preset=9)


def unpack(data: bytes) -> str:
    """The text of a packed trace."""
    size, _, rest = lzma.decompress(data).partition(b"\n")
    head, rest = json.loads(rest[: int(size)]), rest[int(size) :]
    arrays = []
    for length in head["lengths"]:
        arrays.append(_values(rest[: 8 * length]))
        rest = rest[8 * length :]
    columns = dict(zip(head["columns"], map(iter, arrays[1:]), strict=True))
    parts = [re.split("([\1\2])", template) for template in head["templates"]]
    return SEPARATOR.join(_filled(parts[number], columns) for number in arrays[0])


def _filled(parts, columns) -> str:
    texts = []
    for piece, mark in zip(parts[::2], [*parts[1::2], ""], strict=True):
        texts.append(piece)
        if mark:
            value = next(columns[_key(piece)])
            texts.append(str(value) if mark == "\1" else f"{value // 1000}.{value % 1000:03d}")
    return "".join(texts)


def _key(piece: str) -> str:
    found = KEY.search(piece)
    return found[1] if found else ""


def _planes(values: np.ndarray) -> bytes:
    """Differences, byte by byte: the high bytes of all, which are zeros, are together."""
    differences = np.diff(values, prepend=0)
    zigzag = (differences << 1) ^ (differences >> 63)
    return zigzag.view(np.uint8).reshape(-1, 8).T.tobytes()


def _values(data: bytes) -> list[int]:
    zigzag = np.frombuffer(data, np.uint8).reshape(8, -1).T.copy().view(np.int64).ravel()
    return np.cumsum((zigzag >> 1) ^ -(zigzag & 1)).tolist()


def main() -> None:
    task, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if task == "pack":
        text = gzip.decompress(source.read_bytes()).decode()
        packed = pack(text)
        if unpack(packed) != text:
            raise SystemExit(f"{source} is not restored as it was")
        target.write_bytes(packed)
    else:
        target.write_bytes(gzip.compress(unpack(source.read_bytes()).encode(), 1))


if __name__ == "__main__":
    main()
