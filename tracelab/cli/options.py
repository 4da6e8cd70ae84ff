"""Options of several commands, and the flag of each option that has another name in Python."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer

from tracelab.base.errors import TracelabError

StepOn = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Annotations to use as steps instead of ProfilerStep#N or a known framework's.",
    ),
]
CommPattern = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="More kernels to count as communication."),
]
Job = Annotated[
    bool,
    typer.Option("--job", help="The files are ranks of one job, though they do not say so."),
]
Json = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write the report as JSON; - for stdout, without text."),
]
Markdown = Annotated[
    bool,
    typer.Option("--markdown", help="Print Markdown for a pull request's comment, not text."),
]
Brief = Annotated[
    bool, typer.Option("--brief", help="Print the first screen as at most 4 KB of JSON, not text.")
]
SourceFolders = Annotated[
    list[str] | None,
    typer.Option(metavar="DIR", help="Folder of the program's source, to name lines."),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Processes, each for a file or a part of a huge one."),
]
NoPrices = Annotated[
    bool,
    typer.Option("--no-prices", help="Do not predict what the fix of each finding saves."),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Do not use the cache of large files."),
]


def shared_options(
    step_on: str | None, comm_pattern: list[str] | None, *, no_cache: bool
) -> dict[str, Any]:
    """Return the shared options as arguments of `tracelab.base.options.Options`."""
    from tracelab.base.options import PROFILER_STEP

    return {
        "comm_patterns": tuple(comm_pattern or ()),
        "step_pattern": step_on or PROFILER_STEP,
        "cache": not no_cache,
    }


# The flags of Python's options, for sentences that name one.
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
