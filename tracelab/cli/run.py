"""``tracelab run``: run a script under the capture, then analyse what was recorded."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.cli.analyze import analyze_and_draw
from tracelab.cli.console import (
    output_in_color,
    output_width,
    tell,
    write_result,
)
from tracelab.errors import MissingSupportError, TracelabError, UsageError

if TYPE_CHECKING:
    from tracelab.capture import Capture

# What stands behind the script is the script's, options too.
SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}
_LONGEST_WAIT_S = 60.0  # for the other ranks of this machine to write their files


def run(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script to run.")],
    module: Annotated[
        bool, typer.Option("--module", "-m", help="SCRIPT is a module, as for python -m.")
    ] = False,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps to record.")] = 4,
    skip: Annotated[
        int, typer.Option(min=0, metavar="N", help="Steps to leave alone before all else.")
    ] = 5,
    step_on: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A step ends with this function (of the script, or MODULE:FUNCTION) or region, "
            "instead of with the optimizer's step.",
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Record the whole run as one step.")
    ] = False,
    stop_after: Annotated[
        bool, typer.Option("--stop-after", help="End the program when the recording is done.")
    ] = False,
    stacks: Annotated[
        bool, typer.Option(help="Record Python functions, to name lines (slows the host).")
    ] = True,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the traces go.")
    ] = Path("tracelab-run"),
) -> None:
    """Run SCRIPT with its arguments, record some of its steps, and analyse them.

    Put the options before SCRIPT. Works under torchrun: torchrun ... -m tracelab run train.py
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingSupportError("running a script needs torch: pip install 'tracelab[torch]'")
    from tracelab.capture import Capture, on_annotation, on_optimizer_step
    from tracelab.running import Stepper, hook_function, run_program

    if whole and (step_on or stop_after):
        raise UsageError("--whole has no steps: it goes without --step-on and --stop-after")
    path = output / f"{Path(script).stem}.pt.trace.json.gz"
    capture = Capture(
        path,
        steps=1 if whole else steps,
        warmup=1 if whole else 2,
        baseline=0 if whole else 2,
        stacks=stacks,
        metadata={"script": script},
    )
    stepper = Stepper(capture, skip=0 if whole else skip, stop_after=stop_after)
    stepper.begin()
    if whole:
        stepper.step()  # the warm-up; what follows is recorded
    elif step_on is None:
        on_optimizer_step(stepper.step)
    else:
        on_annotation(step_on, stepper.step)
        if ":" in step_on or not module:
            hook_function(step_on, stepper.step)
    begun = time.time()
    code = run_program(script, context.args, as_module=module, step=step_on)
    stepper.end()
    if capture.rank in (None, 0):
        told = _report(capture, stepper.count, skip, step_on, begun)
        code = code or told
    raise typer.Exit(code)


def _report(capture: Capture, count: int, skip: int, step_on: str | None, begun: float) -> int:
    """Analyse the files of this run; 0, or why that could not be as an exit code."""
    from tracelab.analysis import DEFAULTS, merge_reports
    from tracelab.render.text import render_text
    from tracelab.sources import find_sources

    if not capture.path.exists() or capture.path.stat().st_mtime < begun:
        tell(_why_nothing(count, skip, step_on))
        return UsageError.exit_code
    files = [str(file) for file in _files_of_all_ranks(capture, begun)]
    picture = capture.path.parent / "timeline.png"
    results = [
        analyze_and_draw(source, picture if source.path == str(capture.path) else None, DEFAULTS)
        for source in find_sources(files)
    ]
    try:
        report = merge_reports([result for result, _ in results], files, DEFAULTS)
    except TracelabError as error:
        tell(f"recorded {capture.path}, but: {error}")
        return error.exit_code if capture.has_gpu else MissingSupportError.exit_code
    write_result(render_text(report, width=output_width(), color=output_in_color()))
    tell(f"traces: {', '.join(files)}")
    for _, drawn in results:
        if drawn is not None:
            tell(str(drawn) if isinstance(drawn, TracelabError) else f"drew {drawn}")
    return 0


def _why_nothing(count: int, skip: int, step_on: str | None) -> str:
    if count == 0 and step_on:
        return f"neither a function nor a region named {step_on} has ended: nothing was recorded"
    if count == 0:
        return (
            "no step was seen, because no optimizer stepped: nothing was recorded. Say what a step "
            "is with --step-on NAME, or record everything with --whole"
        )
    return (
        f"the script made {count} steps, too few to record any after {skip} that are skipped and 4 "
        "for timing and warm-up: run it longer, or with --skip 0"
    )


def _files_of_all_ranks(capture: Capture, begun: float) -> list[Path]:
    """The files that the ranks of this machine wrote in this run; waits for the late ones."""
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if capture.rank is None or count == 1:
        return [capture.path]
    pattern = capture.path.name.replace(f"_rank{capture.rank}", "_rank*")
    until = time.monotonic() + _LONGEST_WAIT_S
    while True:
        files = sorted(capture.path.parent.glob(pattern))
        files = [file for file in files if file.stat().st_mtime >= begun]
        if len(files) >= count or time.monotonic() > until:
            return files
        time.sleep(0.2)
