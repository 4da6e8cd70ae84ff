"""The example of ``short_activities.py``: a measure is one file, registered by one line."""

import importlib
import pickle
from dataclasses import asdict
from pathlib import Path

import jsonschema
import orjson
import pytest

import tracelab
from tests.build.files import US, kernel, launch, step, write
from tests.build.json_schema import json_schema
from tracelab.comparison.compare import compare_sides
from tracelab.comparison.diff import Side
from tracelab.measures.registry import MEASURES
from tracelab.render.text.report import render_result, render_text


@pytest.fixture(scope="module")
def measures():
    """Those of the package and the one of the recipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        yield (*MEASURES, importlib.import_module("short_activities").MEASURE)


@pytest.fixture
def analyze(measures, tmp_path):
    """Analyze files, one for each rank, whose kernel "add" takes so many microseconds."""

    def run(*add_us):
        paths = [
            write(tmp_path / f"rank{rank}.json", _events(us), before=_rank(rank))
            for rank, us in enumerate(add_us)
        ]
        return tracelab.analyze(paths, measures=measures)

    return run


def _rank(rank):
    return {"distributedInfo": {"rank": rank, "world_size": 2}}


def _events(add_us):
    """Two steps of 100 us; in each a kernel of 50 us and a short one."""
    return [
        event
        for number in range(2)
        for start_us in [100 * number]
        for event in (
            step(number, start_us * US, (start_us + 100) * US),
            launch(start_us * US, (start_us + 2) * US, 10 * number + 1),
            launch((start_us + 3) * US, (start_us + 5) * US, 10 * number + 2),
            kernel((start_us + 10) * US, (start_us + 60) * US, correlation=10 * number + 1),
            kernel(
                (start_us + 60) * US,
                (start_us + add_us + 60) * US,
                "add",
                correlation=10 * number + 2,
            ),
        )
    ]


def _short(rows):
    return [(row.rank, row.step, row.name, row.count, row.total_ns) for row in rows]


def test_its_rows_are_in_the_report(analyze):
    rows = analyze(3).tables["short_activities"]

    assert _short(rows) == [
        (0, None, "add", 2, 6_000),
        (0, 0, "add", 1, 3_000),
        (0, 1, "add", 1, 3_000),
    ]


def test_its_rows_have_their_rank_in_the_merged_report(analyze):
    report = analyze(3, 4)

    whole = [row for row in report.tables["short_activities"] if row.step is None]
    assert _short(whole) == [(0, None, "add", 2, 6_000), (1, None, "add", 2, 8_000)]
    assert pickle.loads(pickle.dumps(report)) == report


def test_its_table_is_in_the_json_and_its_schema(analyze, measures):
    data = orjson.loads(analyze(3).to_json())

    schema = json_schema(measures)
    jsonschema.validate(data, schema)
    assert data["short_activities"][0] == {
        "rank": 0,
        "step": None,
        "name": "add",
        "count": 2,
        "total_ns": 6_000,
    }
    definition = schema["$defs"]["ShortActivities"]
    assert definition["description"].startswith("The short GPU activities of one name")
    assert list(definition["properties"]) == definition["required"]
    data["short_activities"][0]["count"] = "two"
    with pytest.raises(jsonschema.ValidationError, match="'two' is not of type 'integer'"):
        jsonschema.validate(data, schema)


def whole_text(report):
    """The text with every table: the first screen has none of an own measure."""
    return render_text(report, width=100, color=False, full=True)


def test_printed_report_has_a_section_of_it(analyze):
    section = whole_text(analyze(3)).partition("Short activities\n")[2].splitlines()

    assert section[0].split() == ["name", "count", "total"]
    assert section[2].split() == ["add", "2", "6.00", "µs"]


def test_its_table_is_there_after_saving_and_loading(analyze, tmp_path):
    report = analyze(3, 4)

    report.save(tmp_path / "report.json")
    loaded = tracelab.load_report(tmp_path / "report.json")

    assert list(map(asdict, loaded.tables["short_activities"])) == list(
        map(asdict, report.tables["short_activities"])
    )
    assert loaded.to_json() == report.to_json()
    assert str(loaded) == str(report)
    assert whole_text(loaded) == whole_text(report)


@pytest.mark.parametrize("is_saved", [False, True])
def test_it_is_compared(analyze, tmp_path, is_saved):
    reports = [analyze(1), analyze(4)]
    if is_saved:
        for number, report in enumerate(reports):
            report.save(tmp_path / f"{number}.json")
        reports = tracelab.load_report([tmp_path / "0.json", tmp_path / "1.json"])

    diff = compare_sides(*(Side(report, None) for report in reports))

    [row] = diff.ranks[0].tables["short_activities"]
    change = row.times["total_ns"]
    assert row.names == {"name": "add"}
    assert (change.before_ns, change.after_ns, change.difference_ns) == (1_000, 4_000, 3_000)
    text = render_result(diff, width=100, color=False)
    section = text.partition("Short activities, per step\n")[2].splitlines()
    assert section[2].split() == ["add", "total", "1.00", "µs", "4.00", "µs", "+3.00", "µs"]


def test_file_without_any_of_it_has_an_empty_table(analyze):
    report = analyze(30)

    assert report.tables["short_activities"] == ()
    assert orjson.loads(report.to_json())["short_activities"] == []
    assert "Short activities" not in str(report)
