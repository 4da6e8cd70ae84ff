"""Buffers of columns while a file is read: appended pieces, and keys that become numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.model.trace import ABSENT


class ColumnBuffers:
    """Columns to which pieces are appended, so that no moment needs them twice.

    >>> buffers = ColumnBuffers()
    >>> buffers.append({"start_ns": np.array([10, 20])})
    >>> buffers.append({"start_ns": np.array([30])})
    >>> buffers.arrays()["start_ns"].tolist()
    [10, 20, 30]
    """

    def __init__(self) -> None:
        self._bytes: defaultdict[str, bytearray] = defaultdict(bytearray)
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def append(self, piece: Mapping[str, NDArray[Any]]) -> None:
        """Append a piece of each column."""
        for name, column in piece.items():
            self._dtypes[name] = column.dtype
            self._bytes[name] += column.data

    def append_absent(self) -> None:
        """Append a row of nothing but `ABSENT`."""
        for name, dtype in self._dtypes.items():
            self._bytes[name] += np.array(ABSENT, dtype).tobytes()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns; nothing can be appended as long as one of them lives."""
        return {
            name: np.frombuffer(self._bytes[name], dtype) for name, dtype in self._dtypes.items()
        }


class KeyTable(dict[Any, int]):
    """Numbers keys in order of appearance; keys of the same text have the same number.

    A key is compared once.

    >>> table = KeyTable(str)
    >>> table.indices(["7", 13, 7]).tolist(), list(table.rows)
    ([0, 1, 0], ['7', '13'])
    """

    def __init__(self, text: Callable[[Any], Hashable]) -> None:
        super().__init__()
        self._text = text
        self.rows: dict[Any, int] = {}

    def __missing__(self, key: Any) -> int:
        index = self[key] = self.rows.setdefault(self._text(key), len(self.rows))
        return index

    def indices(self, keys: Collection[Hashable]) -> NDArray[np.int32]:
        """int32[n]: the number of each key."""
        return np.fromiter(map(self.__getitem__, keys), dtype=np.int32, count=len(keys))
