"""The bundled pipelines of 2 and 4 ranks, measured."""

from __future__ import annotations

from functools import cache

from tests.bundled_traces import analysis_of, files_of
from tracelab.job.clocks import align
from tracelab.job.matching import match
from tracelab.job.operation_members import find_members
from tracelab.job.pipeline import find_pipeline

# name: stages, microbatches, and the stages' compute of one, in us.
PIPELINES = {
    "gpipe_few": (2, 4, 1060, 1258),
    "gpipe_many": (2, 16, 1115, 1318),
    "1f1b_few": (2, 4, 1039, 1249),
    "1f1b_many": (2, 16, 1054, 1318),
    "gpipe_few_4": (4, 4, 1065, 1117, 1117, 1239),
    "gpipe_many_4": (4, 16, 1128, 1140, 1147, 1310),
    "1f1b_few_4": (4, 4, 1067, 1114, 1120, 1238),
    "1f1b_many_4": (4, 16, 1061, 1149, 1181, 1305),
}


@cache
def measured(job):
    """The parts of a bundled job, and its pipeline; None where it has none."""
    parts = [analysis_of(path).part for path in files_of(job)]
    matches = match(parts)
    clocks = align(parts, matches)
    return parts, find_pipeline(find_members(parts, matches, clocks))


def pipeline_row(name):
    """A line of the table of tracelab/docs/evidence/findings.md."""
    _, pipeline = measured(f"pipeline_{name}")
    parts = pipeline.parts
    shares = (pipeline.theory_bubble, pipeline.measured_bubble)
    shares += (parts.imbalance, parts.transfer, parts.host, parts.rest)
    listed = " | ".join(f"{100 * share:.1f} %" for share in shares)
    return (
        f"| `pipeline_{name}` | {pipeline.stages} stages, {pipeline.schedule}, "
        f"{pipeline.microbatches} microbatches | {listed} | {pipeline.smallest_microbatch:.2f} |"
    )
