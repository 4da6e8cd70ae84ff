import gzip
import json
from pathlib import Path

import jsonschema
import orjson
import pytest

from tests.build.files import US, kernel, launch, operator, python, step, write
from tests.build.json_schema import json_schema
from tests.bundled_traces import PATHS
from tests.shared_traces import FOLDER as REAL_FOLDER, needs_real_traces
from tracelab import analyze, load_report
from tracelab.base.errors import UnreadableInputError
from tracelab.base.options import Options
from tracelab.render.csv_tables import write_csv
from tracelab.render.registry import render_as
from tracelab.render.section import cell
from tracelab.report import schema

BEFORE = {"distributedInfo": {"rank": 3}}


@pytest.fixture
def report(tmp_path):
    """A report in which every list has something in it."""
    events = [
        step(1, 0, 90 * US),
        python("train.py(3): step", US, 81 * US),
        operator("aten::item", 20 * US, 50 * US),
        launch(US, 3 * US, 1),
        kernel(3 * US, 20 * US, "my_own", correlation=1),
        kernel(10 * US, 20 * US, "ncclDevKernel_AllReduce", stream=13),
        launch(22 * US, 28 * US, 2, name="cudaStreamSynchronize"),
        launch(50 * US, 55 * US, 3),
        kernel(60 * US, 100 * US, "my_own", correlation=3),
    ]
    return analyze(write(tmp_path / "hand.json", events, before=BEFORE))


def test_saved_report_loads_as_it_was(report, tmp_path):
    file = tmp_path / "report.json"

    report.save(file)

    assert load_report(file) == report
    assert load_report(str(file)).to_json() == report.to_json()
    assert all((report.traces, report.windows, report.overlaps, report.syncs))
    assert all((report.critical_path, report.traces[0].launched_only, report.traces[0].losses))


def test_report_of_before_findings_said_what_they_are_about(report, tmp_path):
    data = json.loads(report.to_json())
    for finding in data["findings"]:
        del finding["about"]
    file = tmp_path / "report.json"
    file.write_bytes(orjson.dumps(data))

    assert load_report(file) == report
    assert [x.about for x in load_report(file).findings] == ["program"] * 2 + ["trace"] * 4


def test_json_has_the_keys_that_scripts_rely_on(report):
    data = json.loads(report.to_json())

    assert list(data) == [
        "schema",
        "version",
        "provenance",
        "traces",
        "windows",
        "overlaps",
        "syncs",
        "holders",
        "graph_idle",
        "critical_path",
        "starts",
        "latencies",
        "steady",
        "served_steps",
        "memory",
        "kernels",
        "operators",
        "phases",
        "lines",
        "modules",
        "findings",
        "notes",
        "savings",
        "headline",
        "whatif",
        "causal",
        "job",
    ]
    assert (data["schema"], data["whatif"], data["job"]) == ("tracelab.report/1", None, None)
    assert [x["rule"] for x in data["findings"]] == [
        "TL301",
        "TL101",
        "TL902",
        "TL903",  # its source is not here
        "TL905",
        "TL910",  # it has stacks, and no time without the profiler
    ]
    assert list(data["findings"][0]) == [
        "rule",
        "title",
        "severity",
        "rank",
        "step",
        "cause",
        "cost_ns",
        "bound_ns",
        "where",
        "evidence",
        "fix",
        "about",
        "steps_seen",
        "spread_ns",
        "edit",
        "saves_ns",
        "saves_low_ns",
        "saves_high_ns",
        "saves_reason",
        "remedy",
        "source",
        "role",
        "fix_short",
    ]
    window = data["windows"][0]
    assert (window["rank"], window["step"]) == (3, None)
    assert (window["start_ns"], window["end_ns"]) == (3 * US, 100 * US)
    assert {"path", "rank", "events", "gpu_activities", "losses", "event_links"} <= set(
        data["traces"][0]
    )
    assert list(data["traces"][0]["event_links"]) == ["exact", "inferred", "unresolved"]


