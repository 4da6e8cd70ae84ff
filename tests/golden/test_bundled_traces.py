"""Every line of traces/manifest.json against its files and what the analysis finds in them."""

import gzip
import hashlib
import json
import re
import statistics
from pathlib import Path

import pytest

from tests.bundled_traces import FOLDER, MANIFEST, report_of
from tracelab.analysis import analyze_source
from tracelab.read.sources import find_sources
from tracelab.workloads.catalog import CATALOG, find
from tracelab.workloads.expectations import check_job, check_report

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def test_manifest_lists_every_trace_once():
    files = sorted(file.name for file in FOLDER.glob("*.json.gz"))
    assert sorted(name for line in MANIFEST for name in line["files"]) == files
    assert sum((FOLDER / name).stat().st_size for name in files) <= 25 * MIB


def test_every_variant_is_captured():
    captured = {(line["workload"], line["arguments"][0]) for line in MANIFEST}
    assert captured == {(x.workload, x.variant) for x in CATALOG if x.is_bundled}


def test_every_workload_is_captured_with_event_records_and_plainly():
    plain = {line["workload"] for line in MANIFEST if "--plain" in line["arguments"]}
    one_stream = {"hiccup", "first_use"}  # no stream waits for another: there is nothing to resolve
    like_others = {"late_launch", "backward_delay", "uneven_lengths"}  # as straggler, as ddp_hook
    like_others |= {"three_defects", "copies"}  # as prefetch
    one_stream |= {"optimizers", "reads", "launches", "loading", "recompiled"}
    like_others |= {"ddp_options", "accumulation", "data_parallel"}  # as ddp_hook, as two_models
    like_others |= {"graphs"}  # as two_streams
    bundled = {entry.workload for entry in CATALOG if entry.is_bundled}
    assert plain == bundled - one_stream - like_others


@pytest.fixture(params=MANIFEST, ids=lambda line: line["files"][0].split(".")[0], scope="module")
def line(request):
    return request.param


@pytest.fixture(scope="module")
def report(line):
    return report_of(FOLDER / line["files"][line["rank"]])


