"""What calls of the CUDA runtime, the CUDA driver and HIP do, by their names."""

import pytest

from tests.checks import with_each
from tracelab.model import kernel_kinds as driver_api

# Every kind of call: names of the runtime, of the driver with its suffixes, and of HIP.
CALLS = {
    "is_device_sync": [
        "cudaDeviceSynchronize",
        "cudaThreadSynchronize",
        "cuCtxSynchronize",
        "cuCtxSynchronize_v2",
        "hipDeviceSynchronize",
        "hipCtxSynchronize",
    ],
    "is_stream_sync": [
        "cudaStreamSynchronize",
        "cudaStreamSynchronize_ptsz",
        "cuStreamSynchronize",
        "cuStreamSynchronize_ptsz",
        "hipStreamSynchronize",
    ],
    "is_event_sync": ["cudaEventSynchronize", "cuEventSynchronize", "hipEventSynchronize"],
    "is_synchronous_copy": [
        "cudaMemcpy",
        "cudaMemcpy2D",
        "cudaMemcpy_ptds",
        "cudaMemcpyToSymbol",
        "cuMemcpy",
        "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2_ptds",
        "hipMemcpy",
        "hipMemcpyWithStream",
    ],
    "is_asynchronous_copy": [
        "cudaMemcpyAsync",
        "cudaMemcpyAsync_ptsz",
        "cudaMemcpy3DAsync",
        "cudaMemcpyPeerAsync",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2_ptsz",
        "hipMemcpyAsync",
    ],
    "is_allocation": [
        "cudaMalloc",
        "cudaMallocHost",
        "cudaMallocPitch",
        "cudaMallocManaged",
        "cudaHostAlloc",
        "cudaHostRegister",
        "cudaHostUnregister",
        "cuMemAlloc_v2",
        "cuMemAllocHost_v2",
        "cuMemHostAlloc",
        "cuMemUnmap",
        "hipMalloc",
        "hipHostMalloc",
    ],
    "is_free": [
        "cudaFree",
        "cudaFreeHost",
        "cuMemFree",
        "cuMemFree_v2",
        "cuMemFreeHost",
        "hipFree",
        "hipHostFree",
    ],
    "is_stream_wait": [
        "cudaStreamWaitEvent",
        "cudaStreamWaitEvent_ptsz",
        "cuStreamWaitEvent",
        "cuStreamWaitEvent_ptsz",
        "hipStreamWaitEvent",
    ],
    "is_event_record": [
        "cudaEventRecord",
        "cudaEventRecord_ptsz",
        "cudaEventRecordWithFlags",
        "cuEventRecord",
        "cuEventRecord_ptsz",
        "hipEventRecord",
    ],
    "is_graph_launch": [
        "cudaGraphLaunch",
        "cudaGraphLaunch_ptsz",
        "cuGraphLaunch",
        "cuGraphLaunch_ptsz",
        "hipGraphLaunch",
    ],
    "is_extended_launch": [
        "cudaLaunchKernelExC",
        "cudaLaunchKernelExC_ptsz",
        "cuLaunchKernelEx",
        "cuLaunchKernelEx_ptsz",
    ],
    "nothing": [
        "cudaEventQuery",
        "cudaStreamQuery",
        "cudaLaunchKernel",
        "cuLaunchKernel_ptsz",
        "hipModuleLaunchKernel",
        "hipLaunchKernelExC",  # HIP has no programmatic dependent launch
        "hipExtModuleLaunchKernel",
        "cudaMallocAsync",
        "cudaFreeAsync",
        "cudaFreeArrayLater",
        "cuMemAllocAsync_ptsz",
        "cudaMemsetAsync",
        "cudaGraphInstantiate",
        "hipGraphExecUpdate",
        "notcudaFree",
        "cudnnStreamSynchronize",
        "aten::cudaGraphLaunch",
    ],
}
PREDICATES = [kind for kind in CALLS if kind != "nothing"]
# The same calls behind each prefix: the runtime's and the driver's of CUDA, HIP's, both of MUSA.
PREFIXES = ["cuda", "cu", "hip", "musa", "mu"]
BEHIND_EACH_PREFIX = {
    "is_device_sync": ["DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"],
    "is_stream_sync": ["StreamSynchronize"],
    "is_event_sync": ["EventSynchronize"],
    "is_synchronous_copy": ["Memcpy", "MemcpyHtoD"],
    "is_asynchronous_copy": ["MemcpyAsync", "MemcpyHtoDAsync"],
    "is_allocation": [
        "Malloc",
        "MallocHost",
        "MallocPitch",
        "MallocManaged",
        "HostAlloc",
        "HostMalloc",
        "HostRegister",
        "HostUnregister",
        "MemAlloc",
        "MemAllocHost",
        "MemHostAlloc",
        "MemUnmap",
    ],
    "is_free": ["Free", "FreeHost", "HostFree", "MemFree", "MemFreeHost"],
    "is_stream_wait": ["StreamWaitEvent"],
    "is_event_record": ["EventRecord"],
    "is_graph_launch": ["GraphLaunch"],
}
# Calls of other makers: Intel's Unified Runtime, its predecessor and Level Zero, Cambricon, MTIA.
OTHER_MAKERS = {
    "is_device_sync": ["zeDeviceSynchronize", "cnrtSyncDevice", "synchronize"],
    "is_stream_sync": [
        "urQueueFinish",
        "piQueueFinish",
        "zeCommandQueueSynchronize",
        "zeCommandListHostSynchronize",
        "cnrtQueueSync",
        "cnQueueSync",
        "synchronizeStream",
    ],
    "is_event_sync": [
        "urEventWait",
        "piEventsWait",
        "zeEventHostSynchronize",
        "zeFenceHostSynchronize",
    ],
}


