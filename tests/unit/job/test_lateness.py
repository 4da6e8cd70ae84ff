"""Why a rank is late. Times are in microseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import force_setattr

from tests.build.jobs import Turn, job_of, matches_of, one_clock, part_of, row
from tests.build.parts import all_reduce, part
from tests.build.rows import US, call, comm, kernel, launch, python
from tests.examples import examples
from tracelab.base.intervals import gaps, union
from tracelab.job.lateness import BEFORE_RECORDING, culprit_of, find_lateness, more_work
from tracelab.job.operation_members import find_members
from tracelab.job.part import Work
from tracelab.model.collectives import Group
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite
from tracelab.model.trace import ABSENT


def lateness_of(parts, matches):
    members = find_members(parts, matches, one_clock(len(parts)))
    return members, find_lateness(members)


def excess_of_last(members, lateness, match):
    """What the last rank of a match spent more on, us; the main sort first."""
    excess = lateness.excess_ns[members.last_member[match]]
    return {int(x): int(excess[x]) // US for x in excess.argsort()[::-1] if excess[x] >= US}


def test_more_compute_is_why_a_rank_is_late():
    parts, matches = job_of([50, 90, 90], [50, 50, 50])

    members, lateness = lateness_of(parts, matches)

    assert members.last_member.tolist() == [ABSENT, 2, 4]
    assert excess_of_last(members, lateness, 1) == {Work.COMPUTE: 40}
    assert excess_of_last(members, lateness, 2) == {Work.COMPUTE: 40}
    assert lateness.previous_member.tolist() == [ABSENT, ABSENT, 0, 1, 2, 3]


def test_idle_of_the_host_is_why_a_rank_is_late_and_has_a_culprit():
    parts, matches = job_of([50, Turn(50, idle=30)], [50, 50])

    members, lateness = lateness_of(parts, matches)

    assert excess_of_last(members, lateness, 1) == {Work.HOST_BUSY: 30}
    culprit, idle_ns = culprit_of(members, lateness, int(members.last_member[1]))
    assert (culprit.call, idle_ns) == ("train.py(3): prepare", 29 * US)


def test_less_of_one_thing_makes_up_for_more_of_another():
    # Rank 0 computes 40 more and is idle for 15 less: it comes 25 later.
    parts, matches = job_of([50, 90], [50, Turn(50, idle=15)])

    members, lateness = lateness_of(parts, matches)

    assert excess_of_last(members, lateness, 1) == {Work.COMPUTE: 25}


def test_what_nobody_waited_for_is_carried_to_the_next_collective():
    # Before the second one rank 0 computes 40 more. Rank 1 has so much beside it that it does not
    # wait, and both have 50 before the third: rank 0 is late by what it was late by before.
    parts, matches = job_of([50, 90, 50], [50, Turn(50, beside=90), 50], transfer=10)

    members, lateness = lateness_of(parts, matches)

    assert members.margin_ns.tolist() == [0, 40 * US, 40 * US]
    assert members.last_member.tolist() == [ABSENT, 2, 5]
    assert list(excess_of_last(members, lateness, 1)) == [Work.COMPUTE]


def two_collectives(*ranks):
    """Parts of ranks that meet twice, with a kernel before the second collective.

    Of each rank when its host launches the first one and the kernel, and from when on it is blocked
    until that one has ended; the second one is launched two after the kernel.
    """
    end = max(first for first, _, _ in ranks) + 12
    rows = []
    for first, second, blocked in ranks:
        arrival = max(end, second + 1) + 5
        rows.append(
            [
                launch(first, first + 1, 1),
                comm(first + 2, end, stream=20, correlation=1),
                *([call("cudaStreamSynchronize", blocked, end)] if blocked else []),
                python("train.py(3): prepare", end if blocked else first + 1, second),
                launch(second, second + 1, 2),
                kernel(arrival - 5, arrival, correlation=2),
                launch(second + 2, second + 3, 3),
                comm(arrival, 300, stream=20, correlation=3),
            ]
        )
    parts = [part_of(rank, of_rank) for rank, of_rank in enumerate(rows)]
    return parts, matches_of([(0, 0), (1, 0)], [(0, 1), (1, 1)])


def test_host_that_works_for_longer_is_late_by_that():
    # Rank 0 is blocked from 3 to 112 and then works for 30. Rank 1 works for 71.
    parts, matches = two_collectives((0, 142, 3), (100, 171, 0))

    members, lateness = lateness_of(parts, matches)

    assert members.margin_ns.tolist() == [100 * US, 29 * US]
    assert excess_of_last(members, lateness, 1) == {Work.HOST_BUSY: 29}


def test_before_the_first_collective_nothing_is_known():
    parts, matches = job_of([90], [50])

    members, lateness = lateness_of(parts, matches)

    assert excess_of_last(members, lateness, 0) == {BEFORE_RECORDING: 40}


def test_of_many_ranks_the_one_in_the_middle_is_usual():
    parts, matches = job_of([50, 90], [50, 50], [50, 45], [50, 55])

    members, lateness = lateness_of(parts, matches)

    # By arrival: 45, 50, 55, 90; of four the second is the one in the middle.
    assert lateness.reference_member[1] == 5
    assert excess_of_last(members, lateness, 1) == {Work.COMPUTE: 40}


def test_a_rank_that_waited_elsewhere_is_late_by_another_ones_fault():
    # Ranks 0 and 1 meet, then 1 and 2: rank 0 is late, so rank 1 is late for rank 2.
    first, second = Group("a", (0, 1), 2), Group("b", (1, 2), 2)
    parts = [
        part(0, all_reduce(10, 20, group=first), all_reduce(190, 200, group=first)),
        part(
            1,
            all_reduce(10, 20, group=first),
            all_reduce(30, 40, group=second),
            all_reduce(100, 200, group=first),
            all_reduce(210, 220, group=second),
        ),
        part(2, all_reduce(30, 40, group=second), all_reduce(110, 220, group=second)),
    ]
    for one in parts:
        communicates = union(one.start_ns, one.end_ns)
        work = [union([], [])] * len(Work)
        work[Work.COMPUTE], work[Work.COMM] = gaps(communicates, 0, 220), communicates
        force_setattr(one, "work", tuple(work))
    matches = matches_of([(0, 0), (1, 0)], [(1, 1), (2, 0)], [(0, 1), (1, 2)], [(1, 3), (2, 1)])

    members, lateness = lateness_of(parts, matches)

    assert members.last_member.tolist()[2:] == [4, 6]
    assert lateness.late_member.tolist() == [ABSENT, ABSENT, 4, 4]


_TURNS = st.builds(Turn, st.integers(1, 60), idle=st.integers(0, 20), beside=st.integers(0, 60))


@examples(40)
@given(st.integers(2, 4), st.integers(1, 5), st.data())
def test_what_made_a_rank_late_is_no_more_than_its_lateness(ranks, count, data):
    turns = [[data.draw(_TURNS) for _ in range(count)] for _ in range(ranks)]
    parts, matches = job_of(*turns)

    members, lateness = lateness_of(parts, matches)

    reference_ns = members.arrival_ns[lateness.reference_member[members.match_index]]
    late_ns = np.maximum(members.arrival_ns - reference_ns, 0)
    assert (lateness.excess_ns >= 0).all()
    assert (lateness.excess_ns.sum(axis=1) <= late_ns).all()
    # All that a rank did since the collective before adds up to the time since then.
    now = np.flatnonzero(lateness.previous_member != ABSENT)
    since_ns = members.arrival_ns[now] - members.arrival_ns[lateness.previous_member[now]]
    assert lateness.spent_ns[now].sum(axis=1).tolist() == since_ns.tolist()


# --- more GPU work than others ---


def kernel_row(name, total, count, phase="forward", kind="compute"):
    return row(name=name, kind=kind, phase=phase, count=count, total_ns=total)


def operator(name, total, calls, where="forward"):
    return row(name=name, where=where, gpu_ns=total, calls=calls, launches=calls)


def more_work_of(tables, part_index, *sites):
    parts = [
        row(work_sites=tuple(of), work_site_ns=np.array(list(of.values())))
        for of in sites or [{}] * len(tables)
    ]
    return more_work(tables, parts)[part_index]


def tables(*kernels, operators=()):
    return {"kernels": kernels, "operators": operators}


def test_more_calls_are_counted_rather_than_timed():
    # The others wait a lot, so their GPUs run each product faster: 100 rather than 110 ns.
    slow = tables(kernel_row("gemm", 1_980, 18), operators=[operator("aten::mm", 1_980, 18)])
    other = tables(kernel_row("gemm", 1_200, 12), operators=[operator("aten::mm", 1_200, 12)])

    more = more_work_of([other, slow, other], 1)

    assert (more.name, more.is_kernel, more.is_slower) == ("aten::mm", False, False)
    assert (more.ratio, more.calls, more.usual_calls, more.excess_ns) == (1.5, 18, 12, 780)


def test_as_many_calls_that_take_longer_in_one_operator_are_more_work_of():
    slow = tables(
        kernel_row("gemm", 1_800, 12),
        kernel_row("norm", 600, 6),
        operators=[operator("aten::mm", 1_800, 12, "backward"), operator("aten::norm", 600, 6)],
    )
    other = tables(
        kernel_row("gemm", 1_200, 12),
        kernel_row("norm", 600, 6),
        operators=[operator("aten::mm", 1_200, 12, "backward"), operator("aten::norm", 600, 6)],
    )

    more = more_work_of([slow, other], 0)

    assert (more.name, more.phase, more.is_slower) == ("aten::mm", "backward", False)
    assert more.ratio == 1.5


def test_the_same_kernels_each_longer_by_as_much_are_a_slower_gpu():
    slow = tables(kernel_row("gemm", 1_440, 12), kernel_row("norm", 714, 6))
    other = tables(kernel_row("gemm", 1_200, 12), kernel_row("norm", 600, 6))

    more = more_work_of([slow, other], 0)

    assert more.is_slower
    assert more.ratio == pytest.approx(2_154 / 1_800)


def test_communication_is_no_work():
    slow = tables(
        kernel_row("nccl", 9_000, 1, kind="comm"),
        kernel_row("gemm", 100, 1),
        operators=[operator("c10d::allreduce_", 9_000, 1), operator("record_param_comms", 9, 1)],
    )
    other = tables(kernel_row("gemm", 100, 1))

    assert more_work_of([slow, other], 0) is None


def test_what_only_one_rank_runs_has_no_ratio():
    slow = tables(operators=[operator("aten::sort", 500, 2)])

    assert more_work_of([slow, tables()], 0).ratio == float("inf")


def test_without_operators_kernels_are_named():
    more = more_work_of([tables(kernel_row("gemm", 300, 3)), tables(kernel_row("gemm", 100, 1))], 0)

    assert (more.name, more.is_kernel, more.ratio) == ("gemm", True, 3)


def test_a_rank_that_does_less_does_not_do_more():
    assert (
        more_work_of([tables(kernel_row("gemm", 100, 1)), tables(kernel_row("gemm", 300, 3))], 0)
        is None
    )
    assert more_work_of([{}, {}], 0) is None


def test_the_call_site_with_the_excess_is_named():
    loop, head = CallSite(function="train", line=35), CallSite(function="head", line=9)
    slow = tables(operators=[operator("aten::mm", 1_800, 18)])
    other = tables(operators=[operator("aten::mm", 1_200, 12)])

    more = more_work_of([slow, other], 0, {head: 900, loop: 900}, {head: 900, loop: 300})
    spread = more_work_of([slow, other], 0, {head: 900, loop: 900}, {head: 600, loop: 600})

    assert (more.site, spread.site) == (loop, NO_CALL_SITE)