def test_figures_of_a_report_by_hand(report):
    # The whole trace is [3, 100) us. Stream 7 works in [3, 20) and [60, 100), stream 13 in
    # [10, 20): 57 us busy, 40 idle. What is idle from 20 to 60: blocked in [22, 28), busy before
    # and after, launched at 50.
    (device,) = report.windows[0].devices

    assert (device.busy_ns, device.idle_ns) == (57 * US, 40 * US)
    assert (device.comm_ns, device.exposed_comm_ns) == (10 * US, 0)
    assert {cause: ns for cause, ns in device.bubbles.items() if ns} == {
        "host_blocked": 6 * US,
        "host_busy": (2 + 22) * US,
        "launch": 10 * US,
    }
    (sync,) = (x for x in report.syncs if x.step is None)
    assert (sync.api, sync.kind, sync.count) == ("cudaStreamSynchronize", "stream", 1)
    assert (sync.blocked_ns, sync.caused_idle_ns) == (6 * US, 6 * US)
    assert (sync.operator, sync.function, sync.file) == ("aten::item", "step", "train.py")


def test_key_that_a_later_version_added_is_no_obstacle(report, tmp_path):
    data = orjson.loads(report.to_json())
    data["windows"][0]["colour"] = "blue"
    data["more"] = [1]

    (tmp_path / "report.json").write_bytes(orjson.dumps(data))

    assert load_report(tmp_path / "report.json") == report


def _spoiled(data, *keys, value):
    *way, last = keys
    for key in way:
        data = data[key]
    data[last] = value


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["windows"], None),
        (["windows"], 7),
        (["windows"], "text"),
        (["windows", 0], []),
        (["windows", 0, "start_ns"], "soon"),
        (["windows", 0, "devices", 0, "bubbles"], []),
        (["windows", 0, "devices", 0, "bubbles", "edge"], None),
        (["traces", 0, "losses"], 3),
        (["traces", 0, "path"], 3),
        (["syncs", 0, "operator"], 3),
        (["syncs", 0, "kind"], "nasty"),
        (["findings", 0, "severity"], "nasty"),
        (["findings", 0, "rule"], "nasty"),
        (["latencies", 0, "since"], ""),
        (["latencies", 0, "kind"], "nasty"),
        (["lines", 0, "replay_basis"], "nasty"),
        (["traces"], []),
    ],
)
def test_damaged_report_is_unreadable(report, tmp_path, keys, value):
    data = orjson.loads(report.to_json())
    _spoiled(data, *keys, value=value)
    (tmp_path / "report.json").write_bytes(orjson.dumps(data))

    with pytest.raises(UnreadableInputError, match=r"report\.json: the report is damaged"):
        load_report(tmp_path / "report.json")


def test_report_without_one_of_its_keys_is_unreadable(report, tmp_path):
    data = orjson.loads(report.to_json())
    del data["traces"][0]["event_links"]
    (tmp_path / "report.json").write_bytes(orjson.dumps(data))

    with pytest.raises(UnreadableInputError, match="event_links"):
        load_report(tmp_path / "report.json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "report.json"),
        (b'{"schema": "tracelab.report/1", "win', "report.json"),
        (b"\xff\xfe", "report.json"),
        (b"[]", "not a report of the schema tracelab.report/1"),
        (b'"tracelab.report/1"', "not a report of the schema"),
        (b"{}", "not a report of the schema"),
        (b'{"schema": "tracelab.report/2"}', "not a report of the schema"),
        (b'{"schema": "tracelab.report/1"}', "the report is damaged"),
        (b'{"traceEvents": []}', "not a report of the schema"),
    ],
)
def test_file_that_is_no_report_is_unreadable(tmp_path, content, reason):
    (tmp_path / "report.json").write_bytes(content)

    with pytest.raises(UnreadableInputError, match=reason):
        load_report(tmp_path / "report.json")


def test_missing_report_is_unreadable(tmp_path):
    with pytest.raises(UnreadableInputError, match="no such file"):
        load_report(Path(tmp_path) / "none.json")


def test_the_published_schema_is_the_one_that_the_classes_make():
    published = Path(schema.__file__).with_name("report.schema.json")
    assert json.loads(published.read_text()) == json_schema()


