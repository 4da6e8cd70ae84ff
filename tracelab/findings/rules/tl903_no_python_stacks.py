"""TL903: no function of the program is in the file."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.model.trace import Category


def find(context: Context) -> list[Candidate]:
    """A file without Python functions."""
    lacks_stacks = not len(context.trace.of_category(Category.PYTHON))
    return candidates_about_trace(
        "no_Python_stacks", int(lacks_stacks), "no Python functions were recorded"
    )


RULE = Rule(
    id="TL903",
    name="no Python stacks",
    matters="Findings name operators and calls of CUDA, not functions and lines.",
    decides="The file holds no Python function.",
    fix="`with_stack=True`; it slows the host, so compare times without it.",
    find=find,
    about="trace",
)
