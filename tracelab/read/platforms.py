"""Devices other than those of CUDA and ROCm: how their files are known, and whether they are read.

The signs are rows that no other profiler writes. Which row is which was read in the sources of the
profilers: Kineto's plugins for Intel XPU, Cambricon's and Moore Threads' forks of Kineto, Huawei's
torch_npu and msprof, XLA's trace writer, AMD's rocmProfileData; of Meta's MTIA there are real files
in HTA's test data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from tracelab.base.arrays import dataclass
from tracelab.model.trace import Category


@dataclass(frozen=True, slots=True)
class Platform:
    """A sort of device, or a profiler, and what is in no other file.

    Example: ``Platform("Google TPU or another device of XLA", processes=r"/device:")``.

    Attributes:
        name: what a user calls it.
        categories: of events.
        processes: a pattern of the names of processes; "" for none.
        is_read: its rows say what an analysis needs: when work ran on which device and queue.
        not_kernels: patterns of the names of rows that its files call kernels, and what they are.
    """

    name: str
    categories: frozenset[str] = frozenset()
    processes: str = ""
    is_read: bool = False
    not_kernels: tuple[tuple[str, Category], ...] = ()


PLATFORMS = (
    Platform(
        "Intel XPU",
        frozenset(("xpu_runtime", "xpu_driver", "xpu_sync")),
        is_read=True,
        # The scope profiler repeats each kernel, a nanosecond longer on both sides.
        not_kernels=((r"metrics: ", Category.OTHER),),
    ),
    Platform(
        "Meta MTIA",
        frozenset(("mtia_runtime", "mtia_ccp_events", "mtia_insight")),
        is_read=True,
        not_kernels=(
            (r"dma_request$", Category.MEMCPY),
            (r"event_(?:wait|record)$", Category.OTHER),
        ),
    ),
    Platform("Cambricon MLU", frozenset(("mlu_runtime", "mlu_memcpy", "mlu_memset")), is_read=True),
    Platform("Intel Gaudi", frozenset(("hpu_op",))),
    Platform("Huawei Ascend NPU", processes=r"Ascend Hardware|CANN"),
    Platform("Google TPU, or another device of XLA", processes=r"/device:\w+:\d+.*"),
    Platform("rocmProfileData (rpd)", processes=r"GPU\d+"),
    # Last, for MTIA and Gaudi are written through it, too.
    Platform(
        "Moore Threads MUSA, or another device of PyTorch's PrivateUse1",
        frozenset(("privateuse1_runtime", "privateuse1_driver")),
        is_read=True,
    ),
)

READ_PLATFORMS = tuple(platform.name for platform in PLATFORMS if platform.is_read)


def platform_of(categories: Iterable[str], processes: Collection[str]) -> Platform | None:
    """The platform of a file; None for CUDA and ROCm, and where nothing says what it is.

    Args:
        categories: those of its complete events, in small letters.
        processes: the names of its processes.

    >>> platform_of(["cpu_op", "xpu_runtime"], ["python"]).name
    'Intel XPU'
    """
    found = frozenset(categories)
    for platform in PLATFORMS:
        if platform.categories & found:
            return platform
        if platform.processes and any(re.fullmatch(platform.processes, x) for x in processes):
            return platform
    return None