@pytest.mark.parametrize(
    "row",
    [
        {"rank": 0, "step": None, "__debug__": 1},
        {"rank": 0, "step": None, "__dict__": 1},
        {"rank": 0, "step": None, "class": 1},
        {"rank": 0, "step": None, "two words": 1},
        {"rank": "zero", "step": None},
        {"rank": 0, "step": [1]},
        {"rank": 0},
    ],
)
def test_unknown_key_that_holds_no_table_is_ignored(report, tmp_path, row):
    file = tmp_path / "report.json"
    file.write_bytes(orjson.dumps({**json.loads(report.to_json()), "mine": [row]}))

    assert load_report(file) == report


@pytest.mark.parametrize("key", ["a\0b", "../mine", "", "x" * 200, "two words"])
def test_unknown_table_whose_key_is_no_name_is_ignored(report, tmp_path, key):
    rows = [{"rank": 0, "step": None, "x_ns": 1}]
    file = tmp_path / "report.json"
    file.write_bytes(orjson.dumps({**json.loads(report.to_json()), key: rows}))

    assert load_report(file) == report


def test_unknown_table_may_hold_anything(report, tmp_path):
    rows = [{"rank": 3, "step": None, "x_ns": "soon", "y": [1, {"/../z": [{"rank": 0, "a": 1}]}]}]
    rows += [{"rank": 3, "step": 1, "x_ns": {"/../../z": [{"rank": 0, "a": 1}]}}]
    file = tmp_path / "report.json"
    file.write_bytes(orjson.dumps({**json.loads(report.to_json()), "mine": rows}))

    loaded = load_report(file)

    assert "soon" in render_as(loaded, "text", width=80, color=False, full=True)
    written = write_csv(loaded, tmp_path / "csv")
    assert {path.parent for path in written} == {tmp_path / "csv"}
    assert tmp_path / "csv" / "mine.x_ns._.._.._z.csv" in written


def test_a_share_that_no_percentage_shows_is_refused_and_shown_as_a_number(report, tmp_path):
    rows = [{"rank": 3, "step": None, "q_share": 1e308}]
    assert cell("q_share", 1e308)[0] == f"{1e308:,}"
    file = tmp_path / "report.json"
    file.write_bytes(orjson.dumps({**json.loads(report.to_json()), "mine": rows}))
    with pytest.raises(UnreadableInputError, match="a number is too large"):
        load_report(file)


def test_a_saved_report_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(b"\xef\xbb\xbf" + analyze("traces/events_item.pt.trace.json.gz").to_json())
    assert load_report(path).traces[0].rank == 0


@pytest.mark.parametrize("rank", [-1, 7])
def test_a_rank_without_windows_is_damage(tmp_path, rank):
    report = json.loads(analyze("traces/events_item.pt.trace.json.gz").to_json())
    report["traces"][0]["rank"] = rank
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    with pytest.raises(UnreadableInputError, match=f"is damaged: rank {rank} has no window"):
        load_report(path)


@needs_real_traces
@pytest.mark.slow
def test_report_of_eight_ranks_is_of_the_schema():
    folder = REAL_FOLDER / "param_dlrm_8ranks"

    job = analyze(folder, Options(job=True))

    jsonschema.validate(json.loads(job.to_json()), json_schema())
    assert len(job.job.ranks) == 8
    assert min(min(x.arrival_ns) for x in job.job.collectives) < 0  # before the first of rank 0


def test_report_of_a_clock_that_is_behind_is_of_the_schema(tmp_path):
    first, second = (path for path in PATHS if path.name.startswith("straggler_even_rank"))
    data = json.loads(gzip.decompress(second.read_bytes()))
    for row in data["traceEvents"]:
        if row.get("ph") != "M":
            row["ts"] -= 5_000  # microseconds
    (tmp_path / second.stem).write_text(json.dumps(data))

    job = analyze([first, tmp_path / second.stem])

    jsonschema.validate(json.loads(job.to_json()), json_schema())
    _, clock = job.job.alignment.per_rank
    assert clock.offset_ns < 0
