"""Host calls, by their names in the CUDA runtime, the CUDA driver or HIP.

Of Intel, Cambricon and MTIA only the calls that synchronize are known.
"""

from __future__ import annotations

from tracelab.base.names import name_test

_API = r"^(?:cuda|cu|hip|musa|mu)"
# What the driver's names end in: a version, and a per-thread default stream.
_VERSION = r"(?:_v\d+)?(?:_ptds|_ptsz)?$"

# These return only when all work of a device, or of a stream, has finished, or an event is reached.
is_device_sync = name_test(
    rf"{_API}(?:Device|Ctx|Thread)Synchronize{_VERSION}"
    r"|^(?:zeDeviceSynchronize|cnrtSyncDevice|synchronize)$"
)
is_stream_sync = name_test(
    rf"{_API}StreamSynchronize{_VERSION}"
    r"|^(?:(?:ur|pi)QueueFinish|zeCommand(?:Queue|ListHost)Synchronize|(?:cnrt|cn)QueueSync"
    r"|synchronizeStream)$"
)
is_event_sync = name_test(
    rf"{_API}EventSynchronize{_VERSION}"
    r"|^(?:urEventWait|piEventsWait|ze(?:Event|Fence)HostSynchronize)$"
)
is_synchronous_copy = name_test(rf"{_API}Memcpy(?!\w*Async)\w*$")
# It still waits if one side is pageable memory.
is_asynchronous_copy = name_test(rf"{_API}Memcpy\w*Async")
is_asynchronous_memset = name_test(rf"{_API}Memset\w*Async")
# A call that allocates, frees or pins memory may have to wait for the device.
is_allocation = name_test(
    rf"{_API}(?:Malloc|MallocHost|MallocPitch|MallocManaged|Free|FreeHost|HostAlloc|HostMalloc"
    rf"|HostFree|HostRegister|HostUnregister|MemAlloc|MemAllocHost|MemHostAlloc|MemFree"
    rf"|MemFreeHost|MemUnmap){_VERSION}"
)
is_free = name_test(rf"{_API}(?:Free|FreeHost|HostFree|MemFree|MemFreeHost){_VERSION}")
# The host does not wait.
is_stream_wait = name_test(rf"{_API}StreamWaitEvent")
is_event_record = name_test(rf"{_API}EventRecord")
is_graph_launch = name_test(rf"{_API}GraphLaunch")
is_kernel_launch = name_test(rf"{_API}(?:Ext|Module|Drv)*Launch(?:Cooperative)?Kernel")
loads_module = name_test(rf"{_API}(?:ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel)")
# It loads the kernel's code where nothing has before.
asks_about_kernel = name_test(rf"{_API}(?:Func[GS]et|GetFuncBySymbol|Occupancy)")
# In a capture its thread launches nothing.
begins_capture = name_test(rf"{_API}StreamBeginCapture")
ends_capture = name_test(rf"{_API}StreamEndCapture")
# A call that can ask for programmatic dependent launch. HIP has extended launches, too, but no
# attribute for that: on ROCm up to 7.2 a kernel that begins early was not allowed to.
is_extended_launch = name_test(r"^(?:cuda|cu)LaunchKernelEx")
