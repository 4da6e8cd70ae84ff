"""What calls of the CUDA runtime, the CUDA driver and HIP do, by their names."""

import pytest

from tracelab.model import driver_api

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


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in CALLS.items() for name in names]
)
def test_calls_are_recognised_by_their_names(kind, name):
    expected = {"nothing": set(), "is_free": {"is_free", "is_allocation"}}.get(kind, {kind})

    assert {x for x in PREDICATES if getattr(driver_api, x)(name)} == expected
