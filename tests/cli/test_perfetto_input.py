"""The commands with Perfetto traces of PyTorch's own collector as their input."""

from __future__ import annotations

import json
import sys
import threading

import pytest

from tests.build import collector_packets, cupti_collector
from tests.bundled_traces import FOLDER


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two ranks of a job as packets, and the first one's report."""
    folder = tmp_path_factory.mktemp("job")
    for rank in (0, 1):
        capture = cupti_collector.load(FOLDER / f"ddp_hook_side_stream_rank{rank}.pt.trace.json.gz")
        collector_packets.write(
            cupti_collector.collect(capture), folder / f"step_rank{rank}.pftrace"
        )
    return folder


def test_a_folder_of_ranks_is_analyzed(tracelab, folder):
    ran = tracelab("analyze", folder, "--json", "-")
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert [(trace["rank"], trace["rank_source"]) for trace in report["traces"]] == [
        (0, "filename"),
        (1, "filename"),
    ]
    assert report["job"]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("analyze", "FILE", "--full"), marks=pytest.mark.slow),
        ("timeline", "FILE", "-o", "OUT/timeline.svg"),
        ("check", "FILE", "--max-idle", "100"),
        ("diff", "FILE", "OTHER"),
        pytest.param(("whatif", "FILE", "--fix", "all"), marks=pytest.mark.slow),
        pytest.param(("analyze", "FILE", "--html", "OUT/page.html"), marks=pytest.mark.slow),
        ("analyze", "FILE", "--perfetto", "OUT/found.pftrace.gz"),
    ],
    ids=lambda command: " ".join(command[:1] + command[2:3]),
)
def test_every_command_takes_it(tracelab, tmp_path, folder, command):
    words = {
        "FILE": str(folder / "step_rank0.pftrace"),
        "OTHER": str(folder / "step_rank1.pftrace"),
    }
    ran = tracelab(*(words.get(x, x.replace("OUT", str(tmp_path))) for x in command))
    assert ran.code == 0, ran.err
    for word in command:
        if word.startswith("OUT"):
            assert (tmp_path / word.removeprefix("OUT/")).stat().st_size > 1000


def test_it_comes_through_a_pipe(tracelab, tmp_path, folder):
    import os

    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no pipes")
    pipe = tmp_path / "step.pftrace"
    os.mkfifo(pipe)
    content = (folder / "step_rank0.pftrace").read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    ran = tracelab("analyze", pipe)
    writer.join()
    assert (ran.code, ran.err) == (0, "")


def test_without_the_package_that_describes_it(tracelab, monkeypatch, folder, snapshot):
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    path = folder / "step_rank0.pftrace"
    ran = tracelab("analyze", path)
    assert (ran.code, ran.err) == snapshot


def test_a_trace_with_tracks_keeps_its_format(tracelab, tmp_path, folder, snapshot):
    path = folder / "step_rank0.pftrace"
    ran = tracelab("analyze", path, "--perfetto", tmp_path / "found.json")
    assert (ran.code, ran.out) == (2, "")  # before it is analyzed
    assert ran.err == snapshot


def test_of_files_in_both_formats_those_of_the_named_one_are_written(
    tracelab, tmp_path, folder, snapshot
):
    other = FOLDER / "ddp_hook_side_stream_rank1.pt.trace.json.gz"
    ran = tracelab(
        "analyze", folder / "step_rank0.pftrace", other, "--perfetto", tmp_path / "found.json.gz"
    )
    assert ran.out
    assert ran.err == snapshot
    assert [path.name for path in tmp_path.iterdir()] == ["found-1.json.gz"]


def test_what_is_no_trace_is_not_refused_for_its_format(tracelab, tmp_path):
    text = tmp_path / "step.json"
    text.write_text("no trace")
    ran = tracelab("analyze", text, "--perfetto", tmp_path / "found.pftrace")
    assert ran.code == 3
    assert "with its tracks" not in ran.err