def test_files_are_the_ones_that_were_captured(line):
    entry = find(line["workload"], line["arguments"][0])
    for name in line["files"]:
        content = (FOLDER / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == line["sha256"][name]
        assert len(content) <= MIB
        about = json.loads(gzip.decompress(content))["tracelab"]
        assert (about["workload"], about["variant"]) == (entry.workload, entry.variant)
        plain = "--plain" in line["arguments"]
        assert about["event_records"] == ("kineto" if plain else "cupti")
        assert {key: about[key] for key in ("torch", "cuda", "gpu")} == {
            key: line[key] for key in ("torch", "cuda", "gpu")
        }
    assert line["shows"] == entry.shows
    assert line["driver"]
    assert line["date"]


def test_every_step_was_recorded(line, report):
    _, *options = line["arguments"]
    count = int(options[options.index("--steps") + 1]) if "--steps" in options else 5
    steps = [window.step for window in report.windows[1:]]
    assert steps == list(range(steps[0], steps[0] + count))


def test_trace_shows_what_it_must(line, report):
    checks = check_report(report, line["expect"])
    assert checks
    assert [check for check in checks if not check.passed] == []


@pytest.mark.parametrize(
    "job", [x for x in MANIFEST if "job" in x], ids=lambda job: job["files"][0].split("_rank")[0]
)
def test_job_shows_what_it_must(job):
    checks = check_job(report_of(*(FOLDER / name for name in job["files"])), job["job"])
    assert checks
    assert [check for check in checks if not check.passed] == []


def test_every_job_says_what_is_expected_of_it():
    assert {len(line["files"]) > 1 for line in MANIFEST if "job" in line} == {True}
    assert all("job" in line for line in MANIFEST if len(line["files"]) > 1)


def test_nothing_runs_that_was_launched_before_the_recording(report):
    assert "activities_without_launch" not in report.traces[0].losses
    assert "launch_not_in_file" not in report.windows[0].devices[0].unknown_reasons


def test_stream_waits_are_named_unless_captured_plainly(line, report):
    checks = check_report(report, {"waits_named": "--plain" not in line["arguments"]})
    assert [check for check in checks if not check.passed] == []


def test_blocking_calls_with_stacks_are_placed_in_the_workloads_code(line, report):
    for sync in report.syncs:
        # autograd's own thread runs no Python
        assert sync.file is None or sync.file.endswith(f"workloads/{line['workload']}.py")
    if line["workload"] == "events":
        assert all(sync.function for sync in report.syncs)


# What a line must hold is looked up in the source: the numbers may move, the calls may not.
PLACED = {
    "events_device_synchronize": {("wait_for_device", "synchronize", "torch.cuda.synchronize()")},
    "events_elapsed_time": {("timed_every_step", "synchronize", "done.synchronize()")},
    "events_event_synchronize": {("wait_for_event", "synchronize", "done.synchronize()")},
    "events_item": {("read_a_value", "item", "product[0, 0].item()")},
    "events_stream_synchronize": {("wait_for_stream", "synchronize", "side.synchronize()")},
    "prefetch_copy_stream_pageable": {("load", "to", 'next(source).to("cuda"')},
    "prefetch_copy_stream_synchronize": {("copy_stream", "synchronize", "compute.synchronize()")},
    "prefetch_loader": {("one_stream", "to", 'net(batch.to("cuda"')},
    "prefetch_one_stream_pageable": {("one_stream", "to", 'net(batch.to("cuda"')},
    "straggler_slow_loader_rank0": {("train", "item", "gradients[0].item()")},
    "two_models_pipelined_item": {("pipelined", "item", "loss.item()")},
    "train_step_sinful": {
        ("sinful", "to", 'tokens = host_tokens.to("cuda")'),
        ("sinful", "__getitem__", "scores[known].float(), tokens[known]"),
        ("sinful", "float", "scores[known].float(), tokens[known]"),
        ("sinful", "cross_entropy", "torch.nn.functional.cross_entropy("),
        ("sinful", "to", 'torch.ones(losses.shape[0]).to("cuda")'),
        ("sinful", "backward", "loss.backward()"),
        ("sinful", "__bool__", "if norm < 1e6:"),
        ("sinful", "item", "log.append(loss.item())"),
        ("sinful", "empty_cache", "torch.cuda.empty_cache()"),
        ("forward", "Embedding", "self.embed(tokens)"),
        ("forward", "TransformerEncoder", "self.layers("),
        ("forward", "Linear", "self.head("),
    },
}


@pytest.mark.parametrize("name", PLACED)
def test_blocking_calls_are_placed_on_their_lines(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # the captures name their sources from here
    analysis = analyze_source(find_sources([str(FOLDER / f"{name}.pt.trace.json.gz")])[0])
    expected = PLACED[name]

    seen = set()
    for place in analysis.blocking_calls.call_sites:
        text = Path(place.file).read_text().splitlines()[place.line - 1]
        [fits] = [x for x in expected if x[:2] == (place.function, place.call) and x[2] in text]
        seen.add(fits)
    assert seen == expected
    assert {sync.line for sync in analysis.report.syncs} == {
        place.line for place in analysis.blocking_calls.call_sites
    }


def test_identities_hold_in_every_window(report):
    for window in report.windows:
        for device in window.devices:
            assert device.busy_ns + device.idle_ns == window.end_ns - window.start_ns
            assert sum(device.bubbles.values()) == device.idle_ns
            assert sum(device.unknown_reasons.values()) == device.bubbles["unknown"]
    for path in report.critical_path:
        assert sum(path.by_kind.values()) == path.total_ns


def _measured(line, report):
    """One line of a table in workloads/README.md: the first for one GPU, the second for several."""
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


README = (ROOT / "workloads" / "README.md").read_text().splitlines()


def test_table_of_the_workloads_is_what_is_measured(line, report):
    assert _measured(line, report) in README


def test_figures_beside_the_claims_stand_in_the_tables():
    """A row of the claims names rows of the tables in its last cell; its figures are theirs."""
    tables = {row.split("`")[1]: row for row in README if row.startswith("| `")}
    tables["host_times"] = " ".join(row for row in README if "blocks the host for" in row)
    claims = [row.split(" | ") for row in README if row.startswith("| *")]
    assert len(claims) >= 20
    for _, measured, cited in claims:
        rows = " ".join(tables.get(name, "") for name in cited.split("`"))
        for figure in re.findall(r"[\d.]+ (?:%|[mu]s)", measured):
            assert figure in rows, (figure, cited)
