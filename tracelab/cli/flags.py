"""The flags that stand for Python's options: where a sentence names one, the user sees the flag."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tracelab.base.errors import TracelabError

FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "collector": "--collector",
        "comm_patterns": "--comm-pattern",
        "edits": "--edit",
        "fixes": "--fix",
        "job": "--job",
        "processes": "--jobs",
        "profile_by": "--by",
        "source_folders": "--source",
        "step": "--step",
        "step_pattern": "--step-on",
    }
)


def sentence_of(error: TracelabError) -> str:
    """Return the error's sentence with the flag in place of the option's Python name.

    >>> sentence_of(TracelabError("say `step`", option="step"))
    'say --step'
    """
    if error.option is None:
        return str(error)
    return str(error).replace(f"`{error.option}`", FLAGS[error.option])
