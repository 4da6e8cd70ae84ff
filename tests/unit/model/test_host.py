import pytest
from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    D2H,
    H2D,
    MAIN,
    PAGEABLE_H2D,
    WATCHDOG,
    annotation,
    call,
    copy,
    host,
    kernel,
    launch,
    operator,
    python,
    step,
    trace,
)
from tests.examples import examples
from tests.reference.ticks import TICK, Account, beside_allocations, scaled
from tracelab.base.intervals import union
from tracelab.model.blocking_calls import Blocking
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import Category


def blocking(*rows):
    """Event id to kind, of the calls that blocked."""
    calls = host(*rows).blocking_calls
    assert len(calls) == len(calls.event_id)
    return dict(zip(calls.event_id.tolist(), map(Blocking, calls.kind.tolist()), strict=True))


def pairs(intervals):
    return list(zip(intervals.starts.tolist(), intervals.ends.tolist(), strict=True))


@examples(60)
@given(random_rows())
def test_blocking_calls_are_those_of_the_definition(rows):
    assert blocking(*scaled(rows)) == Account(rows).blocking


@examples(120)
@given(beside_allocations(random_rows()))
def test_calls_that_allocations_stalled_are_those_of_the_definition(rows):
    account, observed = Account(rows), host(*scaled(rows))

    calls = observed.blocking_calls.event_id[observed.stalled_calls.allocation_index].tolist()
    stalled = zip(
        (observed.stalled_calls.start_ns // TICK).tolist(),
        calls,
        observed.stalled_calls.event_id.tolist(),
        strict=True,
    )
    assert list(stalled) == account.stalled
    assert observed.stalled_calls.end_ns.tolist() == [
        rows[i].end * TICK for *_, i in account.stalled
    ]
    for i in {x for x in account.launch.values() if x is not None}:
        assert observed.launched_ns[i] == account.launched_at(i) * TICK


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaDeviceSynchronize", Blocking.DEVICE),
        ("hipDeviceSynchronize", Blocking.DEVICE),
        ("cuCtxSynchronize", Blocking.DEVICE),
        ("cudaThreadSynchronize", Blocking.DEVICE),
        ("cudaStreamSynchronize", Blocking.STREAM),
        ("cudaStreamSynchronize_ptsz", Blocking.STREAM),
        ("cuStreamSynchronize", Blocking.STREAM),
        ("hipStreamSynchronize", Blocking.STREAM),
        ("cudaEventSynchronize", Blocking.EVENT),
        ("cudaMemcpy", Blocking.COPY),
        ("cudaMemcpy2D", Blocking.COPY),
        ("cuMemcpyHtoD_v2", Blocking.COPY),
        ("hipMemcpyWithStream", Blocking.COPY),
        ("cudaMalloc", Blocking.ALLOCATION),
        ("cudaFree", Blocking.ALLOCATION),
        ("cudaHostAlloc", Blocking.ALLOCATION),
        ("cudaFreeHost", Blocking.ALLOCATION),
        ("hipHostMalloc", Blocking.ALLOCATION),
        ("cuMemAlloc_v2", Blocking.ALLOCATION),
    ],
)
def test_calls_that_block(name, kind):
    # A launch after it, so that no device synchronize is the profiler's.
    assert blocking(kernel(0, 9, correlation=1), call(name, 1, 5), launch(6, 7, 1)) == {1: kind}


@pytest.mark.parametrize(
    "name",
    [
        "cudaEventQuery",
        "cudaStreamQuery",
        "cudaStreamWaitEvent",
        "cudaEventRecord",
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaMemcpy3DAsync",
        "cudaMemcpyAsync_ptsz",
        "cudaMallocAsync",
        "cudaFreeAsync",
        "cudaMemsetAsync",
        "cudaFreeArrayLater",
        "notcudaFree",
    ],
)
def test_calls_that_do_not_block(name):
    assert blocking(kernel(0, 9, correlation=1), call(name, 1, 5), launch(6, 7, 1)) == {}


def test_a_call_of_the_driver_blocks_without_one_of_the_runtime_around_it():
    sync = call("cuStreamSynchronize", 1, 5, category=Category.DRIVER)

    assert blocking(kernel(0, 9, correlation=1), sync, launch(6, 7, 1)) == {1: Blocking.STREAM}


