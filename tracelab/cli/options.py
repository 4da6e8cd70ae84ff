"""Options of several commands, and their conflicts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from tracelab.base.errors import (
    CrashError,
    MissingSupportError,
    OutputError,
    TracelabError,
    UnreadableInputError,
    UsageError,
)
from tracelab.system.console import report_crash
from tracelab.system.files import identities, require_output

if TYPE_CHECKING:
    from tracelab.base.options import Options
    from tracelab.read.streams import Source
    from tracelab.report.schema import Report

Json = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write the report as JSON; - for stdout, without text."),
]
Markdown = Annotated[
    bool,
    typer.Option("--markdown", help="Print Markdown for a pull request's comment, not text."),
]
Full = Annotated[bool, typer.Option("--full", help="Print every table, not only the first screen.")]
Csv = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write every table as a CSV file into a folder."),
]
Png = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the timeline, of a job all ranks: .png, .svg, .pdf."),
]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write one self-contained page: .html."),
]
Top = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="How many kernels, lines, modules and operators to show."
    ),
]
Redact = Annotated[
    bool,
    typer.Option("--redact", help="Leave out paths, host names and the script's arguments."),
]
Brief = Annotated[
    bool, typer.Option("--brief", help="Print the first screen as at most 4 KB of JSON, not text.")
]


class Analyzed(NamedTuple):
    """The options of an analysis as flags give them; each command has some."""

    step_on: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Annotations to use as steps instead of ProfilerStep#N or a known framework's.",
        ),
    ] = None
    comm_pattern: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX", help="More kernels to count as communication."),
    ] = None
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Folder of the program's source, to name lines."),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Processes, each for a file or a part of a huge one."
        ),
    ] = None
    job: Annotated[
        bool,
        typer.Option("--job", help="The files are ranks of one job, though they do not say so."),
    ] = False
    no_prices: Annotated[
        bool,
        typer.Option("--no-prices", help="Do not predict what the fix of each finding saves."),
    ] = False
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not use the cache of large files.")
    ] = False
    max_unpacked: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="GB",
            help="Refuse what unpacks to more; by default 200 times its size.",
        ),
    ] = None

    @property
    def max_unpacked_bytes(self) -> int | None:
        """The largest unpacked size; None for the default."""
        return None if self.max_unpacked is None else round(1e9 * self.max_unpacked)

    def options(self, files: int, executor: str | None = None, **more: Any) -> Options:
        """Return the options of an analysis of N files, with more of them."""
        from tracelab.base.options import PROFILER_STEP, Options
        from tracelab.cli.many_files import processes_for_one

        return Options(
            comm_pattern=tuple(self.comm_pattern or ()),
            step_on=self.step_on or PROFILER_STEP,
            source=tuple(self.source or ()),
            cache=not self.no_cache,
            max_unpacked_bytes=self.max_unpacked_bytes,
            processes=processes_for_one(files, executor, self.jobs),
            job=self.job,
            prices=not self.no_prices,
            **more,
        )


def analyzes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options of `Analyzed` to a command; its first parameter takes them."""
    hints = get_type_hints(Analyzed, include_extras=True)
    shared = [
        Parameter(x, Parameter.KEYWORD_ONLY, annotation=hints[x], default=getattr(Analyzed(), x))
        for x in names
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            command(Analyzed(**{name: values.pop(name) for name in names}), **values)

        own = list(signature(command, eval_str=True).parameters.values())[1:]
        parameters = [*(x.replace(kind=Parameter.KEYWORD_ONLY) for x in own), *shared]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {x.name: x.annotation for x in parameters}
        return run

    return decorate


# By Python option, for sentences that name one.
FLAGS: Mapping[str, str] = {
    "collector": "--collector",
    "comm_pattern": "--comm-pattern",
    "edits": "--edit",
    "fixes": "--fix",
    "job": "--job",
    "lanes": "--lanes",
    "max_unpacked_bytes": "--max-unpacked",
    "processes": "--jobs",
    "profile_by": "--by",
    "source": "--source",
    "step": "--step",
    "step_on": "--step-on",
}


def sentence_of(error: TracelabError) -> str:
    """Return the error's sentence with flags for Python names."""
    if error.option is None:
        return str(error)
    return str(error).replace(f"`{error.option}`", FLAGS[error.option])


def sentence_and_code(error: Exception) -> tuple[str, int]:
    """Return the sentence and exit code of a failed command."""
    if isinstance(error, TracelabError):
        return sentence_of(error), error.exit_code
    if isinstance(error, MemoryError):
        return "there is not enough memory for this", UnreadableInputError.exit_code
    if isinstance(error, ModuleNotFoundError):
        reinstall = f"{error}: a dependency of tracelab is missing; reinstall it with pip"
        return reinstall, MissingSupportError.exit_code
    return report_crash(error), CrashError.exit_code


def require_one(given: Mapping[str, bool]) -> str | None:
    """Return the only flag for stdout; raise UsageError for several."""
    flags = [flag for flag, is_given in given.items() if is_given]
    if len(flags) > 1:
        raise UsageError(f"{flags[0]} cannot be combined with {flags[1]}: stdout holds one result")
    return flags[0] if flags else None


def require_outputs(
    sources: Iterable[Source],
    *,
    files: Iterable[str | Path | None] = (),
    other_inputs: Iterable[str | Path | None] = (),
) -> None:
    """Refuse outputs that cannot be written, are an input, or are one another."""
    inputs = identities(
        (
            *(source.path for source in sources),
            *(str(path) for path in other_inputs if path is not None),
        )
    )
    outputs = [str(path) for path in files if path not in (None, "-")]
    for output in outputs:
        require_output(output, inputs)
    for output, count in Counter(map(os.path.realpath, outputs)).items():
        if count > 1:
            raise OutputError(f"cannot write {output}: two results would be written there")


def require_saved_options(
    report: Report, options: Options, needs_trace: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Refuse options that a saved report cannot serve.

    Raises:
        UsageError: an option differs from the report's, or needs the trace.
    """
    from tracelab.base.options import PROFILER_STEP

    made, pattern = report.provenance, options.step_on
    path = report.traces[0].path if report.traces else "the report"
    if options.comm_pattern and options.comm_pattern != made.comm_patterns:
        raise UsageError(
            f"--comm-pattern applies only to traces; the saved report of {path} was made with "
            f"{', '.join(made.comm_patterns) or 'none'}"
        )
    if pattern != PROFILER_STEP and (pattern,) != report.step_patterns:
        raise UsageError(
            f"--step-on applies only to traces; in the saved report of {path} the steps are "
            f"{' or '.join(report.step_patterns)}"
        )
    for flag, value in needs_trace.items():
        if value is not None:
            raise UsageError(f"{flag} needs the trace: this is a saved report")
