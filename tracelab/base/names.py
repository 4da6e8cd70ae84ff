"""Names of GPU activities and of threads, as a sentence has them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

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
    """The words that distinguish a copy, or a kernel of a known library; "" of any other name."""
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


_ENDING = re.compile(r"(?:\.pt)?(?:\.trace)?\.(?:json|pftrace)(?:\.gz)?$")
_SEPARATOR = re.compile(r"[/\\]")


def remove_ending(name: str) -> str:
    """Remove the endings of traces from a file's name: ``step.pt.trace.json.gz`` is "step"."""
    return _ENDING.sub("", name)


def short_names(paths: Sequence[str]) -> tuple[str, ...]:
    """The shortest ends of these paths that tell them apart; their kind only where that is needed.

    >>> short_names(["it_10/rank0.json", "it_20/rank0.json", "it_20/rank1.json"])
    ('it_10/rank0', 'it_20/rank0', 'rank1')
    """
    shortened = tuple(map(remove_ending, paths))
    is_enough = len(set(shortened)) == len(set(paths))
    return shortest_ends(shortened if is_enough else paths)


def shortest_ends(paths: Sequence[str]) -> tuple[str, ...]:
    """The shortest ends of these paths that tell them apart: train.py, a/model.py, b/model.py."""
    parts = [_SEPARATOR.split(path) for path in paths]
    lengths = range(1, max(map(len, parts), default=0) + 1)
    files = {length: Counter(tuple(part[-length:]) for part in parts) for length in lengths}
    return tuple(
        next(("/".join(end) for end in _ends(part) if files[len(end)][end] == 1), "/".join(part))
        for part in parts
    )


def _ends(parts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(parts[-length:]) for length in range(1, len(parts) + 1))


# "rank3", "global_rank-3". With its first group, a rank in a part of the job: "tp_rank1".
_RANK = re.compile(
    r"(?<![a-z])((?:local|node|group|shard|replicate|[tdpecsm]p|[dp]cp|e[td]p)[-_ ]?)?"
    r"rank[-_= ]?(\d+)",
    re.IGNORECASE,
)
# vLLM's "dp1_pp0_tp0_dcp0_ep2_rank0" counts the ranks of each data parallel replica from 0.
_LATER_REPLICA = re.compile(r"(?<![a-z])dp[-_]?0*[1-9]", re.IGNORECASE)
# SGLang's "ID-TP-3-DP-0-PP-0-EP-1-DECODE.trace.json.gz"; dimensions of one are left out.
_TENSOR_PARALLEL = re.compile(
    r"(?:^|-)TP-(\d+)((?:-[DPE]P-\d+)*)(?:-[A-Za-z]\w*)?(?:\.trace)?\.json"
)
# What else differs between the ranks of one job: "tp3", "ep_3", and the time in ns.
_PLACE = re.compile(r"(?<![a-z])(?:[tecsp]p|[dp]cp|e[td]p)[-_]?\d+", re.IGNORECASE)
_WRITTEN_AT = re.compile(r"\d{9,}(?:\.\d+)?")
_LATER_STAGE_OR_REPLICA = re.compile(r"-[DP]P-0*[1-9]")


def rank_in(name: str) -> int | None:
    """The rank in the whole job, if a file's name leaves no doubt about it.

    >>> rank_in("step_rank3.pt.trace.json"), rank_in("1795263371.7-TP-1.trace.json.gz")
    (3, 1)
    """
    ranks = [int(number) for dimension, number in _RANK.findall(name) if not dimension]
    if ranks:
        return None if _LATER_REPLICA.search(name) else ranks[-1]
    # Tensor parallel ranks are consecutive; how many make a stage or a replica is not said.
    parallel = _TENSOR_PARALLEL.search(name)
    if parallel and not _LATER_STAGE_OR_REPLICA.search(parallel[2]):
        return int(parallel[1])
    return None


def rank_in_path(path: str) -> int | None:
    """The rank that the last part of a path gives which gives one; None if none does."""
    ranks = (rank_in(part) for part in reversed(_SEPARATOR.split(path)))
    return next((rank for rank in ranks if rank is not None), None)


def remove_rank(path: str) -> str:
    """A path without its ranks, places and times: the files of one job have the same."""
    return _WRITTEN_AT.sub("", _PLACE.sub("", _RANK.sub("rank", path)))


def is_share(path: str) -> bool:
    """Return True if Windows takes a path for another host's: a look would tell it who looks."""
    return {*path[:2]} <= {"/", "\\"} and len(path) > 1


def is_within(path: str | os.PathLike[str], folders: Iterable[str]) -> bool:
    """Return True if a path, links followed, is one of some folders (real paths) or below it."""
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # no path at all: it has a zero byte
        return False
    return any(real.is_relative_to(folder) for folder in folders)
