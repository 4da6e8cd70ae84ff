"""The arguments of communication operations while a file is read: rows, names and groups."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.model.messages import GroupText, Messages
from tracelab.model.trace import ABSENT, Category
from tracelab.read.json.arguments import is_one_of
from tracelab.read.json.buffers import ColumnBuffers, KeyTable
from tracelab.read.json.events import Event, MessageArguments
from tracelab.read.json.numbers import natural_numbers

_MAY_COMMUNICATE = is_one_of(Category.KERNEL, Category.OPERATOR)


class _Bytes(dict[str, int]):
    """Bytes of an element by PyTorch's name of its type; 0 for names that are none."""

    def __missing__(self, name: str) -> int:
        return 0


_BYTES_OF_TYPE = _Bytes(
    {
        **dict.fromkeys(("Bool", "Byte", "Char", "QInt8", "QUInt8"), 1),
        **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fn", "e5m2", "e8m0fnu")), 1),
        **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fnuz", "e5m2fnuz")), 1),
        **dict.fromkeys(("BFloat16", "Half", "Short", "UInt16"), 2),
        **dict.fromkeys(("ComplexHalf", "Float", "Int", "QInt32", "UInt32"), 4),
        **dict.fromkeys(("ComplexFloat", "Double", "Long", "UInt64"), 8),
        "ComplexDouble": 16,
    }
)
_NUMBERS = (
    "group_size",
    "first_rank",
    "rank_stride",
    "sequence",
    "source",
    "destination",
    "in_elements",
    "out_elements",
)


class MessageBuffers:
    """Collects the rows of a `Messages` from pieces of a file.

    >>> from tracelab.read.json.events import decode
    >>> buffers = MessageBuffers()
    >>> args = b'{"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Half"}'
    >>> events = decode(b'[{"ph": "X", "args": %b}, {"ph": "X"}]' % args)
    >>> buffers.add(events, np.full(2, Category.KERNEL)).tolist()
    [0, -1]
    >>> messages = buffers.finish()
    >>> messages.names, messages.in_bytes.tolist()
    (('allreduce',), [16, -1])
    """

    def __init__(self) -> None:
        self._names = KeyTable(str)
        self._groups = KeyTable(GroupText._make)
        self._rows = ColumnBuffers()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, events: list[Event], category: NDArray[np.int8]) -> NDArray[np.int32]:
        """Take the rows of these events.

        Args:
            events: any.
            category: int8[n], their categories.

        Returns:
            int32[n], each event's row, ABSENT for those without one.
        """
        row = np.full(len(events), ABSENT, dtype=np.int32)
        chosen = np.flatnonzero(_MAY_COMMUNICATE[category]).tolist()
        messages = [
            None if (arguments := events[i].args) is None else arguments.message for i in chosen
        ]
        chosen = [i for i, message in zip(chosen, messages, strict=True) if message]
        if chosen:
            row[chosen] = np.arange(self._count, self._count + len(chosen))
            self._count += len(chosen)
            self._rows.append(self._columns(list(filter(None, messages))))
        return row

    def add_all(self, following: MessageBuffers) -> None:
        """Take the rows of what follows in the file; they come after all that are here."""
        rows = following._rows.arrays()
        if not rows:
            return
        for name, table, keys in (
            ("name_index", self._names, following._names.rows),
            ("group_index", self._groups, following._groups.rows),
        ):
            new_index = np.append(table.indices(keys), np.int32(ABSENT))
            rows[name] = new_index[rows[name]]
        self._rows.append(rows)
        self._count += following._count

    def finish(self) -> Messages:
        """All the rows; afterward nothing can be added."""
        if not self._count:
            self._rows.append(self._columns([]))
        self._rows.append_absent()
        columns: dict[str, Any] = self._rows.arrays()
        return Messages(**columns, names=tuple(self._names.rows), groups=tuple(self._groups.rows))

    def _columns(self, arguments: list[MessageArguments]) -> dict[str, NDArray[Any]]:
        names, types, groups, ranks = (
            list(map(str, map(attrgetter(field), arguments)))
            for field in ("collective", "dtype", "group", "group_ranks")
        )
        size, first_rank, stride, sequence, source, destination, elements_in, elements_out = (
            natural_numbers(list(map(attrgetter(field), arguments))) for field in _NUMBERS
        )
        bytes_of_one = np.fromiter(map(_BYTES_OF_TYPE.__getitem__, types), np.int64, len(types))
        group_keys = zip(
            groups, ranks, size.tolist(), first_rank.tolist(), stride.tolist(), strict=True
        )
        return {
            "name_index": self._names.indices(names),
            "group_index": self._groups.indices(list(group_keys)),
            "sequence": sequence,
            "peer_rank": np.where(source == ABSENT, destination, source),
            "in_bytes": _bytes(elements_in, bytes_of_one),
            "out_bytes": _bytes(elements_out, bytes_of_one),
        }


def _bytes(elements: NDArray[np.int64], bytes_of_one: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[k], how much so many elements take, ABSENT where that is not known."""
    most = np.iinfo(np.int64).max // np.maximum(bytes_of_one, 1)
    is_known = (bytes_of_one > 0) & (elements != ABSENT) & (elements <= most)
    return np.where(is_known, np.where(is_known, elements, 0) * bytes_of_one, ABSENT)
