"""Exposed communication and copies. Times are ticks of 10 us."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    D2D,
    D2H,
    H2D,
    MAIN,
    annotation,
    call,
    comm,
    copy,
    graph,
    kernel,
    launch,
    operator,
    python,
)
from tests.examples import examples
from tests.reference.ticks import FAR, TICK, Account, far_away, scaled, wait, work
from tracelab.measures.exposed import exposed
from tracelab.measures.independent_work import Side, side_of_independent_work
from tracelab.measures.overlap import device_times
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT

P2P = "Memcpy PtoP (Device -> Device)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv"
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"

NOTHING_TO_CHANGE = (
    OverlapBlocker.TRUE_DEPENDENCY,
    OverlapBlocker.NO_FREE_SM,
    OverlapBlocker.UNKNOWN,
)


def exposed_pieces(*rows):
    """What was exposed: name, start, end, blocker, name of the blocked row, bound."""
    measured = graph(*scaled(rows))
    timeline, pieces = measured.host.timeline, exposed(measured)

    def name(row):
        return None if row == ABSENT else timeline.trace.name_of(int(timeline.event_id[row]))

    return [
        (
            name(row),
            start // TICK,
            end // TICK,
            OverlapBlocker(blocker),
            name(blocked),
            bound // TICK,
        )
        for row, start, end, blocker, blocked, bound in zip(
            pieces.row.tolist(),
            pieces.start_ns.tolist(),
            pieces.end_ns.tolist(),
            pieces.blocker.tolist(),
            pieces.blocked_row.tolist(),
            pieces.bound_ns.tolist(),
            strict=True,
        )
    ]


# What must hold of every trace.


@st.composite
def rows_of_all_directions(draw):
    """Random rows whose copies and collectives go every way; some are a backward pass's."""
    names = {
        "ncclDevKernel_AllReduce": ["ncclDevKernel_AllReduce", ALL_GATHER, SEND_RECV],
        H2D: [H2D, D2H, P2P],
    }
    rows = [
        replace(row, name=draw(st.sampled_from(names[row.name]))) if row.name in names else row
        for row in draw(random_rows())
    ]
    return [*rows, operator(BACKWARD, 0, 60, thread=AUTOGRAD)] if draw(st.booleans()) else rows


@examples(60)
@given(rows_of_all_directions())
def test_what_is_exposed_is_the_same_at_the_latest_times(rows):
    early, late = (exposed(graph(*x)) for x in (scaled(rows), far_away(scaled(rows))))

    assert (late.start_ns - FAR).tolist() == early.start_ns.tolist()
    for column in ("row", "blocker", "blocked_row", "blocking_call_id", "bound_ns", "delays"):
        assert getattr(late, column).tolist() == getattr(early, column).tolist()


