"""Host calls, by their names in the CUDA runtime, the CUDA driver or HIP.

Each predicate takes the name of a runtime or driver call as the profiler writes it, for example
``cudaMemcpyAsync_ptsz``, ``cuMemAlloc_v2`` or ``hipMalloc``. Moore Threads' MUSA has CUDA's names
with its own prefixes. Of Intel (Unified Runtime ``ur``, its predecessor ``pi``, Level Zero ``ze``),
Cambricon (``cnrt``, ``cn``) and MTIA only the calls that synchronize are known here.
"""

from __future__ import annotations

import re

_API = r"^(?:cuda|cu|hip|musa|mu)"
# What the driver's names end in: a version, and a per-thread default stream.
_VERSION = r"(?:_v\d+)?(?:_ptds|_ptsz)?$"

_DEVICE_SYNC = re.compile(
    rf"{_API}(?:Device|Ctx|Thread)Synchronize{_VERSION}"
    r"|^(?:zeDeviceSynchronize|cnrtSyncDevice|synchronize)$"
)
_STREAM_SYNC = re.compile(
    rf"{_API}StreamSynchronize{_VERSION}"
    r"|^(?:(?:ur|pi)QueueFinish|zeCommand(?:Queue|ListHost)Synchronize|(?:cnrt|cn)QueueSync"
    r"|synchronizeStream)$"
)
_EVENT_SYNC = re.compile(
    rf"{_API}EventSynchronize{_VERSION}"
    r"|^(?:urEventWait|piEventsWait|ze(?:Event|Fence)HostSynchronize)$"
)
_SYNCHRONOUS_COPY = re.compile(rf"{_API}Memcpy(?!\w*Async)\w*$")
_ASYNCHRONOUS_COPY = re.compile(rf"{_API}Memcpy\w*Async")
_ASYNCHRONOUS_MEMSET = re.compile(rf"{_API}Memset\w*Async")
_ALLOCATION = re.compile(
    rf"{_API}(?:Malloc|MallocHost|MallocPitch|MallocManaged|Free|FreeHost|HostAlloc|HostMalloc"
    rf"|HostFree|HostRegister|HostUnregister|MemAlloc|MemAllocHost|MemHostAlloc|MemFree"
    rf"|MemFreeHost|MemUnmap){_VERSION}"
)
_FREE = re.compile(rf"{_API}(?:Free|FreeHost|HostFree|MemFree|MemFreeHost){_VERSION}")
_STREAM_WAIT = re.compile(rf"{_API}StreamWaitEvent")
_EVENT_RECORD = re.compile(rf"{_API}EventRecord")
_GRAPH_LAUNCH = re.compile(rf"{_API}GraphLaunch")
_KERNEL_LAUNCH = re.compile(rf"{_API}(?:Ext|Module|Drv)*Launch(?:Cooperative)?Kernel")
_LOADS_MODULE = re.compile(rf"{_API}(?:ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel)")
_ASKS_ABOUT_KERNEL = re.compile(rf"{_API}(?:Func[GS]et|GetFuncBySymbol|Occupancy)")
_BEGINS_CAPTURE = re.compile(rf"{_API}StreamBeginCapture")
_ENDS_CAPTURE = re.compile(rf"{_API}StreamEndCapture")
_EXTENDED_LAUNCH = re.compile(r"^(?:cuda|cu)LaunchKernelEx")


def is_device_sync(name: str) -> bool:
    """Return True if a call returns only when all work of a device has finished.

    >>> is_device_sync("cudaDeviceSynchronize"), is_device_sync("cudaStreamSynchronize")
    (True, False)
    """
    return _DEVICE_SYNC.match(name) is not None


def is_stream_sync(name: str) -> bool:
    """Return True if a call returns only when the work of a stream has finished.

    >>> is_stream_sync("cudaStreamSynchronize_ptsz"), is_stream_sync("cudaStreamQuery")
    (True, False)
    """
    return _STREAM_SYNC.match(name) is not None


def is_event_sync(name: str) -> bool:
    """Return True if a call returns only when the GPU has reached an event.

    >>> is_event_sync("hipEventSynchronize"), is_event_sync("cudaEventQuery")
    (True, False)
    """
    return _EVENT_SYNC.match(name) is not None


def is_synchronous_copy(name: str) -> bool:
    """Return True if a call returns only when its copy has finished.

    >>> is_synchronous_copy("cuMemcpyHtoD_v2"), is_synchronous_copy("cudaMemcpyAsync")
    (True, False)
    """
    return _SYNCHRONOUS_COPY.match(name) is not None


