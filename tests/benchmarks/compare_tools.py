"""What it costs to read and to analyse large traces, beside other tools that do either.

    python tests/benchmarks/compare_tools.py --save table.md

Makes its inputs and a virtual environment for the other tools, then runs each tool on the same
files, each time in a fresh process, all of them once a round. Linux only.

Compared are
  loading        `trace_readers.py` has the ways, one function each
  end to end     ``tracelab analyze FILE --json --png``, without what an earlier look has left in
                 its cache and with it; TraceLens's PyTorch report as CSV files;
                 HTA's temporal, idle time and kernel breakdowns, overlap and launch statistics,
                 without its plots
  small things   what a user waits for even when the trace is small

The tools do not answer the same questions, nor do they keep the same events: the tables say how
many. What a tool could not do stands in the tables or below them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import large_traces
import trace_readers

HERE = Path(__file__).parent
KINDS = {"stacks": large_traces.STACKS, "plain": large_traces.PLAIN}
SMALL = large_traces.ROOT / "traces/prefetch_loader.pt.trace.json.gz"  # 3 MB of JSON
SMALL_ROUNDS = 15
TRACELAB = "tracelab"
OTHERS = ("orjson", "HTA", "TraceLens")  # how their rows begin

# HTA goes by a new name since 0.6. TraceLens is installed from its repository as its authors say:
# on PyPI that name is another project's. ijson is what HTA's faster parsers need.
HTA = (("traceinsight", "ijson"), ("HolisticTraceAnalysis", "ijson"))
TRACELENS = "git+https://github.com/AMD-AGI/TraceLens.git"
TRACELENS_REPORT = "TraceLens_generate_perf_report_pytorch"
PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
PEER_PACKAGES = ("traceinsight", "HolisticTraceAnalysis", "TraceLens", "pandas", "ijson")


Command = Sequence[str | Path]  # and its arguments


@dataclass(frozen=True, slots=True)
class Tool:
    """One row per file: the command that it is, from the input and a folder for what it writes."""

    name: str
    command: Callable[[Path, Path], Command]


@dataclass(frozen=True, slots=True)
class Cost:
    """One run: the process's own account, not the largest of all children."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    told: str  # what it printed


@dataclass(slots=True)
class Measured:
    """All runs of a tool on a file, and why there are no more."""

    costs: list[Cost] = field(default_factory=list)
    failure: str = ""

    def median(self, of: str) -> float:
        return float(median(getattr(cost, of) for cost in self.costs))

    def told(self) -> dict[str, Any]:
        """What one of `trace_readers.py` printed, after what its tool may have."""
        told: dict[str, Any] = json.loads(self.costs[-1].told.splitlines()[-1])
        return told


Results = dict[tuple[Tool, Path], Measured]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        text = compare(folder, arguments)
    print(text)
    if arguments.save:
        arguments.save.write_text(text, encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 100, 1000])
    parser.add_argument(
        "--others-at", type=int, default=100, metavar="MB", help="the only size they are run on"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=900, help="seconds a run may take")
    parser.add_argument("--folder", type=Path, help="keeps the inputs, and finds them there again")
    parser.add_argument("--peers", type=Path, help="a virtual environment with the other tools")
    parser.add_argument("--save", type=Path, help="write the tables to this Markdown file")
    arguments = parser.parse_args()
    if arguments.peers and not (arguments.peers / "bin/python").exists():
        parser.error(f"{arguments.peers} is not a virtual environment")
    return arguments


