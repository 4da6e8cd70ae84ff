"""Every rule, in the order in which they may promise time."""

from __future__ import annotations

from tracelab.findings import (
    allocator,
    blocking_call,
    comm_overlap,
    copy_overlap,
    event_wait,
    hardware_queue,
    independent_work,
    input_bound,
    launch_bound,
    pageable_copy,
    peer_copy,
)
from tracelab.findings.finding import Rule
from tracelab.findings.trace_quality import QUALITY_RULES

# The more exactly a rule names the change to make, the earlier: idle after a blocking call is also
# idle in which the host was busy, but the call is what to remove.
RULES: tuple[Rule, ...] = (
    pageable_copy.RULE,
    allocator.RULE,
    peer_copy.RULE,
    hardware_queue.RULE,
    input_bound.RULE,
    blocking_call.RULE,
    copy_overlap.RULE,
    comm_overlap.RULE,
    event_wait.RULE,
    independent_work.RULE,
    launch_bound.RULE,
    *QUALITY_RULES,
)
