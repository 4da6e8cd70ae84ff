import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tracelab.cli import workload as module
from tracelab.workloads.catalog import CATALOG

TRACES = Path(__file__).parents[2] / "traces"
MANIFEST = json.loads((TRACES / "manifest.json").read_text())["traces"]
NEEDS_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def test_list_tells_every_variant_with_its_gpus(tracelab):
    ran = tracelab("workload", "--list")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert len(lines) == 1 + len(CATALOG)
    assert any("peer_copy chain" in line and " 4 " in line for line in lines)


def test_a_name_is_needed(tracelab):
    assert tracelab("workload").code == 2


def test_unknown_workload_lists_those_there_are(tracelab):
    ran = tracelab("workload", "nothing")
    assert ran.code == 2
    assert "prefetch" in ran.err


def test_unknown_variant_lists_those_there_are(tracelab):
    ran = tracelab("workload", "events", "--variant", "nothing")
    assert ran.code == 2
    assert "event_synchronize" in ran.err


@NEEDS_TORCH
@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU here")
@pytest.mark.slow
def test_without_a_gpu_it_offers_the_bundled_trace(tracelab):
    ran = tracelab("workload", "events", "--variant", "item")
    assert ran.code == 4
    assert ran.out == ""
    assert "needs 1 NVIDIA GPU(s)" in ran.err
    assert "events_item.pt.trace.json.gz" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.fixture
def captures_are_bundled(monkeypatch):
    """Instead of running on a GPU, a workload's command copies its bundled trace."""

    def copy(entry, arguments, pattern):
        command = (entry.workload, arguments)
        [line] = [line for line in MANIFEST if (line["workload"], line["arguments"]) == command]
        for name in line["files"]:
            rank = name.partition(".")[0].rpartition("_rank")[2]
            target = pattern.replace("{}", f"_rank{rank}" if entry.ranks else "")
            Path(target).write_bytes((TRACES / name).read_bytes())

    monkeypatch.setattr(module, "_capture", copy)


@pytest.mark.usefixtures("captures_are_bundled")
def test_capture_is_analysed(tracelab, tmp_path):
    ran = tracelab("workload", "events", "--variant", "item", "--output", tmp_path)
    assert ran.code == 0
    assert "GPU 0  busy " in ran.out
    assert (tmp_path / "events_item.pt.trace.json.gz").exists()


@pytest.mark.usefixtures("captures_are_bundled")
def test_every_rank_is_analysed(tracelab, tmp_path):
    ran = tracelab("workload", "straggler", "--variant", "more_work", "--output", tmp_path)
    assert ran.code == 0
    assert ran.err.count("straggler_more_work_rank") == 2


def test_without_torch_it_offers_the_bundled_trace(tracelab, monkeypatch, snapshot):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    ran = tracelab("workload", "events", "--variant", "item")
    assert ran.code == 4
    assert ran.err == snapshot
    assert "events_item.pt.trace.json.gz" in ran.err


@NEEDS_TORCH
def test_command_that_says_nothing_is_still_told(monkeypatch, tracelab):
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: Failed())
    monkeypatch.setattr(sys, "executable", "python")
    ran = tracelab("workload", "pipeline")
    assert ran.code == 4
    assert "no output" in ran.err


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU here")
@pytest.mark.slow
def test_without_gpus_every_rank_of_the_bundled_job_is_offered(tracelab):
    ran = tracelab("workload", "ddp_hook", "--variant", "side_stream")
    assert ran.code == 4
    assert "ddp_hook_side_stream_rank0.pt" in ran.err
    assert "ddp_hook_side_stream_rank1.pt" in ran.err
    assert "one_queue" not in ran.err


class Failed:
    returncode, stderr = 1, ""
