"""Names of GPU activities and of threads, as a sentence has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_LAUNCHED_BY_CUTLASS = re.compile(r"(?:void )?cutlass\w*::(?:Kernel2?|device_kernel)<([^<>(),\s]+)")
_START_THREADS = ("parallel_apply", "DataParallel.forward")


def name_test(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    """Make a test that says whether a pattern is found in a name; the first name compiles it."""
    return lambda name: re.search(pattern, name, flags) is not None  # compiled by the first name


def qualified_name(name: str) -> str:
    """A C++ function's own name with its namespaces; "" where nothing else is there.

    CUTLASS launches all its kernels through templates of one name: there it is the kernel's.

    >>> qualified_name("void at::native::foo<float>(int)")
    'at::native::foo'
    >>> qualified_name("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(Params)")
    'cutlass_80_simt_sgemm_64x64_8x5_tn_align1'
    """
    launched = _LAUNCHED_BY_CUTLASS.match(name)
    letters, depth = [], 0
    for index, letter in enumerate(launched[1] if launched else name):
        if letter in "<(":
            depth += 1
        elif letter in ">)" and not name.startswith("->", index - 1):
            depth = max(0, depth - 1)
        elif depth == 0:
            letters.append(letter)
    words = "".join(letters).split()
    return words[-1] if words else ""


@lru_cache(maxsize=10_000)
def short_kernel_name(name: str) -> str:
    """The name of a GPU activity without return type, template arguments and arguments.

    >>> short_kernel_name("void at::native::copy_kernel<4, float>(int, float)")
    'at::native::copy_kernel'
    """
    if name.startswith(("Memcpy", "Memset", "Copy")):
        return name
    return qualified_name(name.replace("(anonymous namespace)::", "")) or name


def threads_of(waited_in: str) -> str:
    """Name a thread of which only another one's wait for it is known."""
    if waited_in in _START_THREADS:
        return f"threads that `{waited_in}` started"
    return f"a thread that `{waited_in}` waits for"
