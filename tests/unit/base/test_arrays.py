"""Records, which the functions of `dataclasses` take as dataclasses."""

import copy
import pickle
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from msgspec import field

from tracelab.base.arrays import Arrays, Record


class Step(Record):
    number: int
    names: tuple[str, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)


class Named(Step):
    name: str = "step"


class Keyed(Record, kw_only=True):
    key: int

    def __repr__(self) -> str:
        return f"<{self.key}>"


class Cached(Record, dict=True):
    number: int

    @cached_property
    def double(self) -> int:
        return 2 * self.number


class Column(Arrays):
    row: np.ndarray


def test_records_are_compared_by_value():
    assert Step(3, ("a",)) == Step(number=3, names=("a",)) != Step(3)
    assert hash(Keyed(key=2)) == hash(Keyed(key=2))
    assert Step(3) != Named(3)


def test_functions_of_dataclasses_take_a_record():
    named = replace(Named(1), name="warm-up")
    assert is_dataclass(named)
    assert [x.name for x in fields(Named)] == ["number", "names", "notes", "name"]
    assert [x.name for x in fields(Step)] == ["number", "names", "notes"]
    assert asdict(named) == {"number": 1, "names": (), "notes": {}, "name": "warm-up"}


def test_fields_have_their_defaults_and_those_of_a_base():
    assert Step(1).notes == {}
    assert Step(1).notes is not Step(1).notes
    assert (Keyed(key=2).key, repr(Keyed(key=2))) == (2, "<2>")
    with pytest.raises(TypeError, match="positional"):
        Keyed(2)
    with pytest.raises(TypeError, match="number"):
        Step()


@pytest.mark.parametrize("made", [Step(1, ("a",)), Named(1, name="b"), Keyed(key=2), Cached(3)])
def test_records_travel_and_cannot_be_changed(made):
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    [first, *_] = fields(made)
    with pytest.raises(AttributeError):
        setattr(made, first.name, 9)
    with pytest.raises(AttributeError):
        delattr(made, first.name)


def test_a_record_keeps_what_it_computed():
    cached = Cached(3)
    assert cached.double == vars(cached)["double"] == 6


def test_arrays_are_read_only_and_compared_by_identity():
    column = Column(np.arange(3))

    assert not column.row.flags.writeable
    assert not replace(column, row=np.arange(4)).row.flags.writeable
    assert column in {column}
    assert column != Column(np.arange(3))
