"""TL902: host calls that wait, and no record of what for."""

from __future__ import annotations

import numpy as np

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import is_stream_wait
from tracelab.model.lookup import match_names
from tracelab.model.trace import HOST_CALLS, Category

_SYNCHRONIZES = (Blocking.DEVICE, Blocking.STREAM, Blocking.EVENT)


def find(context: Context) -> list[Candidate]:
    """Waits and synchronizes of a file without a row of CUPTI's synchronization records."""
    trace = context.trace
    if len(trace.of_category(Category.SYNC)):
        return []
    blocking = context.graph.host.blocking_calls  # without the profiler's own and NCCL's watchdog's
    host_calls = trace.of_category(*HOST_CALLS)
    stream_waits = match_names(trace, host_calls, is_stream_wait)
    count = int(stream_waits.sum() + np.isin(blocking.kind, _SYNCHRONIZES).sum())
    return candidates_about_trace(
        "no_synchronisation_rows",
        count,
        f"the trace does not say what {'1 wait' if count == 1 else f'{count} waits'} waited for",
    )


RULE = Rule(
    id="TL902",
    name="no synchronization rows",
    matters="Without them the trace does not say which stream waited. Most dependencies follow "
    "from the times; the rest of that idle time is `unknown`, and overlap that an event prevented "
    "can look like work that was launched late.",
    decides="The file has calls that wait, but no CUPTI rows that say for what.",
    fix="`torch.profiler.profile(..., experimental_config=torch._C._profiler._ExperimentalConfig("
    "enable_cuda_sync_events=True))`, with Cuspy `CuspyConfig(enable_cuda_sync_events=True)`, or "
    "`tracelab.capture`.",
    fix_short="Record with `_ExperimentalConfig(enable_cuda_sync_events=True)`, or with "
    "`tracelab.capture`.",
    find=find,
    about="trace",
)
