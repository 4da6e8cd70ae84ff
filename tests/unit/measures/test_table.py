"""Tables as rows, as columns, as data frames and as CSV."""

import csv
import io
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import orjson
import pytest

import tracelab
from tests.build.report_rows import NASTY, make_finding, make_report
from tracelab.base.arrays import Record
from tracelab.base.errors import MissingSupportError, OutputError
from tracelab.base.safe_text import json_bytes
from tracelab.measures.measure import Table

TRACE = Path(__file__).parents[3] / "traces" / "events_item.pt.trace.json.gz"


class Color(StrEnum):
    RED = "red"


class Place(Record):
    file: str | None = None
    line: int | None = None


class Part(Record):
    busy_ns: int


class Row(Record):
    rank: int
    step: int | None
    place: Place
    color: Color
    share: float
    is_late: bool
    events: tuple[int, ...]
    causes: Mapping[str, int]
    parts: tuple[Part, ...] = ()
    later: Place | None = None


ROWS = (
    Row(0, None, Place("a.py", 2**53 + 1), Color.RED, 1, False, (3, 4), {"graph": 5}, (Part(1),)),
    Row(1, 7, Place("=b", None), Color.RED, 0.5, True, (), {"launch": 6}, (), Place("c.py", 9)),
)
COLUMNS = {
    "rank": (0, 1),
    "step": (None, 7),
    "place.file": ("a.py", "=b"),
    "place.line": (2**53 + 1, None),
    "color": ("red", "red"),
    "share": (1, 0.5),
    "is_late": (False, True),
    "events": ([3, 4], []),
    "causes.graph": (5, None),
    "causes.launch": (None, 6),
    "later.file": (None, "c.py"),
    "later.line": (None, 9),
}
TABLE = Table(ROWS)
# Of an empty table, no key of a map is known.
KNOWN = [name for name in COLUMNS if not name.startswith("causes.")]


@pytest.fixture(scope="module")
def report():
    return tracelab.analyze(TRACE)


def test_a_table_is_like_a_tuple_of_its_rows():
    assert (len(TABLE), TABLE[0], TABLE[-1], list(TABLE)) == (2, ROWS[0], ROWS[1], [*ROWS])
    assert TABLE == ROWS
    assert ROWS == TABLE
    assert ROWS[:1] != TABLE
    assert ROWS[1] in TABLE
    assert [*reversed(TABLE)] == [*reversed(ROWS)]
    assert hash(Table("ab")) == hash(("a", "b"))
    assert pickle.loads(pickle.dumps(TABLE)) == TABLE
    with pytest.raises(IndexError):
        _ = TABLE[2]


def test_a_slice_is_a_table_with_the_same_columns():
    assert isinstance(TABLE[1:], Table)
    assert TABLE[1:] == ROWS[1:]
    assert list(TABLE[:0].columns) == KNOWN


def test_its_json_is_that_of_its_rows():
    assert json_bytes(TABLE) == json_bytes([*ROWS])
    nasty = Table([Place(NASTY)])
    assert orjson.loads(json_bytes(nasty)) == orjson.loads(json_bytes([Place(NASTY)]))


def test_columns_are_flat_and_in_the_order_of_the_fields():
    assert TABLE.columns == COLUMNS
    assert list(TABLE.columns) == list(COLUMNS)


def test_rows_may_be_dataclasses_of_any_type():
    @dataclass(frozen=True)
    class Mine:
        rank: int
        what: object = None

    assert Table([Mine(3, "x")]).columns == {"rank": (3,), "what": ("x",)}


def test_its_repr_is_one_line():
    assert repr(Table(ROWS[0].parts)) == "<Table of 1 row: busy_ns>"
    assert len(repr(TABLE)) == 100
    assert ", ".join(list(COLUMNS)[:5]) in repr(TABLE)


def test_pandas_keeps_whole_numbers():
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = TABLE.to_pandas()
    assert list(frame) == list(COLUMNS)
    assert frame["place.line"][0] == 2**53 + 1
    types = frame.dtypes.astype(str)
    assert (types["rank"], types["step"], types["share"]) == ("int64", "Int64", "float64")
    assert (types["is_late"], types["events"]) == ("bool", "object")
    assert frame["events"][0] == [3, 4]
    empty = TABLE[:0].to_pandas()
    assert list(empty) == KNOWN
    assert empty["rank"].sum() == 0


