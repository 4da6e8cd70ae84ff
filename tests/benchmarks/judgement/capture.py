"""Time the programs without a profiler and record them: needs an NVIDIA GPU.

    python tests/benchmarks/judgement/capture.py --output FOLDER [NAME ...]

A program and its fixed variant are timed in turns, each in a process of its own: blocks of ten
steps between two synchronizations, in three rounds. Then ``tracelab run`` records each of them.
Both leave the programs as they are. ``measured.jsonl`` in the folder has a line per variant, and a
tar file per group of programs has the traces. With ``--advised`` the programs that have an
``advice`` are timed with it, tracelab's first advice carried out word for word, and not recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from select import select
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAMS = HERE / "programs"

ROUNDS = 3
WARM_UP = 12  # steps before the first turn
BLOCK = 10  # steps between two synchronizations
MAX_BLOCKS_S = 3.0  # of one turn
MAX_START_S = 150.0
MAX_TURN_S = 60.0
MAX_RECORDING_S = 120.0
HEAVY = ("torch", "transformers", "timm", "torchvision", "torchaudio", "lightning", "accelerate")


def programs() -> list[dict[str, Any]]:
    """The programs of ``programs.toml``, in its order."""
    return tomllib.loads((HERE / "programs.toml").read_text())["program"]


class Child:
    """A process that does what it is told, line by line, and answers each line with JSON."""

    def __init__(self, task: str, name: str, variant: str, folder: Path) -> None:
        self.task, self.name, self.variant, self.folder = task, name, variant, folder
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "--child", task, name, variant, str(folder)]
        environment = dict(os.environ, PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
        with (folder / f"{task}.log").open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment, cwd=PROGRAMS,
            )  # fmt: skip

    def tell(self, what: str) -> None:
        """Write a line to the process, which may be gone."""
        try:
            self.process.stdin.write(f"{what}\n")
            self.process.stdin.flush()
        except (BrokenPipeError, OSError):
            pass

    def answer(self, timeout_s: float) -> Any:
        """The next answer; None where the process ended or takes too long."""
        ready, _, _ = select([self.process.stdout], [], [], max(timeout_s, 0.0))
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line else None

    def end(self) -> None:
        """Kill the process, and those that it started: workers of data loaders."""
        self.process.kill()
        self.process.wait()


def coordinate(
    names: Sequence[str], output: Path, work: Path, group: int, limit_s: float, *, advised: bool
) -> None:
    begun = time.monotonic()
    wanted = [x for x in programs() if not names or x["name"] in names]
    wanted = [x for x in wanted if not advised or "advice" in x]
    for number, start in enumerate(range(0, len(wanted), group)):
        if time.monotonic() - begun > limit_s:
            print(f"no time left for {[x['name'] for x in wanted[start:]]}", flush=True)
            break
        some = wanted[start : start + group]
        _measure(some, output, work, advised=advised)
        if not advised:
            _pack(some, output / f"traces_{names[0] if names else 'all'}_{number}.tar", work)
        print(f"group {number} after {time.monotonic() - begun:.0f} s", flush=True)


def _variants(program: dict[str, Any], advised: bool) -> list[str]:
    if advised:
        return ["as-it-is", "advised"]
    return ["as-it-is"] if program.get("healthy") else ["as-it-is", "fixed"]


def _measure(some: Sequence[dict[str, Any]], output: Path, work: Path, *, advised: bool) -> None:
    pairs = [(x["name"], variant) for x in some for variant in _variants(x, advised)]
    timing = {pair: Child("time", *pair, work / "-".join(pair)) for pair in pairs}
    recording = {} if advised else {x: Child("record", *x, work / "-".join(x)) for x in pairs}
    started_s = time.monotonic()
    for pair, child in timing.items():
        if child.answer(started_s + MAX_START_S - time.monotonic()) is None:
            print(f"{pair}: not timed\n{_end_of(child)}", flush=True)
            child.end()
    blocks_ms = {pair: [] for pair in pairs}
    for name in dict.fromkeys(name for name, _ in pairs):  # the variants of one program in turns
        for pair in [x for x in pairs if x[0] == name] * ROUNDS:
            if (answer := _turn(timing[pair])) is not None:
                blocks_ms[pair].append(answer)
    for child in timing.values():
        child.end()
    for pair in pairs:
        if (child := recording.get(pair)) and child.answer(MAX_START_S) is not None:
            child.tell("record")
            _wait_for_trace(child)
        line = {"program": pair[0], "variant": pair[1], "blocks_ms": blocks_ms[pair]}
        with (output / "measured.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    for child in recording.values():
        if not list(child.folder.glob("*.json.gz")):
            print(f"{child.name} {child.variant}: no trace\n{_end_of(child)}", flush=True)
        child.end()


def _turn(child: Child) -> list[float] | None:
    if child.process.poll() is not None:
        return None
    child.tell("time")
    if (answer := child.answer(MAX_TURN_S)) is None:
        print(f"{child.name} {child.variant}: stopped\n{_end_of(child)}", flush=True)
        child.end()
    return answer


def _wait_for_trace(child: Child) -> None:
    """Wait until the trace is written: the report that follows needs no GPU."""
    until = time.monotonic() + MAX_RECORDING_S
    while time.monotonic() < until and child.process.poll() is None:
        sizes = [file.stat().st_size for file in child.folder.glob("*.json.gz")]
        time.sleep(0.5)
        if sizes and sizes == [file.stat().st_size for file in child.folder.glob("*.json.gz")]:
            return


def _end_of(child: Child) -> str:
    return (child.folder / f"{child.task}.log").read_text()[-1500:]


def _pack(some: Sequence[dict[str, Any]], path: Path, work: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for program in some:
            for variant in _variants(program, advised=False):
                folder = work / f"{program['name']}-{variant}"
                for file in (*folder.glob("*.json.gz"), *folder.glob("*.log")):
                    tar.add(file, f"{folder.name}/{file.name}")


def _child(task: str, name: str, variant: str, folder: Path) -> None:
    """Do the task of one process, as `Child` asks for it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the program's own output
    program = next(x for x in programs() if x["name"] == name)
    arguments = ["--fixed"] if variant == "fixed" else []
    script = _advised(program, folder) if variant == "advised" else f"{name}.py"
    if task == "record":
        source = (PROGRAMS / script).read_text()
        for module in HEAVY:
            if module in source:
                __import__(module)
        print(json.dumps("ready"), file=answers, flush=True)
        if not sys.stdin.readline():
            return
        from tracelab.cli.main import main

        step_on = ["--step-on", program["step_on"]] if "step_on" in program else []
        skip = ["--skip", str(program.get("settle", 0) + 12), "--steps", "3", "--stop-after"]
        sys.argv = ["tracelab", "run", *step_on, *skip, "-o", str(folder), script, *arguments]
        sys.exit(main())
    _time(program, script, arguments, answers)


