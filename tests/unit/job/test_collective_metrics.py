"""Bandwidths: figures worked out by hand from the formulas of nccl-tests."""

import numpy as np
import pytest
from msgspec.structs import force_setattr

from tests.build.jobs import matches_of, one_clock
from tests.build.parts import Op, part, receive, send
from tracelab.job.collective_metrics import bandwidths, collective_rows, find_transfers
from tracelab.job.lateness import find_lateness
from tracelab.job.operation_members import find_members
from tracelab.model.collectives import Group, Operation
from tracelab.model.trace import ABSENT

MB = 1_000_000


def transfers_of(parts, matches):
    return find_transfers(find_members(parts, matches, one_clock(len(parts))))


def four_ranks(operation, in_bytes, out_bytes):
    """Four ranks of which the last arrives at 40 us; all end at 100 us."""
    group = Group("0", (0, 1, 2, 3), 4)
    parts = []
    for rank in range(4):
        one = part(rank, Op(operation, 10_000 * (rank + 1), 100_000, group=group))
        force_setattr(one, "in_bytes", np.array([in_bytes]))
        force_setattr(one, "out_bytes", np.array([out_bytes]))
        parts.append(one)
    return parts, matches_of([(rank, 0) for rank in range(4)])


@pytest.mark.parametrize(
    ("operation", "in_bytes", "out_bytes", "size", "factor"),
    [
        (Operation.ALL_REDUCE, 24 * MB, 24 * MB, 24 * MB, 2 * 3 / 4),
        (Operation.ALL_GATHER, 6 * MB, 24 * MB, 24 * MB, 3 / 4),
        (Operation.ALL_GATHER, 6 * MB, ABSENT, 24 * MB, 3 / 4),
        (Operation.REDUCE_SCATTER, 24 * MB, 6 * MB, 24 * MB, 3 / 4),
        (Operation.ALL_TO_ALL, 24 * MB, 24 * MB, 24 * MB, 3 / 4),
        (Operation.GATHER, 6 * MB, ABSENT, 24 * MB, 3 / 4),
        (Operation.SCATTER, ABSENT, 6 * MB, 24 * MB, 3 / 4),
        (Operation.BROADCAST, 24 * MB, 24 * MB, 24 * MB, 1),
        (Operation.REDUCE, 24 * MB, 24 * MB, 24 * MB, 1),
    ],
)
def test_bandwidth_is_that_of_nccl_tests(operation, in_bytes, out_bytes, size, factor):
    parts, matches = four_ranks(operation, in_bytes, out_bytes)

    transfers = transfers_of(parts, matches)

    assert transfers.message_bytes.tolist() == [size]
    assert transfers.transfer_ns.tolist() == [60_000]
    # 24 MB in 60 us are 400 GB/s.
    assert transfers.algorithm_gbps.tolist() == pytest.approx([400])
    assert transfers.bus_gbps.tolist() == pytest.approx([400 * factor])


def test_an_operation_without_a_definition_has_no_bus_bandwidth():
    transfers = transfers_of(*four_ranks(Operation.UNKNOWN, 24 * MB, 24 * MB))

    assert transfers.algorithm_gbps.tolist() == pytest.approx([400])
    assert np.isnan(transfers.bus_gbps).all()


def test_a_message_of_unknown_size_has_no_bandwidth():
    transfers = transfers_of(*four_ranks(Operation.ALL_REDUCE, ABSENT, ABSENT))

    assert transfers.message_bytes.tolist() == [ABSENT]
    assert np.isnan(transfers.algorithm_gbps).all()


def test_a_rank_whose_file_is_missing_may_have_come_last():
    parts, _ = four_ranks(Operation.ALL_REDUCE, 24 * MB, 24 * MB)

    transfers = transfers_of(parts[:3], matches_of([(0, 0), (1, 0), (2, 0)]))

    assert transfers.ranks.tolist() == [4]
    assert np.isnan(transfers.algorithm_gbps).all()


