"""Every rule, in the order in which they are attributed time."""

from __future__ import annotations

from tracelab.base.arrays import Registry
from tracelab.findings.rule import Rule
from tracelab.findings.rules import (
    avoidable_work,
    blocking_calls,
    exposed_time,
    host_bound,
    serialized_streams,
    trace_quality,
    untypical_time,
    waiting_ranks,
)

# Rules that name their change more exactly come earlier; all that is not typical of a step comes
# first.
RULES = Registry[Rule](
    (
        untypical_time.FIRST_USE,
        untypical_time.STALL,
        host_bound.INPUT_BOUND,
        blocking_calls.PAGEABLE,
        blocking_calls.ALLOCATOR,
        exposed_time.PEER_COPY,
        exposed_time.HARDWARE_QUEUE,
        blocking_calls.BLOCKING,
        exposed_time.COPIES,
        exposed_time.SMALL,
        exposed_time.COLLECTIVES,
        serialized_streams.EVENT_WAIT,
        serialized_streams.INDEPENDENT_WORK,
        host_bound.LAUNCH_BOUND,
        waiting_ranks.PIPELINE,
        waiting_ranks.STRAGGLER,
        *avoidable_work.RULES,
        *trace_quality.RULES,
    )
)


def about_of(rule_id: str) -> str:
    """Return the subject of a rule, "program" or "trace"; "program" of an unknown rule.

    >>> about_of("TL903"), about_of("TL101"), about_of("MY1")
    ('trace', 'program', 'program')
    """
    return next((rule.about for rule in RULES if rule.id == rule_id), "program")
