"""Programs of several ranks as one, with the answers worked out by hand. Times in nanoseconds."""

from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from tests.build.programs import comm, compute, rank_of
from tests.examples import examples
from tests.reference.replay import replay_one
from tracelab.job.joint_program import Meetings, join
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NodeKind
from tracelab.simulate.replay import replay


def meetings(*of_ranks, waits=None):
    """Meetings of (rank, activity) pairs, activities as of `rank_of`."""
    members = [(i, *member) for i, of_rank in enumerate(of_ranks) for member in of_rank]
    meeting_index, rank_index, activity = np.array(members, dtype=np.int64).reshape(-1, 3).T
    return Meetings(
        meeting_index=meeting_index,
        rank_index=rank_index,
        node=2 * activity + 1,
        waits=np.ones(len(members), np.bool_) if waits is None else np.array(waits),
    )


def step_ns(program):
    """What a step takes; the slow reference agrees."""
    assert (program.source < program.target)[program.lag == 0].all()
    [length_ns] = replay([program]).step_ns.tolist()
    assert replay_one(program, program)[0] == length_ns
    return length_ns


# Both compute, then average; rank 1 computes longer, and rank 0 was recorded as it waited for it.
EARLY, LATE = rank_of(compute(100), comm(60)), rank_of(compute(150), comm(10))
TOGETHER = meetings([(0, 1), (1, 1)])


def test_ranks_meet_once_the_last_one_has_arrived():
    joined = join([EARLY, LATE], TOGETHER)
    assert joined is not None
    assert step_ns(joined.program) == 160
    time_ns = replay([joined.program]).time_ns[:, 0]
    kind = joined.program.kind
    first, last = np.sort(time_ns[kind == NodeKind.ARRIVAL]).tolist()
    assert last - first == 50
    assert time_ns[kind == NodeKind.MEETING].tolist() == [last]
    ends = [int(time_ns[end[3]]) for end in joined.ends]
    assert ends == [last + 10, last + 10]


def test_a_wait_follows_from_the_other_ranks_and_is_not_what_was_recorded():
    joined = join([EARLY, LATE], TOGETHER)
    faster = replace(LATE, cost_ns=np.where(LATE.cost_ns == 150, 70, LATE.cost_ns))
    assert step_ns(joined.edited({1: faster})) == 110
    assert step_ns(joined.edited({})) == 160


def test_a_transfer_takes_longer_by_as_much_as_the_activity_does():
    joined = join([EARLY, LATE], TOGETHER)
    longer = [
        replace(of, cost_ns=np.where(of.activity_kind == 1, 3 * of.cost_ns, of.cost_ns))
        for of in (EARLY, LATE)
    ]
    assert step_ns(joined.edited(dict(enumerate(longer)))) == 180


def test_an_edge_that_an_edit_adds_leads_to_the_arrival():
    joined = join([EARLY, LATE], TOGETHER)
    held = replace(
        EARLY,
        source=np.append(EARLY.source, 0),
        target=np.append(EARLY.target, 3),
        via=np.append(EARLY.via, EARLY.via[-1]),
        lag=np.append(EARLY.lag, np.int8(0)),
        latency_ns=np.append(EARLY.latency_ns, 400),
    )
    # The host of rank 0 begins at 0 in each repetition, the GPU after it: 400 and the transfer.
    reached_ns = replay([joined.edited({0: held})]).time_ns[joined.ends[0][3], 0]
    assert reached_ns >= 400


def test_ranks_of_two_groups_meet_pair_by_pair():
    ranks = [rank_of(compute(work), comm(10), comm(5)) for work in (100, 40, 70, 90)]
    joined = join(
        ranks, meetings([(0, 1), (1, 1)], [(2, 1), (3, 1)], [(0, 2), (2, 2)], [(1, 2), (3, 2)])
    )
    assert step_ns(joined.program) == 115


def test_a_kernel_of_two_messages_ends_after_both():
    ranks = [rank_of(comm(10)), rank_of(compute(30), comm(8)), rank_of(compute(80), comm(6))]
    joined = join(ranks, meetings([(0, 0), (1, 1)], [(0, 0), (2, 1)]))
    assert step_ns(joined.program) == 86  # rank 2 computes 80, and takes 6 for its message
    time_ns = replay([joined.program]).time_ns[:, 0]
    assert time_ns[joined.ends[0][1]] - time_ns[joined.ends[2][3]] == 2  # that of rank 1 takes 8


def test_a_sender_whose_message_a_buffer_holds_does_not_wait():
    ranks = [rank_of(comm(5), compute(20)), rank_of(compute(150), comm(5))]
    buffered, waiting = (
        join(ranks, meetings([(0, 0), (1, 1)], waits=[waits, True])) for waits in (False, True)
    )
    assert own_ns(buffered) == 5
    assert own_ns(waiting) == 135  # 155 a step, without the 20 of its compute


def own_ns(joined):
    """How long the first activity of rank 0 takes once it has arrived."""
    time_ns = replay([joined.program]).time_ns[:, 0]
    return int(time_ns[joined.ends[0][1]] - time_ns[joined.entries[0][1]])


def test_no_order_fits_ranks_that_wait_for_each_other_crosswise():
    ranks = [rank_of(comm(5), comm(5)), rank_of(comm(5), comm(5))]
    assert join(ranks, meetings([(0, 0), (1, 1)], [(0, 1), (1, 0)])) is None


def test_numbers_of_one_file_are_no_other_ranks():
    program = join([EARLY, LATE], TOGETHER).program
    streams = program.stream_index[program.kind == NodeKind.ACTIVITY].tolist()
    assert sorted(streams) == [0, 0, 1, 1]
    is_launched = program.launch_node != ABSENT
    assert (program.kind[program.launch_node[is_launched]] == NodeKind.CALL).all()


ACTIVITIES = st.tuples(st.integers(0, 90), st.integers(0, 60))


@st.composite
def ranks_of_one_job(draw):
    """Ranks that do some work before each of some collectives, which they have in one order."""
    count, ranks = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    transfer_ns = [draw(st.integers(1, 40)) for _ in range(count)]
    made, members = [], [[] for _ in range(count)]
    for rank in range(ranks):
        activities = []
        for index in range(count):
            for cost, host in draw(st.lists(ACTIVITIES, max_size=3)):
                activities.append(compute(cost, host=host))
            members[index].append((rank, len(activities)))
            activities.append(comm(transfer_ns[index], host=draw(st.integers(0, 60))))
        made.append(rank_of(*activities))
    return made, members


@examples(100)
@given(ranks_of_one_job())
def test_ranks_take_no_less_together_than_each_alone(job):
    programs, members = job
    joined = join(programs, meetings(*members))
    alone_ns = [step_ns(program) for program in programs]
    assert step_ns(joined.program) >= max(alone_ns)
    if len(programs) == 1:
        assert step_ns(joined.program) == alone_ns[0]