def test_sends_have_the_bandwidth_of_their_pair_unless_they_share_a_kernel():
    # In a group of four a send is between two. 3 MB in 30 us are 100 GB/s.
    parts = [
        part(0, send(0, 50_000, peer=1, size=3 * MB), send(60_000, 90_000, peer=1, kernel=7)),
        part(1, receive(20_000, 50_000, peer=0, size=3 * MB), receive(60_000, 90_000, peer=0)),
    ]
    parts[0] = part(
        0,
        send(0, 50_000, peer=1, size=3 * MB),
        send(60_000, 90_000, peer=1, kernel=7),
        receive(60_000, 90_000, peer=1, kernel=7),
    )
    matches = matches_of([(0, 0), (1, 0)], [(0, 1), (1, 1)])

    transfers = transfers_of(parts, matches)

    assert transfers.ranks.tolist() == [2, 2]
    assert transfers.bus_gbps.tolist() == pytest.approx([100, np.nan], nan_ok=True)


def test_bandwidths_are_medians_of_each_operation_and_size_class():
    # Rank 1 comes 10 us late; transfers of 10, 20 and 40 us of 1.5 MB, and one of 8 MB in 50 us.
    group = Group("dp", (0, 1), 2)
    times = [(0, 20, 1.5), (100, 130, 1.5), (200, 250, 1.5), (300, 360, 8)]
    parts = [
        part(
            rank,
            *(
                Op(
                    Operation.ALL_REDUCE,
                    1_000 * (start + 10 * rank),
                    1_000 * end,
                    size=int(size * MB),
                    group=group,
                )
                for start, end, size in times
            ),
        )
        for rank in range(2)
    ]
    matches = matches_of(*([(0, x), (1, x)] for x in range(4)))
    members = find_members(parts, matches, one_clock(2))

    large, small = bandwidths(members, find_transfers(members))

    assert (large.group, large.operation, large.count, large.ranks) == ("dp", "all_reduce", 1, 2)
    assert (large.size_class, large.message_bytes) == (2**22, 8 * MB)
    assert (large.algorithm_gbps, large.bus_gbps) == (160, 160)
    assert (small.size_class, small.count, small.transfer_ns) == (2**20, 3, 20_000)
    assert (small.wait_ns, small.algorithm_gbps, small.bus_gbps) == (10_000, 75, 75)


def test_skew_is_against_the_median_of_the_shortest_of_one_size_or_kernel_and_batch():
    # Lengths on both ranks, us, and how many requests the step serves; the last two have a size.
    lengths = [(10, 6, 8), (8, 30, 8), (7, 7, 8), (20, 26, 64), (50, 40, None), (44, 60, None)]
    parts = []
    for rank in range(2):
        operations = [
            Op(
                Operation.ALL_REDUCE,
                100_000 * step,
                100_000 * step + 1_000 * times[rank],
                size=0 if times[2] else MB,
                step=step if times[2] else ABSENT,
            )
            for step, times in enumerate(lengths)
        ]
        one = part(rank, *operations)
        force_setattr(one.steps, "batch", tuple(f"decode {x[2]}" for x in lengths[:4]))
        parts.append(one)
    members = find_members(parts, matches_of(*([(0, x), (1, x)] for x in range(6))), one_clock(2))

    rows = collective_rows(members, [None, None], find_lateness(members), find_transfers(members))

    assert [x.batch for x in rows] == [*["decode 8"] * 3, "decode 64", "", ""]
    assert [x.kernel for x in rows] == [*[parts[0].kernel_names[0]] * 4, "", ""]
    # Baselines: the median of 6, 8 and 7; 20; the median of 40 and 44.
    assert [x.skew_ns for x in rows] == [3_000, 23_000, 0, 6_000, 8_000, 18_000]


def test_no_match_no_bandwidth():
    members = find_members([part(0, send(0, 10, peer=1))], matches_of(), one_clock(1))

    assert bandwidths(members, find_transfers(members)) == ()
