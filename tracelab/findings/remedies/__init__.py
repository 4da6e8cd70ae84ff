"""Every remedy, by what the program does; of two for one event the first counts."""

from __future__ import annotations

from tracelab.findings.remedies import (
    attention,
    collectives,
    compilation,
    copies,
    dependencies,
    derivatives,
    first_use,
    host_tensors,
    huggingface,
    launches,
    libraries,
    loading,
    loops,
    masks,
    memory,
    micro_batches,
    optimizers,
    reads,
    replays,
    switches,
    threads,
    training,
)
from tracelab.findings.remedy import Remedy

REMEDIES: tuple[Remedy, ...] = (
    *optimizers.REMEDIES,
    *threads.REMEDIES,
    *loops.REMEDIES,
    *huggingface.REMEDIES,
    *libraries.REMEDIES,
    *compilation.REMEDIES,
    *collectives.REMEDIES,
    *dependencies.REMEDIES,
    *copies.REMEDIES,
    *memory.REMEDIES,
    *loading.REMEDIES,
    *first_use.REMEDIES,
    *switches.REMEDIES,
    *masks.REMEDIES,
    *derivatives.REMEDIES,
    *replays.REMEDIES,
    *reads.REMEDIES,
    *launches.REMEDIES,
    *micro_batches.REMEDIES,
    *training.REMEDIES,
    *attention.REMEDIES,
    *host_tensors.REMEDIES,
)
