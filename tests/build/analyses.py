"""For tests that begin with an analysis: of hand-made rows, past the reader."""

from __future__ import annotations

from tests.build.rows import trace
from tracelab.analysis.analysis import Analysis
from tracelab.base.options import Options
from tracelab.read.streams import Source


def analysis_of(*rows, rules=(), **options) -> Analysis:
    """The analysis of a trace of these rows; without predictions unless they are asked for.

    Rules may look into the file, which there is not.
    """
    source = Source("hand.json", None, named=True)
    analysis = Analysis(source, Options(**{"prices": False, **options}), rules=rules)
    analysis.trace = trace(*rows)
    return analysis.open()
