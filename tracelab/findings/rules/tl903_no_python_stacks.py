"""TL903: no function of the program is in the file, or no line, for want of its source."""

from __future__ import annotations

import numpy as np

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.measures.bubbles import Cause
from tracelab.model.trace import Category

NO_STACKS = "no_Python_stacks"  # the cause where the file has no Python functions


def find(context: Context) -> list[Candidate]:
    """A file without Python functions, or call sites whose source was not found."""
    lacks_stacks = not len(context.trace.of_category(Category.PYTHON))
    return [
        *candidates_about_trace(NO_STACKS, int(lacks_stacks), "no Python functions were recorded"),
        *_sites_without_source(context),
    ]


def _sites_without_source(context: Context) -> list[Candidate]:
    """The calls for which the GPU waited whose source file was not found."""
    host_id = context.idle_culprits[context.is_idle_by(Cause.HOST_BUSY)]
    sites = {*context.blocking_calls.call_sites, *context.call_sites(np.unique(host_id))}
    files = [
        site.file
        for site in sites
        if site.file and site.call and site.line is None
        if not context.lines.has_source(site.file)
    ]
    if not files:
        return []
    names = sorted({file.rpartition("/")[2] for file in files})
    source = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"
    return candidates_about_trace(
        "no_source",
        len(files),
        f"{len(files)} call {'site has' if len(files) == 1 else 'sites have'} no line number: no "
        f"source of {source}",
    )


RULE = Rule(
    id="TL903",
    name="no Python stacks, or no source",
    matters="Findings name operators and CUDA calls, or functions, but not lines.",
    decides="The file contains no Python functions, or names source files that are neither stored "
    "in it nor found on this machine.",
    fix="Without functions: `with_stack=True`; it slows down the CPU, so compare times without "
    "it. Without lines: give the folder of the program's source (`Options.source_folders` in "
    "Python), or record with tracelab, which stores the lines in the trace.",
    fix_short="Record with `with_stack=True`; where only lines are missing, name the folder of the "
    "source.",
    find=find,
    about="trace",
)
