"""Every line of traces/manifest.json against its files and what the analysis finds in them.

One test looks at one capture; all that fails is in one message.
"""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from tests import corpus
from tests.build.capture_tables import (
    PAIRS,
    attributed,
    found_row,
    pair_row,
    report_of_line,
    saved,
    steady_of,
    workload_row,
)
from tests.build.expectations import check_job, check_report
from tests.bundled_traces import FOLDER, MANIFEST, analysis_of, files_of, report_of
from tests.checks import failures
from tests.short_fixes import assert_short
from tracelab.workloads.catalog import CATALOG, find

ROOT = Path(__file__).parents[2]
README = (ROOT / "workloads" / "README.md").read_text().splitlines()
FINDINGS = (ROOT / "tracelab" / "docs" / "evidence" / "findings.md").read_text().splitlines()
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
    one_stream |= {"optimizers", "reads", "launches", "loading", "recompiled", "memory"}
    like_others |= {"ddp_options", "accumulation", "data_parallel"}  # as ddp_hook, as two_models
    like_others |= {"graphs"}  # as two_streams
    bundled = {entry.workload for entry in CATALOG if entry.is_bundled}
    assert plain == bundled - one_stream - like_others


def test_every_job_says_what_is_expected_of_it():
    assert all(("job" in line) == (len(line["files"]) > 1) for line in MANIFEST)


@pytest.mark.whole_corpus
def test_the_small_corpus_is_the_one_that_is_chosen():
    assert corpus.choose() == corpus.SMALL


# Each capture.


def files_are_the_ones_that_were_captured(line, _):
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


def every_step_was_recorded(line, report):
    _, *options = line["arguments"]
    count = int(options[options.index("--steps") + 1]) if "--steps" in options else 5
    steps = [window.step for window in report.windows[1:]]
    assert steps == list(range(steps[0], steps[0] + count))


def trace_shows_what_it_must(line, report):
    expected = {**line["expect"], "waits_named": "--plain" not in line["arguments"]}
    assert [check for check in check_report(report, expected) if not check.passed] == []


def job_shows_what_it_must(line, _):
    if "job" in line:
        report = report_of(*(FOLDER / name for name in line["files"]))
        checks = check_job(report, line["job"])
        assert checks
        assert [check for check in checks if not check.passed] == []


def nothing_runs_that_was_launched_before_the_recording(_, report):
    assert "activities_without_launch" not in report.traces[0].losses
    assert "launch_not_in_file" not in report.windows[0].devices[0].unknown_reasons


def blocking_calls_with_stacks_are_placed_in_the_workloads_code(line, report):
    for sync in report.syncs:
        # autograd's own thread runs no Python
        assert sync.file is None or sync.file.endswith(f"workloads/{line['workload']}.py")
    if line["workload"] == "events":
        assert all(sync.function for sync in report.syncs)


def no_time_is_attributed_that_is_not_there(_, report):
    steady = steady_of(report)
    assert sum(x.bound_ns for x in report.findings) <= steady.length_ns
    # Some are about time in which the GPU was busy: with streams in a row, or too much work.
    serial, work = ("TL203", "TL205"), "TL4"
    lost = [x for x in report.findings if x.rule not in serial and not x.rule.startswith(work)]
    most = [x.idle_ns + x.exposed_comm_ns + x.exposed_copy_ns for x in steady.devices]
    assert sum(x.bound_ns for x in lost) <= max(most)
    busy = sum(x.bound_ns for x in report.findings if x.rule.startswith(work))
    assert busy <= max(x.busy_ns for x in steady.devices)


def hardly_any_idle_time_is_of_unknown_cause(_, report):
    for device in report.windows[0].devices:
        assert device.bubbles["unknown"] <= 0.02 * device.idle_ns


def findings_have_a_short_fix_and_a_title_without_place(_, report):
    for finding in report.findings:
        assert_short(finding.fix_short)
        assert not re.search(r"\.py\b|`__|\bhost\b", finding.title), finding.title


def documents_have_its_rows(line, _):
    assert workload_row(line) in README
    assert found_row(line) in FINDINGS


EXPECTATIONS = (
    files_are_the_ones_that_were_captured,
    every_step_was_recorded,
    trace_shows_what_it_must,
    job_shows_what_it_must,
    nothing_runs_that_was_launched_before_the_recording,
    blocking_calls_with_stacks_are_placed_in_the_workloads_code,
    no_time_is_attributed_that_is_not_there,
    hardly_any_idle_time_is_of_unknown_cause,
    findings_have_a_short_fix_and_a_title_without_place,
    documents_have_its_rows,
)


def test_capture_is_what_its_line_says(bundled_capture):
    line = corpus.LINES[bundled_capture]
    assert failures(EXPECTATIONS, line, report_of_line(line)) == []


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
    analysis = analysis_of(*files_of(name))
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


# A defect and its fix.

# What the fix saved beyond what is attributed, of the steady step, and why.
BEYOND = {
    "prefetch_loader_alone": 0.16,  # what the first step loads lies before the first activity
    "peer_copy_sender": 0.2,  # in two of five steps the sender's next kernel seems to need the copy
    "prefetch_copy_stream_synchronize": 0.03,  # the GPU no longer waits for the profiler, either
    "train_step_sinful": 0.1,  # the clean step also computes less: fused optimizer, no mask
    "two_streams_small": 0.33,  # attributed is what is idle without the profiler
}
NOISE = 0.01  # of the step: as much as runs of one program differ


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_fixes_save_what_was_attributed_or_a_known_other_share(pair):
    assert pair_row(pair) in FINDINGS
    assert saved(*pair) <= attributed(pair[0]) + NOISE + BEYOND.get(pair[0], 0)


def test_figures_beside_the_claims_stand_in_the_tables():
    """A row of the claims names rows of the tables in its last cell; its figures are theirs."""
    tables = {row.split("`")[1]: row for row in README if row.startswith("| `")}
    tables["host_times"] = " ".join(row for row in README if "blocks the CPU for" in row)
    claims = [row.split(" | ") for row in README if row.startswith("| *")]
    assert len(claims) >= 20
    for _, measured, cited in claims:
        rows = " ".join(tables.get(name, "") for name in cited.split("`"))
        for figure in re.findall(r"[\d.]+ (?:%|[mu]s)", measured):
            assert figure in rows, (figure, cited)
