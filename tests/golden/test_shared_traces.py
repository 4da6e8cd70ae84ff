"""Traces of other people's GPUs: known figures to the nanosecond.

The known figures come from other tools or from a count of their own in plain Python, straight from
the file's text.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests import bundled_traces
from tests.shared_traces import COMMUNICATION, FOLDER, PATHS, each_real_trace, path_of
from tracelab.analysis.analysis import predict_changes
from tracelab.base.intervals import clip, intersect, measure
from tracelab.base.options import Options
from tracelab.measures.exposed import exposed
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import BACKLOG
from tracelab.model.trace import HOST_CALLS
from tracelab.report.schema import DeviceMetrics


@lru_cache(maxsize=len(PATHS) + 1)
def analysis_of(path):
    """The analysis of a file; those from elsewhere are looked at again and again."""
    return bundled_traces.analysis_of(Path(path))


def whole(report):
    """The figures of the whole trace's only device, and how long it is."""
    window = report.windows[0]
    assert window.step is None
    (device,) = window.devices
    return device, window.end_ns - window.start_ns


# A count of their own, from the file's text.


def content_of(path, number=Decimal):
    with gzip.open(path, "rt") as file:
        return json.load(file, parse_float=number)


def activities_of(events):
    """Start and end in us, kind, and whether the launch is in the file, of every GPU activity."""
    calls = {
        event["args"]["correlation"]
        for event in events
        if str(event.get("cat")).lower() in ("cuda_runtime", "cuda_driver", "runtime")
        and "correlation" in event.get("args", {})
    }
    kinds = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "memset"}
    kinds |= {"memcpy": "copy", "memset": "memset"}  # of PyTorch 1.8
    for event in events:
        kind = kinds.get(str(event.get("cat")).lower())
        if event.get("ph") == "X" and kind:
            if kind == "compute" and event["name"].startswith(COMMUNICATION):
                kind = "comm"
            launched = event["args"]["correlation"] in calls
            yield event["ts"], event["ts"] + event["dur"], kind, launched


def swept(activities):
    """How long each combination of kinds ran at once: set of kinds to its length.

    Goes through the starts and ends in order and keeps count of what is running.
    """
    moments = []
    for start, end, kind, _ in activities:
        moments += [(start, 1, kind), (end, -1, kind)]
    moments.sort()
    lengths, running, before = Counter(), Counter(), moments[0][0]
    for moment, change, kind in moments:
        lengths[frozenset(x for x, count in running.items() if count)] += moment - before
        running[kind] += change
        before = moment
    return lengths


def length(lengths, having, without=()):
    """How long anything of `having` ran and nothing of `without`, in ns."""
    total = sum(
        time for kinds, time in lengths.items() if kinds & set(having) and not kinds & set(without)
    )
    return int(total * 1000)


def length_of_both(lengths, a, b):
    return int(sum(time for kinds, time in lengths.items() if {a, b} <= kinds) * 1000)


@each_real_trace
def test_rank_and_figures_are_those_of_a_count_from_the_files_text(real_trace):
    # GIVEN
    content = content_of(real_trace)
    activities = list(activities_of(content["traceEvents"]))
    lengths = swept(activities)
    distributed = content.get("distributedInfo")

    # WHEN
    report = analysis_of(str(real_trace)).report
    (facts,) = report.traces
    device, span = whole(report)

    # THEN
    rank = (distributed["rank"], "metadata") if distributed else (0, "position")
    assert (facts.rank, facts.rank_source) == rank
    assert span == 1000 * (max(x[1] for x in activities) - min(x[0] for x in activities))
    assert {
        name: getattr(device, name)
        for name in DeviceMetrics.__struct_fields__
        if name.endswith("_ns") and not name.startswith(("idle_", "blocking_"))
    } == {
        "busy_ns": length(lengths, ["compute", "comm", "copy", "memset"]),
        "compute_ns": length(lengths, ["compute"]),
        "comm_ns": length(lengths, ["comm"]),
        "copy_ns": length(lengths, ["copy"]),
        "memset_ns": length(lengths, ["memset"]),
        "exposed_comm_ns": length(lengths, ["comm"], without=["compute"]),
        "exposed_copy_ns": length(lengths, ["copy"], without=["compute", "comm"]),
        "comm_compute_overlap_ns": length_of_both(lengths, "comm", "compute"),
        "copy_compute_overlap_ns": length_of_both(lengths, "copy", "compute"),
    }


