"""Run one target in this process: ``python -m tests.fuzz.run TARGET SECONDS SEED [--guided]``.

Seconds are of the processor, so that a busy machine makes no input slow and no run short. It prints
a line of JSON now and then, the last of which counts: the process may be ended from outside, for
too much memory.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

_IS_GUIDED = "--guided" in sys.argv
if _IS_GUIDED:  # before all that it is to watch
    import atheris

    with atheris.instrument_imports(include=["tracelab"]):
        importlib.import_module("tests.fuzz.targets")

from tests.fuzz.targets import MAX_BYTES, MAX_SECONDS, TARGETS, Target, inputs  # noqa: E402
from tracelab.base.errors import TracelabError  # noqa: E402

_MAX_INPUT = 2_000_000
_MAX_KEPT = 500  # inputs from which others are made
_SAY_EVERY_S = 2


class SlowError(Exception):
    """Raised in an input that takes too long."""


class Runner:
    """What became of the inputs of a target so far.

    Attributes:
        target: what they are given to.
        folder: where those that are defects are written.
        counts: how many there were, were read and were refused.
        defects: by what was raised, and where, the file of the first such input.
    """

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder
        self.counts = {"inputs": 0, "read": 0, "refused": 0}
        self.defects: dict[str, str] = {}
        self._said_s = time.monotonic()

    def give(self, data: bytes) -> bool:
        """Run the target on an input; returns True if it was read."""
        self.counts["inputs"] += 1
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        try:
            self.target.run(data)
        except TracelabError:
            self.counts["refused"] += 1
            return False
        except Exception as error:
            self._keep(data, error)
            return False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if time.monotonic() - self._said_s > _SAY_EVERY_S:
                self.say()
        self.counts["read"] += 1
        return True

    def say(self) -> None:
        """Print what there was so far."""
        self._said_s = time.monotonic()
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        row: dict[str, Any] = {
            **self.counts,
            "seconds": int(time.process_time()),
            "megabytes": megabytes,
            "defects": self.defects,
        }
        print(json.dumps(row), flush=True)

    def _keep(self, data: bytes, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [x for x in frames if "tracelab" in x.filename or "fuzz" in x.filename] or frames
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
        what = f"{type(error).__name__} at {place}: {str(error)[:200]}"
        key = f"{type(error).__name__} at {place}"
        if any(x.startswith(key) for x in self.defects):
            return
        file = self.folder / f"{self.target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
        file.write_bytes(data)
        self.defects[what] = str(file)


def run_by_chance(runner: Runner, seconds: float, random: Random) -> None:
    """Make inputs of the kept ones until the time is over; some of what is read is kept, too."""
    kept = inputs(runner.target)
    for data in kept:
        runner.give(data)
    first, end_s = len(kept), time.process_time() + seconds
    while time.process_time() < end_s:
        data = runner.target.mutate(random.choice(kept), random)[:_MAX_INPUT]
        if runner.give(data) and random.random() < 0.2:
            if len(kept) < first + _MAX_KEPT:
                kept.append(data)
            else:
                kept[random.randrange(first, len(kept))] = data


def run_guided(runner: Runner, seconds: float, seed: int) -> None:
    """Let atheris choose the inputs by the branches that they reach."""
    with tempfile.TemporaryDirectory() as corpus:
        for i, data in enumerate(inputs(runner.target)):
            runner.give(data)
            Path(corpus, str(i)).write_bytes(data)

        def mutated(data: bytes, max_size: int, number: int) -> bytes:
            return runner.target.mutate(data, Random(number))[:max_size]

        end_s = time.process_time() + seconds

        def give(data: bytes) -> None:
            runner.give(data)
            if time.process_time() > end_s:
                runner.say()
                os._exit(0)  # Fuzz() returns never

        settings = [f"-max_len={_MAX_INPUT}", f"-seed={seed}", "-rss_limit_mb=0", "-timeout=86400"]
        settings += [f"-artifact_prefix={runner.folder}/"]
        atheris.Setup([sys.argv[0], corpus, *settings], give, custom_mutator=mutated)
        atheris.Fuzz()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise SlowError(f"more than {MAX_SECONDS} s")


def main(name: str, seconds: str, seed: str, *_: str) -> None:
    """Run a target for some seconds."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    signal.signal(signal.SIGPROF, _interrupt)
    folder = Path("build", "fuzz")
    folder.mkdir(parents=True, exist_ok=True)
    runner = Runner(TARGETS[name], folder)
    if _IS_GUIDED:
        run_guided(runner, float(seconds), int(seed))
    else:
        run_by_chance(runner, float(seconds), Random(int(seed)))
    runner.say()


if __name__ == "__main__":
    main(*sys.argv[1:])