def kinds_of(name):
    """The kinds of which a call is."""
    return {kind for kind in PREDICATES if getattr(driver_api, kind)(name)}


def expected_kinds(kind):
    """What a call of a kind is: what frees memory is one of the allocator's calls, too."""
    return {"nothing": set(), "is_free": {"is_free", "is_allocation"}}.get(kind, {kind})


@with_each([(kind, name) for kind, names in CALLS.items() for name in names])
def test_calls_are_recognised_by_their_names(kind_and_name):
    kind, name = kind_and_name
    assert kinds_of(name) == expected_kinds(kind)


@with_each(BEHIND_EACH_PREFIX)
def test_each_prefix_makes_the_same_calls(kind):
    names = [prefix + name for prefix in PREFIXES for name in BEHIND_EACH_PREFIX[kind]]
    assert [kinds_of(name) for name in names] == [expected_kinds(kind)] * len(names)


@with_each(
    [
        ("is_device_sync", "cuCtxSynchronize"),
        ("is_stream_sync", "cuStreamSynchronize"),
        ("is_event_sync", "cuEventSynchronize"),
        ("is_synchronous_copy", "cuMemcpyHtoD"),
        ("is_asynchronous_copy", "cuMemcpyHtoDAsync"),
        ("is_allocation", "cuMemAlloc"),
        ("is_free", "cuMemFree"),
    ],
)
def test_versions_and_per_thread_streams_change_nothing(kind_and_name):
    kind, name = kind_and_name
    for ending in ("_v2", "_v11", "_ptds", "_ptsz", "_v2_ptds", "_v2_ptsz"):
        assert kinds_of(name + ending) == expected_kinds(kind), ending
    assert kinds_of(f"{name}Later") == (expected_kinds(kind) if "Memcpy" in name else set())


@with_each([(kind, name) for kind, names in OTHER_MAKERS.items() for name in names])
def test_synchronizing_calls_of_other_makers(kind_and_name):
    kind, name = kind_and_name
    assert kinds_of(name) == {kind}
    assert kinds_of(f"{name}Later") == set()


@pytest.mark.parametrize(
    ("test", "name", "expected"),
    [
        ("is_device_sync", "cudaDeviceSynchronize", True),
        ("is_device_sync", "cudaStreamSynchronize", False),
        ("is_stream_sync", "cudaStreamSynchronize_ptsz", True),
        ("is_stream_sync", "cudaStreamQuery", False),
        ("is_event_sync", "hipEventSynchronize", True),
        ("is_event_sync", "cudaEventQuery", False),
        ("is_synchronous_copy", "cuMemcpyHtoD_v2", True),
        ("is_synchronous_copy", "cudaMemcpyAsync", False),
        ("is_asynchronous_copy", "cuMemcpyHtoDAsync_v2", True),
        ("is_asynchronous_copy", "cudaMemcpy", False),
        ("is_asynchronous_memset", "cudaMemsetAsync", True),
        ("is_asynchronous_memset", "cuMemsetD32Async", True),
        ("is_asynchronous_memset", "cudaMemset", False),
        ("is_allocation", "cudaHostAlloc", True),
        ("is_allocation", "cudaFree", True),
        ("is_allocation", "cudaMallocAsync", False),
        ("is_free", "cuMemFree_v2", True),
        ("is_free", "cudaFreeAsync", False),
        ("is_free", "cudaMalloc", False),
        ("is_stream_wait", "hipStreamWaitEvent", True),
        ("is_stream_wait", "cudaEventSynchronize", False),
        ("is_event_record", "cudaEventRecordWithFlags", True),
        ("is_event_record", "cudaEventQuery", False),
        ("is_graph_launch", "hipGraphLaunch", True),
        ("is_graph_launch", "cudaGraphInstantiate", False),
        ("is_kernel_launch", "cuLaunchKernelEx", True),
        ("is_kernel_launch", "hipExtModuleLaunchKernel", True),
        ("is_kernel_launch", "cudaGraphLaunch", False),
        ("is_kernel_launch", "cudaMemsetAsync", False),
        ("loads_module", "cuModuleLoadDataEx", True),
        ("loads_module", "cuLibraryLoadData", True),
        ("loads_module", "cudaLaunchKernel", False),
        ("asks_about_kernel", "cudaFuncGetAttributes", True),
        ("asks_about_kernel", "cudaStreamIsCapturing", False),
        ("begins_capture", "cudaStreamBeginCapture_v2", True),
        ("begins_capture", "cudaStreamEndCapture", False),
        ("ends_capture", "hipStreamEndCapture", True),
        ("ends_capture", "cudaGraphInstantiate", False),
        ("is_extended_launch", "cudaLaunchKernelExC", True),
        ("is_extended_launch", "cudaLaunchKernel", False),
    ],
)
def test_examples(test, name, expected):
    assert getattr(driver_api, test)(name) is expected
