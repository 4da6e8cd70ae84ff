"""Every rule, in the order in which they may promise time."""

from __future__ import annotations

from tracelab.findings.rule import Rule
from tracelab.findings.rules import (
    tl101_blocking_call,
    tl102_pageable_copy,
    tl103_allocator,
    tl201_copy_overlap,
    tl202_comm_overlap,
    tl203_event_wait,
    tl204_hardware_queue,
    tl205_independent_work,
    tl206_peer_copy,
    tl301_launch_bound,
    tl302_input_bound,
)
from tracelab.findings.rules.trace_quality import QUALITY_RULES

# The more exactly a rule names the change to make, the earlier: idle after a blocking call is also
# idle in which the host was busy, but the call is what to remove.
RULES: tuple[Rule, ...] = (
    tl102_pageable_copy.RULE,
    tl103_allocator.RULE,
    tl206_peer_copy.RULE,
    tl204_hardware_queue.RULE,
    tl302_input_bound.RULE,
    tl101_blocking_call.RULE,
    tl201_copy_overlap.RULE,
    tl202_comm_overlap.RULE,
    tl203_event_wait.RULE,
    tl205_independent_work.RULE,
    tl301_launch_bound.RULE,
    *QUALITY_RULES,
)
