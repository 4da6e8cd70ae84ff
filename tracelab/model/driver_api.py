"""Host calls, by their names in the CUDA runtime, the CUDA driver or HIP.

Each predicate takes the name of a call as the profiler writes it, for example ``cuMemAlloc_v2``. Of
Intel, Cambricon and MTIA only the calls that synchronize are known.
"""

from __future__ import annotations

from tracelab.base.names import name_test

_API = r"^(?:cuda|cu|hip|musa|mu)"
# What the driver's names end in: a version, and a per-thread default stream.
_VERSION = r"(?:_v\d+)?(?:_ptds|_ptsz)?$"

# A call returns only when all work of a device has finished.
is_device_sync = name_test(
    rf"{_API}(?:Device|Ctx|Thread)Synchronize{_VERSION}"
    r"|^(?:zeDeviceSynchronize|cnrtSyncDevice|synchronize)$"
)
# A call returns only when the work of a stream has finished.
is_stream_sync = name_test(
    rf"{_API}StreamSynchronize{_VERSION}"
    r"|^(?:(?:ur|pi)QueueFinish|zeCommand(?:Queue|ListHost)Synchronize|(?:cnrt|cn)QueueSync"
    r"|synchronizeStream)$"
)
# A call returns only when the GPU has reached an event.
is_event_sync = name_test(
    rf"{_API}EventSynchronize{_VERSION}"
    r"|^(?:urEventWait|piEventsWait|ze(?:Event|Fence)HostSynchronize)$"
)
# A call returns only when its copy has finished.
is_synchronous_copy = name_test(rf"{_API}Memcpy(?!\w*Async)\w*$")
# A call puts a copy on a stream; it still waits if one side is pageable memory.
is_asynchronous_copy = name_test(rf"{_API}Memcpy\w*Async")
# A call asks for memory to be filled, and may return before it is.
is_asynchronous_memset = name_test(rf"{_API}Memset\w*Async")
# A call allocates, frees or pins memory, and may have to wait for the device.
is_allocation = name_test(
    rf"{_API}(?:Malloc|MallocHost|MallocPitch|MallocManaged|Free|FreeHost|HostAlloc|HostMalloc"
    rf"|HostFree|HostRegister|HostUnregister|MemAlloc|MemAllocHost|MemHostAlloc|MemFree"
    rf"|MemFreeHost|MemUnmap){_VERSION}"
)
# A call frees memory, of the device or the host; such a call is an allocation, too.
is_free = name_test(rf"{_API}(?:Free|FreeHost|HostFree|MemFree|MemFreeHost){_VERSION}")
# A call makes a stream wait for an event; the host does not wait.
is_stream_wait = name_test(rf"{_API}StreamWaitEvent")
# A call records an event on a stream.
is_event_record = name_test(rf"{_API}EventRecord")
# A call replays a graph: one launch of many activities.
is_graph_launch = name_test(rf"{_API}GraphLaunch")
# A call launches one kernel, and nothing but a kernel.
is_kernel_launch = name_test(rf"{_API}(?:Ext|Module|Drv)*Launch(?:Cooperative)?Kernel")
# A call loads the code of kernels.
loads_module = name_test(rf"{_API}(?:ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel)")
# A call needs a kernel's code, which it loads where nothing has before.
asks_about_kernel = name_test(rf"{_API}(?:Func[GS]et|GetFuncBySymbol|Occupancy)")
# A call begins to capture a graph: what its thread launches then does not run.
begins_capture = name_test(rf"{_API}StreamBeginCapture")
# A call ends the capture of a graph.
ends_capture = name_test(rf"{_API}StreamEndCapture")
# A call can ask for programmatic dependent launch.
# HIP has extended launches, too (``hipLaunchKernelExC``, ``hipDrvLaunchKernelEx``), but no
# attribute for that: on ROCm up to 7.2 a kernel that begins early was not allowed to.
is_extended_launch = name_test(r"^(?:cuda|cu)LaunchKernelEx")
