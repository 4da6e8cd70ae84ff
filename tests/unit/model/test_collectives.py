"""Which communication operations a file has. Times are in nanoseconds, sizes in bytes."""

from dataclasses import replace

import pytest

from tests.build.rows import (
    ABSENT,
    AUTOGRAD,
    Message,
    annotation,
    communicates,
    kernel,
    launch,
    operator,
    timeline,
    trace,
)
from tracelab.model.collectives import Group, Operation, collectives
from tracelab.model.timeline import build_timeline

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
PAIR = {"group": "0", "ranks": "[0, 1]", "size": 2}


def nccl(name, start, end, **lane):
    return kernel(start, end, f"ncclDevKernel_{name}", **lane)


def found(*rows):
    """Of each operation: its name, kernel (event id), peer, bytes in and out, and operator."""
    ordered = timeline(*rows)
    operations = collectives(ordered)
    return [
        (Operation(operation).name, int(ordered.event_id[row]), *map(int, numbers))
        for operation, row, *numbers in zip(
            operations.operation,
            operations.row,
            operations.peer_rank,
            operations.in_bytes,
            operations.out_bytes,
            operations.operator_id,
            strict=True,
        )
    ]


def groups_of(*rows):
    """The groups of the operations, by start."""
    operations = collectives(timeline(*rows))
    return [operations.groups[index] for index in operations.group_index]


def test_collective_is_what_the_operator_around_its_launch_says():
    rows = [
        communicates(0, 10, name="_allgather_base", in_bytes=8, out_bytes=16, sequence=5, **PAIR),
        launch(2, 4, 1),
        nccl("AllGather_RING_LL", 20, 30, correlation=1),
        kernel(40, 50),
    ]

    assert found(*rows) == [("ALL_GATHER", 2, ABSENT, 8, 16, 0)]
    assert groups_of(*rows) == [Group("0", (0, 1), 2)]
    assert collectives(timeline(*rows)).sequence.tolist() == [5]


def test_collective_is_what_its_kernel_says_where_no_operator_is_in_the_file():
    message = Message(name="allreduce", in_bytes=8, out_bytes=8, **PAIR)
    rows = [nccl("Generic", 20, 30, message=message), nccl("Generic", 40, 50)]

    assert found(*rows) == [
        ("ALL_REDUCE", 0, ABSENT, 8, 8, ABSENT),
        ("UNKNOWN", 1, ABSENT, ABSENT, ABSENT, ABSENT),
    ]
    assert groups_of(*rows) == [Group("0", (0, 1), 2), Group("", (), None)]


def test_operator_says_what_the_kernel_leaves_out():
    """A kernel's own arguments have no peer in files of PyTorch before 2.12."""
    rows = [
        communicates(0, 10, name="send", peer=3, in_bytes=8, out_bytes=8, **PAIR),
        launch(2, 4, 1),
        nccl("SendRecv", 20, 30, correlation=1, message=Message(name="send", in_bytes=8, **PAIR)),
    ]

    assert found(*rows) == [("SEND", 2, 3, 8, 8, 0)]


def test_coalesced_sends_and_receives_are_one_operation_each():
    """GIVEN two batches of a thread, each launched after its operators, the first with two of them
    THEN every operator belongs to the first launch after it."""
    rows = [
        communicates(0, 10, name="send", peer=0, in_bytes=8, out_bytes=8, **PAIR),
        communicates(20, 30, name="recv", peer=2, in_bytes=4, out_bytes=4, **PAIR),
        annotation("nccl:coalesced", 40, 50),
        launch(42, 44, 1),
        communicates(55, 58, name="wait", group="0", ranks="[]", size=1),
        communicates(60, 70, name="recv", peer=0, in_bytes=2, out_bytes=2, **PAIR),
        launch(82, 84, 2),
        kernel(100, 110, SEND_RECV, correlation=1),
        kernel(120, 130, SEND_RECV, correlation=2),
    ]

    assert found(*rows) == [
        ("SEND", 7, 0, 8, 8, 0),
        ("RECV", 7, 2, 4, 4, 1),
        ("RECV", 8, 0, 2, 2, 5),
    ]
    assert groups_of(*rows) == [Group("0", (0, 1), 2)] * 3


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([], id="on another thread"),
        pytest.param([launch(32, 34, 2), nccl("AllReduce", 90, 95, correlation=2)], id="other"),
        pytest.param([communicates(41, 49, name="gather")], id="within an operator"),
    ],
)
def test_operators_are_not_those_of_just_any_launch(between):
    """An operator whose own kernel is not in the file belongs to none."""
    thread = 0 if between else AUTOGRAD
    rows = [
        communicates(0, 10, name="send", peer=0, in_bytes=8, out_bytes=8, thread=thread),
        launch(42, 44, 1),
        kernel(100, 110, SEND_RECV, correlation=1),
        *between,
    ]

    assert "SEND" not in [operation for operation, *_ in found(*rows)]


def test_operators_of_another_group_are_not_coalesced_with_the_last():
    rows = [
        communicates(0, 10, name="send", peer=0, group="gloo"),
        communicates(20, 30, name="recv", peer=1, group="0"),
        launch(42, 44, 1),
        kernel(100, 110, SEND_RECV, correlation=1),
    ]

    assert [operation for operation, *_ in found(*rows)] == ["RECV"]


