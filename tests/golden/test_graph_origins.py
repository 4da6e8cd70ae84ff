"""The nodes of a bundled capture's graph, traced back by what another bundled capture recorded.

Both are of one program, `launches`: once it runs eagerly, once as a CUDA graph. The file that is
read here is made of the two: a step of the eager one stands before the other without what ran on
the GPU, between the two calls of a capture.
"""

from __future__ import annotations

import gzip
import json

import pytest

import tracelab
from tests.bundled_traces import FOLDER
from tracelab.base.options import Options

BLOCKS = 8
GPU = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")
MOVED = 1_000_000


def events_of(variant):
    """The complete events of a variant of the workload, and the file without them."""
    path = FOLDER / f"launches_{variant}.pt.trace.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        whole = json.load(file)
    events = whole.pop("traceEvents")
    return [event for event in events if event.get("ph") == "X"], whole


def before(event, process):
    """An event of the eager capture in the process of the other, its steps renumbered."""
    name = event["name"].replace("ProfilerStep#", "ProfilerStep#10")
    on_host = {"pid": process, "tid": process} if event["cat"] not in GPU else {}
    return {**event, **on_host, "name": name}


def after(event):
    """An event of the other capture, with correlations behind those of the eager one."""
    arguments = dict(event.get("args", {}))
    if "correlation" in arguments:
        arguments["correlation"] += MOVED
    return {**event, "args": arguments}


def captured(events):
    """The first step of the eager capture, as a capture of a graph would record it."""
    [step] = [x for x in events if x["name"] == "ProfilerStep#102" and x["cat"] not in GPU]
    end = step["ts"] + step["dur"]
    calls = [
        event
        for event in events
        if event["cat"] not in GPU
        and event["ts"] >= step["ts"]
        and event["ts"] + event["dur"] <= end
        and event is not step
    ]
    around = [event for event in events if event["ts"] <= step["ts"] < event["ts"] + event["dur"]]
    around = [event for event in around if event["cat"] == "python_function"]
    bounds = (("Begin", step["ts"] + 0.002), ("End", end - 0.004))
    return [
        *around,
        *calls,
        *(
            {
                **{key: step[key] for key in ("ph", "pid", "tid")},
                "cat": "cuda_runtime",
                "name": f"cudaStream{which}Capture",
                "ts": at,
                "dur": 0.001,
                "args": {},
            }
            for which, at in bounds
        ),
    ]


def report_of(tmp_path):
    replays, whole = events_of("graph")
    [process] = {x["pid"] for x in replays if x["name"] == "cudaGraphLaunch"}
    eager = [before(event, process) for event in events_of("eager")[0] if event["cat"] != "Trace"]
    path = tmp_path / "made.json"
    path.write_text(json.dumps({**whole, "traceEvents": [*captured(eager), *map(after, replays)]}))
    report = tracelab.analyze(path, options=Options(cache=False, prices=False))
    return report, [x for x in replays if x["cat"] == "kernel"]


def test_each_node_counts_in_the_module_that_launched_it(tmp_path):
    report, kernels = report_of(tmp_path)

    # A replay runs LayerNorm, Linear and GELU of each of eight blocks in turns.
    count = 3 * BLOCKS
    assert len(kernels) == 4 * count
    expected = {
        f"{module}_{block}": sum(
            round(1000 * kernel["dur"]) for kernel in kernels[3 * block + i :: count]
        )
        for block in range(BLOCKS)
        for i, module in enumerate(("LayerNorm", "Linear", "GELU"))
    }
    replayed = {row.name: row for row in report.modules if row.replay_basis}
    assert {row.replay_basis for row in replayed.values()} == {"capture"}
    steps = report.modules[0].sums.steps or 1
    assert {name: row.replayed_ns for name, row in replayed.items()} == {
        name: pytest.approx(length_ns / steps, abs=1) for name, length_ns in expected.items()
    }
