"""For tests that begin with an analysis: of hand-made rows, past the reader."""

from __future__ import annotations

from tests.build.rows import trace
from tracelab.analysis.analysis import Analysis
from tracelab.base.options import Options
from tracelab.outputs.page import part_of_page
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.read.streams import Source
from tracelab.render.html.content import FilePart


def analysis_of(*rows, rules=(), gpu="", **options) -> Analysis:
    """The analysis of a trace of these rows; without predictions unless they are asked for.

    Rules may look into the file, which there is not.
    """
    source = Source("hand.json", None, named=True)
    analysis = Analysis(source, Options(**{"prices": False, **options}), rules=rules)
    analysis.trace = trace(*rows, gpu=gpu)
    return analysis.open()


def page_part_of(analysis: Analysis) -> FilePart:
    """The part of a page that an analyzed file gives."""
    return part_of_page(analysis, scene_of_file(analysis))
