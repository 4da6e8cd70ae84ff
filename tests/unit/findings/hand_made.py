"""Pieces of programs, as events with times in microseconds."""

from tests.build.files import HOST, copy, event, kernel, launch, operator, python, sync

US = 1000
D2H = "Memcpy DtoH (Device -> Pinned)"
D2H_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"
H2D_PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
P2P = "Memcpy PtoP (Device -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
SMALL, LARGE = {"blocks per SM": 0.3}, {"blocks per SM": 0.8}  # of what the GPU has room for
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
OTHER_THREAD = 300


def work(name, start, dur, launched, correlation, *, maker=kernel, tid=HOST, **more):
    """An activity, and its launch, which takes 2 us."""
    activity = (
        copy(start, dur, name=name, correlation=correlation, **more)
        if maker is copy
        else kernel(name, start, dur, correlation=correlation, **more)
    )
    return [launch(launched, 2, correlation, tid=tid), activity]


def wait(at, correlation, *, stream, of, recorded):
    """A stream that waits, from a call at `at`, for an event of another."""
    return [
        event("cudaEventRecord", "cuda_runtime", recorded, 0.5, correlation=correlation),
        event("cudaStreamWaitEvent", "cuda_runtime", at, 0.5, correlation=correlation + 1),
        sync(
            "Stream Wait Event",
            at,
            0,
            stream=stream,
            correlation=correlation + 1,
            wait_stream=of,
            wait_correlation=correlation,
        ),
    ]


def call(name, start, dur):
    return event(name, "cuda_runtime", start, dur)


def blocking(*between, second=118):
    """The GPU computes until 110 and again from 130 on; what is between is up to the test."""
    return [
        *work("gemm", 10, 100, 0, 1),
        *between,
        *work("gemm", second + 12, 200, second, 2),
    ]


def serialized_kernels(room, *, names=("scan", "scan", "scan")):
    """Three kernels of 200 us that are serialized, the second one in a side stream."""
    return [
        *work(names[0], 10, 200, 0, 1, **room),
        *wait(4, 10, stream=13, of=7, recorded=3),
        *work(names[1], 210, 200, 5, 2, stream=13, **room),
        *wait(9, 12, stream=7, of=13, recorded=8),
        *work(names[2], 410, 200, 10, 3, **room),
    ]


def launched_one_by_one(*, first=0, kernels=10, every=20, tid=HOST):
    """From 10 us after `first`; a launch takes 2 us, and its kernel starts when it is over."""
    return [
        operator("aten::add", first, 10 + every * kernels, tid=tid),
        *(
            row
            for i in range(kernels)
            for row in work(
                "add", first + 10 + every * i, 5, first + 8 + every * i, first + i + 1, tid=tid
            )
        ),
    ]


def clean():
    """A file that lacks nothing: two launched kernels in a row and a Python function."""
    return [
        python("train.py(3): step", 0, 200),
        launch(1, 2, 1),
        kernel("gemm", 10, 90, correlation=1),
        launch(5, 2, 2),
        kernel("gemm", 100, 100, correlation=2),
    ]
