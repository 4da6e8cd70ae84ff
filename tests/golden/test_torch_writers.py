"""One program in every layout that torch 2.15 writes: one timeline, one report, no unknown key.

`python -m tests.build.torch_writers` let torch's own writers write the files of `tests/data`; where
the installed torch can, they are written anew, and looked at as well.
"""

import gzip
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.collector_layout import compare, unexpected
from tests.build.torch_writers import BRANCH, COMPUTE, NCCL, STEPS
from tracelab.model.graph import EdgeKind, build_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import ABSENT, Category
from tracelab.read.json.events import WORDS, annotation_of
from tracelab.read.json.fields import Arguments, MemoryArguments, MessageArguments
from tracelab.read.reader import read_trace

torch = pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests/data/torch_2.15"
TABLE = tomllib.loads((KEPT / "keys.toml").read_text())
CATALOG = TABLE["catalog"]
INCLUDE = Path(torch.__file__).parent / "include/kineto"
READ = {key for keys in TABLE["read"].values() for key in keys}
IGNORED = {key for keys in TABLE["ignored"].values() for key in keys}
JSON = ("cuspy", "cuspy_lanes", "kineto", "kineto_lanes")
PACKETS = ("cuspy", "cuspy_lanes")
FILES = [f"{x}.json.gz" for x in JSON] + [f"{x}.pftrace.gz" for x in PACKETS]
# Not in every layout: Kineto has no rows of these nodes, Cuspy none of events.
OF_SOME = (
    Category.OTHER,
    Category.OVERHEAD,
    Category.CUDA_EVENT,
    Category.GPU_ANNOTATION,
    Category.GRAPH_EVENT_NODE,
    Category.GRAPH_HOST_NODE,
)


@pytest.fixture(scope="module", params=["kept", "written"])
def folder(request, tmp_path_factory):
    if request.param == "kept":
        return KEPT
    if not hasattr(torch.profiler, "CuspyConfig") or importlib.util.find_spec("cupti") is None:
        pytest.skip("needs torch 2.15 or newer with CUDA, and cupti-python")
    written = tmp_path_factory.mktemp("written")
    command = [sys.executable, "-m", "tests.build.torch_writers", written]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return written


def rows_of(path):
    """What every layout has of each event."""
    trace = read_trace(path)
    rows = []
    for i in range(len(trace)):
        category = Category(int(trace.category[i]))
        if category in OF_SOME:
            continue
        thread = trace.threads[trace.thread_index[i]]
        node, message = int(trace.graph_node_row[i]), int(trace.message_row[i])
        annotation = trace.graph_nodes.annotation_index[node]
        rows.append(
            (
                category.name,
                int(trace.start_ns[i]) + trace.origin_ns,
                int(trace.duration_ns[i]),
                "Memcpy" if category == Category.MEMCPY else trace.name_of(i),
                int(trace.stream_number[i]),
                int(trace.device_number[i]),
                int(trace.correlation[i]),
                int(trace.copied_bytes[i]),
                int(trace.wait_correlation[i]),
                int(trace.cuda_event_number[i]),
                int(trace.messages.sequence[message]),
                int(trace.messages.in_bytes[message]),
                "" if annotation == ABSENT else trace.graph_nodes.annotations[annotation],
                (thread.process, thread.thread) if int(trace.device_number[i]) == ABSENT else (),
                trace.operator_inputs.text_index[int(trace.operator_input_row[i])] != ABSENT,
            )
        )
    return sorted(rows)


@pytest.mark.parametrize("name", FILES)
def test_nothing_in_a_file_is_unknown(folder, name):
    losses = {key: count for key, count in read_trace(folder / name).losses.items() if count}
    # Packets do not have the direction of a copy.
    assert losses == ({"copies_without_direction": 2 * STEPS} if "pftrace" in name else {})


@pytest.mark.parametrize("name", FILES)
def test_every_layout_has_the_same_timeline(folder, name):
    rows = rows_of(folder / "cuspy.json.gz")
    assert rows_of(folder / name) == rows
    kernels = {(row[3], row[4]) for row in rows if row[0] == "KERNEL"}
    assert ("layer_norm_forward", BRANCH) in kernels
    assert {stream for _, stream in kernels} == {COMPUTE, BRANCH, NCCL}
    assert {row[12] for row in rows} == {"", "branch, heads=8"}


