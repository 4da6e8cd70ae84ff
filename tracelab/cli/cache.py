"""``tracelab cache``: the cache of read traces."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.system.console import write_result

if TYPE_CHECKING:
    from tracelab.read.cache import KeptFile


class Action(StrEnum):
    """A change of the cache."""

    CLEAR = "clear"


def cache(
    action: Annotated[
        Action | None,
        typer.Argument(metavar="clear", help="Remove all; without it, only show what is cached."),
    ] = None,
) -> None:
    """Show where read traces are cached and how many, or remove them."""
    from tracelab.read.cache import MAX_TOTAL_BYTES, clear, folder, kept_files

    if action is Action.CLEAR:
        write_result(f"{folder()}: removed {_sum_of(clear())}\n")
    else:
        most = f"at most {MAX_TOTAL_BYTES / 1e6:,.0f} MB"
        write_result(f"{folder()}: {_sum_of(kept_files())} ({most})\n")


def _sum_of(files: Sequence[KeptFile]) -> str:
    entries = "1 entry" if len(files) == 1 else f"{len(files)} entries"
    return f"{entries}, {sum(file.size_bytes for file in files) / 1e6:,.1f} MB"
