"""What ``tracelab diff`` says of captures whose truth is known: what a change did to the step.

`IMPROVED` are programs before and after a change whose effect was measured when they were captured
(tracelab/docs/evidence/findings.md); `SAME` are two recordings of one program. No improvement is
denied, and no change is reported where there was none, however few steps were recorded.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests import corpus
from tracelab.analysis.reports import analyze_file
from tracelab.base.options import Options
from tracelab.comparison.compare import compare_sides, launches_of, merge_side
from tracelab.comparison.diff import Doubt
from tracelab.read.sources import find_sources

TRACES = Path(__file__).parents[2] / "traces"
OPTIONS = Options(cache=False)

# Before, after, and by how many per cent the steady step got shorter.
IMPROVED = (
    ("prefetch_one_stream_pinned", "prefetch_copy_stream_pinned", 33),
    ("prefetch_one_stream_pageable", "prefetch_one_stream_pinned", 62),
    ("prefetch_copy_stream_synchronize", "prefetch_copy_stream_pinned", 10),
    ("prefetch_copy_stream_pageable", "prefetch_copy_stream_pinned", 70),
    ("prefetch_loader_alone", "prefetch_loader", 63),
    ("prefetch_loader", "prefetch_loader_pinned", 30),
    ("events_event_synchronize", "events_wait", 3),
    ("events_device_synchronize", "events_wait", 2),
    ("events_item", "events_wait", 2),
    ("two_models_pipelined_item", "two_models_pipelined", 46),
    ("ddp_hook_default_stream_rank0", "ddp_hook_side_stream_rank0", 6),
    ("ddp_hook_default_stream_rank0", "ddp_hook_no_hook_rank0", 11),
    ("ddp_hook_side_stream_one_queue_rank0", "ddp_hook_side_stream_rank0", 6),
    ("train_step_sinful", "train_step_clean", 37),
    ("straggler_more_work_rank0", "straggler_even_rank0", 34),
    ("straggler_slow_loader_rank0", "straggler_even_rank0", 17),
    ("straggler_slow_loader_rank0", "straggler_slow_loader_hidden_rank0", 17),
    ("two_streams_default_stream", "two_streams_default_and_side", 50),
    ("two_streams_early_wait", "two_streams_medium", 50),
    ("two_streams_host_wait", "two_streams_medium", 50),
    ("two_streams_small", "two_streams_small_graph", 93),
    ("fsdp_no_prefetch_rank0", "fsdp_prefetch_rank0", 3),
    ("peer_copy_default", "peer_copy_both", 42),
    ("peer_copy_sender", "peer_copy_both", 42),
    ("peer_copy_receiver", "peer_copy_both", 42),
)

# Better by 2 % with the profiler, but not without it.
UNCONFIRMED = (("events_elapsed_time", "events_wait"),)

# Recorded twice, and what is said. Where it is "cannot tell", the medians differ by 1 to 11 %.
SAME = {
    "collectives_all_reduce_async_rank0": "cannot tell",
    "collectives_all_reduce_async_rank1": "cannot tell",
    "ddp_hook_side_stream_rank0": "cannot tell",
    "ddp_hook_side_stream_rank1": "cannot tell",
    "events_wait": "no change",
    "fsdp_prefetch_rank0": "no change",
    "fsdp_prefetch_rank1": "no change",
    "inline_loader_numpy": "cannot tell",  # -11 %, and +7 % without the profiler
    "peer_copy_both": "no change",
    "pipeline_gpipe_few_rank0": "cannot tell",
    "pipeline_gpipe_few_rank1": "cannot tell",
    "prefetch_copy_stream_pinned": "cannot tell",  # -0.1 %, but steps of 2.2 to 2.8 ms
    "straggler_even_rank0": "cannot tell",
    "straggler_even_rank1": "cannot tell",
    "tensor_parallel_uneven_rank0": "no change",
    "tensor_parallel_uneven_rank1": "cannot tell",
    "train_step_clean": "no change",
    "two_groups_one_late_rank0": "no change",
    "two_groups_one_late_rank1": "no change",
    "two_models_naive": "cannot tell",
    "two_streams_medium": "no change",
    "waiting_rank_uneven_rank0": "no change",
    "waiting_rank_uneven_rank1": "no change",
}

# The same change, or none, where one or two steady steps follow the backlog of the warm-up.
SHORT = (
    ("train_step_sinful", "train_step_clean", "shorter", "shorter"),
    ("prefetch_one_stream_pinned", "prefetch_copy_stream_pinned", "shorter", "shorter"),
    ("two_streams_default_stream", "two_streams_default_and_side", "shorter", "shorter"),
    ("two_models_pipelined_item", "two_models_pipelined", "shorter", "shorter"),
    ("peer_copy_default", "peer_copy_both", "shorter", "shorter"),
    ("prefetch_loader_alone", "prefetch_loader", "shorter", "shorter"),
    ("events_item", "events_wait", "cannot tell", "shorter"),  # 2 %, unconfirmed
    ("events_wait", "events_wait_plain", "cannot tell", "cannot tell"),
    ("train_step_clean", "train_step_clean_plain", "cannot tell", "cannot tell"),
    ("two_streams_medium", "two_streams_medium_plain", "cannot tell", "cannot tell"),
    (
        "prefetch_copy_stream_pinned",
        "prefetch_copy_stream_pinned_plain",
        "cannot tell",
        "cannot tell",
    ),
)

DIFFERENT = (
    ("train_step_clean", "two_streams_small"),
    ("events_item", "prefetch_loader"),
    ("two_streams_medium", "two_streams_small"),
    ("ddp_hook_no_hook_rank0", "fsdp_prefetch_rank0"),
    ("two_models_naive", "straggler_even_rank0"),
)


@cache
def side(path):
    [source] = find_sources([str(path)])
    return merge_side([analyze_file(source, OPTIONS, then=launches_of)], [str(path)], OPTIONS)


def trace(name):
    return TRACES / f"{name}.pt.trace.json.gz"


def compared(before, after):
    diff = compare_sides(side(before), side(after))
    [rank] = diff.ranks
    assert diff.verdict == rank.verdict
    assert rank.length.beyond_noise == (rank.verdict in ("shorter", "longer"))
    assert not rank.length.beyond_noise or abs(rank.length.difference_ns) > rank.length.noise_ns
    return rank


@pytest.mark.parametrize(("before", "after", "percent"), corpus.cases(IMPROVED))
def test_no_improvement_is_denied(before, after, percent):
    shorter = compared(trace(before), trace(after))
    assert (shorter.verdict, shorter.basis) == ("shorter", "step")
    assert round(-shorter.length.percent) == percent
    assert compared(trace(after), trace(before)).verdict == "longer"


@pytest.mark.parametrize(("before", "after"), UNCONFIRMED)
def test_what_the_step_without_the_profiler_does_not_confirm_is_not_claimed(before, after):
    for files in ((before, after), (after, before)):
        assert compared(*map(trace, files)).doubts == (Doubt.PROFILER,)


@pytest.mark.parametrize(("name", "verdict"), corpus.cases(SAME.items()))
def test_nothing_is_reported_where_the_program_is_the_same(name, verdict):
    before, after = name, re.sub(r"(_rank\d+)?$", r"_plain\1", name, count=1)
    there, back = (
        compared(trace(*x), trace(*y)) for x, y in (([before], [after]), ([after], [before]))
    )
    assert there.verdict == verdict
    assert back.verdict in ("no change", "cannot tell")
    assert there.doubts or verdict == "no change"


def test_every_second_recording_is_in_the_table():
    plain = {path.name.split(".")[0].replace("_plain", "") for path in TRACES.glob("*_plain*.gz")}
    assert plain == set(SAME)


@pytest.mark.parametrize(
    ("before", "after", "one_step", "two_steps"),
    corpus.cases(SHORT, ["peer_copy_default", "events_wait"]),  # short ones themselves
)
def test_few_steps_decide_what_they_can(before, after, one_step, two_steps, tmp_path_factory):
    for last, verdict in ((5, one_step), (6, two_steps)):
        files = [
            short_recording(name, last, tmp_path_factory.getbasetemp()) for name in (before, after)
        ]
        assert compared(*files).verdict == verdict


@pytest.mark.parametrize(("before", "after"), corpus.cases(DIFFERENT))
def test_different_programs_are_recognised(before, after):
    diff = compare_sides(side(trace(before)), side(trace(after)))
    assert diff.same_program is False
    assert diff.verdict == "different programs"
    assert diff.regressed(0) == ()


@pytest.mark.parametrize(
    ("before", "after"), corpus.cases([*(pair[:2] for pair in IMPROVED), *UNCONFIRMED])
)
def test_a_changed_program_is_the_same_program(before, after):
    assert compare_sides(side(trace(before)), side(trace(after))).same_program is True


@cache
def short_recording(name, last, folder):
    """The file as it were had the recording begun with step 4 and ended with another.

    What was launched before has no launch then; what was launched afterwards is not there.
    """
    content = json.loads(gzip.decompress(trace(name).read_bytes()))
    events = [event for event in content["traceEvents"] if event.get("ph") == "X"]
    steps = {
        int(event["name"].removeprefix("ProfilerStep#")): event
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
    }
    begin = float(steps[4]["ts"]) - 1
    end = float(steps[last]["ts"]) + float(steps[last]["dur"])

    def correlation(event):
        return event.get("args", {}).get("correlation")

    late = {
        correlation(event)
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and float(event["ts"]) >= end
    }

    def is_recorded(event):
        start = float(event["ts"])
        category = event.get("cat")
        if category in ("kernel", "gpu_memcpy", "gpu_memset"):
            return start + float(event["dur"]) > begin and correlation(event) not in late
        if category in ("cuda_sync", "cuda_event"):
            return start >= begin and correlation(event) not in late
        return category != "gpu_user_annotation" and begin <= start < end

    rest = [event for event in content["traceEvents"] if event.get("ph") == "M"]
    content["traceEvents"] = rest + [event for event in events if is_recorded(event)]
    path = folder / f"{name}_{last}.json"
    path.write_text(json.dumps(content))
    return path
