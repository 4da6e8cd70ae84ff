"""Rows of the tables that documents hold of the bundled captures."""

from __future__ import annotations

import statistics
from typing import Any

from tests.bundled_traces import FOLDER, files_of, report_of
from tracelab.findings.finding import WARNING_SHARE
from tracelab.measures.window_times import SteadyMetrics
from tracelab.report.schema import Report

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


def report_of_line(line: dict[str, Any]) -> Report:
    """The report of the file that a line of the manifest is about."""
    return report_of(FOLDER / line["files"][line["rank"]])


def workload_row(line: dict[str, Any]) -> str:
    """A row of the tables in workloads/README.md."""
    report = report_of_line(line)
    whole = report.windows[0]
    length_ns = whole.end_ns - whole.start_ns
    gpu = whole.devices[0]
    steps = [(window.end_ns - window.start_ns) / 1e6 for window in report.windows[1:]]
    syncs = [sync for sync in report.syncs if sync.step is None]
    overlaps = [x for x in report.overlaps if x.step is None]
    streams = [x.overlap_ns for x in overlaps if x.a.startswith("stream:")]
    gpus = [(x.overlap_ns, min(x.a_ns, x.b_ns)) for x in overlaps if x.a.startswith("device:")]
    calls = {}
    for sync in syncs:
        calls[sync.api] = calls.get(sync.api, 0) + sync.count
    copies = _share(gpu.copy_compute_overlap_ns, gpu.copy_ns if gpu.copy_ns > 1e6 else 0)
    if line["gpus"] == 1:
        beside = [copies, f"{sum(streams) / 1e6:.2f} ms" if streams else "-"]
    else:
        hidden_ns = gpu.comm_ns - gpu.exposed_comm_ns
        beside = [
            _share(gpu.comm_ns, length_ns) if gpu.comm_ns else "-",
            _share(hidden_ns, gpu.comm_ns),
            copies,
            _share(*gpus[0]) if gpus else "-",
        ]
    cells = [
        f"`{' '.join([line['workload'], *line['arguments']])}`",
        f"{statistics.median(steps):.2f} ms",
        _share(gpu.busy_ns, length_ns),
        *beside,
        ", ".join(f"{count} x `{api}`" for api, count in sorted(calls.items())) or "none",
        f"{sum(sync.blocked_ns for sync in syncs) / 1e6:.2f} ms",
        f"{sum(sync.caused_idle_ns for sync in syncs) / 1e6:.2f} ms",
    ]
    return f"| {' | '.join(cells)} |"


def _share(part_ns, whole_ns):
    return f"{100 * part_ns / whole_ns:.1f} %" if whole_ns else "-"


def steady_of(report: Report) -> SteadyMetrics:
    [steady] = report.steady
    return steady


def found_row(line: dict[str, Any]) -> str:
    """A capture, the findings above info, and those with 2 % of the steady steps attributed."""
    report = report_of_line(line)
    length_ns = steady_of(report).length_ns
    found = [
        f"{x.rule} `{x.cause}` {100 * x.bound_ns / length_ns:.1f} %"
        for x in report.findings
        if x.bound_ns >= WARNING_SHARE * length_ns
    ]
    name = line["files"][line["rank"]].split(".")[0]
    planted = ", ".join(f"{rule} `{cause}`" for rule, cause in line["expect"]["findings"])
    return f"| `{name}` | {planted or '-'} | {', '.join(found) or '-'} |"


def attributed(name: str) -> float:
    """Time attributed to all findings together, as a share of the steady steps."""
    report = report_of(*files_of(name))
    return sum(x.bound_ns for x in report.findings) / steady_of(report).length_ns


def saved(defect: str, fix: str) -> float:
    """How much shorter a steady step of the fixed program is, as a share."""
    before, after = (steady_of(report_of(*files_of(name))) for name in (defect, fix))
    return 1 - after.step_ns / before.step_ns


def pair_row(pair: tuple[str, str]) -> str:
    """A defect, its fix, the rules with 2 % attributed, and how much shorter the step is."""
    report = report_of(*files_of(pair[0]))
    least_ns = WARNING_SHARE * steady_of(report).length_ns
    rules = {x.rule: None for x in report.findings if x.bound_ns >= least_ns}
    shares = f"{100 * attributed(pair[0]):.1f} % | {100 * saved(*pair):.1f} %"
    return f"| `{pair[0]}` | `{pair[1]}` | {', '.join(rules)} | {shares} |"
