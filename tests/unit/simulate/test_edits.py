"""Edits of hand-made steps, each with the new step worked out by hand.

The latencies are those of the captures: a kernel starts 2,112 ns after its launch, a copy 1,078; a
blocking call returns 4,923 ns after what it waited for; two kernels of a stream are 1,600 ns apart.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.build import rows
from tests.build.repeated_scenes import scene
from tests.build.rows import PAGEABLE_H2D, US
from tracelab.base.errors import UsageError
from tracelab.simulate.edits import EDITS, Edit, parse_edit
from tracelab.simulate.program import Via
from tracelab.simulate.replay import replay

PAGEABLE_D2H = "Memcpy DtoH (Device -> Pageable)"
LAUNCH, CALL, AWAITED, GAP = 2_112, 3 * US, 4_923, 1_600


def synchronized(kernel_us=50):
    """A launch of 3 us after 2 us, a kernel, 5 us later a synchronize, then 20 us of work."""
    end = 5 * US + LAUNCH + kernel_us * US

    def of_step(at, number):
        return (
            rows.operator("aten::mm", at + US, at + 6 * US),
            rows.launch(at + 2 * US, at + 5 * US, number + 1),
            rows.kernel(at + 5 * US + LAUNCH, at + end, correlation=number + 1),
            rows.operator("sync", at + 9 * US, at + end + AWAITED),
            rows.call("cudaDeviceSynchronize", at + 10 * US, at + end + AWAITED),
            rows.python(
                "train.py(3): log", at + end + AWAITED + 5 * US, at + end + AWAITED + 15 * US
            ),
        )

    return scene(end + AWAITED + 20 * US, of_step)


def test_the_unchanged_step():
    assert synchronized().step_ns() == 5 * US + LAUNCH + 50 * US + AWAITED + 20 * US


@pytest.mark.parametrize("place", ["", ":sync", ":cudaDeviceSynchronize"])
def test_a_step_without_its_wait_takes_what_the_kernel_takes(place):
    assert synchronized().step_ns(f"unblock{place}") == 50 * US + GAP


def test_of_what_a_stream_did_before_a_wait_another_one_waits_for_the_last():
    # GIVEN two kernels of one stream, each awaited, then one of another stream
    last = 2 * (10 * US + LAUNCH + 50 * US + AWAITED)

    def of_step(at, number):
        for i in (0, 1):
            since, end = at + i * last // 2, at + (i + 1) * last // 2 - AWAITED
            yield rows.launch(since + 5 * US, since + 10 * US, 3 * number + i + 1)
            yield rows.kernel(end - 50 * US, end, correlation=3 * number + i + 1)
            yield rows.call("cudaDeviceSynchronize", since + 15 * US, end + AWAITED)
        begin = at + last + 10 * US + LAUNCH
        yield rows.launch(at + last + 5 * US, at + last + 10 * US, 3 * number + 3)
        yield rows.kernel(begin, begin + 30 * US, stream=20, correlation=3 * number + 3)

    the_scene = scene(last + 50 * US, lambda *given: tuple(of_step(*given)))

    program = the_scene.edited("unblock").program

    # THEN it waits for the second one, which the first one ended before, and is beside the next
    waits = (program.via == Via.EVENT) & (program.stream_index[program.target] == 1)
    assert waits.sum() == program.steps
    assert the_scene.step_ns("unblock") == 2 * (50 * US + GAP)


def test_a_removed_wait_costs_nothing_on_the_host():
    # 2 us, the launch of 3, 5 more until the call, 20 after it.
    assert synchronized(kernel_us=1).step_ns("unblock") == 30 * US


@pytest.mark.parametrize("place", ["aten::mm", "log", "cudaLaunchKernel", "train.py:40"])
def test_no_wait_goes_where_there_is_none(place):
    the_scene = synchronized()
    edited = the_scene.edited(f"unblock:{place}")
    assert edited.count == 0
    assert the_scene.step_ns(f"unblock:{place}") == the_scene.step_ns()


def test_host_time_of_a_function():
    the_scene = synchronized()
    assert the_scene.step_ns("host:log=0") == the_scene.step_ns() - 10 * US
    assert the_scene.step_ns("host:log=0.5") == the_scene.step_ns() - 5 * US
    assert the_scene.step_ns("host:log=2") == the_scene.step_ns() + 10 * US


def backward():
    """A step of 100 us whose backward pass, from 10 to 90, launches in autograd's thread.

    There, it works 20 us before each of two launches of 5 us, at 30 and 55.
    """

    def of_step(at, number):
        launches = [
            rows.launch(at + begin * US, at + (begin + 5) * US, number + i, thread=rows.AUTOGRAD)
            for i, begin in enumerate((30, 55), 1)
        ]
        kernels = [
            rows.kernel(at + end * US, at + (end + 5) * US, correlation=number + i)
            for i, end in enumerate((40, 65), 1)
        ]
        return (
            rows.python("train.py(3): train", at + US, at + 95 * US),
            rows.python("torch/_tensor.py(570): backward", at + 10 * US, at + 90 * US),
            rows.launch(at + 5 * US, at + 10 * US, number + 3),
            rows.kernel(at + 15 * US, at + 20 * US, correlation=number + 3),
            *launches,
            *kernels,
        )

    return scene(100 * US, of_step)


def test_host_time_of_a_function_holds_what_autograd_does_meanwhile():
    # Outside of the pass, 10 us before and 10 us after it.
    assert backward().step_ns("host:backward=0") == 20 * US


def augmented():
    """A step of 400 us: a function that copies to the host, computes 200 us, and copies back.

    In us: copies from 10 to 30 and from 250 to 270, each call as long as its copy; then a launch
    from 300 to 303 outside. 5 us of the function are an operator's around each copy.
    """

    def of_step(at, number):
        one, two, three = (3 * number + index for index in (1, 2, 3))
        return (
            rows.python("train.py(9): augment", at + 5 * US, at + 280 * US),
            rows.operator("aten::copy_", at + 8 * US, at + 33 * US),
            rows.launch(at + 10 * US, at + 30 * US, one, name="cudaMemcpyAsync"),
            rows.copy(at + 12 * US, at + 28 * US, PAGEABLE_D2H, correlation=one),
            rows.operator("aten::copy_", at + 248 * US, at + 273 * US),
            rows.launch(at + 250 * US, at + 270 * US, two, name="cudaMemcpyAsync"),
            rows.copy(at + 252 * US, at + 268 * US, PAGEABLE_H2D, correlation=two),
            rows.launch(at + 300 * US, at + 303 * US, three),
            rows.kernel(at + 303 * US + LAUNCH, at + 320 * US, correlation=three),
        )

    return scene(400 * US, of_step)


def test_python_of_a_function_that_copies_and_launches():
    the_scene = augmented()
    # Of 275 us in it 50 are the operators', which hold the calls.
    own_us = 275 - 50
    assert the_scene.step_ns("python:augment=0.5") == the_scene.step_ns() - own_us * US / 2
    # Without any, what it copies may stay on the GPU: both calls go, of 20 us each.
    edited = the_scene.edited("python:augment=0")
    middle_ns, high_ns = replay([edited.program, edited.high]).step_ns.tolist()
    assert high_ns == the_scene.step_ns() - own_us * US
    assert middle_ns == high_ns - 2 * 20 * US


@pytest.mark.parametrize(
    ("operator", "saved_us"),
    [
        # From the end of the other call at 105 to the launch at 710, less 5 and 4 of operators.
        ("aten::to", 605 - 5 - 4),
        # From 715 of the step before to 100, less 5 and 2.
        ("aten::add", 385 - 5 - 2),
    ],
)
def test_pauses_before_a_call_are_the_programs_own_work(operator, saved_us):
    def of_step(at, number):
        return (
            rows.python("train.py(9): main", at, at + 1000 * US),
            *launched_in("aten::add", at + 98 * US, at + 100 * US, number + 1),
            *launched_in("aten::to", at + 706 * US, at + 710 * US, number + 2),
        )

    the_scene = scene(1000 * US, of_step)
    place = the_scene.sites.name_pauses(operator)
    assert the_scene.step_ns(f"python:{place}=0") == the_scene.step_ns() - saved_us * US


def launched_in(operator, begins, launched, number):
    """An operator that ends 10 us after its launch, which takes 5."""
    return (
        rows.operator(operator, begins, launched + 10 * US),
        rows.launch(launched, launched + 5 * US, number),
        rows.kernel(launched + 5 * US + LAUNCH, launched + 20 * US, correlation=number),
    )


def test_what_the_gpu_computes_is_not_copied_to_it():
    # GIVEN noise that is drawn for 500 us and copied by a call of 20, after and before a launch
    def of_step(at, number):
        one, two, three = number + 1, number + 2, number + 3
        return (
            *launched_in("aten::add", at + 45 * US, at + 50 * US, one),
            rows.operator("aten::randn", at + 100 * US, at + 600 * US),
            rows.operator("aten::copy_", at + 605 * US, at + 635 * US),
            rows.launch(at + 610 * US, at + 630 * US, two, name="cudaMemcpyAsync"),
            rows.copy(at + 612 * US, at + 628 * US, PAGEABLE_H2D, correlation=two),
            *launched_in("aten::mul", at + 695 * US, at + 700 * US, three),
        )

    the_scene = scene(1000 * US, of_step)
    # THEN both go, or at worst the noise alone
    edited = the_scene.edited("on-gpu:aten::randn")
    middle_ns, high_ns = replay([edited.program, edited.high]).step_ns.tolist()
    assert high_ns == the_scene.step_ns() - 500 * US
    assert middle_ns == high_ns - 20 * US


def test_python_is_not_what_pytorch_does():
    the_scene = synchronized()
    assert the_scene.step_ns("python:log=0") == the_scene.step_ns() - 10 * US
    assert the_scene.edited("python:aten::mm=0").count == 0


def test_host_time_of_an_operator_holds_its_calls():
    # 1 us before the launch, its 3 us, and 1 us after it; the kernel comes so much sooner.
    the_scene = synchronized()
    assert the_scene.step_ns("host:aten::mm=0") == the_scene.step_ns() - 4 * US


def test_copies_of_pageable_memory_start_as_late_as_in_the_trace():
    # GIVEN 25 of them, each 2.4 us after its call has returned, and a wait for each
    def of_step(at, number):
        some = []
        for index in range(25):
            begin, correlation = at + (2 + 20 * index) * US, 1 + 25 * number + index
            some += [
                rows.launch(begin, begin + 5 * US, correlation, name="cudaMemcpyAsync"),
                rows.copy(begin + 7_400, begin + 9_400, PAGEABLE_H2D, correlation=correlation),
                rows.call("cudaStreamSynchronize", begin + 6 * US, begin + 9_400 + 3_000),
            ]
        return some

    the_scene = scene(25 * 20 * US, of_step)
    # THEN the replay takes what they took: with 1,078 ns, as usual, a step would take 33 us less
    assert the_scene.step_ns() == 25 * 20 * US


def test_a_removed_operator_launches_nothing():
    # Then nothing is waited for; 1 us before it, 4 until the synchronize, its 4 us, 20 after it.
    assert synchronized().step_ns("remove:aten::mm") == 29 * US


def test_gpu_time_of_kernels():
    the_scene = synchronized()
    assert the_scene.step_ns("scale=0.5") == the_scene.step_ns() - 25 * US
    assert the_scene.step_ns("scale:kernel:^ge=2") == the_scene.step_ns() + 50 * US
    assert the_scene.edited("scale:kernel:nccl=2").count == 0


def test_edits_are_made_one_after_the_other():
    assert synchronized().step_ns("unblock", "scale=0.5") == 30 * US
    assert synchronized().step_ns("unblock", "scale=0.8") == 40 * US + GAP


def reading(by="aten::item"):
    """`.item()`: a kernel of 50 us, a copy of 1 us that feeds a synchronize, 20 us of work."""
    kernel_end = 5 * US + LAUNCH + 50 * US
    copy_end = kernel_end + 3_329 + 1 * US

    def of_step(at, number):
        return (
            rows.launch(at + 2 * US, at + 5 * US, number + 1),
            rows.kernel(at + 5 * US + LAUNCH, at + kernel_end, correlation=number + 1),
            rows.operator(by, at + 9 * US, at + copy_end + AWAITED + US),
            rows.call("cudaMemcpyAsync", at + 10 * US, at + 14 * US, correlation=number + 2),
            rows.copy(at + kernel_end + 3_329, at + copy_end, PAGEABLE_D2H, correlation=number + 2),
            rows.call("cudaStreamSynchronize", at + 15 * US, at + copy_end + AWAITED),
        )

    return scene(copy_end + AWAITED + 20 * US, of_step)


def test_a_copy_that_only_fed_the_wait_goes_too():
    the_scene = reading()
    copy_end = 5 * US + LAUNCH + 50 * US + 3_329 + US
    assert the_scene.step_ns() == copy_end + AWAITED + 20 * US
    assert the_scene.step_ns("unblock") == 50 * US + GAP
    assert the_scene.step_ns("unblock:cudaStreamSynchronize") == 50 * US + GAP


def test_a_value_that_decides_a_branch_is_waited_for():
    the_scene = reading(by="aten::is_nonzero")
    assert the_scene.edited("unblock").reason == "true_dependency"
    assert the_scene.step_ns("unblock") == the_scene.step_ns()


@pytest.mark.parametrize(
    ("operator", "goes"), [("aten::nonzero", True), ("aten::masked_select", False)]
)
def test_positions_are_found_once_and_other_sizes_may_still_be_asked_for(operator, goes):
    edited = reading(by=operator).edited("unblock")
    low, middle, high = (int(x.latency_ns.sum()) for x in (edited.low, edited.program, edited.high))
    assert low < high  # the host's time in the operator
    assert middle == (low if goes else high)


def test_the_calls_of_a_read_cost_nothing():
    # 2 us, the launch of 3, 5 until the copy's call, 1 between the calls, 20 after them.
    assert reading().step_ns("unblock", "scale=0.1") == 31 * US


def pageable_copy(copied_bytes=500 * 1_000):
    """A copy to the GPU of 100 us from pageable memory that blocks, and a kernel of 60 us.

    The copy begins 3,329 ns after the kernel of the step before, and its call returns 10 us after
    its end; 10 us later the next kernel is launched.
    """
    begin = 181_441 - 188_441 + LAUNCH + 60 * US + 3_329

    def of_step(at, number):
        return (
            rows.operator("aten::copy_", at + 9 * US, at + begin + 112 * US),
            rows.call("cudaMemcpyAsync", at + 10 * US, at + begin + 110 * US, correlation=number),
            rows.copy(
                at + begin,
                at + begin + 100 * US,
                PAGEABLE_H2D,
                copied_bytes=copied_bytes,
                correlation=number,
            ),
            rows.launch(at + 178_441, at + 181_441, number + 1),
            rows.kernel(
                at + 181_441 + LAUNCH, at + 181_441 + LAUNCH + 60 * US, correlation=number + 1
            ),
        )

    return scene(188_441, of_step)


def test_a_pinned_copy_returns_at_once_and_is_faster(snapshot):
    the_scene = pageable_copy()
    assert the_scene.step_ns() == 188_441
    # In their stream: a copy of 500 kB at 34 GB/s, its mean between 11 and 57, the gap of the
    # captures before a kernel, the kernel, the gap before the next copy.
    copy_ns = 1_000 + int(500_000 / 34)
    assert the_scene.step_ns("pin") == copy_ns + 6_592 + 60 * US + 3_329
    low, high = the_scene.bounds_ns("pin")
    assert (low, high) == (
        1_000 + int(500_000 / 57) + 6_592 + 60 * US + 3_329,
        1_000 + int(500_000 / 11) + 6_592 + 60 * US + 3_329,
    )
    assert the_scene.edited("pin").reason == snapshot


def test_a_copy_of_unknown_size_is_only_asynchronous(snapshot):
    the_scene = pageable_copy(copied_bytes=-1)
    assert the_scene.step_ns("pin") == 100 * US + 6_592 + 60 * US + 3_329
    assert the_scene.edited("pin").reason == snapshot


def test_a_prefetched_copy_takes_no_time_of_its_stream():
    # Beside it compute takes 1 % longer: 15.7 us at that speed.
    beside_ns = int((1_000 + int(500_000 / 34)) / 1.01)
    assert pageable_copy().step_ns("prefetch") == 60 * US + int(beside_ns * 0.01) + GAP


def test_a_prefetched_copy_that_takes_longer_decides_the_step():
    the_scene = pageable_copy(copied_bytes=34 * 90_000)
    assert the_scene.step_ns("prefetch") == 1_000 + 90_000 + 2_592


def launch_bound(count=4):
    """Kernels of 2 us, launched each 10 us with calls of 4 us in one function."""

    def of_step(at, number):
        yield rows.python("model.py(7): forward", at + 5 * US, at + 5 * US + count * 10 * US)
        for i in range(count):
            begin = at + 10 * US + i * 10 * US
            yield rows.launch(begin, begin + 4 * US, number + i)
            yield rows.kernel(
                begin + 4 * US + LAUNCH, begin + 6 * US + LAUNCH, correlation=number + i
            )

    return scene(20 * US + count * 10 * US, of_step)


@pytest.mark.parametrize("place", ["", ":forward", ":cudaLaunchKernel"])
def test_fused_launches_are_one(place):
    # 10 us before the first call, its 4 us, and 20 - 4 after the last one.
    assert launch_bound().step_ns() == 60 * US
    assert launch_bound().step_ns(f"fuse{place}") == 60 * US - 3 * 10 * US


def test_a_graph_is_one_call_and_its_host_work_goes():
    the_scene = launch_bound()
    # Everywhere: the work before the first launch stays; one call of 10 us takes the place of four.
    assert the_scene.step_ns("graph") == 10 * US + 10 * US + 16 * US
    # Of a function: what it did before its first launch, and after its last, goes as well.
    assert the_scene.step_ns("graph:forward") == 5 * US + 10 * US + 15 * US
    low, high = the_scene.bounds_ns("graph:forward")
    assert (low, high) == (24 * US, 30 * US + 4 * 700)


def micro_batches(kernel_us):
    """A step of 200 us: four micro-batches of 40 us each, a kernel in the backward pass of each."""

    def of_step(at, number):
        for i in range(4):
            begin = at + 10 * US + i * 40 * US
            yield rows.python("train.py(3): batch", begin, begin + 40 * US)
            yield rows.python("<built-in method run_backward of E>", begin, begin + 30 * US)
            yield rows.launch(begin + 5 * US, begin + 9 * US, number + i)
            start = at + 10 * US + 9 * US + LAUNCH + i * 40 * US
            yield rows.kernel(start, start + kernel_us * US, correlation=number + i)
        yield rows.annotation("Optimizer.step#SGD.step", at + 180 * US, at + 190 * US)

    return scene(200 * US, of_step)


def test_micro_batches_in_one():
    # 40 us outside of the batches, and one batch of 40 us in place of four; at most two of them.
    the_scene = micro_batches(kernel_us=2)
    assert the_scene.step_ns("one-batch:batch") == 80 * US
    assert the_scene.bounds_ns("one-batch:batch") == (80 * US, 120 * US)
    assert the_scene.edited("one-batch:aten::mm").count == 0


def test_the_kernel_of_one_batch_takes_longer_than_that_of_a_micro_batch():
    # One or four times 38 us, 2.5 in the mean: and a gap in place of four, or two.
    the_scene = micro_batches(kernel_us=38)
    assert the_scene.step_ns("one-batch:batch") == 95 * US + GAP
    assert the_scene.bounds_ns("one-batch:batch") == (80 * US, 4 * 38 * US + 2 * GAP)


def test_what_blocks_ends_a_run_of_launches():
    the_scene = synchronized()
    assert the_scene.edited("fuse").count == 0
    assert the_scene.step_ns("fuse") == the_scene.step_ns()


def two_streams():
    """A kernel of 40 us in stream 7, one of 40 us in stream 9 that waits for it, every 100 us."""

    def of_step(at, number):
        yield rows.launch(at + 2 * US, at + 5 * US, number + 1)
        yield rows.kernel(at + 5 * US + LAUNCH, at + 45 * US + LAUNCH, correlation=number + 1)
        yield rows.call("cudaEventRecord", at + 6 * US, at + 7 * US, correlation=number + 2)
        yield rows.event_row(at + 45 * US + LAUNCH, correlation=number + 2, event=5)
        yield rows.python("train.py(9): join", at + 7 * US, at + 9 * US)
        yield rows.call("cudaStreamWaitEvent", at + 7_500, at + 8 * US, correlation=number + 3)
        yield rows.sync_row(
            "Stream Wait Event",
            at + 8 * US,
            at + 8 * US,
            correlation=number + 3,
            stream=9,
            wait_stream=7,
            wait_correlation=number + 2,
            event=5,
        )
        yield rows.launch(at + 10 * US, at + 13 * US, number + 4)
        begin = at + 45 * US + LAUNCH + 8_320
        yield rows.kernel(begin, begin + 40 * US, stream=9, correlation=number + 4)
        end = begin + 40 * US
        yield rows.call("cudaDeviceSynchronize", at + 20 * US, end + AWAITED)

    return scene(45 * US + LAUNCH + 8_320 + 40 * US + AWAITED + 5 * US, of_step)


@pytest.mark.parametrize("place", ["", ":join", ":cudaStreamWaitEvent"])
def test_a_stream_that_does_not_wait(place):
    the_scene = two_streams()
    assert the_scene.step_ns() == 45 * US + LAUNCH + 8_320 + 40 * US + AWAITED + 5 * US
    # Then the later launch decides: the second kernel, 40 us after it, is waited for.
    assert the_scene.step_ns(f"no-wait{place}") == 13 * US + LAUNCH + 40 * US + AWAITED + 5 * US


def test_a_wait_elsewhere_stays():
    assert two_streams().edited("no-wait:cudaLaunchKernel").count == 3  # what it launched waited
    assert two_streams().edited("no-wait:main").count == 0


def communicating():
    """A kernel of 30 us, an all-reduce of 20 us and kernels of 40 and 10 us in one stream.

    They are launched from 2 us on, 1 us apart, with calls of 500 ns.
    """

    def of_step(at, number):
        start = at + 2_500 + LAUNCH
        for i, (length, make, gap) in enumerate(
            (
                (30, rows.kernel, 1_376),
                (20, rows.comm, 1_728),
                (40, rows.kernel, GAP),
                (10, rows.kernel, 0),
            )
        ):
            call = at + 2 * US + i * US
            yield rows.launch(call, call + 500, number + i)
            yield make(start, start + length * US, correlation=number + i)
            start += length * US + gap
        yield rows.call("cudaDeviceSynchronize", at + 8 * US, start + AWAITED)

    return scene(
        2_500 + LAUNCH + 100 * US + 1_376 + 1_728 + GAP + AWAITED,
        of_step,
    )


def test_communication_that_takes_half_the_time():
    the_scene = communicating()
    assert the_scene.step_ns("comm=0.5") == the_scene.step_ns() - 10 * US
    assert the_scene.edited("comm=0.5").count == 3


def test_communication_in_a_stream_of_its_own():
    the_scene = communicating()
    edited = the_scene.edited("side-stream:kernel:nccl")
    low, high = the_scene.bounds_ns("side-stream:kernel:nccl")
    assert edited.count == 3
    # The three kernels, one after another, and by 47 % longer while communication runs beside them:
    # 20 us at that speed.
    alone = 2_500 + LAUNCH + 80 * US + 2 * GAP + AWAITED
    assert low == high == alone + int(int(20 * US / 1.47) * 0.47)
    assert the_scene.step_ns("side-stream:kernel:nccl") == low


def test_queues_of_a_program_that_shares_none():
    assert communicating().edited("queues").count == 0


def test_data_loading():
    def of_step(at, number):
        return (
            rows.annotation(
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                at + 10 * US,
                at + 50 * US,
            ),
            rows.launch(at + 60 * US, at + 65 * US, number + 1),
            rows.kernel(at + 65 * US + LAUNCH, at + 70 * US + LAUNCH, correlation=number + 1),
        )

    the_scene = scene(100 * US, of_step)
    assert the_scene.step_ns() == 100 * US
    assert the_scene.step_ns("load=0") == 60 * US
    assert the_scene.step_ns("load=0.5") == 80 * US
    # Of 40 us, four workers leave a quarter: none where it is hidden, twice that where they share
    # a processor.
    four = the_scene.edited("workers=4")
    base, *ways = replay([the_scene.program, four.low, four.program, four.high]).step_ns.tolist()
    assert (base, ways) == (100 * US, [60 * US, 70 * US, 80 * US])


def test_removed_allocations():
    def of_step(at, number):
        return (
            rows.call("cudaMalloc", at + 10 * US, at + 40 * US),
            rows.launch(at + 60 * US, at + 65 * US, number + 1),
            rows.kernel(at + 65 * US + LAUNCH, at + 70 * US + LAUNCH, correlation=number + 1),
        )

    the_scene = scene(100 * US, of_step)
    assert the_scene.step_ns("remove:cudaMalloc") == 70 * US
    assert the_scene.edited("unblock").count == 0


def test_without_what_frees_memory_nothing_allocates_it_again():
    def of_step(at, number):
        return (
            rows.call("cudaMalloc", at + 10 * US, at + 40 * US),
            rows.launch(at + 60 * US, at + 65 * US, number + 1),
            rows.kernel(at + 65 * US + LAUNCH, at + 70 * US + LAUNCH, correlation=number + 1),
            rows.python("torch/cuda/memory.py(200): empty_cache", at + 70 * US, at + 90 * US),
            rows.call("cudaFree", at + 72 * US, at + 80 * US),
            rows.call("cudaFree", at + 80 * US, at + 88 * US),
        )

    the_scene = scene(100 * US, of_step)
    assert the_scene.step_ns("remove:empty_cache") == 50 * US
    assert the_scene.step_ns("remove:cudaFree") == 54 * US
    assert the_scene.step_ns("remove:cudaMalloc") == 70 * US


def test_an_edit_changes_nothing_of_its_base():
    the_scene = reading()
    before = {
        name: getattr(the_scene.program, name).copy()
        for name in ("cost_ns", "latency_ns", "target")
    }
    for text in ("unblock", "remove:aten::item", "scale=0.5", "host=0", "graph", "fuse"):
        the_scene.edited(text)
    for name, column in before.items():
        assert np.array_equal(getattr(the_scene.program, name), column)


@pytest.mark.parametrize("make", [synchronized, reading, pageable_copy, two_streams, communicating])
@pytest.mark.parametrize(
    "kind", ["unblock", "no-wait", "queues", "load=0", "workers=2", "host=0", "scale=0.5"]
)
def test_less_work_and_fewer_waits_never_take_longer(make, kind):
    the_scene = make()
    edited = the_scene.edited(kind)
    base, *others = replay(
        [the_scene.program, edited.low, edited.program, edited.high]
    ).step_ns.tolist()
    assert others == sorted(others)
    assert all(step_ns <= base for step_ns in others)


# --- as text ---


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("unblock", Edit("unblock")),
        ("unblock:train.py:40", Edit("unblock", "train.py:40")),
        ("pin:aten::copy_", Edit("pin", "aten::copy_")),
        ("scale:kernel:^a=b$=0.5", Edit("scale", "kernel:^a=b$", 0.5)),
        ("load=0", Edit("load", None, 0.0)),
        ("remove:cudaMalloc", Edit("remove", "cudaMalloc")),
        ("no-wait:kernel:x=1", Edit("no-wait", "kernel:x=1")),
    ],
)
def test_edits_as_text(text, edit):
    assert parse_edit(text) == edit
    assert str(edit) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("faster", "'faster' is not an edit"),
        ("", "'' is not an edit"),
        ("load", "lacks its value"),
        ("load=fast", "'fast' is not a number"),
        ("load=-1", "'-1' is not a number"),
        ("load=nan", "'nan' is not a number"),
        ("remove", "lacks its place"),
        ("unblock=1", "write it as unblock[:PLACE]"),
        ("unblocked", "is not an edit"),
    ],
)
def test_what_is_not_an_edit(text, sentence):
    with pytest.raises(UsageError) as error:
        parse_edit(text)
    assert sentence in str(error.value)


@pytest.mark.parametrize("place", ["kernel:(", "rank:one"])
def test_what_is_not_a_place(place):
    with pytest.raises(UsageError):
        synchronized().edited(f"unblock:{place}")


def test_the_rank_of_a_file_without_one():
    assert synchronized().edited("unblock:rank:0").count == 0


def test_every_kind_says_what_it_does():
    assert all(kind.about for kind in EDITS.values())


def test_a_copy_that_has_left_its_stream_does_not_stand_for_the_kernel_before_it():
    # GIVEN a kernel and a copy of one stream, both awaited, then a kernel of another stream
    copied = 110 * US + LAUNCH + GAP
    awaited = copied + 10 * US + AWAITED

    def of_step(at, number):
        yield rows.launch(at + 5 * US, at + 10 * US, number + 1)
        yield rows.kernel(at + 10 * US + LAUNCH, at + copied - GAP, correlation=number + 1)
        yield rows.launch(at + 12 * US, at + 15 * US, number + 2, name="cudaMemcpyAsync")
        yield rows.copy(at + copied, at + copied + 10 * US, rows.H2D, correlation=number + 2)
        yield rows.call("cudaDeviceSynchronize", at + 16 * US, at + awaited)
        yield rows.launch(at + awaited + 5 * US, at + awaited + 10 * US, number + 3)
        begin, end = at + awaited + 10 * US + LAUNCH, at + awaited + 40 * US + LAUNCH
        yield rows.kernel(begin, end, stream=20, correlation=number + 3)
        yield rows.call("cudaDeviceSynchronize", at + awaited + 16 * US, end + AWAITED)

    the_scene = scene(250 * US, lambda *given: tuple(of_step(*given)))

    # THEN the copy goes ahead, and the kernels, of 100 and 30 us, follow one another
    assert the_scene.step_ns("prefetch", "unblock") > 130 * US