@pytest.mark.parametrize("name", FILES)
def test_every_wait_is_for_the_work_before_the_record(folder, name):
    trace = read_trace(folder / name)
    graph = build_graph(observe_host(build_timeline(trace)))
    is_event = graph.kind == EdgeKind.EVENT
    ends = (graph.source_id[is_event].tolist(), graph.target_id[is_event].tolist())
    waits = Counter(
        tuple(re.split(r"[ _]", trace.name_of(event))[0] for event in pair)
        for pair in zip(*ends, strict=True)
    )
    pairs = [("Memcpy", "sm90"), ("at::native::relu", "ncclDevKernel"), ("ncclDevKernel", "Memset")]
    assert [waits[pair] for pair in pairs] == [STEPS] * 3
    assert waits.keys() - pairs <= {("Memset", "layer")}  # inferred, and right, within the graph


@pytest.mark.parametrize("name", ["cuspy_lanes", "kineto", "kineto_lanes"])
def test_every_layout_has_the_same_report(folder, name):
    assert unexpected(compare([folder / "cuspy.json.gz"], [folder / f"{name}.json.gz"])) == {}


@pytest.mark.parametrize("name", PACKETS)
def test_packets_have_the_report_of_the_json_without_directions(folder, tmp_path, name):
    with gzip.open(folder / f"{name}.json.gz") as file:
        trace = json.load(file)
    for event in trace["traceEvents"]:
        if event["name"] == "Memcpy":
            del event["args"]["copy kind"]
    without = tmp_path / "without.json"
    without.write_text(json.dumps(trace))
    assert unexpected(compare([without], [folder / f"{name}.pftrace.gz"])) == {}


@pytest.mark.parametrize("name", JSON)
def test_every_key_of_a_file_is_in_the_table(folder, name):
    with gzip.open(folder / f"{name}.json.gz") as file:
        trace = json.load(file)
    of_program = {"heads"}
    arguments = {key for event in trace["traceEvents"] for key in event.get("args", {})}
    assert arguments - of_program <= READ | IGNORED
    assert trace.keys() <= READ | IGNORED
    assert len(arguments) > 30


def test_every_key_of_the_catalog_is_in_the_table():
    keys = {key for keys in CATALOG.values() for key in keys}
    assert keys <= READ | IGNORED
    assert len(keys) > 100


def test_every_key_that_the_installed_torch_has_is_in_the_table():
    header = INCLUDE / "MetadataFieldCatalog.h"
    if not header.exists():
        pytest.skip("torch has this header since 2.14")
    pattern = r'Metadata(?:Field<[^{]*|Dict) k\w+\{\s*"([^"]+)"'
    keys = set(re.findall(pattern, header.read_text()))
    assert keys <= READ | IGNORED
    assert len(keys) > 100


def test_every_category_of_the_profiler_is_known():
    header = (INCLUDE / "ActivityType.h").read_text()
    words = set(re.findall(r'\{"([a-z_0-9]+)", ActivityType::', header))
    assert words <= {word for known in WORDS.categories.values() for word in known}
    assert len(words) > 25


def test_the_reader_has_the_keys_that_the_table_says_it_reads():
    used = {
        *Arguments.__struct_encode_fields__,
        *MessageArguments.__struct_encode_fields__,
        *MemoryArguments.__struct_encode_fields__,
    }
    assert used & IGNORED == set()
    code = "".join(path.read_text() for path in (ROOT / "tracelab").rglob("*.py"))
    assert {key for key in READ - used if f'"{key}"' not in code} == set()
    assert set() == READ & IGNORED


def test_what_kineto_can_write_of_a_node_is_no_annotation_of_the_program():
    of_nodes = dict.fromkeys(CATALOG["CudaMetadataFields"] + CATALOG["CollectiveMetadataFields"], 1)
    of_others = (
        "cbid",
        "cuda_sync_kind",
        "event_id",
        "wait_on_",
        *TABLE["ignored"]["the estimate sums them up"][1:],
    )
    written = {key: x for key, x in of_nodes.items() if not key.startswith(of_others)}
    assert annotation_of(written) == ""
    assert annotation_of(written | {"name": "branch"}) == "branch"
