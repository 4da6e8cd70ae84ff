"""Names of GPU activities and of threads, as a sentence has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_LAUNCHED_BY_CUTLASS = re.compile(r"(?:void )?cutlass\w*::(?:Kernel2?|device_kernel)<([^<>(),\s]+)")
_COPY = re.compile(r"Mem(?:cpy (\w)to(\w)(?: \((?:.*(Pageable))?|$)|set\b)|Copy(\w)\w+To(\w)\w+$")
_PYTORCH = re.compile(
    r"(?:(?:vectorized|unrolled|legacy)_)?(elementwise)_kernel(?:_manual_unroll)?"
    r"|(reduce)_kernel|multi_tensor_apply_kernel"
)
# The operation in the template arguments of PyTorch's kernels, and what only wraps another one.
_OPERATION = re.compile(
    r"\b(?:CUDA)?Functor(?:On[A-Z][a-z]+)?_(\w+)|(\w+?)(?:Math)?Functor\b|(\w+)_functor\b|(\w+)Ops<"
    r"|\blaunch_(\w+)|\b(?:direct_)?(\w+?)(?:_cuda|CUDA|_?[Kk]ernel)\w*"
    r"|std::(plus|minus|multiplies|divides|maximum|minimum)\b|(?<=native::)([A-Z]\w+)<"
)
_WRAPPER = re.compile(
    r"gpu|func|\w*(?:Unary|Binary|Ternary|Pointwise)\w*|\w*Metadata|ReduceOp|Opaque.*"
)
# Kernels of libraries, whose names say an operation and a tile of the result, or what was fused.
_LIBRARY = (
    (re.compile(r"(?:nccl|rccl)\w*?Kernel_(?!Generic)([A-Za-z]+)"), "{}"),
    (re.compile(r"(nvjet)_\w*?_(\d+x\d+)_"), "{} {}"),
    (re.compile(r"\w*sdpa\w*?_([fb]prop)_"), "sdpa {}"),
    (re.compile(r"\w*(fprop|dgrad|wgrad)\w*?(?<![\dx])(\d{2,}x\d+)"), "{} {}"),
    (re.compile(r"(igemm_(?:fwd|bwd|wrw))\w*?_bt(\d+x\d+)"), "{} {}"),
    (re.compile(r"(?:\w*_)?(?:[a-z]\d+)?([sdhcz]?gemm)\w*?(?<![\dx])(\d{2,}x\d+)"), "{} {}"),
    (re.compile(r"Cijk_\w*?_MT(\d+x\d+)"), "gemm {}"),
    (re.compile(r"triton_[a-z]+_fused_(\w+)"), "triton {}"),
    (re.compile(r"(?:\w+::)*(\w+)::kernel$"), "{}"),
)
_START_THREADS = ("parallel_apply", "DataParallel.forward")


def name_test(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    """Make a test that says whether a pattern is found in a name; the first name compiles it."""
    return lambda name: re.search(pattern, name, flags) is not None


def qualified_name(name: str) -> str:
    """A C++ function's own name with its namespaces; "" where nothing else is there.

    CUTLASS launches all its kernels through templates of one name: there it is the kernel's.

    >>> qualified_name("void at::native::foo<float>(int)")
    'at::native::foo'
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
    """The name of a GPU activity without return type, template arguments and arguments."""
    if name.startswith(("Memcpy", "Memset", "Copy")):
        return name
    return qualified_name(name.replace("(anonymous namespace)::", "")) or name


@lru_cache(maxsize=10_000)
def kernel_label(name: str) -> str:
    """The words that distinguish a copy, or a kernel of a known library; "" of any other name.

    >>> kernel_label("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT")
    'nvjet 256x128'
    """
    if copied := _COPY.match(name):
        source, target, pageable, *from_to = copied.groups()
        source, target = (source, target) if source else from_to
        return f"copy {source}2{target}{' pageable' if pageable else ''}" if source else "memset"
    if " " in re.split(r"[<(]", name, maxsplit=1)[0].removeprefix("void ").strip():
        return ""
    own = qualified_name(name.replace("(anonymous namespace)::", ""))
    if family := _PYTORCH.fullmatch(own.rpartition("::")[2]):
        found = (x[x.lastindex or 0] for x in _OPERATION.finditer(name.partition("<")[2]))
        operation = next((x for x in found if not _WRAPPER.fullmatch(x)), "")
        return f"{family[1] or family[2] or 'foreach'} {operation.lower()}".rstrip()
    for pattern, form in _LIBRARY:
        if matched := pattern.match(own):
            return form.format(*matched.groups())
    return ""


def threads_of(waited_in: str) -> str:
    """Name a thread of which only another one's wait for it is known."""
    if waited_in in _START_THREADS:
        return f"threads that `{waited_in}` started"
    return f"a thread that `{waited_in}` waits for"
