"""The ``tracelab`` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from tracelab.base import __version__
from tracelab.base.errors import OutputError
from tracelab.cli.analyze import analyze
from tracelab.cli.cache import cache
from tracelab.cli.check import check
from tracelab.cli.diff import diff
from tracelab.cli.explain import explain
from tracelab.cli.mcp import mcp
from tracelab.cli.merge import merge
from tracelab.cli.options import sentence_and_code
from tracelab.cli.run import SETTINGS, run
from tracelab.cli.timeline import timeline
from tracelab.cli.view import view
from tracelab.cli.whatif import whatif
from tracelab.cli.workload import workload
from tracelab.system.console import guarded_streams, tell
from tracelab.system.processes import terminable

COMMANDS = (
    *(analyze, merge, view, whatif, check, diff),
    *(timeline, explain, mcp, cache, run, workload),
)
_NAME = "tracelab"  # also of python -m tracelab, for completion


def main(commands: Sequence[Callable[..., None]] = COMMANDS) -> None:
    """Run the command line of these functions; an error is one sentence and its exit code."""
    with guarded_streams() as require_written:
        code = _run(commands)
        try:
            require_written()
        except OutputError as error:
            tell(str(error))
            code = code or error.exit_code
    sys.exit(code)


def _run(commands: Sequence[Callable[..., None]]) -> int | str | None:
    try:
        with terminable():  # leaves no process behind
            _app(commands)(prog_name=_NAME)
    except SystemExit as end:
        return end.code
    except Exception as error:
        sentence, code = sentence_and_code(error)
        tell(sentence)
        return code
    return 0


def _app(commands: Sequence[Callable[..., None]]) -> typer.Typer:
    app = typer.Typer(
        name=_NAME,
        help="Why are my GPUs not busy? Answers from the traces of torch.profiler.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # halves the time of --help
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        callback=_options,
    )
    for command in commands:
        app.command(
            short_help=(command.__doc__ or "").partition("\n")[0],  # else it is cut to fit
            context_settings=SETTINGS if command is run else None,
        )(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "-V", "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass
