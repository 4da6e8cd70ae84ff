"""Every line of traces/manifest.json against its file and what the analysis finds in it."""

import gzip
import hashlib
import json
import statistics
from collections import Counter
from pathlib import Path

import pytest

from tracelab import analyze

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "traces"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())["traces"]
MIB = 1 << 20


def test_manifest_lists_every_trace_once():
    files = sorted(file.name for file in FOLDER.glob("*.json.gz"))
    assert sorted(entry["file"] for entry in MANIFEST) == files
    assert len(files) >= 6


@pytest.fixture(params=MANIFEST, ids=lambda entry: entry["file"].split(".")[0])
def entry(request):
    return request.param


@pytest.fixture
def report(entry):
    return analyze(str(FOLDER / entry["file"]))


def test_file_is_the_one_that_was_captured(entry):
    content = (FOLDER / entry["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry["sha256"]
    assert len(content) <= MIB
    about = json.loads(gzip.decompress(content))["tracelab"]
    assert about["workload"] == entry["workload"]
    assert about["variant"] == entry["arguments"][0]
    assert about["event_records"] == ("kineto" if "--plain" in entry["arguments"] else "cupti")
    assert {key: about[key] for key in ("torch", "cuda", "gpu")} == {
        key: entry[key] for key in ("torch", "cuda", "gpu")
    }
    assert entry["driver"]
    assert entry["date"]


def test_workload_still_has_the_variant(entry):
    source = (ROOT / "workloads" / f"{entry['workload']}.py").read_text()
    assert f'"{entry["arguments"][0]}"' in source


def test_steps_are_the_five_recorded(report):
    assert [window.step for window in report.windows] == [None, 1, 2, 3, 4, 5]


def test_overlap_is_what_the_workload_was_made_for(entry, report):
    whole = {(x.a, x.b): x for x in report.overlaps if x.step is None}
    for expected in entry["expect"]["overlap"]:
        a, b = expected["a"], expected["b"]
        if (b, a) in whole:
            found = whole[b, a]
            share = found.overlap_ns / found.b_ns
        else:
            found = whole[a, b]
            share = found.overlap_ns / found.a_ns
        assert expected["least"] <= share <= expected["most"]


def test_blocking_calls_are_exactly_those_of_the_workload(entry, report):
    calls = Counter()
    for sync in report.syncs:
        if sync.step is None:
            calls[sync.api] += sync.count
    assert calls == entry["expect"]["blocking"]


def test_blocking_calls_cost_what_they_must(entry, report):
    caused_ns = sum(sync.caused_idle_ns for sync in report.syncs if sync.step is None)
    assert caused_ns >= entry["expect"].get("caused_idle_us", 0) * 1000


def test_gpu_is_as_busy_as_expected(entry, report):
    window = report.windows[0]
    least, most = entry["expect"]["busy"]
    assert least <= window.devices[0].busy_ns / (window.end_ns - window.start_ns) <= most


def test_stream_waits_are_named_unless_captured_plainly(entry, report):
    links = report.traces[0].event_links
    assert links.unresolved == entry["expect"].get("unresolved_waits", 0)


def test_blocking_calls_are_placed_in_the_workloads_code(entry, report):
    for sync in report.syncs:
        assert sync.file == f"workloads/{entry['workload']}.py"


def test_identities_hold_in_every_window(report):
    for window in report.windows:
        for device in window.devices:
            assert device.busy_ns + device.idle_ns == window.end_ns - window.start_ns
            assert sum(device.bubbles.values()) == device.idle_ns
            assert sum(device.unknown_reasons.values()) == device.bubbles["unknown"]
    for path in report.critical_path:
        assert sum(path.by_kind.values()) == path.total_ns


def _measured(entry, report):
    """One line of the table in workloads/README.md."""
    whole = report.windows[0]
    [gpu] = whole.devices
    steps = [(window.end_ns - window.start_ns) / 1e6 for window in report.windows[1:]]
    syncs = [sync for sync in report.syncs if sync.step is None]
    streams = [x for x in report.overlaps if x.step is None and x.a.startswith("stream:")]
    together = sum(x.overlap_ns for x in streams) / 1e6
    calls = ", ".join(f"{sync.count} x `{sync.api}`" for sync in syncs) or "none"
    cells = [
        f"`{' '.join([entry['workload'], *entry['arguments']])}`",
        f"{statistics.median(steps):.2f} ms",
        f"{100 * gpu.busy_ns / (whole.end_ns - whole.start_ns):.1f} %",
        f"{100 * gpu.copy_compute_overlap_ns / gpu.copy_ns:.1f} %" if gpu.copy_ns > 1e6 else "-",
        f"{together:.2f} ms" if streams else "-",
        calls,
        f"{sum(sync.blocked_ns for sync in syncs) / 1e6:.2f} ms",
        f"{sum(sync.caused_idle_ns for sync in syncs) / 1e6:.2f} ms",
    ]
    return f"| {' | '.join(cells)} |"


def test_table_of_the_workloads_is_what_is_measured(entry, report):
    table = (ROOT / "workloads" / "README.md").read_text()
    assert _measured(entry, report) in table.splitlines()