# Figures that others found.


def test_resnet_on_eight_mi300():
    device, span = whole(analysis_of(path_of("tracelens_mi300_resnet_ddp8")).report)

    assert span == 86_567_708
    assert device.busy_ns == 84_002_056
    assert device.compute_ns == 25_739_303
    assert device.comm_ns == 71_516_523
    assert device.comm_compute_overlap_ns == 15_891_299
    assert device.exposed_comm_ns == 55_625_224
    assert device.memset_ns == 435_650


def test_kernels_of_a_b200_begin_early():
    # Counted apart: 74 begin before the one before them in their stream has ended, all of them
    # launched by cudaLaunchKernelExC (38) or cuLaunchKernelEx (36); the shortest common time is
    # 0.128 us, the longest 3.744 us.
    analysis = analysis_of(path_of("tracelens_b200_eager"))
    timeline = analysis.timeline
    early = np.flatnonzero(timeline.overlaps_previous)

    shared = timeline.end_ns[early - 1] - timeline.start_ns[early]
    names = Counter(timeline.trace.name_of(x) for x in timeline.launch_id[early].tolist())

    assert names == {"cudaLaunchKernelExC": 38, "cuLaunchKernelEx": 36}
    assert (shared.min(), shared.max()) == (128, 3_744)
    assert analysis.report.traces[0].losses == {"waits_without_record": 2}


def test_deepseeks_dualpipe_hides_its_communication():
    device, _ = whole(analysis_of(path_of("deepseek_dualpipe_h800")).report)

    assert device.comm_ns == 113_440_000
    assert device.comm_compute_overlap_ns == 109_250_000
    assert round(100 * device.comm_compute_overlap_ns / device.comm_ns, 3) == 96.306


def test_qwen_is_what_another_tool_found_without_the_activities_that_were_launched_before():
    # GIVEN the figures of TraceLens, in ms: it takes the launched activities only, and a memset for
    # compute
    path = path_of("tracelens_h100_qwen05b")
    with (FOLDER / "tracelens_h100_qwen05b.gpu_timeline.csv").open() as file:
        theirs = {row["type"]: float(row["time ms"]) for row in csv.DictReader(file)}
    report = analysis_of(path).report

    # WHEN
    launched = report.traces[0].launched_only
    (device,) = launched.devices
    ours = {
        "computation_time": device.compute_ns + device.memset_ns,  # never at once here
        "exposed_comm_time": device.exposed_comm_ns,
        "exposed_memcpy_time": device.exposed_copy_ns,
        "busy_time": device.busy_ns,
        "idle_time": device.idle_ns,
        "total_time": launched.end_ns - launched.start_ns,
        "total_comm_time": device.comm_ns,
        "total_memcpy_time": device.copy_ns,
    }

    # THEN they agree within what TraceLens loses by adding floats: the file's times are 1.4e15 us,
    # where floats are 0.25 us apart, so that its sum over 1198 activities is 10 ns off
    assert {name: ns / 1e6 for name, ns in ours.items()} == pytest.approx(
        {name: theirs[name] for name in ours}, abs=1.1e-5
    )
    assert ours["computation_time"] + ours["exposed_memcpy_time"] == ours["busy_time"]
    # AND with the same floats the same selection of activities gives TraceLens' figures
    floats = swept([x for x in activities_of(content_of(path, float)["traceEvents"]) if x[3]])
    busy_us = sum(us for kinds, us in floats.items() if kinds)
    assert busy_us / 1e3 == pytest.approx(theirs["busy_time"], abs=1e-9)
    # AND exact numbers give ours
    exact = swept([x for x in activities_of(content_of(path)["traceEvents"]) if x[3]])
    assert ours["busy_time"] == length(exact, ["compute", "copy", "memset"])
    assert ours["computation_time"] == length(exact, ["compute", "memset"])


def test_qwens_whole_trace_has_all_activities():
    report = analysis_of(path_of("tracelens_h100_qwen05b")).report
    activities = list(activities_of(content_of(path_of("tracelens_h100_qwen05b"))["traceEvents"]))
    before = sum(not launched for *_, launched in activities)

    (facts,) = report.traces

    assert before == facts.losses["activities_without_launch"] == facts.launched_only.left_out
    assert facts.gpu_activities == len(activities)
    assert whole(report)[0].busy_ns > facts.launched_only.devices[0].busy_ns


