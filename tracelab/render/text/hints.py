"""Where the text report says more, on the command line: the only words that name its flags."""

from collections.abc import Mapping
from types import MappingProxyType

ALL_IN_JSON = "(all of them in --json)"
MORE_IN_JSON = "more in --json"
FULL_NAMES_IN_JSON = "full names in --json"
OF_LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "streams_not_compared": "--all-pairs has all",
        "nested_steps": "pass --step-on with a pattern of the inner ones to make them the steps",
    }
)
SOURCE = "--source DIR names them"
JOB = "if they are its ranks, pass --job"
COMM_PATTERN = "if they communicate, pass --comm-pattern"

COMPARE_WITH_PREDICTION = (
    "Keep it with --json FILE; `tracelab diff FILE AFTER` says what became of it once it is fixed."
)


def for_more(rule: str | None) -> str:
    """How to see what the first screen leaves out, and what a rule or a remedy is.

    >>> for_more("TL101")
    'More: --full (every table), --png FILE (the timeline), tracelab explain TL101'
    """
    explained = f", tracelab explain {rule}" if rule else ""
    return f"More: --full (every table), --png FILE (the timeline){explained}"
