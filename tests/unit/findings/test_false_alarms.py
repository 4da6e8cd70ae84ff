"""Healthy programs, and such whose defect lies elsewhere: what the rules must not say of them.

Times are microseconds.
"""

import pytest

from tests.build.files import annotation, event, kernel, launch, operator, python, step, write
from tracelab import analyze
from tracelab.findings.finding import INFO

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
GRAPH_KERNEL = {"blocks per SM": 0.3}


@pytest.fixture
def alarms(tmp_path):
    """Rule, cause and bound (us) of the findings above info, and the verdict's device."""

    def find(*events):
        report = analyze(write(tmp_path / "hand.json", events))
        return [(x.rule, x.cause, x.bound_ns / 1000) for x in report.findings if x.severity != INFO]

    return find


def test_slow_host_code_behind_a_synchronize_is_not_the_synchronizes(alarms):
    # Each step: 100 us of work, a synchronize that blocks for 90, then 2 ms of Python.
    rows = []
    for i in range(4):
        at = 2_200 * i
        rows += [
            python("train.py(3): step", at, 2_190),
            launch(at, 5, 10 * i + 1),
            kernel("gemm", at + 10, 100, correlation=10 * i + 1),
            launch(at + 20, 90, 10 * i + 2, name="cudaStreamSynchronize"),
            python("metrics.py(8): update", at + 115, 2_070),
        ]
    # Three gaps of 2,100 us: the four calls blocked for 360, the rest is the host's.
    found = alarms(*rows)
    assert [(rule, cause) for rule, cause, _ in found] == [
        ("TL301", "slow_host"),
        ("TL101", "host_sync"),
    ]
    assert found[1][2] == 360
    assert found[0][2] <= 3 * 2_100 - 360


def test_branches_of_one_graph_replay_are_not_in_each_others_way(alarms):
    # The replay runs an all-reduce beside nothing and two streams in turns; nothing tells why.
    rows = [launch(0, 5, 1, name="cudaGraphLaunch")]
    for i in range(10):
        at = 10 + 400 * i
        rows += [
            kernel("gemm", at, 100, correlation=1, **GRAPH_KERNEL),
            kernel("gemm", at + 110, 100, stream=9, correlation=1, **GRAPH_KERNEL),
            kernel(ALL_REDUCE, at + 220, 100, stream=11, correlation=1),
        ]
    assert alarms(*rows) == []


def test_without_a_launch_nothing_is_called_a_full_queue(alarms):
    rows = [
        row
        for i in range(10)
        for row in (
            kernel("gemm", 400 * i, 150),
            kernel(ALL_REDUCE, 400 * i + 160, 150, stream=11),
        )
    ]
    assert [rule for rule, *_ in alarms(*rows)] == ["TL905"]


def test_a_gpu_that_is_hardly_used_is_no_loss(alarms):
    rows = [launch(0, 5, 1), kernel("gemm", 10, 10_000, device=1, correlation=1)]
    rows += [
        row
        for i in range(4)
        for row in (
            operator("aten::add", 1_000 * i + 10, 900),
            launch(1_000 * i + 900, 2, i + 2),
            kernel("add", 1_000 * i + 905, 2, device=0, correlation=i + 2),
        )
    ]
    assert alarms(*rows) == []


def test_regions_that_count_the_steps_are_one_place(alarms):
    # 300 regions, each of its own name, with a call that costs 20 of 60 us.
    rows = []
    for i in range(300):
        at = 60 * i
        rows += [
            annotation(f"iteration {i}", at, 59),
            launch(at, 2, 10 * i + 1),
            kernel("gemm", at + 5, 35, correlation=10 * i + 1),
            launch(at + 4, 40, 10 * i + 2, name="cudaStreamSynchronize"),
        ]
    found = alarms(*rows)
    assert next((rule, cause) for rule, cause, _ in found) == ("TL101", "host_sync")


def test_collectives_between_layers_are_no_alarm(alarms):
    # Four layers a step, each with an all-reduce in the compute stream that the next layer needs.
    rows, number = [], 0
    for i in range(3):
        rows.append(step(i, 10_000 * i, 900))
        for layer in range(4):
            for name, at, length in (("gemm", 0, 500), (ALL_REDUCE, 510, 300)):
                number += 1
                start = 10_000 * i + 1_000 * layer + at + 1_000
                rows += [
                    launch(10_000 * i + 10 * number % 800, 2, number),
                    kernel(name, start, length, correlation=number),
                ]
    assert [rule for rule, *_ in alarms(*rows) if rule.startswith("TL2")] == []


@pytest.mark.parametrize("allocating", [False, True])
def test_an_allocation_of_another_thread_beside_ordinary_launches_is_no_alarm(alarms, allocating):
    # Each step of 1,000 us waits 150 for Python, whose launch takes 5 while memory is pinned.
    rows = []
    for i in range(4):
        at = 1_000 * i
        rows += [
            python("train.py(3): step", at, 990),
            launch(at + 140, 5, i + 1),
            kernel("gemm", at + 150, 850, correlation=i + 1),
        ]
        if allocating:
            rows.append(event("cudaHostAlloc", "cuda_runtime", at + 10, 300, tid=200))
    found = alarms(*rows)
    assert [(rule, cause) for rule, cause, _ in found] == [("TL301", "launch_bound")]


def test_allocations_of_the_first_step_are_a_warm_up(alarms):
    rows = []
    for i in range(3):
        at = 1_000 * i
        rows += [
            step(i, at, 990),
            launch(at + 300, 5, i + 1),
            kernel("gemm", at + 310, 650, correlation=i + 1),
        ]
    rows.append(event("cudaMalloc", "cuda_runtime", 20, 250))
    rows += [launch(2, 2, 90), kernel("first", 5, 10, correlation=90)]
    assert [rule for rule, *_ in alarms(*rows) if rule == "TL103"] == []
