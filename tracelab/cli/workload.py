"""``tracelab workload``: run and analyze a bundled workload."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.base.errors import MissingSupportError, UsageError
from tracelab.system.console import output_in_color, output_width, tell, write_result

if TYPE_CHECKING:
    from tracelab.workloads.catalog import Entry

TRACES = Path(__file__).parents[2] / "traces"
_MAX_RUN_S = 180


def workload(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The workload.")] = None,
    variant: Annotated[
        str | None, typer.Option(metavar="V", help="Its variant; the first one by default.")
    ] = None,
    list_all: Annotated[
        bool, typer.Option("--list", help="List every variant, what it shows and what it needs.")
    ] = False,
    gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="GPUs to use.")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the traces go.")
    ] = Path(),
) -> None:
    """Run a program with a known defect, or its fix, and analyze it."""
    if list_all:
        write_result(_listing())
    elif name is None:
        raise UsageError("name a workload, or see them all with --list")
    else:
        _run(_find(name, variant), gpus, output)


def _listing() -> str:
    from tracelab.workloads.catalog import CATALOG

    width = max(len(f"{entry.workload} {entry.variant}") for entry in CATALOG)
    lines = [f"{'workload and variant':{width}}  GPUs  shows"]
    for entry in CATALOG:
        both = f"{entry.workload} {entry.variant}"
        lines.append(f"{both:{width}}  {entry.gpus:4}  {entry.shows}")
    return "\n".join(lines) + "\n"


def _find(name: str, variant: str | None) -> Entry:
    from tracelab.workloads.catalog import CATALOG

    entries = [entry for entry in CATALOG if entry.workload == name]
    if not entries:
        names = ", ".join(dict.fromkeys(entry.workload for entry in CATALOG))
        raise UsageError(f"there is no workload {name!r}; the workloads are: {names}")
    for entry in entries:
        if variant in (None, entry.variant):
            return entry
    variants = ", ".join(entry.variant for entry in entries)
    raise UsageError(f"{name} has no variant {variant!r}; its variants are: {variants}")


def _run(entry: Entry, gpus: int | None, folder: Path) -> None:
    from tracelab.analysis.reports import analyze
    from tracelab.render.text.report import render_text

    ranks = [f"_rank{rank}" for rank in range(gpus or entry.gpus)] if entry.ranks else [""]
    stem = f"{entry.workload}_{entry.variant}"
    arguments = [entry.variant, *(["--gpus", str(gpus)] if gpus else [])]
    problem = _capture(entry, arguments, str(folder / f"{stem}{{}}.pt.trace.json.gz"))
    if problem:
        raise MissingSupportError(f"{problem}{_instead(entry)}")
    files = [str(folder / f"{stem}{rank}.pt.trace.json.gz") for rank in ranks]
    tell(f"{entry.shows} Traces: {', '.join(files)}")
    write_result(render_text(analyze(files), width=output_width(), color=output_in_color()))


def _capture(entry: Entry, arguments: list[str], pattern: str) -> str | None:
    if importlib.util.find_spec("torch") is None:
        raise MissingSupportError(
            f"running a workload needs torch: pip install 'tracelab-gpu[record]'{_instead(entry)}"
        )
    output = pattern.replace("{}", "_rank{rank}" if entry.ranks else "")
    command = [
        sys.executable,
        "-m",
        f"tracelab.workloads.{entry.workload}",
        *arguments,
        "--output",
        output,
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_MAX_RUN_S
        )
    except subprocess.TimeoutExpired:
        return f"gave up after {_MAX_RUN_S} s: {' '.join(command)}"
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    if done.returncode == MissingSupportError.exit_code:
        raise MissingSupportError(f"{last}{_instead(entry)}")
    return f"{' '.join(command)} failed: {last}" if done.returncode else None


def _instead(entry: Entry) -> str:
    ranks = "_rank*" if entry.ranks else ""
    bundled = sorted(TRACES.glob(f"{entry.workload}_{entry.variant}{ranks}.pt.trace.json.gz"))
    return f"; its bundled trace: tracelab analyze {' '.join(map(str, bundled))}" if bundled else ""
