"""What a redacted report, its text and its page do not tell."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build.analyses import page_part_of
from tests.figures import figures
from tracelab.analysis.reports import analyze, analyze_file, merge_results
from tracelab.base.options import Options
from tracelab.findings.remedies import REMEDIES
from tracelab.outputs.page import complete_parts
from tracelab.read.sources import find_sources
from tracelab.render.html.page import render_page
from tracelab.render.text.report import render_text
from tracelab.report.load import parse_report
from tracelab.report.redact import Redaction

TRACES = Path(__file__).parents[3] / "traces"
OPTIONS = Options(cache=False)
HOST = "telltale-07"
TELLTALE = "telltale"
# What a name of the program may hold, beside what it is called.
SECRETS = (
    "/home/telltale/my data/x.bin",
    "~/telltale/y",
    "../telltale/z.parquet",
    "telltale/sub/w.csv",
    "C:\\Users\\telltale\\v",
    "\\\\telltale\\share\\u",
    "s3://telltale/t",
    "https://telltale.example.org/s?r=1",
    "telltale-07.example.org:29500",
    "python train.py --telltale 3",
)


def redacted(report):
    return Redaction(report).apply(report)


def told(name, number):
    """A name that tells more: one of the secrets stands after it."""
    return f"{name} {SECRETS[number % len(SECRETS)]}"


def telltale_trace(source, folder):
    """A bundled trace with something telling in each place that may hold it."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    for number, event in enumerate(document["traceEvents"]):
        name, category = event.get("name", ""), event.get("cat", "")
        if category in ("kernel", "gpu_memcpy", "cpu_op", "user_annotation") and not re.match(
            "ProfilerStep|nccl|ncclDev|aten::|record_param_comms|Optimizer", name
        ):
            event["name"] = told(name, number)
        if event.get("ph") == "M" and "name" in event.get("args", {}):
            event["args"]["name"] += f" python /home/telltale/train.py --telltale {number}"
    document |= {"hostname": HOST, "args": ["--telltale"], "traceName": "/home/telltale/x.json"}
    text = json.dumps(document)
    # A folder's name may hold spaces.
    text = re.sub(r'"((?:workloads|programs)/)', r'"/home/telltale/my telltale project/\1', text)
    rank = re.search(r"_rank(\d)", source.name)
    name = f"{HOST}_77.179526337100{rank[1] if rank else 0}.pt.trace.json"
    path = folder / "telltale run" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def analyzed(paths):
    """A report, and what its page needs of each file."""
    names = [str(path) for path in paths]
    results = [analyze_file(x, OPTIONS, then=page_part_of) for x in find_sources(names)]
    return merge_results(results, names, OPTIONS), tuple(result.more for result in results)


def page_of(report, parts):
    return render_page(report, complete_parts(report, parts))


def text_of(report):
    return render_text(report, width=200, color=False, full=True, every_step=True)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("train_step_sinful.pt*", marks=pytest.mark.slow),
        "events_item.*",
        "straggler_more_work_rank*",
        "copies_*",
    ],
)
def test_nothing_tells_where_a_report_was_made(tmp_path, pattern):
    sources = sorted(TRACES.glob(pattern))[:2]
    report, parts = analyzed(telltale_trace(source, tmp_path) for source in sources)
    redaction = Redaction(report)
    shared = redaction.apply(report)
    made = {
        "json": (report.to_json().decode(), shared.to_json().decode()),
        "text": (text_of(report), text_of(shared)),
        "page": (page_of(report, parts), page_of(shared, redaction.apply(parts))),
    }
    for form, (before, after) in made.items():
        assert TELLTALE in before, form
        told = {after[max(0, x.start() - 60) : x.end() + 60] for x in re.finditer(TELLTALE, after)}
        assert not told, form
    assert parse_report(made["json"][1].encode(), "shared.json") == shared
    assert redacted(shared) == shared


def test_what_tells_nothing_stays():
    def words(text):  # lines are as long as the rest of them is short
        return [word for word in text.split() if not word.startswith("─")]

    report = analyze(TRACES / "train_step_sinful.pt.trace.json.gz", OPTIONS)
    before = text_of(report).replace("workloads/", "").replace("tracelab/capture", "capture")
    assert words(text_of(redacted(report))) == words(before.replace(report.traces[0].path, "trace"))


