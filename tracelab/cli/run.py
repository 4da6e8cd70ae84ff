"""``tracelab run``: run and record a script, then analyze it."""

from __future__ import annotations

import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracelab.base.errors import MissingSupportError, UsageError
from tracelab.system.console import plain_streams, tell

# Options after the script are the script's.
SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}


class Collector(StrEnum):
    """Collector of GPU activity; a `CollectorSetting`."""

    AUTO = "auto"
    KINETO = "kineto"
    CUSPY = "cuspy"


_NO_GPU = "there is no GPU here: only the CPU is recorded, and that is not analyzed"

# All after one call of `step` is one step.
_WHOLE = {"skip": 0, "baseline": 0, "warmup": 1, "steps": 1}


def run(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script to run.")],
    module: Annotated[
        bool, typer.Option("--module", "-m", help="SCRIPT is a module, as for python -m.")
    ] = False,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps to record.")] = 4,
    skip: Annotated[
        int, typer.Option(min=1, metavar="N", help="Steps to skip before recording.")
    ] = 10,
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
        bool, typer.Option(help="Record Python functions, to name lines (slows the CPU).")
    ] = True,
    source_text: Annotated[
        bool, typer.Option(help="Store the lines of the program that call something, to quote.")
    ] = True,
    collector: Annotated[
        Collector,
        typer.Option(
            help="The collector that records the GPU: auto uses PyTorch's own CUPTI collector, "
            "Cuspy, where this torch has it.",
        ),
    ] = Collector.AUTO,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the traces go.")
    ] = Path("tracelab-run"),
) -> None:
    """Run SCRIPT, record some of its steps, and analyze them.

    Put the options before SCRIPT. Works under torchrun: torchrun ... -m tracelab run train.py
    """
    if script.startswith("-"):
        raise UsageError(_no_such_option(script.partition("=")[0], context))
    if importlib.util.find_spec("torch") is None:
        raise MissingSupportError("running a script needs torch", extra="record")
    from tracelab.record.capture import capture
    from tracelab.record.hooks import (
        MissingFunctionError,
        StepFunction,
        StopRun,
        run_program,
        watch_annotation,
        watch_optimizer_step,
    )
    from tracelab.record.pytorch import lacks_gpu
    from tracelab.system.processes import terminable

    if whole and (step_on or stop_after):
        raise UsageError(
            "--whole records one step: it cannot be combined with --step-on or --stop-after"
        )
    counts = _WHOLE if whole else {"skip": skip, "steps": steps}
    recorder = capture(
        output / f"{Path(script).stem}.pt.trace.json.gz",
        **counts,  # type: ignore[arg-type]
        stacks=stacks,
        source_text=source_text,
        print_report=True,
        collector=collector.value,
        metadata={"script": script},
    )
    recorder.__enter__()
    if recorder.rank in {None, 0} and lacks_gpu():
        tell(_NO_GPU)

    def ended() -> None:
        recorder.step()
        if stop_after and recorder.done:
            raise StopRun(0)

    step = None
    if whole:
        recorder.step()  # the warm-up; what follows is recorded
    elif step_on is None:
        watch_optimizer_step(ended)
    else:
        watch_annotation(step_on, ended)
        step = StepFunction(step_on, ended)
    with terminable(), plain_streams():
        try:
            code = run_program(script, context.args, as_module=module, step=step)
        except MissingFunctionError as missing:
            raise UsageError(f"--step-on {missing}") from None
    if recorder.is_fork:
        raise typer.Exit(code)
    error = SystemExit(code) if code else None
    recorder.__exit__(type(error) if error else None, error, None)
    is_unexplained = not (code or recorder.done or recorder.reason)
    if is_unexplained and recorder.rank in {None, 0}:
        tell(_advice(recorder.count, skip, step_on))
    # Even without a recording: a launcher would end or repeat a job for it.
    raise typer.Exit(code)


def _no_such_option(option: str, context: typer.Context) -> str:
    from difflib import get_close_matches

    known = [x for param in context.command.params for x in (*param.opts, *param.secondary_opts)]
    near = get_close_matches(option, [x for x in known if x.startswith("-")], n=1)
    hint = f": did you mean {near[0]}?" if near else "."
    return f"there is no option {option}{hint} Put the script's own options after the script"


def _advice(count: int, skip: int, step_on: str | None) -> str:
    if count:
        longer = f"run it longer{', or with --skip 1' if skip > 1 else ''}"
        replayed = (
            "; if the optimizer's step is inside a CUDA graph, use "
            "--step-on torch.cuda:CUDAGraph.replay"
        )
        return longer + (replayed if step_on is None else "")
    if step_on:
        return (
            f"no function of the script and no region named {step_on} completed; name a function "
            "of a module as MODULE:FUNCTION"
        )
    return (
        "no optimizer step was seen in this process. Define a step with --step-on NAME, or record "
        "everything with --whole; processes that the script starts itself are not recorded: "
        "start them with torchrun"
    )