@examples(150)
@given(rows_of_all_directions())
def test_pieces_are_what_ran_unhidden(rows):
    # GIVEN
    account, measured = Account(rows), graph(*scaled(rows))
    timeline = measured.host.timeline
    [times] = device_times(measured, timeline.windows[:1])

    # WHEN
    pieces = exposed(measured)

    # THEN each tick of the sets is in one piece, of a row that ran then; and so say the figures
    ticks = {(device, kind): Counter() for device in account.devices for kind in Kind}
    for row, start, end in zip(
        pieces.row.tolist(),
        (pieces.start_ns // TICK).tolist(),
        (pieces.end_ns // TICK).tolist(),
        strict=True,
    ):
        activity = rows[int(timeline.event_id[row])]
        assert activity.start <= start < end <= activity.end
        ticks[activity.device, Kind(timeline.kind[row])].update(range(start, end))
    for time in times:
        for kind, expected in account.exposed(time.device).items():
            assert ticks[time.device, kind] == Counter(expected)
        lengths = [len(ticks[time.device, kind]) * TICK for kind in (Kind.COMM, Kind.COPY)]
        assert lengths == [time.exposed_comm_ns, time.exposed_copy_ns]
        assert not ticks[time.device, Kind.COMPUTE]
        assert not ticks[time.device, Kind.MEMSET]


@examples(150)
@given(rows_of_all_directions())
def test_bound_is_independent_work_that_exists_and_is_promised_once(rows):
    # GIVEN
    account, measured = Account(rows), graph(*scaled(rows))
    timeline = measured.host.timeline

    # WHEN
    pieces = exposed(measured)

    # THEN each bound is at most the length, and nothing is to be won where nothing is in the way
    bound, length = pieces.bound_ns, pieces.end_ns - pieces.start_ns
    assert ((bound >= 0) & (bound <= length)).all()
    assert ((bound == 0) == np.isin(pieces.blocker, NOTHING_TO_CHANGE)).all()
    assert (
        (pieces.blocking_call_id != ABSENT) <= (pieces.blocker == OverlapBlocker.HOST_SYNC)
    ).all()

    # AND all of one row is at most the work on its side that overlaps nothing yet, and all rows of
    # a side together no more than all such work; a copy or an all-gather before all work of the
    # file has its work before the recording
    for device in account.devices:
        compute, communication, copies = (
            account.busy(account.of(device, kind)) for kind in (Kind.COMPUTE, Kind.COMM, Kind.COPY)
        )
        free = {
            Kind.COMM: compute - communication,
            Kind.COPY: (compute | communication) - copies,
        }
        total = Counter()
        for row, won in _bound_of_rows(pieces).items():
            if timeline.device_number[row] != device:
                continue
            activity, kind = rows[int(timeline.event_id[row])], Kind(timeline.kind[row])
            side = Side(side_of_independent_work(timeline, np.array([row]))[0])
            covering = compute if kind == Kind.COMM else compute | communication
            if side == Side.BEFORE and activity.start < min(covering, default=activity.start + 1):
                continue
            assert won <= TICK * {
                Side.NONE: 0,
                Side.BEFORE: sum(t < activity.start for t in free[kind]),
                Side.AFTER: sum(t >= activity.end for t in free[kind]),
            }.get(side, 0)
            total[kind, side] += won
        assert all(won <= TICK * len(free[kind]) for (kind, _), won in total.items())


def _bound_of_rows(pieces):
    bounds = Counter()
    for row, bound in zip(pieces.row.tolist(), pieces.bound_ns.tolist(), strict=True):
        bounds[row] += bound
    return bounds


def test_trace_without_copies_and_communication_has_nothing_exposed():
    assert exposed_pieces(*work(10, 20, 0, 1)) == []


@pytest.mark.parametrize(
    ("maker", "name", "side"),
    [
        (copy, H2D, Side.BEFORE),
        (copy, D2H, Side.AFTER),
        (copy, P2P, Side.AFTER),
        (copy, D2D, Side.NONE),
        (copy, "CopyHostToDevice", Side.BEFORE),
        (kernel, ALL_GATHER, Side.BEFORE),
        (kernel, "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", Side.BEFORE),
        (kernel, "all_gather_kernel", Side.BEFORE),
        (kernel, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", Side.AFTER),
        (kernel, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", Side.AFTER),
        (kernel, "ncclDevKernel_Broadcast_RING_LL", Side.AFTER),
        (kernel, "void cross_device_reduce_1stage<__nv_bfloat16, 8>", Side.AFTER),
        (kernel, SEND_RECV, Side.NONE),
        (kernel, "my_ring_send_kernel", Side.NONE),
        (kernel, "kuserbuffers_pushrecv(int, int, int, int, int*, int*, int)", Side.NONE),
        (kernel, "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)", Side.NONE),
        (kernel, "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(int)", Side.NONE),
        (kernel, "void tensorrt_llm::kernels::moe_comm::moeAllToAllKernel<true>()", Side.NONE),
        (kernel, "void all_to_all_kernel<int>(int*)", Side.NONE),
        (kernel, "void moe_a2a_prepare_kernel<8>(int*)", Side.NONE),
    ],
)
def test_side_of_independent_work(maker, name, side):
    timeline = graph(maker(0, 20_000, name)).host.timeline

    assert side_of_independent_work(timeline, np.array([0])).tolist() == [side]


@pytest.mark.parametrize(("length", "side"), [(9_999, Side.NONE), (10_000, Side.BEFORE)])
def test_tiny_copies_are_no_work_for_another_stream(length, side):
    timeline = graph(copy(0, length, H2D)).host.timeline

    assert side_of_independent_work(timeline, np.array([0])).tolist() == [side]


# Which stretches.


def test_pieces_lie_around_what_hid_the_rest():
    # Compute overlaps [25, 30) of a collective from 20 to 40.
    rows = [*work(20, 40, 0, 1, maker=comm, stream=20), *work(25, 30, 2, 2)]

    assert [x[:3] for x in exposed_pieces(*rows)] == [
        ("ncclDevKernel_AllReduce", 20, 25),
        ("ncclDevKernel_AllReduce", 30, 40),
    ]


def test_stretch_of_two_at_once_is_the_firsts_until_it_ends():
    rows = [
        *work(20, 30, 0, 1, maker=copy, stream=20),
        *work(25, 40, 1, 2, maker=copy, name=D2H, stream=21),
        *work(26, 28, 2, 3, maker=copy, name=P2P, stream=22),
    ]

    assert [x[:3] for x in exposed_pieces(*rows)] == [(H2D, 20, 30), (D2H, 30, 40)]


def test_communication_hides_a_copy_and_a_copy_hides_no_communication():
    rows = [
        *work(20, 40, 0, 1, maker=comm, stream=20),
        *work(25, 50, 1, 2, maker=copy, stream=21),
    ]

    assert [x[:3] for x in exposed_pieces(*rows)] == [
        ("ncclDevKernel_AllReduce", 20, 40),
        (H2D, 40, 50),
    ]


def test_other_devices_and_memsets_hide_nothing():
    rows = [*work(20, 40, 0, 1, maker=copy), *work(20, 40, 1, 2, device=1)]

    assert [x[:3] for x in exposed_pieces(*rows)] == [(H2D, 20, 40)]


# Copies.


def test_copies_to_the_gpu_in_the_stream_that_computes():
    # GIVEN in one stream, launched ahead: 20 ticks of compute, a copy of 10, compute of 6, a copy
    # of 10
    rows = [
        *work(10, 30, 0, 1, name="first"),
        *work(30, 40, 2, 2, maker=copy),
        *work(40, 46, 4, 3, name="second"),
        *work(46, 56, 6, 4, maker=copy),
        *work(56, 90, 8, 5, name="third"),
    ]

    # THEN the first copy fits under the 20 ticks before it, of the second no more than 6 do
    assert exposed_pieces(*rows) == [
        (H2D, 30, 40, OverlapBlocker.SAME_STREAM, H2D, 10),
        (H2D, 46, 56, OverlapBlocker.SAME_STREAM, H2D, 6),
    ]


def test_first_copy_to_the_gpu_has_nothing_before_it():
    rows = [*work(10, 20, 0, 1, maker=copy), *work(20, 50, 2, 2)]

    assert exposed_pieces(*rows) == [(H2D, 10, 20, OverlapBlocker.TRUE_DEPENDENCY, None, 0)]


def test_first_copy_is_like_the_ones_after_it():
    # GIVEN three copies of 10 in the stream that computes: of the second, 10 could be overlapped,
    # of the third 6, so 16 of 20; what the first one could have overlapped was not recorded
    rows = [
        *work(10, 20, 0, 1, maker=copy),
        *work(20, 40, 1, 2),
        *work(40, 50, 2, 3, maker=copy),
        *work(50, 56, 4, 4),
        *work(56, 66, 6, 5, maker=copy),
        *work(66, 99, 8, 6),
    ]

    # THEN
    assert [x[3:] for x in exposed_pieces(*rows)] == [
        (OverlapBlocker.SAME_STREAM, H2D, 8),
        (OverlapBlocker.SAME_STREAM, H2D, 10),
        (OverlapBlocker.SAME_STREAM, H2D, 6),
    ]


def test_first_copy_is_not_like_those_of_another_stream():
    rows = [
        *work(10, 20, 0, 1, maker=copy, stream=20),
        *work(20, 40, 1, 2),
        *work(40, 50, 2, 3, maker=copy),
        *work(50, 70, 4, 4),
    ]

    assert [x[5] for x in exposed_pieces(*rows)] == [0, 10]


def test_two_copies_to_the_gpu_share_the_compute_before_them():
    # Both copies of a batch, 10 + 10 ticks, stand behind 14 ticks of compute. The first one takes
    # 10 of them; between the two is nothing, so the second one saves nothing.
    rows = [
        *work(10, 24, 0, 1),
        *work(24, 34, 2, 2, maker=copy),
        *work(34, 44, 3, 3, maker=copy),
    ]

    assert [x[3:] for x in exposed_pieces(*rows)] == [
        (OverlapBlocker.SAME_STREAM, H2D, 10),
        (OverlapBlocker.TRUE_DEPENDENCY, H2D, 0),
    ]


def test_compute_that_hides_another_copy_has_no_room_for_one_more():
    # Of the 20 ticks of compute, another copy already overlaps 15.
    rows = [
        *work(10, 30, 0, 1),
        *work(15, 30, 1, 2, maker=copy, name=D2H, stream=21),
        *work(30, 40, 2, 3, maker=copy),
    ]

    assert exposed_pieces(*rows)[-1][3:] == (OverlapBlocker.SAME_STREAM, H2D, 5)


def test_copy_to_the_gpu_that_waits_for_compute_it_does_not_need():
    # The copy stream waits at 3 for all that stream 7 was given by 2: the compute.
    rows = [
        *work(10, 30, 0, 1),
        *wait(3, 10, stream=20, of=7, recorded=2),
        *work(30, 40, 4, 2, maker=copy, stream=20),
        *work(40, 50, 6, 3),
    ]

    assert exposed_pieces(*rows) == [(H2D, 30, 40, OverlapBlocker.EVENT_WAIT, H2D, 10)]


def test_copy_to_the_gpu_behind_a_blocking_call():
    # The copy is launched at 32, when the synchronize from 2 to 31 is over.
    rows = [
        *work(10, 30, 0, 1),
        call("cudaStreamSynchronize", 2, 31),
        *work(33, 43, 32, 2, maker=copy, stream=20),
        *work(43, 50, 34, 3),
    ]

    pieces = exposed(graph(*scaled(rows)))

    assert exposed_pieces(*rows) == [(H2D, 33, 43, OverlapBlocker.HOST_SYNC, H2D, 10)]
    assert pieces.blocking_call_id.tolist() == [2]


def test_copy_to_the_gpu_that_is_launched_late():
    rows = [
        *work(10, 30, 0, 1),
        *work(33, 43, 32, 2, maker=copy, stream=20),
        *work(43, 50, 34, 3),
    ]

    assert exposed_pieces(*rows) == [(H2D, 33, 43, OverlapBlocker.LATE_LAUNCH, H2D, 10)]


def test_copies_from_the_gpu_hold_up_what_comes_after_them():
    # The first one holds up 8 ticks of compute; after the second one comes nothing.
    rows = [
        *work(10, 30, 0, 1, name="first"),
        *work(30, 40, 2, 2, maker=copy, name=D2H),
        *work(40, 48, 4, 3, name="second"),
        *work(48, 60, 6, 4, maker=copy, name=D2H),
    ]

    assert exposed_pieces(*rows) == [
        (D2H, 30, 40, OverlapBlocker.SAME_STREAM, "second", 8),
        (D2H, 48, 60, OverlapBlocker.TRUE_DEPENDENCY, None, 0),
    ]
    assert exposed(graph(*scaled(rows))).delays.tolist() == [True, False]


def test_copies_within_a_gpu_are_part_of_its_work():
    rows = [
        *work(10, 30, 0, 1),
        *work(30, 40, 2, 2, maker=copy, name=D2D),
        *work(40, 60, 4, 3),
    ]

    assert exposed_pieces(*rows) == [(D2D, 30, 40, OverlapBlocker.TRUE_DEPENDENCY, None, 0)]


# Collectives.


def test_all_gather_could_overlap_the_compute_before_it():
    # It takes 15 ticks and waits for 20 ticks of compute of which it needs nothing; that the next
    # compute has to wait for it is right.
    rows = [
        *work(10, 30, 0, 1),
        *wait(2, 10, stream=20, of=7, recorded=1),
        *work(30, 45, 3, 2, name=ALL_GATHER, stream=20),
        *wait(5, 12, stream=7, of=20, recorded=4),
        *work(45, 60, 6, 3),
    ]

    assert exposed_pieces(*rows) == [
        (ALL_GATHER, 30, 45, OverlapBlocker.EVENT_WAIT, ALL_GATHER, 15)
    ]


def test_first_all_gather_has_nothing_before_it():
    rows = [*work(10, 30, 0, 1, name=ALL_GATHER, stream=20), *work(30, 60, 3, 2)]

    assert exposed_pieces(*rows)[0][3:] == (OverlapBlocker.TRUE_DEPENDENCY, None, 0)


def test_first_all_reduce_was_in_nobodys_way_whatever_the_next_one_was():
    # GIVEN a first all-reduce from 10 to 11, after which compute begins at once and had not waited,
    # since it was launched until 9, and a second one that the compute after it waits for
    rows = [
        *work(10, 11, 0, 1, maker=comm, stream=20),
        *work(11, 31, 8, 2, name="first"),
        *wait(10, 10, stream=20, of=7, recorded=9),
        *work(31, 41, 11, 3, maker=comm, stream=20),
        *wait(13, 12, stream=7, of=20, recorded=12),
        *work(41, 61, 14, 4, name="second"),
    ]

    # THEN
    assert [x[3:] for x in exposed_pieces(*rows)] == [
        (OverlapBlocker.TRUE_DEPENDENCY, "first", 0),
        (OverlapBlocker.EVENT_WAIT, "second", 10),
    ]


def all_reduces(thread=AUTOGRAD, *more):
    """In one stream: compute, all-reduce of 20, compute of 10, all-reduce of 5, compute of 20.

    Then compute of 30 that the main thread launches: the optimizer's.
    """
    return [
        *work(10, 20, 0, 1, name="third layer", thread=thread),
        *work(20, 40, 1, 2, maker=comm, thread=thread),
        *work(40, 50, 2, 3, name="second layer", thread=thread),
        *work(50, 55, 3, 4, maker=comm, thread=thread),
        *work(55, 75, 4, 5, name="first layer", thread=thread),
        *more,
        *work(75, 105, 8, 7, name="optimizer"),
    ]


def test_all_reduce_can_hide_under_what_comes_before_the_next_one():
    # Nothing tells when the results are needed: the first one has 10 ticks until the next one.
    assert [x[3:] for x in exposed_pieces(*all_reduces())] == [
        (OverlapBlocker.SAME_STREAM, "second layer", 10),
        (OverlapBlocker.SAME_STREAM, "first layer", 5),
    ]


def test_all_reduce_of_a_backward_pass_can_hide_under_all_that_is_left_of_it():
    # The second one needs 5 of the 20 ticks of the first layer; the first one, which has 10 before
    # the next one, may take 10 of the 15 that are left.
    backward = operator(BACKWARD, 0, 7, thread=AUTOGRAD)

    assert [x[3:] for x in exposed_pieces(*all_reduces(AUTOGRAD, backward))] == [
        (OverlapBlocker.SAME_STREAM, "second layer", 20),
        (OverlapBlocker.SAME_STREAM, "first layer", 5),
    ]


def test_all_reduce_at_the_end_of_a_backward_pass_has_nothing_to_hide_under():
    # It is the last thing that autograd's thread launches; the optimizer needs it.
    last = work(75, 85, 5, 6, maker=comm, thread=AUTOGRAD)
    rows = [row for row in all_reduces(AUTOGRAD, *last) if row.name != "optimizer"]
    rows += [*work(85, 115, 8, 8, name="optimizer"), operator(BACKWARD, 0, 7, thread=AUTOGRAD)]

    assert exposed_pieces(*rows)[-1] == (
        "ncclDevKernel_AllReduce",
        75,
        85,
        OverlapBlocker.TRUE_DEPENDENCY,
        "optimizer",
        0,
    )


def all_reduce_before(*, optimizer, backward_thread=AUTOGRAD):
    """An all-reduce, the mean of its gradients in [40, 44), and what waits for that."""
    return [
        *work(10, 30, 0, 1, thread=AUTOGRAD),
        *work(30, 40, 1, 2, maker=comm, stream=20, thread=backward_thread),
        *work(40, 44, 2, 3, name="mean", stream=20, thread=AUTOGRAD),
        *wait(4, 90, stream=7, of=20, recorded=3),
        *work(44, 60, 5, 4, name="update"),
        operator(BACKWARD, 0, 2, thread=AUTOGRAD),
        *optimizer,
    ]


@pytest.mark.parametrize(
    "frame",
    [
        annotation("Optimizer.step#SGD.step", 5, 6),
        python("torch/optim/sgd.py(105): step", 5, 6),
        python("torch/nn/utils/clip_grad.py(30): clip_grad_norm_", 5, 6),
    ],
)
def test_optimizer_needs_the_gradients_that_were_reduced(frame):
    [piece] = exposed_pieces(*all_reduce_before(optimizer=[frame]))

    assert piece[3:] == (OverlapBlocker.TRUE_DEPENDENCY, "update", 0)


def test_what_is_not_the_optimizers_may_wait_later():
    [piece] = exposed_pieces(*all_reduce_before(optimizer=[]))
    assert piece[3:5] == (OverlapBlocker.EVENT_WAIT, "update")
    # It sets gradients to zero, and needs none.
    zero_grad = python("torch/optim/optimizer.py(939): zero_grad", 5, 6)
    [piece] = exposed_pieces(*all_reduce_before(optimizer=[zero_grad]))
    assert piece[3] == OverlapBlocker.EVENT_WAIT
    # What the program reduced elsewhere may be no gradient, a loss for one.
    frame = annotation("Optimizer.step#SGD.step", 5, 6)
    [piece] = exposed_pieces(*all_reduce_before(optimizer=[frame], backward_thread=MAIN))
    assert piece[3] == OverlapBlocker.EVENT_WAIT


def test_what_is_left_of_a_backward_pass_is_not_the_next_steps():
    # GIVEN two passes with 4 ticks of compute after an all-reduce of 10, and the optimizer between
    backward = operator(BACKWARD, 0, 60, thread=AUTOGRAD)
    rows = [
        row
        for at, first in ((0, 1), (60, 11))
        for row in (
            *work(at + 10, at + 20, at, first, thread=AUTOGRAD),
            *work(at + 20, at + 30, at + 1, first + 1, maker=comm, thread=AUTOGRAD),
            *work(at + 30, at + 34, at + 2, first + 2, thread=AUTOGRAD),
            *work(at + 34, at + 60, at + 3, first + 3),
        )
    ]

    # THEN
    assert [x[-1] for x in exposed_pieces(*rows, backward)] == [4, 4]


def test_what_a_stage_receives_is_needed_at_once():
    rows = [
        *work(10, 30, 0, 1),
        *work(30, 40, 2, 2, name=SEND_RECV),
        *work(40, 60, 4, 3),
    ]

    assert exposed_pieces(*rows) == [(SEND_RECV, 30, 40, OverlapBlocker.TRUE_DEPENDENCY, None, 0)]


def test_kernel_that_divides_gradients_in_a_side_stream_is_not_the_blocked_one():
    # GIVEN in stream 20 an all-reduce from 30 to 50 and what divides its result; stream 7 computes
    # before 30, and from 52 on, since it waited for both
    rows = [
        *work(10, 30, 0, 1, name="second layer"),
        *wait(2, 10, stream=20, of=7, recorded=1),
        *work(30, 50, 3, 2, maker=comm, stream=20),
        *work(50, 52, 4, 3, name="divide", stream=20),
        *wait(6, 12, stream=7, of=20, recorded=5),
        *work(52, 82, 7, 4, name="first layer"),
    ]

    # THEN
    assert exposed_pieces(*rows) == [
        ("ncclDevKernel_AllReduce", 30, 50, OverlapBlocker.EVENT_WAIT, "first layer", 20)
    ]


def test_all_reduce_that_waits_for_a_hardware_queue():
    # Stream 7 waits for nothing, is free from 12 on, and begins at 50 all the same.
    rows = [
        *work(10, 12, 0, 1, name="second layer"),
        *work(12, 50, 3, 2, maker=comm, stream=20),
        *work(50, 90, 4, 3, name="first layer"),
    ]

    assert exposed_pieces(*rows) == [
        ("ncclDevKernel_AllReduce", 12, 50, OverlapBlocker.HARDWARE_QUEUE, "first layer", 38)
    ]


def test_piece_that_delayed_nothing_takes_no_room_from_the_next():
    # GIVEN an all-reduce from 20 to 40, of which compute until 23 and from 25 to 30 overlaps a
    # part; that compute did not wait, the 8 ticks from 40 on did
    rows = [
        *work(10, 23, 0, 1, name="first"),
        *work(20, 40, 1, 2, maker=comm, stream=20),
        *work(25, 30, 2, 3, name="second"),
        *wait(4, 10, stream=7, of=20, recorded=3),
        *work(40, 48, 5, 4, name="third"),
    ]

    # THEN all 8 can overlap a part of the second stretch
    assert [x[1:] for x in exposed_pieces(*rows)] == [
        (23, 25, OverlapBlocker.TRUE_DEPENDENCY, "second", 0),
        (30, 40, OverlapBlocker.EVENT_WAIT, "third", 8),
    ]


def test_second_piece_has_only_the_work_that_the_first_leaves():
    # GIVEN an all-reduce from 20 to 40 whose compute is launched late, twice; after it 12 ticks of
    # compute are left that could have run beside it
    rows = [
        *work(10, 20, 0, 1, name="first"),
        *work(20, 40, 1, 2, maker=comm, stream=20),
        *work(30, 33, 29, 3, name="second"),
        *work(50, 62, 49, 4, name="third"),
    ]

    # THEN 10 of them overlap the first piece, and 2 the second, which is 7 long
    assert [x[1:] for x in exposed_pieces(*rows)] == [
        (20, 30, OverlapBlocker.LATE_LAUNCH, "second", 10),
        (33, 40, OverlapBlocker.LATE_LAUNCH, "third", 2),
    ]


def test_of_work_launched_before_the_recording_nobody_knows_what_waited_for_it():
    # The collective runs alone in [20, 50), and has no launch; nothing comes after it.
    rows = [launch(0, 1, 1), kernel(5, 20, correlation=1), comm(20, 50, stream=9)]
    found = exposed(graph(*rows))
    assert [OverlapBlocker(x).name for x in found.blocker.tolist()] == ["UNKNOWN"]
    assert found.bound_ns.tolist() == [0]