def test_findings_keep_their_line_and_their_edit():
    report = redacted(analyze(TRACES / "train_step_sinful.pt.trace.json.gz", OPTIONS))
    where, edits = report.findings[0].where, {finding.edit for finding in report.findings}
    assert (where.file, where.line) == ("train_step.py", 70)
    assert "unblock:train_step.py:66" in edits
    assert report.traces[0].path == "trace"
    assert report.provenance.paths == ("trace",)


def test_files_are_called_by_their_rank_or_their_number(snapshot):
    ranks = analyze(sorted(TRACES.glob("straggler_more_work_rank*")), OPTIONS)
    assert [trace.path for trace in redacted(ranks).traces] == ["rank 0", "rank 1"]
    apart = analyze([TRACES / f"events_{x}.pt.trace.json.gz" for x in ("item", "wait")], OPTIONS)
    shared = redacted(apart)
    assert [trace.path for trace in shared.traces] == ["trace 0", "trace 1"]
    assert figures(shared.provenance.job.why) == ["0", "1"]
    assert shared.provenance.job.why == snapshot


def test_files_that_could_not_be_read_are_numbered(tmp_path):
    bad = tmp_path / "telltale.json"
    bad.write_text("telltale")
    shared = redacted(analyze([TRACES / "events_item.pt.trace.json.gz", bad], OPTIONS))
    [unread] = shared.provenance.unread
    assert unread.path == "unread file 1"
    assert unread.reason.startswith("unread file 1: ")


@pytest.fixture(scope="module")
def of_one():
    report = analyze(TRACES / "events_item.pt.trace.json.gz", OPTIONS)
    trace = replace(report.traces[0], path="log/telltale-07.example.org_77.1795263371000.json")
    return Redaction(replace(report, traces=(trace,))).apply


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("load /home/me/data/x.bin now", "load … now"),
        ("in step (/home/me/train.py:40)", "in step (train.py:40)"),
        ("C:\\me\\train.py(3): f", "train.py(3): f"),
        ("\\\\nas\\me\\x y", "… y"),
        ("s3://mine/x, https://me.example/y", "… …"),
        ("~/x and ./y/z.bin and ../w", "… and … and …"),
        ("read data/mine.parquet", "read …"),
        ("tcp://telltale-07:29500", "…"),
        ("on telltale-07.lan, telltale-07:1, telltale-0…", "on host, host:1, host"),
        ("log/telltale-07.example.org_77.1795263371000.json", "trace"),
        ("cannot read telltale-07.example.org_77.1795263371000.json", "cannot read trace"),
        ("python train.py --lr 3", "python train.py …"),
        (
            "torch/nn/modules/module.py(12): _call_impl",
            "torch/nn/modules/module.py(12): _call_impl",
        ),
        ("a cut path/to/some…", "a cut …"),
        # What is no path.
        ("stream:0/7 and kind:0/comm", "stream:0/7 and kind:0/comm"),
        ("Torch-Compiled Region: 0/1", "Torch-Compiled Region: 0/1"),
        ("and/or, 3 / 4, 12 MB/s, N/A", "and/or, 3 / 4, 12 MB/s, N/A"),
        ("model/layer/attn", "model/layer/attn"),
        ("void f<float, 4>(int, char*)", "void f<float, 4>(int, char*)"),
        ("In train.py the loop - all of it", "In train.py the loop - all of it"),
        ("telltale-070 untelltale-07", "telltale-070 untelltale-07"),
    ],
)
def test_paths_hosts_and_arguments_are_left_out_of_texts(of_one, text, left):
    assert of_one(text) == left


@pytest.mark.parametrize("name", ["rank_0.1795263371000.json", "step_77.1795263371000.json", "x"])
def test_words_of_reports_are_no_hosts(name):
    report = analyze(TRACES / "events_item.pt.trace.json.gz", OPTIONS)
    report = replace(report, traces=(replace(report.traces[0], path=name),))
    assert Redaction(report).apply("rank 3 in step 5, x") == "rank 3 in step 5, x"


def test_addresses_of_our_own_documentation_stay():
    of = Redaction(analyze(TRACES / "events_item.pt.trace.json.gz", OPTIONS)).apply
    for remedy in REMEDIES:
        assert of(remedy.documented) == remedy.documented


def test_lines_of_the_source_are_left_out():
    report = analyze(TRACES / "events_item.pt.trace.json.gz", options=OPTIONS)
    first, *others = report.findings
    quoted = replace(first, where=replace(first.where, code="token = 'telltale'.item()"))

    [shown, *_] = redacted(replace(report, findings=(quoted, *others))).findings

    assert (shown.where.line, shown.where.code) == (first.where.line, None)
