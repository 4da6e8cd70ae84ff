"""CUPTI's event records, which stock Kineto loses: requested from the library."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

# CUPTI_ACTIVITY_KIND_CUDA_EVENT of cupti_activity.h.
_CUPTI_KIND_CUDA_EVENT = 36

# From this CUDA version on, stock Kineto no longer receives the event records that say what a
# stream waits for (pytorch/kineto PR 1552), unless the kind above is enabled.
_RECORDS_LOST_SINCE = (12, 9)


def kineto_loses_records() -> bool:
    """Return True if stock Kineto receives no event records from this torch's CUDA."""
    import torch

    version = re.match(r"(\d+)\.(\d+)", torch.version.cuda or "")
    return version is not None and (int(version[1]), int(version[2])) >= _RECORDS_LOST_SINCE


def switch_event_records(*, on: bool) -> bool:
    """Turn CUPTI's event records on or off in this process; return True if CUPTI accepted it."""
    library = _loaded_cupti()
    if library is None:
        return False
    function = library.cuptiActivityEnable if on else library.cuptiActivityDisable
    return int(function(ctypes.c_int(_CUPTI_KIND_CUDA_EVENT))) == 0


def _loaded_cupti() -> Any:
    """The libcupti that this process has already loaded; a second copy would be another CUPTI."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps.splitlines() if "libcupti" in line}
    return ctypes.CDLL(min(paths)) if paths else None
