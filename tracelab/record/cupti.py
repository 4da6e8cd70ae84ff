"""CUPTI's event records, which stock Kineto loses: requested from the library, and looked for."""

from __future__ import annotations

import ctypes
import gzip
import re
from pathlib import Path
from typing import Any

# CUPTI_ACTIVITY_KIND_CUDA_EVENT of cupti_activity.h.
_CUPTI_KIND_CUDA_EVENT = 36

# From this CUDA version on, stock Kineto no longer receives the event records that say what a
# stream waits for (pytorch/kineto PR 1552), unless the kind above is enabled.
_RECORDS_LOST_SINCE = (12, 9)

_WAIT_RECORD = re.compile(rb'"wait_on_cuda_event_record_corr_id":\s*(-?\d+)')
_SMALL_FILE_BYTES = 64 * 1024 * 1024


def kineto_loses_records() -> bool:
    """Whether this torch's CUDA is one whose event records stock Kineto does not receive."""
    import torch

    version = re.match(r"(\d+)\.(\d+)", torch.version.cuda or "")
    return version is not None and (int(version[1]), int(version[2])) >= _RECORDS_LOST_SINCE


def switch_event_records(*, on: bool) -> bool:
    """Turn CUPTI's event records on or off in this process.

    Returns:
        whether CUPTI accepted it; False where this process has not loaded CUPTI.
    """
    library = _loaded_cupti()
    if library is None:
        return False
    function = library.cuptiActivityEnable if on else library.cuptiActivityDisable
    return int(function(ctypes.c_int(_CUPTI_KIND_CUDA_EVENT))) == 0


def every_wait_is_resolved(path: Path) -> bool | None:
    """Whether each stream wait in a trace names the event record that it waits for.

    The file is looked at because Kineto's versions differ in what they lose.

    Args:
        path: a trace as it was exported, compressed where its name ends in ``.gz``.

    Returns:
        None where the file holds no wait, or is too large to look.
    """
    if path.stat().st_size > _SMALL_FILE_BYTES:
        return None
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    records = _WAIT_RECORD.findall(content)
    return all(int(record) >= 0 for record in records) if records else None


def _loaded_cupti() -> Any:
    """The libcupti that this process has already loaded; a second copy would be another CUPTI."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps.splitlines() if "libcupti" in line}
    return ctypes.CDLL(min(paths)) if paths else None
