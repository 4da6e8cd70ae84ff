"""What a file says beside its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracelab.model.trace import ABSENT
from tracelab.read.events import mapping, natural_number
from tracelab.read.streams import Source


def rank_of(metadata: Mapping[str, Any], source: Source) -> tuple[int | None, str]:
    """The rank, and what says so: the file, or its name.

    In a job of one every rank is 0; there a name says more, which may count jobs side by side.
    """
    job = mapping(metadata.get("distributedInfo"))
    rank, alone = natural_number(job.get("rank")), natural_number(job.get("world_size")) == 1
    if source.rank is not None and (rank == ABSENT or alone):
        return source.rank, "filename"
    return (rank, "metadata") if rank != ABSENT else (None, "none")
