"""Types of columns, and bases of results: immutable, a `repr` of one line, read-only arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import msgspec
import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
IntArray = NDArray[np.integer[Any]]
Int8Array = NDArray[np.int8]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]

ABSENT = -1  # in a column of integers: none, or not known

_MAX_LINE_LETTERS, _MAX_VALUE_LETTERS, _MAX_ITEMS = 100, 36, 4

_Item = TypeVar("_Item")
_Scalar = TypeVar("_Scalar", bound=np.generic)
_Result = TypeVar("_Result", bound="Arrays")


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


class _OfDataclass:
    """An attribute that a dataclass with a record's fields has: `dataclasses` and others ask it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type[msgspec.Struct]) -> Any:
        return getattr(_dataclass_like(owner), self._name)


@cache
def _dataclass_like(record: type[msgspec.Struct]) -> type:
    names = record.__struct_fields__
    return make_dataclass(record.__name__, names, init=False, repr=False, eq=False)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True):
    """Base of results: immutable, compared by value, with a `repr` of one line.

    The functions of `dataclasses` take a record as a dataclass.

    >>> from dataclasses import asdict, replace
    >>> class Steps(Record):
    ...     path: str
    ...     length_ns: tuple[int, ...]
    >>> Steps("step.json", (9, 8, 9, 9, 8))
    Steps(path='step.json', length_ns=<5 items>)
    >>> asdict(replace(_, length_ns=()))
    {'path': 'step.json', 'length_ns': ()}
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]
    else:
        __dataclass_fields__ = _OfDataclass()
        __dataclass_params__ = _OfDataclass()

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__ if not name.startswith("_")]
        values = ", ".join(f"{name}={_brief(getattr(self, name))}" for name in names)
        line = f"{type(self).__name__}({values})"
        return line if len(line) <= _MAX_LINE_LETTERS else f"{line[: _MAX_LINE_LETTERS - 2]}…)"


class Registry(tuple[_Item, ...]):
    """All of one sort that the package has: a tuple that is short where `help` shows a default."""

    def __repr__(self) -> str:
        return f"<{len(self)} items>"


class Arrays(Record, eq=False):
    """Base of results that hold arrays, each of which is read-only; compared by identity."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False


def concatenated(results: Sequence[_Result]) -> _Result:
    """Concatenate the arrays of several results of one class, at least one, by column."""
    return type(results[0])(
        **{
            name: np.concatenate([getattr(result, name) for result in results])
            for name in results[0].__struct_fields__
        }
    )


def rows_at(result: _Result, index: NDArray[Any] | slice) -> _Result:
    """Rows (by indices, a slice or flags) of a result all of whose fields are arrays."""
    columns = (getattr(result, name) for name in result.__struct_fields__)
    return type(result)(*(column[index] for column in columns))


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        is_short = value.ndim == 1 and len(value) <= _MAX_ITEMS
        return str(value.tolist() if is_short else f"{value.dtype}{list(value.shape)}")
    if isinstance(value, Record):
        return f"<{type(value).__name__}>"
    is_collection = isinstance(value, Sequence | Mapping | Set)
    if is_collection and not isinstance(value, str | bytes) and len(value) > _MAX_ITEMS:
        return f"<{len(value)} items>"
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_VALUE_LETTERS else f"{text[: _MAX_VALUE_LETTERS - 1]}…"