BEFORE = ("TL905", "launches_before_the_recording")
# What docs/evidence/findings.md reasons by hand, and what the others are alarmed about.
ALARMS = {
    "deepseek_dualpipe_h800": [],
    # A graph would save 3 % of them, behind the reads and copies that cut it.
    "hta_sampled_rank0": [("TL301", "slow_host")],
    "hta_sampled_rank1": [("TL301", "slow_host")],
    # Of its other work only 1 % (0 to 3) is Python that nothing else needs.
    "tracelens_b200_eager": [("TL301", "launch_bound")],
    "tracelens_h100_qwen05b": [
        ("TL301", "launch_bound"),
        ("TL905", "launches_before_the_recording"),
    ],
    # Its blocks run again in the backward pass: `conv2d` inside `ReluBackward0`.
    "tracelens_mi300_resnet_ddp8": [("TL405", "recomputation"), BEFORE],
    # Its pageable copies and reads come first: a graph of what is between them saves at most 4 %.
    "segment_anything_fast_amg": [("TL102", "pageable")],
    "tracelens_sglang_decode": [],
    # Nearly all of both is a first use, which is for information (TL305).
    "hta_simple_add": [],
    "tracelens_mi300x_normalization": [],
    # Half of it is scipy's work in the thread that launches, in a DataLoader without workers. Its
    # attention is transformers' own, in each of 15 batches 12 times. With loading and attention
    # mended the GPU works 180 ms, and the CPU takes 290 to launch that.
    "tracelens_h100_owlv2": [
        ("TL301", "launch_bound"),
        ("TL302", "input_bound"),
        ("TL406", "attention_scores"),
    ],
}


@pytest.mark.parametrize("name", ALARMS)
def test_alarms_are_those_that_were_reasoned_by_hand(name):
    findings = analysis_of(path_of(name)).report.findings
    alarms = sorted({(x.rule, x.cause) for x in findings if x.severity != "info"})
    assert alarms == ALARMS[name]


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("hta_simple_add", 0.97),
        ("tracelens_mi300x_normalization", 0.9),
        ("part_single", 0.64),  # the first launch of cuDNN's kernel takes 675 ms
        ("tok_trace0", 0.75),
        ("tok_trace1", 0.65),
    ],
)
def test_recordings_of_a_first_use_say_so_first_and_predict_nothing(name, least):
    report = analysis_of(path_of(name)).report
    finding, *others = report.findings
    assert (finding.rule, finding.cause, finding.severity) == ("TL305", "first_use", "info")
    assert finding.bound_ns > least * report.windows[0].length_ns
    assert "TL301" not in [other.rule for other in others]
    assert [saved.saves_ns for saved in report.savings] == [None]


@pytest.mark.parametrize(
    "name", ["tok_trace0", "tok_trace1", "switch_c", "param_linear", "part_single"]
)
def test_what_cublas_and_cudnn_free_as_they_begin_is_no_memory_given_back(name):
    assert "TL103" not in [x.rule for x in analysis_of(path_of(name)).report.findings]


def test_where_nothing_but_calls_is_recorded_a_graph_saves_no_more_than_they_take():
    analysis = analysis_of(path_of("shift1"))
    trace = analysis.timeline.trace
    calls_ns = trace.duration_ns[trace.of_category(*HOST_CALLS)].sum()
    [predicted] = predict_changes(
        analysis.baseline, analysis.sites, (), Options(edits=("graph",))
    ).predictions
    assert 0 <= predicted.step_ns - predicted.predicted_ns <= calls_ns < 2_800_000


def test_resnets_first_step_holds_work_of_before_the_recording():
    # Steps 15 to 17, as profiler steps; 968 activities without a launch lie in the first.
    [steady] = analysis_of(path_of("tracelens_mi300_resnet_ddp8")).report.steady
    assert steady.steps == (16, 17)
    assert [(x.step, x.why) for x in steady.left_out] == [(15, BACKLOG)]
    assert 18_500_000 < steady.step_ns < 19_000_000


def test_resnets_communication_waits_for_a_peer_or_has_a_slow_link():
    findings = analysis_of(path_of("tracelens_mi300_resnet_ddp8")).report.findings
    exposed = [x for x in findings if x.rule == "TL202"]
    [waiting] = exposed
    assert waiting.cause == "peer_wait"
    assert "or its link is slow" in waiting.title
    # 62.2 % of the two steady steps.
    assert waiting.cost_ns > 23_000_000
    assert waiting.bound_ns == 0


