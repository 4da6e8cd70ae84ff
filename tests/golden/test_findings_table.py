"""The tables of tracelab/docs/findings.md against the bundled captures, without predictions.

``python -m tests.golden.test_findings_table`` prints them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import bundled_traces
from tests.bundled_traces import FOLDER, MANIFEST
from tracelab import Options
from tracelab.findings.finding import INFO

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "tracelab" / "docs" / "findings.md"

# A defect and its fix: what is attributed, and how much shorter the steady step is.
PAIRS = (
    ("prefetch_one_stream_pinned", "prefetch_copy_stream_pinned"),
    ("prefetch_one_stream_pageable", "prefetch_copy_stream_pinned"),
    ("prefetch_copy_stream_pageable", "prefetch_copy_stream_pinned"),
    ("prefetch_copy_stream_synchronize", "prefetch_copy_stream_pinned"),
    ("prefetch_loader_alone", "prefetch_loader_pinned"),
    ("prefetch_loader", "prefetch_loader_pinned"),
    ("events_event_synchronize", "events_wait"),
    ("events_stream_synchronize", "events_wait"),
    ("events_device_synchronize", "events_wait"),
    ("events_item", "events_wait"),
    ("two_streams_early_wait", "two_streams_default_and_side"),
    ("two_streams_host_wait", "two_streams_medium"),
    ("two_models_pipelined_item", "two_models_pipelined"),
    ("two_models_pipelined", "two_models_pipelined_streams"),
    ("peer_copy_default", "peer_copy_both"),
    ("peer_copy_sender", "peer_copy_both"),
    ("peer_copy_receiver", "peer_copy_both"),
    ("ddp_hook_default_stream_rank0", "ddp_hook_side_stream_rank0"),
    ("ddp_hook_side_stream_one_queue_rank0", "ddp_hook_side_stream_rank0"),
    ("collectives_all_reduce_sync_rank0", "collectives_all_reduce_async_rank0"),
    ("collectives_broadcast_sync_rank0", "collectives_broadcast_async_rank0"),
    ("collectives_reduce_scatter_sync_rank0", "collectives_reduce_scatter_async_rank0"),
    ("collectives_all_gather_sync_rank0", "collectives_all_gather_async_rank0"),
    ("fsdp_no_prefetch_rank0", "fsdp_prefetch_rank0"),
    ("straggler_slow_loader_rank0", "straggler_slow_loader_hidden_rank0"),
    ("train_step_sinful", "train_step_clean"),
    ("two_streams_small", "two_streams_small_graph"),
)
# What the fix saved beyond what is attributed, of the steady step, and why.
BEYOND = {
    "prefetch_loader_alone": 0.16,  # what the first step loads lies before the first activity
    "peer_copy_sender": 0.2,  # in two of five steps the sender's next kernel seems to need the copy
    "prefetch_copy_stream_synchronize": 0.03,  # the GPU no longer waits for the profiler, either
    "train_step_sinful": 0.1,  # the clean step also computes less: fused optimizer, no mask
    "two_streams_small": 0.33,  # attributed is what is idle without the profiler
}
NOISE = 0.01  # of the step: as much as runs of one program differ


def report_of(name):
    path = FOLDER / f"{name}.pt.trace.json.gz"
    return bundled_traces.report_of(path, options=Options(prices=False))


def name_of(line):
    return line["files"][line["rank"]].split(".")[0]


def found_row(line):
    """A capture, and its findings above info."""
    report = report_of(name_of(line))
    length = steady_of(name_of(line)).length_ns
    found = [
        f"{x.rule} `{x.cause}` {100 * x.bound_ns / length:.1f} %"
        for x in report.findings
        if x.severity != INFO
    ]
    planted = ", ".join(f"{rule} `{cause}`" for rule, cause in line["expect"]["findings"])
    return f"| `{name_of(line)}` | {planted or '-'} | {', '.join(found) or '-'} |"


def steady_of(name):
    [steady] = report_of(name).steady
    return steady


def attributed(name):
    """What is attributed to all findings together, as a share of the steady steps."""
    return sum(x.bound_ns for x in report_of(name).findings) / steady_of(name).length_ns


def saved(defect, fix):
    """How much shorter a steady step of the fixed program is, as a share."""
    return 1 - steady_of(fix).step_ns / steady_of(defect).step_ns


def pair_row(pair):
    rules = {x.rule: None for x in report_of(pair[0]).findings if x.severity != INFO}
    shares = f"{100 * attributed(pair[0]):.1f} % | {100 * saved(*pair):.1f} %"
    return f"| `{pair[0]}` | `{pair[1]}` | {', '.join(rules)} | {shares} |"


@pytest.mark.parametrize("line", MANIFEST, ids=name_of)
def test_document_has_what_is_attributed_in_every_capture(line):
    assert found_row(line) in DOCUMENT.read_text().splitlines()


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_fixes_save_what_was_attributed_or_a_known_other_share(pair):
    assert pair_row(pair) in DOCUMENT.read_text().splitlines()
    assert saved(*pair) <= attributed(pair[0]) + NOISE + BEYOND.get(pair[0], 0)


@pytest.mark.parametrize("line", MANIFEST, ids=name_of)
def test_no_time_is_attributed_that_is_not_there(line):
    report, steady = report_of(name_of(line)), steady_of(name_of(line))
    assert sum(x.bound_ns for x in report.findings) <= steady.length_ns
    serial = ("TL203", "TL205")  # the only ones about time in which the GPU was busy
    bounds = sum(x.bound_ns for x in report.findings if x.rule not in serial)
    lost = [x.idle_ns + x.exposed_comm_ns + x.exposed_copy_ns for x in steady.devices]
    assert bounds <= max(lost)


@pytest.mark.parametrize("line", MANIFEST, ids=name_of)
def test_hardly_any_idle_time_is_of_unknown_cause(line):
    for device in report_of(name_of(line)).windows[0].devices:
        assert device.bubbles["unknown"] <= 0.02 * device.idle_ns


if __name__ == "__main__":
    print("\n".join(map(found_row, MANIFEST)))
    print("\n".join(map(pair_row, PAIRS)))
