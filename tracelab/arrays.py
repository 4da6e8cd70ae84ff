"""Arrays that nobody can change: results are complete when they are built."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)


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
    __dataclass_fields__: ClassVar[dict[str, Any]]  # every subclass is a dataclass

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value: Any = getattr(self, name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