def test_a_replayed_graph_takes_no_operators():
    rows = [
        communicates(0, 10, name="send", peer=0),
        launch(42, 44, 1, name="cudaGraphLaunch"),
        kernel(100, 110, SEND_RECV, correlation=1),
        nccl("AllReduce_Sum", 120, 130, correlation=1),
    ]

    assert [operation for operation, *_ in found(*rows)] == ["SEND_RECV", "ALL_REDUCE"]


def test_coalesced_collectives_of_one_kernel_are_one_with_the_sum_of_their_sizes():
    rows = [
        communicates(0, 10, name="_allgather_base", in_bytes=8, out_bytes=16, **PAIR),
        communicates(20, 30, name="_allgather_base", in_bytes=4, out_bytes=8, **PAIR),
        launch(42, 44, 1),
        nccl("AllGather_RING_LL", 100, 110, correlation=1),
    ]

    assert found(*rows) == [("ALL_GATHER", 3, ABSENT, 12, 24, 0)]


@pytest.mark.parametrize(
    ("region", "name", "operation"),
    [
        (operator("c10d::alltoall_base_", 0, 50), "SendRecv_RING_SIMPLE_Sum_int8_t", "ALL_TO_ALL"),
        (annotation("nccl:all_to_all", 0, 50), "SendRecv_RING_SIMPLE_Sum_int8_t", "ALL_TO_ALL"),
        (annotation("nccl:all_reduce_barrier", 0, 50), "AllReduce_Sum_f32", "BARRIER"),
        (annotation("nccl:send 0->1", 0, 50), "SendRecv", "SEND"),
        (annotation("nccl:coalesced", 0, 50), "SendRecv", "SEND_RECV"),
        (annotation("my send and receive", 0, 50), "SendRecv", "SEND_RECV"),
        (operator("c10d::gather_", 60, 70), "SendRecv", "SEND_RECV"),
    ],
)
def test_without_arguments_the_regions_around_the_launch_say_it(region, name, operation):
    rows = [region, operator("record_param_comms", 5, 45), launch(10, 12, 1)]

    assert found(*rows, nccl(name, 100, 110, correlation=1)) == [
        (operation, 3, ABSENT, ABSENT, ABSENT, 1)
    ]


def test_coalesced_operators_without_arguments():
    rows = [
        operator("c10d::send", 0, 10),
        operator("record_param_comms", 2, 8),
        operator("c10d::recv_", 20, 30),
        operator("record_param_comms", 22, 28),
        launch(42, 44, 1),
        kernel(100, 110, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", correlation=1),
    ]

    assert found(*rows) == [
        ("SEND", 5, ABSENT, ABSENT, ABSENT, 1),
        ("RECV", 5, ABSENT, ABSENT, ABSENT, 3),
    ]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "ALL_REDUCE"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclArgs<4096ul>)", "REDUCE_SCATTER"),
        ("ncclSymkDevKernel_AllGather_LL(ncclArgs)", "ALL_GATHER"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclArgs)", "BROADCAST"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclArgs)", "REDUCE"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "UNKNOWN"),
        ("void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*)", "ALL_REDUCE"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<16>(long)", "ALL_REDUCE"),
        ("void deep_ep::internode::reduce_and_scatter<int>(int)", "UNKNOWN"),
    ],
)
def test_last_of_all_the_name_of_the_kernel_says_it(name, operation):
    assert [one for one, *_ in found(kernel(0, 10, name))] == [operation]


@pytest.mark.parametrize(
    ("message", "listed", "group"),
    [
        ({"ranks": "[0, 2]", "size": 2}, None, ((0, 2), 2)),
        ({"ranks": "[0, 8, ...]", "size": 4, "first_rank": 0, "rank_stride": 8}, None, "regular"),
        ({"ranks": "[0, 8, ...]", "size": 4}, [0, 8, 16, 24], "regular"),
        ({"ranks": "[0, 8, ...]", "size": 4}, "[0, 8, 16, 24]", "regular"),
        ({"ranks": "[0, 8, ...]", "size": 4}, "[0, 8, ...]", ((), 4)),
        ({"ranks": "[0, 8, ...]", "size": 4}, [0, 4, 8, 12], ((), 4)),  # contradicts the begin
        ({"ranks": "[0, 8, ...]", "size": 4}, [0, 8], ((), 4)),
        ({}, [0, 8, 16, 24], "regular"),
        ({}, None, ((), None)),
    ],
)
def test_ranks_of_a_group(message, listed, group):
    message = Message(name="allreduce", group="7", **message)
    job = {"pg_config": [{"pg_name": "7", "ranks": listed}, "?"]} if listed else "?"
    made = replace(
        trace(nccl("AllReduce", 20, 30, message=message)), metadata={"distributedInfo": job}
    )
    ordered = build_timeline(made)

    ranks, size = ((0, 8, 16, 24), 4) if group == "regular" else group
    assert collectives(ordered).groups == (Group("7", ranks, size),)


def test_operations_are_by_start_across_streams():
    rows = [
        nccl("AllReduce", 50, 60, stream=7),
        nccl("AllGather", 10, 90, stream=9),
        nccl("Broadcast", 20, 30, stream=8),
    ]

    assert [event for _, event, *_ in found(*rows)] == [1, 2, 0]


def test_file_without_communication_has_no_operations():
    operations = collectives(timeline(kernel(0, 10)))

    assert len(operations) == 0
    assert operations.groups == ()
