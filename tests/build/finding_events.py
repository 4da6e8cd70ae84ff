"""For tests of the rules: pieces of programs whose findings are known, as events of a file."""

from tests.build.files import HOST, US, call, kernel, launch, operator, python, sync_row

D2H_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"
H2D_PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
P2P = "Memcpy PtoP (Device -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
SMALL, LARGE = {"blocks per SM": 0.3}, {"blocks per SM": 0.8}  # of what the GPU has room for
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
OTHER_THREAD = 300


def work(start, end, name="gemm", *, launched, correlation, maker=kernel, tid=HOST, **more):
    """An activity, and its launch, which takes 2 us."""
    return [
        launch(launched, launched + 2 * US, correlation, tid=tid),
        maker(start, end, name, correlation=correlation, **more),
    ]


def wait(at, correlation, *, stream, of, recorded):
    """A stream that waits, from a call at `at`, for an event of another."""
    return [
        call("cudaEventRecord", recorded, recorded + 500, correlation=correlation),
        call("cudaStreamWaitEvent", at, at + 500, correlation=correlation + 1),
        sync_row(
            "Stream Wait Event",
            at,
            at,
            stream=stream,
            correlation=correlation + 1,
            wait_stream=of,
            wait_correlation=correlation,
        ),
    ]


def blocking(*between, second=118 * US):
    """The GPU computes until 110 us and again from 130 on; what is between is up to the test."""
    return [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        *between,
        *work(second + 12 * US, second + 212 * US, launched=second, correlation=2),
    ]


def serialized_kernels(room, *, names=("scan", "scan", "scan")):
    """Three kernels of 200 us that are serialized, the second one in a side stream."""
    return [
        *work(10 * US, 210 * US, names[0], launched=0, correlation=1, **room),
        *wait(4 * US, 10, stream=13, of=7, recorded=3 * US),
        *work(210 * US, 410 * US, names[1], launched=5 * US, correlation=2, stream=13, **room),
        *wait(9 * US, 12, stream=7, of=13, recorded=8 * US),
        *work(410 * US, 610 * US, names[2], launched=10 * US, correlation=3, **room),
    ]


def launched_one_by_one(*, first=0, kernels=10, every=20 * US, tid=HOST):
    """From 10 us after `first`; a launch takes 2 us, and its kernel starts when it is over."""
    rows = [operator("aten::add", first, first + 10 * US + every * kernels, tid=tid)]
    for i in range(kernels):
        start = first + 10 * US + every * i
        correlation = first // US + i + 1
        launched = start - 2 * US
        rows += work(
            start, start + 5 * US, "add", launched=launched, correlation=correlation, tid=tid
        )
    return rows


def clean():
    """A file that lacks nothing: two launched kernels in a row and a Python function."""
    return [
        python("train.py(3): step", 0, 200 * US),
        launch(US, 3 * US, 1),
        kernel(10 * US, 100 * US, correlation=1),
        launch(5 * US, 7 * US, 2),
        kernel(100 * US, 200 * US, correlation=2),
    ]
