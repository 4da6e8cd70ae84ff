"""Base classes of results: read-only arrays, and a `repr` of one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

ABSENT = -1  # in a column of integers: none, or not known

_LONGEST_LINE, _LONGEST_VALUE, _MOST_ITEMS = 100, 32, 4

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Result = TypeVar("_Result", bound="Frozen")


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The same array, which cannot be written to from now on.

    >>> read_only(np.arange(3)).flags.writeable
    False
    """
    array.flags.writeable = False
    return array


class OneLine:
    """Base of dataclasses whose `repr` is one line, however much they hold.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, repr=False)
        ... class Steps(OneLine):
        ...     path: str
        ...     length_ns: tuple[int, ...]
        >>> Steps("step.json", (9, 8, 9, 9, 8))
        Steps(path='step.json', length_ns=<5 items>)
    """

    __slots__ = ()
    if TYPE_CHECKING:  # every subclass is a dataclass
        __dataclass_fields__: ClassVar[dict[str, Any]]

    def __repr__(self) -> str:
        names = [name for name in self.__dataclass_fields__ if not name.startswith("_")]
        values = ", ".join(f"{name}={_brief(getattr(self, name))}" for name in names)
        line = f"{type(self).__name__}({values})"
        return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 2]}…)"


class Frozen(OneLine):
    """Base of dataclasses that hold arrays: each array field is read-only once the object exists.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True, eq=False, repr=False)
        ... class Lengths(Frozen):
        ...     length_ns: NDArray[np.int64]
        >>> lengths = Lengths(np.arange(30))
        >>> lengths, lengths.length_ns.flags.writeable
        (Lengths(length_ns=int64[30]), False)
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value: Any = getattr(self, name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False


def concatenated(results: Sequence[_Result]) -> _Result:
    """One result of the arrays of several, column by column.

    Args:
        results: at least one, of one dataclass whose fields are arrays.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True, eq=False, repr=False)
        ... class Lengths(Frozen):
        ...     length_ns: NDArray[np.int64]
        >>> concatenated([Lengths(np.array([3])), Lengths(np.array([4, 5]))]).length_ns.tolist()
        [3, 4, 5]
    """
    return type(results[0])(
        **{
            field.name: np.concatenate([getattr(result, field.name) for result in results])
            for field in fields(results[0])
        }
    )


def _brief(value: Any) -> str:
    """A value, or what it is where it is long."""
    if isinstance(value, np.ndarray):
        is_short = value.ndim == 1 and len(value) <= _MOST_ITEMS
        return str(value.tolist() if is_short else f"{value.dtype}{list(value.shape)}")
    if isinstance(value, OneLine):
        return f"<{type(value).__name__}>"
    is_collection = isinstance(value, Sequence | Mapping | Set)
    if is_collection and not isinstance(value, str | bytes) and len(value) > _MOST_ITEMS:
        return f"<{len(value)} items>"
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
