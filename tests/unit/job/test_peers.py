"""Messages of files that do not say which rank they are."""

from dataclasses import replace

import pytest

from tests.build.parts import part, receive, send
from tracelab.job.matching import match, number_peers
from tracelab.model.collectives import Group
from tracelab.model.trace import ABSENT

PAIR = Group(name="0", ranks=(4, 5), size=2)
FOUR = Group(name="0", ranks=(4, 5, 6, 7), size=4)


def unknown(*parts):
    return [replace(each, is_rank_known=False) for each in parts]


def two_files(group, *, first_peer=5, second_peer=4):
    return unknown(
        part(0, send(10, 20, peer=first_peer, group=group, step=1)),
        part(1, receive(12, 20, peer=second_peer, group=group, step=1)),
    )


def test_two_files_of_a_group_of_two_are_each_others_peers():
    parts = number_peers(two_files(PAIR))

    assert [each.peer_rank.tolist() for each in parts] == [[1], [0]]
    assert match(parts).unmatched.tolist() == [0, 0]


@pytest.mark.parametrize(
    "parts",
    [two_files(FOUR), two_files(PAIR, second_peer=5), two_files(PAIR, first_peer=6)],
)
def test_files_that_may_be_others_are_not_matched(parts):
    parts = number_peers(parts)

    assert [each.peer_rank.tolist() for each in parts] == [[ABSENT], [ABSENT]]
    assert match(parts).unmatched_why == ("1 with ranks whose files are not known",) * 2


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
