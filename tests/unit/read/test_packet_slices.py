"""Ends belong to begins: by place in a group, by nesting in what a program wrote while it ran."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tracelab.read.packet_slices import Slice, SliceJoiner

TRACK = 1


def joined(begins, ends) -> tuple[list[tuple[int, int, str]], int]:
    """Start, end and name of each slice of one run, and how many had no partner.

    Args:
        begins: track and time of each, named by their places; None for one that is damaged.
        ends: the same.
    """
    joiner = SliceJoiner()
    for place, begin in enumerate(begins):
        if begin is None:
            joiner.damaged()
        else:
            joiner.begin(*begin, str(place), "cpu_op", None)
    for end in ends:
        if end is None:
            joiner.damaged()
        else:
            joiner.end(*end)
    slices = [one for piece in joiner.finish() for one in piece]
    return [(one.start_ns, one.end_ns, one.name) for one in slices], joiner.unmatched


def on_track(*times: int) -> list[tuple[int, int]]:
    return [(TRACK, time) for time in times]


@st.composite
def groups(draw):
    """Slices of a few tracks, in any order, overlapping or not."""
    slices = st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(0, 20))
    return [(track, start, start + length) for track, start, length in draw(st.lists(slices))]


@given(groups())
def test_in_a_group_the_place_decides(group):
    """GIVEN the begins of any slices and then their ends in the same order
    WHEN no program could have written them while it ran
    THEN each has its own end."""
    begins = [(track, start) for track, start, _ in group]
    ends = [(track, end) for track, _, end in group]
    times = [time for _, time in begins + ends]
    if times == sorted(times) and (not ends or begins[-1][1] < ends[0][1]):
        return  # it could
    expected = [(start, end, str(place)) for place, (_, start, end) in enumerate(group)]
    assert joined(begins, ends) == (expected, 0)


def test_slices_that_touch_keep_their_ends():
    """By time, as Perfetto sorts them, the second would begin and end at 5."""
    assert joined(on_track(0, 5), on_track(5, 9)) == ([(0, 5, "0"), (5, 9, "1")], 0)


def test_what_a_program_wrote_while_it_ran_nests():
    """GIVEN an outer slice from 0 to 10 and an inner one from 2 to 5, written as they happen
    THEN the first end is that of the inner one."""
    assert joined(on_track(0, 2), on_track(5, 10)) == ([(2, 5, "1"), (0, 10, "0")], 0)


def test_slices_stay_open_over_the_next_run():
    joiner = SliceJoiner()
    joiner.begin(TRACK, 0, "outer", None, None)
    joiner.begin(TRACK, 1, "first", None, None)
    joiner.end(TRACK, 2)
    first = [one for piece in joiner.whole() for one in piece]
    joiner.begin(TRACK, 3, "second", None, None)
    joiner.end(TRACK, 4)
    joiner.end(TRACK, 9)
    rest = [one for piece in joiner.finish() for one in piece]
    assert [one.name for one in first + rest] == ["first", "second", "outer"]
    assert rest[-1] == Slice(TRACK, 0, 9, "outer", None, None)
    assert joiner.unmatched == 0


def test_a_group_that_breaks_off_has_the_slices_whose_ends_are_there():
    begins, ends = on_track(0, 20, 10, 30), on_track(9, 29)
    assert joined(begins, ends) == ([(0, 9, "0"), (20, 29, "1")], 2)


def test_begins_without_any_end():
    assert joined(on_track(5, 3, 9), []) == ([], 3)


def test_ends_without_any_begin():
    assert joined([], on_track(5, 3, 9)) == ([], 3)


def test_a_damaged_packet_takes_only_its_own_slice_along():
    """GIVEN a group of three, of which one packet cannot be read
    THEN the other two slices have their own ends, wherever the damage is."""
    begins, ends = on_track(0, 20, 10), on_track(9, 29, 19)
    whole = [(0, 9, "0"), (20, 29, "1"), (10, 19, "2")]
    for place in range(3):
        others = [one for one in whole if one[2] != str(place)]
        damaged = [None if i == place else one for i, one in enumerate(begins)]
        assert joined(damaged, ends) == (others, 1)
        damaged = [None if i == place else one for i, one in enumerate(ends)]
        assert joined(begins, damaged) == (others, 1)


def test_where_an_end_is_missing_in_a_group_time_decides():
    """GIVEN a group of three of one track whose first end is missing
    THEN no slice gets an end that is before its begin."""
    slices, unmatched = joined(on_track(0, 20, 10), on_track(29, 19))
    assert all(start <= end for start, end, _ in slices)
    assert len(slices) + unmatched == 3


def test_at_one_time_ends_come_before_begins():
    """GIVEN a run in no order, with an end too many: a slice from 0 to 5, one from 5 to 9
    THEN they touch."""
    begins, ends = on_track(5, 0), [*on_track(9, 5), (2, 7)]
    assert joined(begins, ends) == ([(0, 5, "1"), (5, 9, "0")], 1)


def test_a_slice_without_a_length_is_one_where_time_decides():
    assert joined(on_track(7, 3), [*on_track(7, 3), (2, 0)]) == ([(3, 3, "1"), (7, 7, "0")], 1)


def test_what_is_damaged_before_any_slice_is_no_slice():
    assert joined([None], []) == ([], 0)


def test_damage_between_two_groups_leaves_both_as_they_are():
    """GIVEN two groups, and a packet between them that cannot be read and is of neither
    THEN all slices have their own ends."""
    joiner = SliceJoiner()
    found = []
    for first in (0, 100):
        for start in (0, 20, 10):
            joiner.begin(TRACK, first + start, str(first + start), None, None)
        for end in (9, 29, 19):
            joiner.end(TRACK, first + end)
        joiner.damaged()
        found += [one for piece in joiner.whole() for one in piece]
    found += [one for piece in joiner.finish() for one in piece]
    assert [(one.name, one.end_ns - one.start_ns) for one in found] == [
        (str(start), 9) for start in (0, 20, 10, 100, 120, 110)
    ]
    assert joiner.unmatched == 0