def test_only_calls_of_cuda_block_not_operators_of_their_name():
    rows = [kernel(0, 9, correlation=1), operator("cudaFree", 1, 5), launch(6, 7, 1)]

    assert blocking(*rows) == {}


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        (PAGEABLE_H2D, True),
        ("Memcpy DtoH (Device -> Pageable)", True),
        (H2D, False),
        (D2H, False),
    ],
)
def test_asynchronous_copy_blocks_with_pageable_memory(name, blocks):
    rows = [copy(5, 9, name, correlation=1), launch(1, 10, 1, name="cudaMemcpyAsync")]

    assert blocking(*rows) == ({1: Blocking.COPY} if blocks else {})


def test_copy_of_a_graph_with_pageable_memory_does_not_block_the_graphs_launch():
    rows = [copy(5, 9, PAGEABLE_H2D, correlation=1), launch(1, 3, 1, name="cudaGraphLaunch")]

    assert blocking(*rows) == {}


def test_call_inside_a_blocking_call_is_a_part_of_it():
    # GIVEN the driver's call inside the runtime's, one beside it, and one on another thread
    rows = [
        kernel(0, 99, correlation=1),
        call("cuStreamSynchronize", 12, 18, category=Category.DRIVER),
        call("cudaStreamSynchronize", 10, 20),
        call("cudaStreamSynchronize", 20, 30),
        call("cudaStreamSynchronize", 12, 18, thread=AUTOGRAD),
        launch(40, 41, 1),
    ]

    # THEN
    assert list(blocking(*rows)) == [2, 4, 3]


def test_calls_come_by_their_start():
    rows = [
        kernel(0, 99, correlation=1),
        call("cudaFree", 30, 31),
        call("cudaFree", 10, 11),
        call("cudaFree", 20, 25),
        launch(40, 41, 1),
    ]

    calls = host(*rows).blocking_calls

    assert calls.start_ns.tolist() == [10, 20, 30]
    assert calls.end_ns.tolist() == [11, 25, 31]
    assert calls.thread_index.tolist() == [MAIN] * 3


@pytest.mark.parametrize(
    "name",
    [
        "thread 3 (pt_nccl_watchdg)",
        "thread 9 (pt_nccl_heartbt)",
        "rccl monitor",
        "thread 4 (NCCL proxy)",
        "thread 5 (rccl proxy)",
        "thread 6 (gloo_watchdog)",
        "thread 7 (heartbeat)",
        "thread 8 (rank_monitor)",
    ],
)
def test_watchdogs_wait_for_nobodys_sake(name):
    rows = trace(
        kernel(0, 99, correlation=1),
        call("cudaEventSynchronize", 10, 20, thread=1),
        launch(40, 41, 1),
        threads=("python", name),
    )

    observed = observe_host(build_timeline(rows))

    assert len(observed.blocking_calls) == 0
    assert list(observed.states) == [MAIN]


@pytest.mark.parametrize(("length", "stalled"), [(100_000, []), (100_001, [1])])
def test_a_call_that_another_threads_allocation_stalled_lasted_for_more_than_100_us(
    length, stalled
):
    observed = host(
        kernel(300_000, 400_000, correlation=1),
        launch(1_000, 1_000 + length, 1),
        call("cudaHostAlloc", 500, 90_000, thread=AUTOGRAD),
    )

    assert observed.stalled_calls.event_id.tolist() == stalled


# The profiler synchronises the device when it ends.


def test_last_device_synchronize_after_all_launches_and_steps_is_the_profilers():
    rows = [
        step(1, 0, 30),
        launch(1, 2, 1),
        kernel(5, 90, correlation=1),
        call("cudaDeviceSynchronize", 35, 90),
    ]

    assert blocking(*rows) == {}


def test_one_before_the_profilers_is_the_programs():
    rows = [
        launch(1, 2, 1),
        kernel(5, 90, correlation=1),
        call("cudaDeviceSynchronize", 35, 90),
        call("cudaDeviceSynchronize", 95, 96),
    ]

    assert blocking(*rows) == {2: Blocking.DEVICE}