def compare(folder: Path, arguments: argparse.Namespace) -> str:
    """Measure everything; the Markdown text that tells it."""
    sizes = sorted(arguments.megabytes)
    files = [make_input(folder, kind, size) for kind in KINDS for size in sizes]
    peers = (arguments.peers or folder / "peers").absolute()
    notes = [] if arguments.peers else make_peers(peers)
    python = peers / "bin/python"

    parsers, said = fastest_first(python, files[:: len(sizes)], arguments.timeout)
    notes += said
    loading = [
        Tool(TRACELAB, _way(sys.executable, "tracelab")),
        Tool("tracelab, all processors", _way(sys.executable, "tracelab_in_parts")),
        Tool("tracelab, second look", _way(sys.executable, "tracelab_again")),
        Tool("orjson, whole file", _way(sys.executable, "whole_file")),
        Tool("orjson, 512 KiB chunks", _way(sys.executable, "in_chunks")),
        Tool("HTA, table only", _way(python, "hta_table")),
        Tool("HTA", _way(python, "hta")),
    ]
    if parsers and parsers[0] != "json":
        loading.append(Tool(f"HTA, {parsers[0]}", _way(python, f"hta_{parsers[0]}")))
    reports = [
        Tool(TRACELAB, partial(_analyze, cache=False)),
        Tool("tracelab, second look", _analyze),
        Tool("HTA", _way(python, "hta_reports")),
    ]
    tracelens = peers / "bin" / TRACELENS_REPORT
    if tracelens.exists():
        reports.append(Tool("TraceLens", _tracelens(tracelens)))
    else:
        notes.append(
            "AMD's TraceLens is not in the tables, since it is not installed. It is not on PyPI, "
            f"where `tracelens` is another project: `pip install {TRACELENS}`."
        )
    small = [
        Tool("`python -c pass`", lambda *_: [sys.executable, "-c", "pass"]),
        Tool("`import tracelab`", lambda *_: [sys.executable, "-c", "import tracelab"]),
        Tool("`tracelab --help`", lambda *_: [sys.executable, "-m", "tracelab", "--help"]),
        Tool(
            "`tracelab analyze`, 3 MB",
            lambda file, _: [sys.executable, "-m", "tracelab", "analyze", file],
        ),
        Tool("the same with its picture", partial(_analyze, cache=False)),
    ]

    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # tracelab's
    for file in files:
        subprocess.run(
            [str(x) for x in _way(sys.executable, "tracelab_again")(file, folder)],
            check=True,
            stdout=sys.stderr,
        )
    limits = arguments.rounds, arguments.timeout, arguments.others_at
    loaded = run_rounds(loading, files, *limits)
    reported = run_rounds(reports, files, *limits)
    started = run_rounds(small, [SMALL], SMALL_ROUNDS, arguments.timeout)
    notes += [_steps_of(loaded), *_notes_of(reported)]
    for note in notes:
        _say(note)
    blocks = [
        "# Large traces: measured",
        "What this is and how to read it: [large traces](large_traces.md).",
        machine(python),
        "    python tests/benchmarks/compare_tools.py "
        f"--megabytes {' '.join(map(str, sizes))} --others-at {arguments.others_at} "
        f"--rounds {arguments.rounds}",
        f"Medians of {arguments.rounds} runs, each a whole process with its start and imports. "
        "Ratio: time against tracelab's. Growth: time of a MB against that in the smallest file "
        "of the kind. Peak: of the largest process. Events: the complete ones "
        "that are kept.",
        "**Loading**",
        cost_table(loaded, with_events=True),
        "**End to end**",
        cost_table(reported, with_events=False),
        f"**Small things**, medians of {SMALL_ROUNDS} runs. A peak below that of the measuring "
        "program, the first row's, would not be seen.",
        small_table(started),
        "\n".join(f"- {note}" for note in notes),
    ]
    return "\n\n".join(blocks) + "\n"


# What is run


def _way(python: str | Path, way: str) -> Callable[[Path, Path], Command]:
    return lambda file, _: [python, HERE / "trace_readers.py", way, file]


def _analyze(file: Path, output: Path, cache: bool = True) -> Command:
    options: Command = ["--json", output / "out.json", "--png", output / "out.png"]
    uncached = [] if cache else ["--no-cache"]
    return [sys.executable, "-m", "tracelab", "analyze", file, *options, *uncached]


def _tracelens(script: Path) -> Callable[[Path, Path], Command]:
    return lambda file, output: [script, "--profile_json_path", file, "--output_csvs_dir", output]


def make_input(folder: Path, kind: str, megabytes: int) -> Path:
    """A large trace; built by another process, since this one must stay small (see `measure`)."""
    file = folder / f"{kind}{megabytes}.json"
    if not file.exists():
        _say(f"building {file}")
        unfinished = file.with_suffix(".part")
        build: Command = [sys.executable, HERE / "large_traces.py", unfinished]
        options: Command = ["--trace", KINDS[kind], "--megabytes", str(megabytes)]
        subprocess.run([*build, *options], check=True, stdout=sys.stderr)
        unfinished.rename(file)
    return file


