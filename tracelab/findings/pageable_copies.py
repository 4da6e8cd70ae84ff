"""Which host calls copy between the GPU and pageable memory: TL101 leaves them to TL102."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.context import Context
from tracelab.model.program.call_sites import CallSite

# Operators that read one number, whose copy is small and is waited for: TL101 says what to do.
_READ_SCALAR = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")


def launches_pageable_copy(
    context: Context, call_id: NDArray[np.integer[Any]], call_sites: Sequence[CallSite]
) -> NDArray[np.bool_]:
    """Which calls launch a copy between the GPU and pageable memory, except of a scalar.

    Args:
        context: the window.
        call_id: int[k], event ids of host calls.
        call_sites: where each of them is.

    Returns:
        bool[k].
    """
    reads_scalar = np.array(
        [call_site.operator in _READ_SCALAR for call_site in call_sites], dtype=np.bool_
    )
    launch_id = context.timeline.launch_id[context.pageable_copy_row]
    return np.isin(call_id, launch_id) & ~reads_scalar
