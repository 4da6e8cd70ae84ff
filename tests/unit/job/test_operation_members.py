"""Wait and transfer, against the slow definition and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from tests.build.jobs import KnownClocks, matches_of, one_clock
from tests.build.parts import Op, all_reduce, part, receive, send
from tests.build.rows import US, comm, copy, graph, kernel, launch, step
from tests.examples import examples
from tests.reference.waits import slow_waits
from tracelab.job.operation_members import find_members, rank_times
from tracelab.job.part import rank_part
from tracelab.measures.blocking_calls import blocking_calls
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.idle_culprits import idle_culprits
from tracelab.measures.unprofiled_windows import start_up
from tracelab.measures.window_times import window_times
from tracelab.model.collectives import Operation, collectives
from tracelab.model.phases import Phases
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Baseline


def test_what_a_rank_waits_ends_when_the_last_one_arrives():
    parts = [part(0, all_reduce(0, 4_907)), part(1, all_reduce(4_841, 4_907))]
    matches = matches_of([(0, 0), (1, 0)])

    members = find_members(parts, matches, one_clock(2))

    assert members.wait_ns.tolist() == [4_841, 0]
    assert members.transfer_ns.tolist() == [66, 66]
    assert (members.last_member.tolist(), members.margin_ns.tolist()) == ([1], [4_841])


def test_margin_is_to_the_rank_before_the_last():
    parts = [part(rank, all_reduce(start, 100)) for rank, start in enumerate((0, 30, 80))]
    matches = matches_of([(0, 0), (1, 0), (2, 0)])

    members = find_members(parts, matches, one_clock(3))

    assert members.wait_ns.tolist() == [80, 50, 0]
    assert (members.last_member.tolist(), members.margin_ns.tolist()) == ([2], [50])


def test_nobody_is_late_within_the_error_of_the_clocks():
    parts = [part(0, all_reduce(0, 100)), part(1, all_reduce(40, 100))]
    matches = matches_of([(0, 0), (1, 0)])

    within = find_members(parts, matches, one_clock(2, residual=20))
    beyond = find_members(parts, matches, one_clock(2, residual=19))

    assert within.wait_ns.tolist() == beyond.wait_ns.tolist() == [40, 0]
    assert (within.last_member.tolist(), within.margin_ns.tolist()) == ([ABSENT], [0])
    assert (beyond.last_member.tolist(), beyond.margin_ns.tolist()) == ([1], [40])


def test_a_wait_is_no_longer_than_its_kernel():
    # By its clock rank 1 arrives when rank 0 has already ended: an error of the clocks.
    parts = [part(0, all_reduce(0, 100)), part(1, all_reduce(0, 90))]
    clocks = KnownClocks((0, 120), (None, 5))

    members = find_members(parts, matches_of([(0, 0), (1, 0)]), clocks)

    assert members.arrival_ns.tolist() == [0, 120]
    assert (members.wait_ns.tolist(), members.transfer_ns.tolist()) == ([100, 0], [0, 90])


def test_the_root_of_a_broadcast_does_not_wait_for_those_that_come_after_its_end():
    broadcasts = [(0, 50), (10, 55), (100, 110)]
    parts = [part(x, Op(Operation.BROADCAST, *times)) for x, times in enumerate(broadcasts)]

    members = find_members(parts, matches_of([(0, 0), (1, 0), (2, 0)]), one_clock(3))

    assert members.wait_ns.tolist() == [10, 0, 0]


def test_a_kernel_of_several_sends_and_receives_waits_for_the_last_peer():
    parts = [
        part(0, send(0, 100, peer=1, kernel=7), receive(0, 100, peer=2, kernel=7)),
        part(1, receive(20, 100, peer=0)),
        part(2, send(70, 100, peer=0)),
    ]
    matches = matches_of([(0, 0), (1, 0)], [(0, 1), (2, 0)])

    members = find_members(parts, matches, one_clock(3))

    assert members.wait_ns.tolist() == [70, 0, 70, 0]
    assert [members.wait_of_operations(x).tolist() for x in range(len(parts))] == [
        [70, 70],
        [0],
        [0],
    ]


def test_operations_without_a_match_have_no_wait():
    parts = [part(0, all_reduce(0, 10), all_reduce(20, 30)), part(1, all_reduce(25, 30))]
    matches = matches_of([(0, 1), (1, 0)])

    members = find_members(parts, matches, one_clock(2))

    assert wait_of_operations(members) == [[ABSENT, 5], [0]]


def wait_of_operations(members):
    return [members.wait_of_operations(index).tolist() for index in range(len(members.parts))]


def test_no_match_no_wait():
    members = find_members([part(0, all_reduce(0, 10))], matches_of(), one_clock(1))

    assert len(members.wait_ns) == len(members.last_member) == 0


_OPERATIONS = (Operation.ALL_REDUCE, Operation.BROADCAST, Operation.GATHER, Operation.UNKNOWN)


@st.composite
def _jobs(draw):
    """Ranks with as many operations each, matched by order; some share a kernel."""
    ranks, count = draw(st.integers(2, 4)), draw(st.integers(0, 5))
    kinds = [draw(st.sampled_from(_OPERATIONS)) for _ in range(count)]
    shares = [draw(st.booleans()) for _ in range(count)]
    parts = []
    for rank in range(ranks):
        start, rows, kernel = 0, [], 0
        end = 0
        for kind, is_shared in zip(kinds, shares, strict=True):
            if not (is_shared and rows):
                start = end + draw(st.integers(0, 20))
                end, kernel = start + draw(st.integers(0, 30)), kernel + 1
            rows.append(Op(kind, start, end, kernel=kernel))
        parts.append(part(rank, *rows))
    offsets = tuple(draw(st.integers(-10, 10)) for _ in range(ranks))
    residuals = tuple(draw(st.sampled_from((None, 0, 3))) for _ in range(ranks))
    chosen = [
        sorted(draw(st.sets(st.integers(0, ranks - 1), min_size=2, max_size=ranks)))
        for _ in range(count)
    ]
    matches = matches_of(*([(rank, x) for rank in of] for x, of in enumerate(chosen)))
    return parts, matches, KnownClocks(offsets, residuals)


@examples(100)
@given(_jobs())
def test_waits_are_those_of_the_slow_definition(job):
    parts, matches, clocks = job

    members = find_members(parts, matches, clocks)

    rows, late = slow_waits(parts, matches, clocks)
    columns = (members.arrival_ns, members.wait_ns, members.transfer_ns)
    assert list(zip(*(x.tolist() for x in columns), strict=True)) == rows
    first = matches.first[:-1].tolist()
    assert members.last_member.tolist() == [
        ABSENT if x is None else x[0] + at for x, at in zip(late, first, strict=True)
    ]
    assert members.margin_ns.tolist() == [0 if x is None else x[1] for x in late]
    assert (members.wait_ns >= 0).all()


# --- how ranks spend their steps ---


def times_of(*rows, waits):
    """compute, wait, transfer, copy and idle of the only step, from 0 to 100."""
    rows = (step(1, 0, 99), launch(0, 1, 1), kernel(0, 15, correlation=1), *rows)
    made = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    timeline = made.host.timeline
    idle, alone = bubbles(made), exposed(made)
    part = rank_part(
        made,
        Phases(made.host),
        collectives(timeline),
        idle,
        idle_culprits(made, idle),
        alone,
        SourceLines(()),
        0,
        timeline.windows,
        Baseline(),
        {},
    )
    start = start_up(made, idle)
    windows = window_times(made, None, idle, start, alone, blocking_calls(made, idle))
    wait_ns = np.array(waits, dtype=np.int64) * US
    [of_step] = rank_times(part, 0, one_clock(1), wait_ns, windows).steps
    times = (of_step.compute_ns, of_step.wait_ns, of_step.transfer_ns, of_step.copy_ns)
    assert (
        sum(times) + of_step.idle_ns + of_step.unmatched_ns
        == of_step.end_ns - of_step.start_ns
        == 100 * US
    )
    return [ns // US for ns in (*times, of_step.idle_ns)]


def test_the_times_of_a_step_add_up():
    assert times_of(
        launch(1, 2, 2),
        launch(2, 3, 3),
        launch(3, 4, 4),
        comm(15, 60, stream=20, correlation=2),
        copy(60, 70, correlation=3),
        kernel(90, 100, correlation=4),
        waits=[30],
    ) == [25, 30, 15, 10, 20]


def test_a_wait_beside_the_transfer_of_another_kernel_is_a_wait():
    assert times_of(
        launch(1, 2, 2),
        launch(2, 3, 3),
        comm(10, 100, stream=20, correlation=2),
        comm(20, 50, stream=30, correlation=3),
        waits=[0, 25],
    ) == [15, 25, 60, 0, 0]


def test_what_is_not_known_is_transfer():
    assert times_of(launch(1, 2, 2), comm(15, 100, stream=20, correlation=2), waits=[-1]) == [
        15,
        0,
        85,
        0,
        0,
    ]
