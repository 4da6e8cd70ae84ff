"""Kinds of GPU activities, and of the host's calls of CUDA or HIP, by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from tracelab.base.arrays import IndexArray, Int8Array
from tracelab.base.errors import UsageError
from tracelab.base.names import name_test
from tracelab.model.trace import Category, Trace


class Kind(IntEnum):
    """The four kinds of GPU work."""

    COMPUTE = 0
    COMM = 1
    COPY = 2
    MEMSET = 3


# One alternative per library. Each must begin where a word or a part of one begins, so that "hip"
# or "sync" inside another name is not enough; names not demangled have digits there.
_COMM = re.compile(
    r"""
    (?<![A-Za-z])(?:
      (?:nccl|rccl|hccl|xccl|mscclpp|msccl)(?:[A-Z_]|::)      # NCCL and its like, MSCCL(++)
    | (?:deep_ep|dpsk::ep|hybrid_ep|pplx|mori)::              # expert parallelism
    | Ep(?:Dispatch|Combine)\w*Kernel                         # MORI
    | (?:moe_?)?a2a_?(?:dispatch|combine|prepare)             # TensorRT-LLM, pplx-garden
    | nvshmem | rocshmem
    | c10d::symmetric_memory:: | multimem_                    # PyTorch's symmetric memory, NVLS
    | exchangeSplitAndOffset | (?:put|wait)_signal_kernel
    | cross_device_reduce                                     # vLLM, SGLang, aiter
    | k?userbuffers_                                          # Transformer Engine
    | all_?reduce | all_?gather | reduce_?scatter | all_?to_?all | all2all
    )
    | (?-i:All(?:[Rr]educe|[Gg]ather|[Tt]o[Aa]ll)|ReduceScatter)
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Inductor names a kernel after every operator that it fused, the waiting ends of collectives too;
# CUTLASS names a matrix product after the schedule by which it fetches its operands.
_NEVER_COMM = re.compile(r"^triton_(?:poi|red|per|tem|mm|bmm|spl|for|unk)_|^(?:void )?cutlass::")

# Names of compute that need no second look: PyTorch's own kernels and the usual libraries.
_COMPUTE = re.compile(
    r"""
    \bat::|\bat_cuda_detail::|\bcub::|\bthrust::|\bc10::|cutlass|cublas|cudnn|gemm|gemv|xmma|nvjet
    |cute|conv|winograd|fft|softmax|norm|attention|attn|flash|fmha|mha|rotary|rope|elementwise
    |reduce|transpose|embedding|triton_|dropout|topk|sort|scan|adam|sgd|multi_tensor|quant
    |(?<!broad)cast|act|gelu|silu|relu|loss|copy|fill|permute|index|gather|scatter|Cijk_|SubTensor|igemm|batched
    """,
    re.VERBOSE | re.IGNORECASE,
)

# Kernels of the driver for nodes of CUDA graphs; the same calls outside of graphs are no kernels.
is_copy_kernel = name_test(r"^memcpy\d+(?:_|$)")
is_memset_kernel = name_test(r"^memset\d+(?:_|$)")


# "Memcpy HtoD (Pinned -> Device)"; early ROCm traces have "CopyHostToDevice". An A is for an array
# in the device's memory. Intel has an M for the user's own host memory, an H for the driver's.
_DIRECTION = re.compile(
    r"""
    (?P<h2d> Hto[DA] | HostToDevice | (?<=^Memcpy\ )[MH]2D )
    | (?P<d2h> [DA]toH | DeviceToHost | (?<=^Memcpy\ )D2[MH] )
    | (?P<d2d> [DA]to[DA] | DeviceToDevice | (?<=^Memcpy\ )D2D )
    | (?P<p2p> PtoP )
    | (?P<h2h> HtoH | (?<=^Memcpy\ )[MH]2[MH] )
    """,
    re.VERBOSE,
)

# Compute by what it is for; the first that a name has counts, of the lists of several libraries.
_WORK: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        work: name_test(names, re.IGNORECASE)
        for work, names in {
            "attention": "flash|fmha|sdpa|attention|attn",
            "optimizer": "multi_tensor_apply|adam|fusedsgd",
            "convolutions": "fprop|dgrad|wgrad|convol|winograd|scudnn|nchwtonhwc|nhwctonchw",
            "matrix products": "gemm|gemv|nvjet|cublas|cijk_|splitk|xmma|cutlass|triton_mm",
            "normalization": r"norm|\bbn_|rowwisemoments|gammabeta",
            "softmax and loss": "softmax|loss|cross_entropy",
            "indexing": "embedding|index|gather|scatter",
            "sorting and scans": "sort|scan|topk",
            "reductions": "reduce|triton_(?:red|per)",
            "elementwise operations": "elementwise|functor|triton_poi|fill|copy|cast",
        }.items()
    }
)

CommTest = Callable[[str], bool]


def comm_test(patterns: Iterable[str] = ()) -> CommTest:
    """A test that says whether a kernel of this name is communication, or has such a pattern."""
    expressions = []
    for pattern in patterns:
        try:
            expressions.append(re.compile(pattern))
        except re.error as error:
            raise UsageError(
                f"`comm_pattern` {pattern!r} is not a valid regular expression: {error}",
                option="comm_pattern",
            ) from None

    def is_comm(name: str) -> bool:
        if any(expression.search(name) for expression in expressions):
            return True
        return _COMM.search(name) is not None and _NEVER_COMM.match(name) is None

    return is_comm


def classify(trace: Trace, events: IndexArray, is_comm: CommTest) -> Int8Array:
    """The `Kind` of each of these GPU activities: int8[n]."""
    category = trace.category[events]
    kinds = np.full(len(events), Kind.COMPUTE, dtype=np.int8)
    kinds[category == Category.MEMCPY] = Kind.COPY
    kinds[category == Category.MEMSET] = Kind.MEMSET
    kernels = category == Category.KERNEL
    comm = [
        name
        for name in np.unique(trace.name_index[events[kernels]])
        if is_comm(trace.strings[name])
    ]
    kinds[kernels & np.isin(trace.name_index[events], comm)] = Kind.COMM
    return kinds


def is_recognised(name: str) -> bool:
    """Return True if a kernel's name is known to be compute."""
    return bool(_COMPUTE.search(name)) or is_copy_kernel(name) or is_memset_kernel(name)


def work_of(name: str) -> str:
    """The kind of compute that a kernel is for, in words; "other kernels" where nothing says."""
    return next((work for work, is_found in _WORK.items() if is_found(name)), "other kernels")


def copy_direction(name: str) -> str:
    """h2d, d2h, d2d, p2p or h2h, from a copy's name; "" if the name does not say."""
    match = _DIRECTION.search(name)
    return (match and match.lastgroup) or ""


is_peer_copy = name_test(r"^Memcpy PtoP")
# One side of a copy is pageable host memory: the call waits for the copy.
copies_pageable_memory = name_test("Pageable")


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


def blocks_of(arguments: Mapping[str, Any]) -> int:
    """Blocks of a kernel, by its "args"; 0 where these do not say, or not what 64 bits hold."""
    grid = arguments.get("grid")
    if not isinstance(grid, list) or not all(type(size) is int and size > 0 for size in grid):
        return 0
    blocks = math.prod(grid)
    return blocks if len(grid) == 3 and blocks < 1 << 62 else 0