def _advised(program: dict[str, Any], folder: Path) -> str:
    """Write the program with its advice carried out: each line that it changes stands there."""
    text = (PROGRAMS / f"{program['name']}.py").read_text()
    for before, after in program["advice"]:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    script = folder / f"{program['name']}.py"
    script.write_text(text)
    return str(script)


def _time(program: dict[str, Any], script: str, arguments: Sequence[str], answers: Any) -> None:
    import torch

    from tracelab.record.hooks import StepFunction, run_program, watch_optimizer_step

    wait = torch.cuda.synchronize if torch.cuda.is_available() else time.monotonic
    steps = _blocks(program.get("settle", 5), answers, wait)
    next(steps)

    def stepped() -> None:
        next(steps, None)

    step = None
    if "step_on" in program:
        step = StepFunction(program["step_on"], stepped)
    else:
        watch_optimizer_step(stepped)
    sys.exit(run_program(script, arguments, as_module=False, step=step))


def _blocks(settle: int, answers: Any, synchronize: Any):
    """Be resumed after each step; answer each line of standard input with the times of blocks."""
    for _ in range(WARM_UP + settle):
        yield
    print(json.dumps("ready"), file=answers, flush=True)
    while sys.stdin.readline():
        for _ in range(settle):
            yield
        synchronize()
        first_s = time.perf_counter()
        blocks_ms = []
        while True:
            begun_s = time.perf_counter()
            for _ in range(BLOCK):
                yield
            synchronize()
            now_s = time.perf_counter()
            blocks_ms.append(round((now_s - begun_s) * 1e3 / BLOCK, 4))
            if len(blocks_ms) >= 3 or (now_s - first_s > MAX_BLOCKS_S and len(blocks_ms) >= 2):
                break
        print(json.dumps(blocks_ms), file=answers, flush=True)
    os._exit(0)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        task, name, variant, folder = sys.argv[2:]
        _child(task, name, variant, Path(folder))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs; all without")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/judgement"))
    parser.add_argument("--group", type=int, default=5, help="programs that start together")
    parser.add_argument("--advised", action="store_true", help="time the advice, record nothing")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which none begins")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    coordinate(
        options.names, options.output, options.work, options.group, options.limit,
        advised=options.advised,
    )  # fmt: skip


if __name__ == "__main__":
    main()
