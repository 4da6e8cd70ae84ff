"""Which operations of several ranks are one."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.parts import (
    Op,
    all_gather,
    all_reduce,
    cut,
    eight_ranks,
    part,
    parts_of_job,
    receive,
    send,
    shifted,
)
from tests.examples import examples
from tests.figures import figures
from tests.reference import matches as reference
from tests.shared_traces import needs_real_traces
from tracelab.job.clocks import align
from tracelab.job.matching import Basis, match, number_peers
from tracelab.model.collectives import Group, Operation
from tracelab.model.trace import ABSENT

HOUR = 3_600_000_000_000
UNNAMED = Group(name="", ranks=(), size=None)
PAIR = Group(name="1", ranks=(1, 2), size=2)


def members_of(matches, parts):
    """The matches as lists of (rank, operation)."""
    members = list(
        zip(
            (parts[index].rank for index in matches.part_index.tolist()),
            matches.operation_index.tolist(),
            strict=True,
        )
    )
    return [members[begin:end] for begin, end in pairwise(matches.first.tolist())]


def matched(*parts):
    return members_of(match(parts), parts)


def test_uneven_sizes_of_an_all_gather_prevent_nothing():
    zero = part(0, all_gather(10, 20, size=8))
    one = part(1, all_gather(10, 20, size=4))

    assert matched(zero, one) == [[(0, 0), (1, 0)]]


def test_without_steps_the_clocks_say_where_a_recording_begins():
    sizes = [8, 4, 4, 2, 8, 6]
    zero = part(0, *(all_reduce(9_000 * i, 9_000 * i + 50, size=n) for i, n in enumerate(sizes)))
    one = part(
        1,
        *(all_reduce(9_000 * i, 9_000 * i + 50, size=n) for i, n in enumerate(sizes[1:])),
        origin=9_100,
    )

    matches = match([zero, one])

    assert members_of(matches, [zero, one]) == [[(0, i + 1), (1, i)] for i in range(5)]
    assert set(matches.basis.tolist()) == {Basis.ORDER}
    assert matches.unmatched.tolist() == [1, 0]
    # THEN with the same sizes throughout, too, but not halfway between two of them
    alike = [part(0, *(all_reduce(9_000 * i, 9_000 * i + 50) for i in range(n))) for n in (6, 5)]
    for ahead, count in ((9_100, 5), (5_000, 0)):
        assert len(match([alike[0], replace(alike[1], rank=1, origin_ns=ahead)])) == count


def test_sizes_that_differ_prevent_a_match():
    zero = part(0, all_reduce(10, 20, size=8), all_reduce(30, 40))
    one = part(1, all_reduce(10, 20, size=4), all_reduce(30, 40))

    matches = match([zero, one])

    assert len(matches) == 0
    assert matches.unmatched.tolist() == [2, 2]


def test_steps_that_look_alike_are_told_apart_by_their_numbers():
    def recorded(rank, steps, origin):
        return part(
            rank,
            *(
                all_reduce(10_000_000 * n + 100 * i, 10_000_000 * n + 100 * i + 50, step=n)
                for n in steps
                for i in range(2)
            ),
            origin=origin,
        )

    zero, one = recorded(0, range(2, 6), 0), recorded(1, range(3, 7), HOUR)

    assert matched(zero, one) == [[(0, i + 2), (1, i)] for i in range(6)]
    assert matched(zero, recorded(1, range(6, 10), HOUR)) == []


def test_recordings_that_nothing_aligns_are_not_matched(snapshot):
    zero = part(0, *(all_reduce(9_000 * i, 9_000 * i + 50) for i in range(12)))
    one = part(1, *(all_reduce(9_000 * i, 9_000 * i + 50) for i in range(10)), origin=HOUR)

    matches = match([zero, one])

    assert len(matches) == 0
    assert figures(matches.unmatched_why[1]) == ["10"]
    assert matches.unmatched_why[1] == snapshot


def test_ends_that_are_unevenly_apart_are_not_of_one_operation():
    ends = np.cumsum([5_000_000, 9_000_000, 3_000_000, 20_000_000, 1_000_000])
    zero = part(0, *(all_reduce(end - 50, end, step=2) for end in ends.tolist()))
    one = part(1, *(all_reduce(end - 50, end, step=2) for end in (2 * ends).tolist()))

    assert matched(zero, one) == []


def test_groups_are_matched_apart():
    zero = part(0, all_reduce(10, 20, step=1), all_reduce(30, 40, step=1))
    one = part(
        1, all_reduce(10, 20, step=1), all_reduce(12, 25, group=PAIR, step=1), all_reduce(30, 40)
    )
    two = part(2, all_reduce(15, 25, group=PAIR, step=1))

    assert matched(cut(zero, 0, 1), cut(one, 0, 2), two) == [[(0, 0), (1, 0)], [(1, 1), (2, 0)]]


def test_sends_are_matched_with_receives_by_peers_and_order():
    zero = part(0, send(10, 20, 1, step=1), send(30, 40, 1, step=1), receive(50, 60, 1, step=1))
    one = part(
        1,
        receive(12, 22, 0, step=1),
        send(32, 45, 2, step=1),
        receive(33, 45, 0, step=1),
        send(50, 60, 0, step=1),
    )

    matches = match([zero, one])

    assert members_of(matches, [zero, one]) == [
        [(0, 0), (1, 0)],
        [(0, 1), (1, 2)],
        [(0, 2), (1, 3)],
    ]
    assert set(matches.basis.tolist()) == {Basis.PEERS}
    assert matches.unmatched_why == ("", "1 with ranks whose files are missing")


def test_a_group_of_one_rank_needs_no_match():
    alone = Group(name="7", ranks=(0,), size=1)

    matches = match([part(0, all_reduce(10, 20, group=alone)), part(1, all_reduce(10, 20))])

    assert matches.unmatched.tolist() == [0, 1]


@pytest.mark.parametrize("ranks", [(), (0,), (0, 1)])
def test_ranks_without_operations_and_single_ranks_are_no_error(ranks):
    parts = [part(rank) for rank in ranks] + [part(3, all_reduce(10, 20))]

    matches = match(parts)

    assert len(matches) == 0
    assert matches.unmatched.tolist() == [0] * len(ranks) + [1]


def test_a_kernel_with_a_negative_duration_does_not_prevent_a_match():
    zero = part(0, all_reduce(20, 10))

    assert matched(zero, part(1, all_reduce(15, 20))) == [[(0, 0), (1, 0)]]


@needs_real_traces
def test_all_operations_of_eight_ranks_without_process_groups_are_matched():
    matches = match(eight_ranks())

    assert np.diff(matches.first).tolist() == [8] * 8
    assert matches.unmatched.tolist() == [0] * 8


@pytest.mark.parametrize("name", ["fsdp_prefetch", "pipeline_1f1b_many_4", "ddp_hook_side_stream"])
@examples(20)
@given(st.data())
def test_recordings_cut_anywhere_are_matched_rightly_or_not_at_all(name, data):
    whole = parts_of_job(name)
    truth = {frozenset(each) for each in matched(*whole)}
    begins = [data.draw(st.integers(0, len(each) // 4)) for each in whole]
    ends = [len(each) - data.draw(st.integers(0, len(each) // 4)) for each in whole]
    hours = [data.draw(st.integers(-9, 9)) for _ in whole]
    pieces = [
        shifted(cut(each, begin, end), offset=hour * HOUR)
        for each, begin, end, hour in zip(whole, begins, ends, hours, strict=True)
    ]

    for each in matched(*pieces):
        assert {(rank, index + begins[rank]) for rank, index in each} in truth


@examples(100)
@given(st.data())
def test_whole_steps_are_matched_as_by_definition(data):
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    parts = []
    for rank in range(data.draw(st.integers(1, 4))):
        first = data.draw(st.integers(0, 3))
        last = first + data.draw(st.integers(0, 3))
        late = data.draw(st.integers(0, 20))
        operations = []
        for step in range(first, last + 1):
            for i, size in enumerate(sizes):
                number = len(sizes) * step + i
                begin = 1_000_000 * number + 7_000 * (number % 5)
                operations.append(
                    all_reduce(
                        begin + late,
                        begin + 500,
                        size=size,
                        step=step,
                    )
                )
        origin = data.draw(st.sampled_from([0, HOUR]))
        parts.append(part(rank, *operations, origin=origin))

    found = {frozenset(each) for each in matched(*parts)}

    assert found == reference.matches(parts)


@st.composite
def damaged_parts(draw):
    """Ranks whose files say anything."""
    few = st.sampled_from([ABSENT, 0, 1, 2, 3])
    operations = st.builds(
        lambda operation, start, length, **fields: Op(operation, start, start + length, **fields),
        st.sampled_from(Operation),
        st.integers(-100, 10**9),
        st.integers(-100, 10**6),
        size=few,
        peer=few,
        step=few,
        kernel=few,
        group=st.sampled_from([UNNAMED, PAIR]),
    )
    return [
        part(rank, *draw(st.lists(operations, max_size=8)), origin=draw(st.sampled_from([0, HOUR])))
        for rank in range(draw(st.integers(1, 4)))
    ]


@examples(100)
@given(damaged_parts())
def test_each_operation_is_in_one_match_or_counted(parts):
    matches = match(parts)

    members = members_of(matches, parts)
    assert all(len({rank for rank, _ in each}) == len(each) > 1 for each in members)
    assert len({member for each in members for member in each}) == len(matches.part_index)
    assert len(matches.part_index) + matches.unmatched.sum() == sum(map(len, parts))
    assert len(align(parts, matches).alignment.per_rank) == len(parts)


# --- messages of files that do not say which rank they are ---

FOUR = Group(name="0", ranks=(4, 5, 6, 7), size=4)


def unknown(*parts):
    return [replace(each, is_rank_known=False) for each in parts]


def test_files_that_may_be_others_are_not_matched():
    first = part(0, send(10, 20, peer=5, group=FOUR, step=1))
    second = part(1, receive(12, 20, peer=4, group=FOUR, step=1))

    parts = number_peers(unknown(first, second))

    assert [each.peer_rank.tolist() for each in parts] == [[ABSENT], [ABSENT]]
    assert match(parts).unmatched_why == ("1 of an unknown kind or with an unknown peer",) * 2


def test_messages_between_ranks_that_are_known_are_matched():
    zero = part(0, send(10, 20, peer=1, group=FOUR, step=1), send(30, 40, peer=3, group=FOUR))
    one = part(1, receive(12, 20, peer=0, group=FOUR, step=1))
    [third] = unknown(part(2, receive(30, 40, peer=0, group=FOUR)))

    parts = number_peers([zero, one, third])

    assert [each.peer_rank.tolist() for each in parts] == [[1, ABSENT], [0], [ABSENT]]
    assert match(parts).unmatched.tolist() == [1, 0, 1]


def test_ranks_that_are_known_keep_their_peers():
    zero, one = number_peers([part(0, send(10, 20, peer=5)), part(1, send(10, 20, peer=0))])

    assert (zero.peer_rank.tolist(), one.peer_rank.tolist()) == ([5], [0])
