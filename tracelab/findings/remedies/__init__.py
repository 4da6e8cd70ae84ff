"""Every remedy, by what the program does; of two for one event the first counts."""

from __future__ import annotations

from tracelab.findings.remedies import huggingface, libraries, loops, masks, optimizers, reads
from tracelab.findings.remedy import Remedy

REMEDIES: tuple[Remedy, ...] = (
    *optimizers.REMEDIES,
    *loops.REMEDIES,
    *huggingface.REMEDIES,
    *libraries.REMEDIES,
    *masks.REMEDIES,
    *reads.REMEDIES,
)