def make_peers(folder: Path) -> list[str]:
    """A virtual environment with the newest peers that install; a line for each that does not."""
    if not (folder / "bin/python").exists():
        _say(f"installing the other tools into {folder}")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)

    def failure_of(packages: Iterable[str]) -> str:
        command: Command = [folder / "bin/python", *PIP_INSTALL, *packages]
        quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
        return _reason(done.stderr) if done.returncode else ""

    notes = []
    for packages in HTA:
        failure = failure_of(packages)
        if not failure:
            break
        notes.append(f"{packages[0]} could not be installed: {failure}")
    if failure := failure_of([TRACELENS]):
        notes.append(f"AMD's TraceLens could not be installed: {failure}")
    return notes


def fastest_first(python: Path, files: list[Path], timeout: float) -> tuple[list[str], list[str]]:
    """HTA's parsers by their time for the smallest files, each run once; and what to say of it."""
    tools = {Tool(x, _way(python, f"hta_{x}")): x for x in trace_readers.HTA_PARSERS}
    results = run_rounds(list(tools), files, 1, timeout)
    seconds: dict[str, float] = {}
    notes = []
    for tool, name in tools.items():
        runs = [results[tool, file] for file in files]
        if failure := next((run.failure for run in runs if run.failure), ""):
            notes.append(f"HTA's parser {name}: {failure}")
        else:
            seconds[name] = sum(run.median("seconds") for run in runs)
    order = sorted(seconds, key=lambda name: seconds[name])
    names = " and ".join(file.name for file in files)
    times = ", ".join(f"{name} {seconds[name]:.1f} s" for name in order)
    if order:
        notes.append(
            f"HTA's parsers on {names} together, run once: {times}. Its default is json; the "
            "ijson ones leave out Python frames."
        )
    return order, notes


# How it is measured


def run_rounds(
    tools: list[Tool],
    files: list[Path],
    rounds: int,
    timeout: float,
    others_at: int | None = None,
) -> Results:
    """Each tool on each file, once a round. A tool that failed on a file is not run on it again."""
    results: Results = {
        (tool, file): Measured()
        for file in files
        for tool in tools
        if not tool.name.startswith(OTHERS) or others_at in (None, _megabytes_of(file))
    }
    for number in range(rounds):
        for file in files:
            _warm(file)
            for tool in tools:
                measured = results.get((tool, file))
                if measured and not measured.failure:
                    with tempfile.TemporaryDirectory() as output:
                        cost = measure(tool.command(file, Path(output)), Path(output), timeout)
                    if isinstance(cost, Cost):
                        measured.costs.append(cost)
                    else:
                        measured.failure = cost
                    said = measured.failure or f"{measured.costs[-1].seconds:.2f} s"
                    _say(f"round {number + 1} of {rounds}: {file.name}: {tool.name}: {said}")
    return results


def _megabytes_of(file: Path) -> int:
    """The size that an input was asked for with."""
    return int("".join(filter(str.isdigit, file.stem)) or 0)


def measure(command: Command, folder: Path, timeout: float) -> Cost | str:
    """Run it in this folder; a sentence where it fails.

    A process starts with its parent's peak memory on its account, so this one must hold nothing
    large: it imports neither numpy nor a tool, and reads files in pieces.
    """
    with (folder / "stdout").open("w+") as stdout, (folder / "stderr").open("w+") as stderr:
        start = time.perf_counter()
        try:
            process = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, cwd=folder, start_new_session=True
            )
        except OSError as error:
            return f"cannot be run: {error}"
        handle = os.pidfd_open(process.pid)
        ended: list[int] = []
        try:
            ended = select.select([handle], [], [], timeout)[0]
        finally:
            os.close(handle)
            if not ended:
                os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if not ended:
            return f"stopped after {timeout:g} s"
        stdout.seek(0)
        stderr.seek(0)
        if process.returncode:
            return f"exit code {process.returncode}: {_reason(stderr.read())}"
        cpu_seconds = usage.ru_utime + usage.ru_stime
        return Cost(seconds, cpu_seconds, usage.ru_maxrss * 1024 / 1e6, stdout.read())


def _warm(file: Path) -> None:
    """Into the page cache, so that no tool reads the disk for the next one."""
    with file.open("rb", buffering=0) as stream:
        while stream.read(1 << 20):
            pass


# How it is told