def test_final_synchronize_inside_a_step_is_the_programs():
    rows = [
        step(1, 0, 30),
        launch(1, 2, 1),
        kernel(5, 25, correlation=1),
        call("cudaDeviceSynchronize", 10, 25),
    ]

    assert blocking(*rows) == {3: Blocking.DEVICE}


def test_synchronize_before_the_last_launch_is_the_programs():
    rows = [call("cudaDeviceSynchronize", 0, 10), launch(20, 21, 1), kernel(22, 30, correlation=1)]

    assert blocking(*rows) == {0: Blocking.DEVICE}


def test_profilers_is_recognised_although_the_driver_is_called_inside():
    # The last call that synchronises a device is the driver's, inside the profiler's own.
    rows = [
        launch(1, 2, 1),
        kernel(5, 90, correlation=1),
        call("cudaDeviceSynchronize", 35, 90),
        call("cuCtxSynchronize", 36, 89, category=Category.DRIVER),
    ]

    assert blocking(*rows) == {}


def test_final_stream_synchronize_is_the_programs():
    rows = [launch(1, 2, 1), kernel(5, 90, correlation=1), call("cudaStreamSynchronize", 35, 90)]

    assert blocking(*rows) == {2: Blocking.STREAM}


# What each thread did.


def test_states_of_the_threads():
    # GIVEN
    observed = host(
        kernel(0, 99, correlation=1),
        operator("aten::item", 10, 30),
        call("cudaStreamSynchronize", 15, 25),
        annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 40, 50),
        python("train.py(3): step", 45, 60),
        launch(70, 72, 1, thread=AUTOGRAD),
        call("cudaEventQuery", 80, 81, thread=WATCHDOG),
    )

    # THEN
    main, autograd = observed.states[MAIN], observed.states[AUTOGRAD]
    assert list(observed.states) == [MAIN, AUTOGRAD]
    assert pairs(main.blocked) == [(15, 25)]
    assert pairs(main.input) == [(40, 50)]
    assert pairs(main.recorded) == [(10, 30), (40, 60)]
    assert (pairs(autograd.blocked), pairs(autograd.recorded)) == ([], [(70, 72)])


def test_other_threads_are_taken_together():
    observed = host(
        kernel(0, 99, correlation=1),
        operator("aten::mm", 10, 30),
        call("cudaFree", 12, 14),
        operator("aten::mm", 20, 40, thread=AUTOGRAD),
        launch(70, 72, 1, thread=AUTOGRAD),
    )

    # The main thread launches nothing here, so it keeps nobody from launching.
    whole = union([0], [99])
    assert pairs(observed.other_threads(MAIN, whole).recorded) == [(20, 40), (70, 72)]
    assert pairs(observed.other_threads(MAIN, union([30], [71])).recorded) == [(30, 40), (70, 71)]
    assert pairs(observed.other_threads(AUTOGRAD, whole).blocked) == []
    assert pairs(observed.other_threads(WATCHDOG, whole).recorded) == [(20, 40), (70, 72)]
    assert pairs(observed.all_threads.recorded) == [(20, 40), (70, 72)]


@pytest.mark.parametrize(
    ("name", "is_input"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", True),
        ("torch/utils/data/dataloader.py(628): __next__", True),
        ("/usr/lib/python3/site-packages/torch/utils/data/_utils/fetch.py(47): fetch", True),
        ("enumerate(DataLoader)#_PrefetchingIter.__next__", True),
        ("StreamingDataLoader.__next__", True),
        ("_StatefulDataLoaderIter.__next__", True),
        ("[_TrainingEpochLoop].train_dataloader_next", True),
        ("fetch_next", True),
        ("next_batch", True),
        ("_next_batch", True),
        ("data_loading", True),
        ("dataloading", True),
        ("Data_Loading", True),
        ("metadata_loading", False),
        ("next_batchnorm", False),
        ("prefetch_next", False),
        ("data_loading_time", False),
        # PyTorch's own thread that pins what the workers sent sits there all the time.
        ("torch/utils/data/_utils/pin_memory.py(18): _pin_memory_loop", False),
        ("train.py(3): step", False),
        ("aten::fetch_nextcloud", False),
    ],
)
def test_input_is_recognised_by_name(name, is_input):
    observed = host(kernel(0, 99), python(name, 10, 30))

    assert pairs(observed.states[MAIN].input) == ([(10, 30)] if is_input else [])
