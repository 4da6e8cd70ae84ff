"""Every rule, in the order in which they are attributed time."""

from __future__ import annotations

from tracelab.findings.rule import Rule
from tracelab.findings.rules import (
    avoidable_work,
    exposed_time,
    serialized_streams,
    tl101_blocking_call,
    tl102_pageable_copy,
    tl103_allocator,
    tl202_comm_overlap,
    tl206_peer_copy,
    tl207_small_collectives,
    tl301_launch_bound,
    tl302_input_bound,
    tl303_pipeline_bubble,
    tl304_straggler,
    tl305_first_use,
    tl306_irregular_stall,
    trace_quality,
)

# The more exactly a rule names the change to make, the earlier: idle after a blocking call is also
# idle in which the host was busy, but the call is what to remove. While data is loaded no call is.
# Before all others comes what is not typical of a step: what is left is what each step costs.
RULES: tuple[Rule, ...] = (
    tl305_first_use.RULE,
    tl306_irregular_stall.RULE,
    tl302_input_bound.RULE,
    tl102_pageable_copy.RULE,
    tl103_allocator.RULE,
    tl206_peer_copy.RULE,
    exposed_time.HARDWARE_QUEUE,
    tl101_blocking_call.RULE,
    exposed_time.COPIES,
    tl207_small_collectives.RULE,
    tl202_comm_overlap.RULE,
    serialized_streams.EVENT_WAIT,
    serialized_streams.INDEPENDENT_WORK,
    tl301_launch_bound.RULE,
    tl303_pipeline_bubble.RULE,
    tl304_straggler.RULE,
    *avoidable_work.RULES,
    *trace_quality.RULES,
)


def about_of(rule_id: str) -> str:
    """Return the subject of a rule, "program" or "trace"; "program" of an unknown rule.

    >>> about_of("TL903"), about_of("TL101"), about_of("MY1")
    ('trace', 'program', 'program')
    """
    return next((rule.about for rule in RULES if rule.id == rule_id), "program")
