"""For tests that begin with an analysis: of hand-made rows, past the reader, by all its stages."""

from __future__ import annotations

from tests.build.rows import trace
from tracelab.analysis.analysis import STAGES, Analysis, analyze_source
from tracelab.base.options import Options
from tracelab.read.streams import Source
from tracelab.system.stages import Stage


def analysis_of(*rows, rules=(), **options) -> Analysis:
    """What the stages make of a trace of these rows; without predictions unless they are asked for.

    Rules may look into the file, which there is not.
    """
    made = trace(*rows)
    stages = (Stage("trace", lambda: made), *STAGES[1:])
    source = Source("hand.json", None, named=True)
    return analyze_source(
        source, Options(**{"prices": False, **options}), rules=rules, stages=stages
    )
