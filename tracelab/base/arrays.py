"""Base classes of results: read-only arrays, a `repr` of one line, methods compiled when used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

ABSENT = -1  # in a column of integers: none, or not known

_MAX_LINE_LETTERS, _MAX_VALUE_LETTERS, _MAX_ITEMS = 100, 32, 4

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
        return line if len(line) <= _MAX_LINE_LETTERS else f"{line[: _MAX_LINE_LETTERS - 2]}…)"


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
            for field in dataclasses.fields(results[0])
        }
    )


def rows_at(result: _Result, index: NDArray[Any]) -> _Result:
    """One result of some rows of another one's arrays, column by column.

    Args:
        result: of a dataclass whose fields are arrays.
        index: int[k], the rows, or bool[n], which of them.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True, eq=False, repr=False)
        ... class Lengths(Frozen):
        ...     length_ns: NDArray[np.int64]
        >>> rows_at(Lengths(np.array([3, 4, 5])), np.array([2, 0])).length_ns.tolist()
        [5, 3]
    """
    columns = (getattr(result, field.name) for field in dataclasses.fields(result))
    return type(result)(*(column[index] for column in columns))


def _brief(value: Any) -> str:
    """A value, or what it is where it is long."""
    if isinstance(value, np.ndarray):
        is_short = value.ndim == 1 and len(value) <= _MAX_ITEMS
        return str(value.tolist() if is_short else f"{value.dtype}{list(value.shape)}")
    if isinstance(value, OneLine):
        return f"<{type(value).__name__}>"
    is_collection = isinstance(value, Sequence | Mapping | Set)
    if is_collection and not isinstance(value, str | bytes) and len(value) > _MAX_ITEMS:
        return f"<{len(value)} items>"
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_VALUE_LETTERS else f"{text[: _MAX_VALUE_LETTERS - 1]}…"


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 (for others to import)
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, **options: bool) -> Any:
        """Decorate a class as the standard library does; one that is frozen faster than that.

        That compiles its methods in half a millisecond; here `__init__` is when it is first used.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 2
        >>> Point(1), Point(1) == Point(1, 2), len({Point(1), Point(1, 2)})
        (Point(x=1, y=2), True, 1)
        """
        if not frozen:
            return dataclasses.dataclass(slots=slots, **options)
        has_repr, is_compared = options.pop("repr", True), options.pop("eq", True)
        standard = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, **options)

        def decorate(cls: type[Any]) -> type[Any]:
            cls = standard(cls)
            cls.__init__ = _Init(cls)
            cls.__setattr__ = cls.__delattr__ = _refuse
            if slots:
                cls.__getstate__, cls.__setstate__ = _values_of, _restore
            if has_repr and "__repr__" not in vars(cls):
                cls.__repr__ = _describe
            if is_compared:
                cls.__eq__, cls.__hash__ = _equal, _hash
                cls._compared = attrgetter(*cls.__dataclass_fields__)
            return cls

        return decorate


class _Init:
    """An `__init__` that replaces itself with the compiled one when it is first looked up."""

    def __init__(self, cls: type[Any]) -> None:
        self._cls: Any = cls

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        cls, fields = self._cls, self._cls.__dataclass_fields__
        namespace = {**fields, "__annotations__": {name: x.type for name, x in fields.items()}}
        if hasattr(cls, "__post_init__"):
            namespace["__post_init__"] = cls.__post_init__
        eager: Any = type(cls.__name__, (), namespace)
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(eager)
        cls.__init__ = eager.__init__
        return eager.__init__.__get__(instance, owner)


def _refuse(self: Any, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of a {type(self).__name__}")


def _values_of(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _restore(self: Any, values: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, values, strict=True):
        object.__setattr__(self, name, value)


def _describe(self: Any) -> str:
    values = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))
