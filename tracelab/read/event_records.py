"""Whether a trace file names the event records that its streams wait for."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

_WAIT_RECORD = re.compile(rb'"wait_on_cuda_event_record_corr_id":\s*(-?\d+)')
_SMALL_FILE_BYTES = 64 * 1024 * 1024


def every_wait_is_resolved(path: Path) -> bool | None:
    """Whether each stream wait in a trace names the event record that it waits for.

    Its text is searched, without reading the trace, for a program that records asks this.

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