def cost_table(results: Results, with_events: bool) -> str:
    """A row per tool and file, the files' rows together."""
    head = ["file", "MB", "tool", "s", "CPU s", "MB/s", "ratio", "peak MB", "peak/file", "growth"]
    rows = [[*head, "events"] if with_events else head]
    smallest: dict[tuple[Tool, str], float] = {}
    of_tracelab = {file: x for (tool, file), x in results.items() if tool.name == TRACELAB}
    for (tool, file), measured in results.items():
        size = file.stat().st_size / 1e6
        row = [file.name, f"{size:.0f}", tool.name]
        if measured.failure:
            row += [measured.failure]
        else:
            seconds, peak = measured.median("seconds"), measured.median("peak_mb")
            beside = of_tracelab[file]
            kind = file.stem.rstrip("0123456789")
            per_mb = smallest.setdefault((tool, kind), seconds / size)
            row += [
                f"{seconds:.2f}",
                f"{measured.median('cpu_seconds'):.2f}",
                f"{size / seconds:.1f}",
                "" if beside.failure else f"{seconds / beside.median('seconds'):.2f}",
                f"{peak:.0f}",
                f"{peak / size:.2f}",
                f"{seconds / size / per_mb:.2f}",
            ]
            if with_events:
                row.append(f"{measured.told()['events']:,}")
        rows.append(row)
    return _table(rows, left=(0, 2))


def small_table(results: Results) -> str:
    rows = [["command", "ms", "CPU ms", "peak MB"]]
    for (tool, _), measured in results.items():
        rows.append([tool.name])
        if measured.failure:
            rows[-1] += [measured.failure]
        else:
            costs = 1e3 * measured.median("seconds"), 1e3 * measured.median("cpu_seconds")
            rows[-1] += [f"{x:.0f}" for x in (*costs, measured.median("peak_mb"))]
    return _table(rows, left=(0,))


def _table(rows: list[list[str]], left: tuple[int, ...]) -> str:
    """Markdown that is a table to the eye too; the last cell of a short row may be a sentence."""
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(map(len, cells)) for cells in zip(*full, strict=True)]
    rule = ["-" * w if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    lines = []
    for row in [rows[0], rule, *rows[1:]]:
        cells = [*row, *[""] * (len(widths) - len(row))]
        padded = [
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines)


def machine(python: Path) -> str:
    """What was measured, and on what."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((x.partition(": ")[2] for x in cpus if "model name" in x), platform.machine())
    packages = ", ".join(f"{x} {version(x)}" for x in ("tracelab-gpu", "numpy", "orjson"))
    return (
        f"{date.today()}, {os.cpu_count()} cores of {cpu}, "
        f"Python {platform.python_version()}; {packages}; others: {_versions(python)}."
    )


def _versions(python: Path) -> str:
    code = (
        "import sys, platform\n"
        "from importlib.metadata import distributions\n"
        "found = {x.name.lower(): f'{x.name} {x.version}' for x in distributions()}\n"
        "names = [found[x] for x in sys.argv[1:] if x in found]\n"
        "print(', '.join([f'Python {platform.python_version()}', *names]))"
    )
    names = list(PEER_PACKAGES)
    if not (python.parent / TRACELENS_REPORT).exists():
        names.remove("TraceLens")  # the other project of that name
    command: Command = [python, "-c", code, *map(str.lower, names)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _steps_of(loaded: Results) -> str:
    """The inputs are made of copies, so they have more steps than a recording of their size."""
    steps = ", ".join(
        f"{file.name} {measured.told()['steps']}"
        for (tool, file), measured in loaded.items()
        if tool.name == TRACELAB and not measured.failure
    )
    return f"Steps in the files: {steps}. HTA's loading compares each event with each step."


def _notes_of(reported: Results) -> list[str]:
    """What the ways themselves say that they left out."""
    return [
        f"{tool.name}, {file.name}: {note}"
        for (tool, file), measured in reported.items()
        if tool.name == "HTA" and not measured.failure
        for note in measured.told()["notes"]
    ]


def _reason(errors: str) -> str:
    """The line that says why: the last one, but git's own where pip only says that git failed."""
    lines = [x.strip() for x in errors.splitlines() if x.strip()] or ["no reason given"]
    return next((x for x in lines if x.startswith("fatal:")), lines[-1])[:200]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
