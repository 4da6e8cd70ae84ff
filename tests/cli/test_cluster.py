"""``--executor dask://`` with a real scheduler and workers in processes of their own.

One worker is killed while it reads, one is slow, and one file is broken.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.build.planted_jobs import PlantedClock, plant_job
from tests.cli.commands import tracelab

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="it has neither SIGKILL nor SIGINT"),
]
ROOT = Path(__file__).parents[2]
CAPTURES = [ROOT / "traces" / f"straggler_even_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
RANKS, PATIENCE_S = 12, 60
# Run by each worker as it starts; the files that workers begin stand in a log.
PRELOAD = """
import os, signal, time
from tracelab.analysis import reports

def dask_setup(worker):
    analyze_source, role = reports.analyze_source, os.environ["ROLE"]

    def analyze(source, *arguments, **options):
        with open(os.environ["LOG"], "a") as log:
            log.write(f"{role} {source.path}\\n")
        if role == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep({"slow": 1, "quick": 0.1}[role])
        return analyze_source(source, *arguments, **options)

    reports.analyze_source = analyze
"""


def until(condition):
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


class Cluster:
    """A scheduler, and workers of some roles."""

    def __init__(self, folder, stack):
        self._folder, self._stack, self.log = folder, stack, folder / "log"
        self._file, self._preload = folder / "scheduler.json", folder / "preload.py"
        self.log.touch()
        self._preload.write_text(PRELOAD)
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        # There before it is written.
        until(lambda: self._file.exists() and self._file.read_text().endswith("}"))
        self.address = json.loads(self._file.read_text())["address"]
        self.client = stack.enter_context(distributed.Client(self.address))

    def _start(self, what, *options, **environment):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
        process = subprocess.Popen(
            [*command, "--scheduler-file", self._file],
            cwd=self._folder,  # as of the command: sources are looked for there
            env=os.environ | {"LOG": str(self.log), "PYTHONPATH": str(ROOT)} | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def add(self, *roles):
        count = len(self.client.scheduler_info()["workers"])
        for role in roles:
            options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
            self._start("worker", *options, "--preload", str(self._preload), ROLE=role)
        self.client.wait_for_workers(count + len(roles), timeout=PATIENCE_S)

    def tasks(self):
        return self.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    @property
    def spec(self):
        return self.address.replace("tcp://", "dask://")


@pytest.fixture
def cluster(tmp_path):
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    clocks = [PlantedClock(offset_ns=rank * 1_000_000) for rank in range(RANKS)]
    plant_job(folder, CAPTURES, clocks, straggler=5, lateness_ns=2_000_000, late_every=1)
    (folder / "planted_rank12.json.gz").write_bytes(b'{"traceEvents": [')
    return folder


def outcome(job, spec):
    saved = job.parent / "report.json"
    saved.unlink(missing_ok=True)
    ran = tracelab("analyze", job, "--full", "--executor", spec, "--json", saved, cwd=job.parent)
    return ran.returncode, ran.stdout, ran.stderr, saved.read_bytes()


def test_a_killed_and_a_slow_worker_and_a_broken_file_lose_and_repeat_nothing(cluster, job):
    cluster.add("killed", "slow", "quick")

    found = outcome(job, cluster.spec)

    assert found == outcome(job, "serial")
    assert b"planted_rank12" in found[2]
    assert [trace["rank"] for trace in json.loads(found[3])["traces"]] == [*range(RANKS)]
    begun = [line.split() for line in cluster.log.read_text().splitlines()]
    assert {role for role, _ in begun} == {"killed", "slow", "quick"}
    done = [path for role, path in begun if role != "killed"]
    assert len(done) == len({*done}) == RANKS + 1


def test_ctrl_c_takes_the_tasks_back_and_the_cluster_goes_on(cluster, job):
    cluster.add("slow", "slow")
    saved = job.parent / "report.json"
    options = ("analyze", job, "--executor", cluster.spec, "--json", saved)
    command = [sys.executable, "-m", "tracelab", *options]
    with subprocess.Popen(
        command, cwd=job.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        until(cluster.log.read_text)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out, err) == (130, b"", b"")
    assert not saved.exists()
    until(lambda: cluster.tasks() == 0)
    begun = len(cluster.log.read_text().splitlines())
    assert begun < RANKS
    assert outcome(job, cluster.spec) == outcome(job, "serial")
    assert len(cluster.log.read_text().splitlines()) == begun + RANKS + 1