def is_asynchronous_copy(name: str) -> bool:
    """Return True if a call puts a copy on a stream; it still waits if one side is pageable memory.

    >>> is_asynchronous_copy("cuMemcpyHtoDAsync_v2"), is_asynchronous_copy("cudaMemcpy")
    (True, False)
    """
    return _ASYNCHRONOUS_COPY.match(name) is not None


def is_asynchronous_memset(name: str) -> bool:
    """Return True if a call asks for memory to be filled, and may return before it is.

    >>> is_asynchronous_memset("cudaMemsetAsync"), is_asynchronous_memset("cuMemsetD32Async")
    (True, True)
    >>> is_asynchronous_memset("cudaMemset")
    False
    """
    return _ASYNCHRONOUS_MEMSET.match(name) is not None


def is_allocation(name: str) -> bool:
    """Return True if a call allocates, frees or pins memory, and may have to wait for the device.

    >>> is_allocation("cudaHostAlloc"), is_allocation("cudaFree"), is_allocation("cudaMallocAsync")
    (True, True, False)
    """
    return _ALLOCATION.match(name) is not None


def is_free(name: str) -> bool:
    """True if a call frees memory, of the device or the host; such a call is an allocation, too.

    >>> is_free("cuMemFree_v2"), is_free("cudaFreeAsync"), is_free("cudaMalloc")
    (True, False, False)
    """
    return _FREE.match(name) is not None


def is_stream_wait(name: str) -> bool:
    """Return True if a call makes a stream wait for an event; the host does not wait.

    >>> is_stream_wait("hipStreamWaitEvent"), is_stream_wait("cudaEventSynchronize")
    (True, False)
    """
    return _STREAM_WAIT.match(name) is not None


def is_event_record(name: str) -> bool:
    """Return True if a call records an event on a stream.

    >>> is_event_record("cudaEventRecordWithFlags"), is_event_record("cudaEventQuery")
    (True, False)
    """
    return _EVENT_RECORD.match(name) is not None


def is_graph_launch(name: str) -> bool:
    """Return True if a call replays a graph: one launch of many activities.

    >>> is_graph_launch("hipGraphLaunch"), is_graph_launch("cudaGraphInstantiate")
    (True, False)
    """
    return _GRAPH_LAUNCH.match(name) is not None


def is_kernel_launch(name: str) -> bool:
    """Return True if a call launches one kernel, and nothing but a kernel.

    >>> is_kernel_launch("cuLaunchKernelEx"), is_kernel_launch("hipExtModuleLaunchKernel")
    (True, True)
    >>> is_kernel_launch("cudaGraphLaunch"), is_kernel_launch("cudaMemsetAsync")
    (False, False)
    """
    return _KERNEL_LAUNCH.match(name) is not None


def has_kernel_name(name: str) -> bool:
    """Return True if the profiler writes beside a launch which kernel it launches: AMD's does.

    >>> has_kernel_name("hipExtModuleLaunchKernel"), has_kernel_name("cudaLaunchKernel")
    (True, False)
    """
    return name.startswith("hip") and is_kernel_launch(name)


def loads_module(name: str) -> bool:
    """Return True if a call loads the code of kernels.

    >>> loads_module("cuModuleLoadDataEx"), loads_module("cuLibraryLoadData")
    (True, True)
    >>> loads_module("cudaLaunchKernel")
    False
    """
    return _LOADS_MODULE.match(name) is not None


def asks_about_kernel(name: str) -> bool:
    """Return True if a call needs a kernel's code, which it loads where nothing has before.

    >>> asks_about_kernel("cudaFuncGetAttributes"), asks_about_kernel("cudaStreamIsCapturing")
    (True, False)
    """
    return _ASKS_ABOUT_KERNEL.match(name) is not None


def begins_capture(name: str) -> bool:
    """Return True if a call begins to capture a graph: what its thread launches then does not run.

    >>> begins_capture("cudaStreamBeginCapture_v2"), begins_capture("cudaStreamEndCapture")
    (True, False)
    """
    return _BEGINS_CAPTURE.match(name) is not None


def ends_capture(name: str) -> bool:
    """Return True if a call ends the capture of a graph.

    >>> ends_capture("hipStreamEndCapture"), ends_capture("cudaGraphInstantiate")
    (True, False)
    """
    return _ENDS_CAPTURE.match(name) is not None


def is_extended_launch(name: str) -> bool:
    """Return True if a call can ask for programmatic dependent launch.

    HIP has extended launches, too (``hipLaunchKernelExC``, ``hipDrvLaunchKernelEx``), but no
    attribute for that: on ROCm up to 7.2 a kernel that begins early was not allowed to.

    >>> is_extended_launch("cudaLaunchKernelExC"), is_extended_launch("cudaLaunchKernel")
    (True, False)
    """
    return _EXTENDED_LAUNCH.match(name) is not None
