"""The arguments of communication operations while a file is read: rows, names and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.model.messages import GroupText, Messages
from tracelab.model.trace import ABSENT, Category
from tracelab.read.argument_columns import is_one_of
from tracelab.read.buffers import ColumnBuffers, KeyTable
from tracelab.read.events import Event, MessageArguments
from tracelab.read.numbers import natural_number

_MAY_COMMUNICATE = is_one_of(Category.KERNEL, Category.OPERATOR)

# PyTorch's names of the types of tensors.
_BYTES_OF_TYPE = {
    **dict.fromkeys(("Bool", "Byte", "Char", "QInt8", "QUInt8"), 1),
    **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fn", "e5m2", "e8m0fnu")), 1),
    **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fnuz", "e5m2fnuz")), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short", "UInt16"), 2),
    **dict.fromkeys(("ComplexHalf", "Float", "Int", "QInt32", "UInt32"), 4),
    **dict.fromkeys(("ComplexFloat", "Double", "Long", "UInt64"), 8),
    "ComplexDouble": 16,
}
_NUMBERS = ("sequence", "peer_rank", "in_bytes", "out_bytes")


class MessageBuffers:
    """Collects the rows of a `Messages` from pieces of a file.

    >>> from tracelab.read.events import decode
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
        numbers = np.array(list(map(_numbers, arguments)), dtype=np.int64)
        columns = numbers.reshape(-1, len(_NUMBERS)).T.copy()
        return {
            "name_index": self._names.indices([str(values.collective) for values in arguments]),
            "group_index": self._groups.indices(list(map(_group_text, arguments))),
            **dict(zip(_NUMBERS, columns, strict=True)),
        }


def _group_text(values: MessageArguments) -> GroupText:
    return GroupText(
        str(values.group),
        str(values.group_ranks),
        natural_number(values.group_size),
        natural_number(values.first_rank),
        natural_number(values.rank_stride),
    )


def _numbers(values: MessageArguments) -> tuple[int, int, int, int]:
    peer_rank = values.destination if values.source == ABSENT else values.source
    bytes_of_one = _BYTES_OF_TYPE.get(str(values.dtype), 0)
    return (
        natural_number(values.sequence),
        natural_number(peer_rank),
        _bytes(values.in_elements, bytes_of_one),
        _bytes(values.out_elements, bytes_of_one),
    )


def _bytes(elements: Any, bytes_of_one: int) -> int:
    """How much so many elements take, ABSENT where that is not known."""
    count = natural_number(elements)
    is_known = bytes_of_one > 0 and ABSENT < count < 2**63 // bytes_of_one
    return count * bytes_of_one if is_known else ABSENT
