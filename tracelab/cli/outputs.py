"""Refusal of outputs that cannot be written, before anything long is read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.base.errors import OutputError, UsageError
from tracelab.system.files import identities, require_output

if TYPE_CHECKING:
    from tracelab.read.streams import Source


def require_one(given: Mapping[str, bool]) -> str | None:
    """Return the only flag that is given of those that say what stdout holds; None without any.

    Raises:
        UsageError: several are given.

    >>> require_one({"--json -": False, "--markdown": True})
    '--markdown'
    """
    flags = [flag for flag, is_given in given.items() if is_given]
    if len(flags) > 1:
        raise UsageError(f"{flags[0]} cannot be combined with {flags[1]}: stdout holds one result")
    return flags[0] if flags else None


def require_outputs(
    sources: Iterable[Source],
    *,
    files: Iterable[str | Path | None] = (),
    other_inputs: Iterable[str | Path | None] = (),
) -> None:
    """Refuse outputs that cannot be written, are an input, or are one another.

    Args:
        sources: what is read.
        files: what is written; None and "-" are no file.
        other_inputs: further files that are read.

    Raises:
        OutputError: one of them is such.
    """
    inputs = identities(
        (
            *(source.path for source in sources),
            *(str(path) for path in other_inputs if path is not None),
        )
    )
    outputs = [str(path) for path in files if path not in (None, "-")]
    for output in outputs:
        require_output(output, inputs)
    for output, count in Counter(map(os.path.realpath, outputs)).items():
        if count > 1:
            raise OutputError(f"cannot write {output}: two results would be written there")
