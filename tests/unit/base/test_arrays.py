"""Dataclasses whose methods are compiled when they are first used, beside those of Python."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass as eager, field, fields, replace
from functools import cached_property

import numpy as np
import pytest

from tracelab.base.arrays import Frozen, OneLine, dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Step(OneLine):
    number: int
    names: tuple[str, ...] = ()
    notes: dict[str, int] = field(default_factory=dict, compare=True)


@dataclass(frozen=True, slots=True)
class Named(Step):
    name: str = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    key: int

    def __repr__(self) -> str:
        return f"<{self.key}>"


@dataclass(slots=True)
class Counter:
    count: int = 0


@dataclass(frozen=True)
class Cached:
    number: int

    @cached_property
    def double(self) -> int:
        return 2 * self.number


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Column(Frozen):
    row: np.ndarray


@eager(frozen=True, slots=True)
class Plain:
    number: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lazy:
    number: int
    names: tuple[str, ...] = ()


def test_objects_are_those_of_the_standard_library():
    one, same, other = Lazy(3, ("a",)), Lazy(number=3, names=("a",)), Lazy(4)

    assert (one == same, one == other, one == Plain(3, ("a",))) == (True, False, False)
    assert hash(one) == hash(same) == hash(Plain(3, ("a",)))
    assert repr(one) == repr(Plain(3, ("a",))).replace("Plain", "Lazy")
    assert inspect.signature(Lazy) == inspect.signature(Plain)
    assert [x.name for x in fields(Lazy)] == ["number", "names"]
    assert Lazy.__match_args__ == Plain.__match_args__


def test_fields_have_their_defaults_and_those_of_a_base():
    assert Step(1).notes == {}
    assert Step(1).notes is not Step(1).notes
    assert Named(1, name="warm-up") == replace(Named(1), name="warm-up")
    assert (Keyed(key=2).key, repr(Keyed(key=2))) == (2, "<2>")
    with pytest.raises(TypeError, match="positional"):
        Keyed(2)
    with pytest.raises(TypeError, match="number"):
        Step()


@pytest.mark.parametrize("made", [Step(1, ("a",)), Named(1, name="b"), Keyed(key=2), Lazy(3)])
def test_objects_travel_and_cannot_be_changed(made):
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    [first, *_] = fields(made)
    with pytest.raises(FrozenInstanceError):
        setattr(made, first.name, 9)
    with pytest.raises(FrozenInstanceError):
        delattr(made, first.name)
    assert not hasattr(made, "__dict__")


def test_an_object_with_a_dict_keeps_what_it_computed_and_a_mutable_one_changes():
    cached, counter = Cached(3), Counter()
    assert cached.double == 6
    assert pickle.loads(pickle.dumps(cached)) == cached
    counter.count += 1
    assert counter == Counter(1)


def test_arrays_are_read_only_and_compared_by_identity():
    column = Column(np.arange(3))

    assert not column.row.flags.writeable
    assert column in {column}
    assert column != Column(np.arange(3))