def test_what_is_left_of_deepseeks_communication_is_what_the_document_says():
    graph = analysis_of(path_of("deepseek_dualpipe_h800")).graph
    timeline, found = graph.host.timeline, exposed(graph)
    comm = timeline.kind[found.row] == Kind.COMM
    length = (found.end_ns - found.start_ns)[comm]
    start = found.start_ns[comm] - timeline.windows[0].start_ns
    obstacle = found.blocker[comm]

    assert (len(length), length.sum()) == (674, 4_190_000)
    assert ((length < 10_000).sum(), length[length < 10_000].sum()) == (660, 1_355_000)
    longest = length.argmax()
    assert (length[longest], obstacle[longest]) == (1_758_000, OverlapBlocker.TRUE_DEPENDENCY)
    late = obstacle == OverlapBlocker.LATE_LAUNCH
    assert (start[late] < 1_300_000).all()
    assert length[late].sum() == 630_000


def test_a_step_of_resnet_is_what_the_document_says():
    timeline = analysis_of(path_of("tracelens_mi300_resnet_ddp8")).timeline
    compute, comm = (timeline.busy(timeline.select(kind=x)) for x in (Kind.COMPUTE, Kind.COMM))
    rows = np.flatnonzero(timeline.select(kind=Kind.COMM))
    gradients = rows[(timeline.end_ns - timeline.start_ns)[rows] > 1_000_000]
    gradients = gradients[np.argsort(timeline.start_ns[gradients])]
    pairs = gradients[1:].reshape(-1, 2)  # of the first step only the second one is there
    assert len(pairs) == 4
    for first, second in pairwise(pairs):
        # From one step's second all-reduce to the next step's.
        start, end = timeline.end_ns[first[1]], timeline.end_ns[second[1]]
        assert 18_500_000 <= end - start <= 19_000_000
        assert 6_300_000 < measure(clip(compute, start, end)) < 6_500_000
        assert 15_300_000 < measure(clip(comm, start, end)) < 16_000_000
        assert 3_900_000 < measure(clip(intersect(compute, comm), start, end)) < 4_050_000


@pytest.mark.parametrize("name", ["segment_anything_fast_amg", "tracelens_sglang_decode"])
def test_kernels_of_a_file_without_steps_are_those_of_its_text(name):
    path = path_of(name)
    events = content_of(path)["traceEvents"]
    totals, counts = Counter(), Counter()
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            totals[event["name"]] += int(1000 * event["dur"])
            counts[event["name"]] += 1
    rows = analysis_of(path).report.kernels

    assert {row.name: row.total_ns for row in rows} == totals
    assert {row.name: row.count for row in rows} == counts


@each_real_trace
def test_no_product_is_faster_than_its_gpu(real_trace):
    """Causal attention, which counts in whole, is far below the peak in these traces."""
    for row in analysis_of(str(real_trace)).report.kernels:
        assert (row.peak_share or 0) < 1


@pytest.mark.parametrize("name", ["memory_reserved", "tracelens_h100_qwen05b"])
def test_products_are_those_of_the_shapes_that_the_file_has(name):
    """Beside a count of its own, of all products and attention in the file."""
    bundled = bundled_traces.FOLDER / f"{name}.pt.trace.json.gz"
    path = str(bundled) if bundled.exists() else path_of(name)
    counted = 0
    for event in content_of(path)["traceEvents"]:
        shapes = (event.get("args") or {}).get("Input Dims")
        if event.get("name") in ("aten::mm", "aten::addmm", "aten::bmm"):
            (*batch, rows, inner), (*_, columns) = shapes[event["name"] == "aten::addmm" :][:2]
            counted += 2 * rows * inner * columns * (batch[0] if batch else 1)
        elif event.get("name") == "aten::_flash_attention_forward":
            batch, length, heads, width = shapes[0]
            counted += 4 * batch * heads * length * length * width
    report = analysis_of(path).report
    [steady] = report.steady
    assert steady.flops * (len(report.windows) - 1) == counted
    assert steady.flops_known_share == 1
    step_ns = steady.unprofiled_step_ns or steady.step_ns
    assert steady.mfu == pytest.approx(steady.flops / 989.4e3 / step_ns, rel=1e-3)
