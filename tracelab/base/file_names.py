"""Names of files: their short forms for tables and sentences, ranks that they give, folders."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

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
        next(
            ("/".join(end) for end in _ends(part) if files[len(end)][end] == 1),
            "/".join(part),
        )
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
