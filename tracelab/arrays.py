"""Arrays that nobody can change: results are complete when they are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Result = TypeVar("_Result", bound="Frozen")


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The same array, which cannot be written to from now on.

    >>> read_only(np.arange(3)).flags.writeable
    False
    """
    array.flags.writeable = False
    return array


class Frozen:
    """Base of dataclasses that hold arrays: each array field is read-only once the object exists.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True, eq=False)
        ... class Lengths(Frozen):
        ...     length_ns: NDArray[np.int64]
        >>> Lengths(np.arange(3)).length_ns.flags.writeable
        False
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value: Any = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False


def concatenated(results: Sequence[_Result]) -> _Result:
    """One result of the arrays of several, column by column.

    Args:
        results: at least one, of one dataclass whose fields are arrays.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True, eq=False)
        ... class Lengths(Frozen):
        ...     length_ns: NDArray[np.int64]
        >>> concatenated([Lengths(np.array([3])), Lengths(np.array([4, 5]))]).length_ns.tolist()
        [3, 4, 5]
    """
    return type(results[0])(
        **{
            field.name: np.concatenate([getattr(result, field.name) for result in results])
            for field in fields(results[0])  # type: ignore[arg-type]  # every subclass is one
        }
    )
