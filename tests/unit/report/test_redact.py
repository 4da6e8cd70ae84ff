"""What a redacted report, its text and its page do not tell."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tracelab.options import Options
from tracelab.pages import part_of_page
from tracelab.render.html.page import render_page
from tracelab.render.text.report import render_text
from tracelab.report.load import parse_report
from tracelab.report.redact import Redaction, redacted
from tracelab.read.sources import find_sources
from tracelab.reports import analyze, analyze_file, merge_results

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
    results = [analyze_file(x, OPTIONS, then=part_of_page) for x in find_sources(names)]
    return merge_results(results, names, OPTIONS), [result.more for result in results]


@pytest.mark.parametrize(
    "pattern", ["train_step_sinful.*", "events_item.*", "straggler_more_work_rank*", "copies_*"]
)
def test_nothing_tells_where_a_report_was_made(tmp_path, pattern):
    sources = sorted(TRACES.glob(pattern))[:2]
    paths = [telltale_trace(source, tmp_path) for source in sources]
    report, parts = analyzed(paths)
    redaction = Redaction(report)
    shared = redaction.of(report)
    made = {
        "json": (report.to_json().decode(), shared.to_json().decode()),
        "text": [
            render_text(x, width=200, full=True, every_step=True, color=False)
            for x in (report, shared)
        ],
        "page": [render_page(report, parts), render_page(shared, redaction.of(tuple(parts)))],
    }
    for form, (before, after) in made.items():
        assert TELLTALE in before, form
        found = {after[max(0, x.start() - 60) : x.end() + 60] for x in re.finditer(TELLTALE, after)}
        assert not found, form