def test_polars_and_arrow_have_the_same_columns_of_the_same_types_with_or_without_rows():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = TABLE.to_polars()
    assert {name: tuple(cells) for name, cells in frame.to_dict(as_series=False).items()} == COLUMNS
    assert {name: frame.schema[name] for name in KNOWN} == dict(TABLE[:0].to_polars().schema)
    assert frame.schema["events"] == polars.List(polars.Int64)
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = TABLE.to_arrow()
    assert {name: tuple(cells) for name, cells in table.to_pydict().items()} == COLUMNS
    assert [str(field.type) for field in table.schema][:7] == [
        *("int64", "int64", "string", "int64", "string", "double", "bool")
    ]
    assert table.select(KNOWN).schema == TABLE[:0].to_arrow().schema


def test_who_knows_the_arrow_interface_takes_a_table_as_it_is():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    assert pyarrow.table(TABLE) == TABLE.to_arrow()
    assert polars.DataFrame(TABLE).equals(TABLE.to_polars())
    pandas = pytest.importorskip("pandas", minversion="3", reason="pandas is older than 3")
    assert pandas.DataFrame.from_arrow(TABLE).shape == (2, len(COLUMNS))


def test_every_table_of_a_report_is_one(report):
    pytest.importorskip("pandas", reason="pandas is not installed")
    names = ("traces", "findings", "notes", "savings", "causal", "steps", *report.tables)
    for name in names:
        table = getattr(report, name)
        assert isinstance(table, Table), name
        assert table.columns, name
        assert len(table.to_pandas()) == len(table)
        assert len(table.to_arrow()) == len(table) == len(table.to_polars())
    assert isinstance(tracelab.whatif(TRACE).predictions, Table)
    assert isinstance(replace(report, findings=tuple(report.findings)).findings, Table)


def test_a_read_report_has_the_same_tables(report, tmp_path):
    report.save(tmp_path / "report.json")
    again = tracelab.load_report(tmp_path / "report.json")
    assert again == report
    assert again.findings.columns == report.findings.columns
    assert again.graph_idle.columns.keys() == report.graph_idle.columns.keys() != set()


def test_steps_have_the_length_and_the_idle_time_by_cause_of_each(report):
    assert [row.step for row in report.steps] == [x.step for x in report.windows[1:]]
    columns = report.steps.columns
    causes = [cells for name, cells in columns.items() if name.startswith("bubbles_ns.")]
    assert len(causes) > 5
    assert [*map(sum, zip(*causes, strict=True))] == [*columns["idle_ns"]]
    for row in report.steps:
        assert row.busy_ns + row.idle_ns == row.length_ns > 0


def test_steps_of_a_file_without_a_gpu_are_idle():
    report = make_report(findings=[make_finding()])
    assert report.steps == ()
    assert list(report.steps.columns)[:4] == ["rank", "step", "device", "length_ns"]


def test_csv_has_the_same_columns_and_no_formula(tmp_path):
    text = TABLE.to_csv()
    rows = [*csv.DictReader(io.StringIO(text))]
    assert list(rows[0]) == list(COLUMNS)
    assert [row["events"] for row in rows] == ["3; 4", ""]
    assert [row["place.file"] for row in rows] == ["a.py", "'=b"]
    assert TABLE.to_csv(tmp_path / "new" / "a.csv") is None
    assert Path(tmp_path, "new", "a.csv").read_text() == text
    with pytest.raises(OutputError, match="directory"):
        TABLE.to_csv(tmp_path)


@pytest.mark.parametrize(
    ("package", "extra"), [("pandas", "pandas"), ("polars", "polars"), ("pyarrow", "arrow")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    form = getattr(TABLE, f"to_{extra}")
    with pytest.raises(MissingSupportError, match=rf"needs {package}: pip install '.*\[{extra}\]'"):
        form()


def test_no_data_frame_is_imported_unasked():
    code = f"""
import sys, tracelab
report = tracelab.analyze({str(TRACE)!r})
report.findings._repr_html_(), str(report.steps), repr(report), report.kernels.to_csv()
print([name for name in ("pandas", "polars", "pyarrow", "IPython") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
