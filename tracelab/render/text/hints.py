"""Hints about the command line: the only words that name its flags."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracelab.base.safe_text import clean
from tracelab.render.words import shorten_middle

if TYPE_CHECKING:
    from tracelab.report.schema import TraceInfo

ALL_IN_JSON = "(all of them in --json)"
MORE_IN_JSON = "more in --json"
FULL_NAMES_IN_JSON = "full names in --json"
OF_LOSSES: Mapping[str, str] = {
    "streams_not_compared": "--all-pairs has all",
    "nested_steps": "pass --step-on with a pattern of the inner ones to make them the steps",
}
FULL = "--full"
BRIEF = "--brief"
SOURCE = "--source DIR names them"
JOB = "if they are its ranks, pass --job"
COMM_PATTERN = "if they communicate, pass --comm-pattern"

COMPARE_WITH_PREDICTION = (
    "Keep it with --json FILE; `tracelab diff FILE AFTER` says what became of it once it is fixed."
)

_MAX_NAMED_ANNOTATIONS = 3
_MAX_NAME_LETTERS = 40
_MAX_PATH_LETTERS = 120


def steps_hint(trace: TraceInfo) -> str:
    """Name the annotations that are or could be the steps, or ""."""
    if trace.phase:
        return (
            f"Steps are {trace.framework}'s {trace.phase} steps (--step-on chooses those of "
            "another phase)."
        )
    if trace.framework:
        return (
            f"Steps are {trace.framework}'s: annotations like {trace.step_pattern} (--step-on "
            "chooses others)."
        )
    if not trace.repeated_annotations:
        return ""
    named = [
        f'"{shorten_middle(x.name, _MAX_NAME_LETTERS)}" {x.count:,} times'
        for x in trace.repeated_annotations[:_MAX_NAMED_ANNOTATIONS]
    ]
    first = trace.repeated_annotations[0]
    if first.may_be_step:
        named[0] += f" (--step-on {shlex.quote(first.pattern)})"
        return f"No steps found. Annotations that repeat: {', '.join(named)}."
    return (
        "No steps found: call the profiler's step() after each step. Annotations that repeat "
        f"launch too little to be steps: {', '.join(named)}."
    )


RECORD_COMMAND = "tracelab run train.py"
RECORD = f"{RECORD_COMMAND} (records steps)"
PAGE = "--html step.html (page)"
ONE_OF_THEM = "tracelab analyze FILE... (the files of one line)"


def about_finding(typed: str, number: int, rule: str, *, is_priced: bool) -> tuple[str, ...]:
    """Return commands about a finding."""
    whatif = (f"tracelab whatif {typed} --fix {number}",) if is_priced else ()
    return (*whatif, f"tracelab explain {rule}")


def analyze_command(paths: Sequence[str]) -> str:
    """Return the command for some files."""
    return f"tracelab analyze {typed_paths(paths)}"


def typed_paths(paths: Sequence[str]) -> str:
    """Quote paths for a shell; a word stands for long or unprintable ones."""
    typed = " ".join(shlex.quote(f"./{x}" if x.startswith("-") else x) for x in paths)
    if typed and len(typed) <= _MAX_PATH_LETTERS and clean(typed) == typed:
        return typed
    return "FILE" if len(paths) == 1 else "FILE..."
