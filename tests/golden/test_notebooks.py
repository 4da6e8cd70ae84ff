"""The notebooks run as they are, and print what is kept in them.

Cells with the tag "live" record on this machine: they run, and their output is not compared.
After a change that they are to show, `python tests/golden/test_notebooks.py` keeps the new outputs.
"""

import os
import re
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
FIRST = "first_trace_in_five_minutes"
SHOWN_BY_DEFAULT = {FIRST, "the_graph_with_networkx"}
LIVE = "live"
SECONDS_PER_CELL = 300  # of a machine that does much else; a cell takes a few
KERNEL_FOLDERS = ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR")
LARGEST_FILE = 500_000
LARGEST_PICTURE = 150_000
MAX_CELLS, MAX_CELL_LINES = 12, 40
ABSOLUTE_PATH = re.compile(r"(?:^|[\s'\"(])(?:/|[A-Z]:\\)\w")
PRIVATE_NAME = re.compile(r"(?:\.|import )_[a-z]")
LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.fixture(scope="module", autouse=True)
def _packages():
    for package in ("ipykernel", "nbclient", "nbformat", "pandas"):
        pytest.importorskip(package, reason=f"running notebooks needs {package}: install .[dev]")


def _read(path):
    import nbformat

    return nbformat.read(path, as_version=4)


def _execute(notebook, scratch):
    """Run all cells anew, in a folder with the same neighbors: a notebook may write there."""
    from nbclient import NotebookClient

    folder = scratch / FOLDER.name
    folder.mkdir()
    (scratch / "traces").symlink_to(FOLDER.parent / "traces")
    # No link: source is read of files that lie in the given folder themselves.
    shutil.copytree(FOLDER.parent / "workloads", scratch / "workloads")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
    )
    environment = dict.fromkeys(KERNEL_FOLDERS, str(scratch))
    environment["OMP_NUM_THREADS"] = "1"  # several wait for each other on a machine that is busy
    with patch.dict(os.environ, environment):
        client.execute()
    notebook.metadata.language_info = {"name": "python"}  # not the version that ran it
    return notebook


def _code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _printed(notebook):
    """The text that each cell printed or gave as its result; pictures and prose by type only."""
    return {
        cell.id: [
            x.text if x.output_type == "stream" else (x.data["text/plain"], x.data.get("text/html"))
            for x in cell.outputs
        ]
        for cell in _code(notebook)
        if LIVE not in cell.metadata.get("tags", ())
    }


def _require_shown(notebook):
    """Require that every cell shows something, and none an error or a warning."""
    for cell in _code(notebook):
        assert cell.outputs, f"the cell {cell.id} shows nothing"
        for output in cell.outputs:
            assert output.output_type in ("stream", "execute_result", "display_data")
            assert output.get("name") != "stderr", output.text


def test_all_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "a_job_of_ranks",
        "find_my_missing_overlap",
        "first_trace_in_five_minutes",
        "pandas_and_your_own_question",
        "the_graph_with_networkx",
        "which_fix_first",
        "your_own_measure_and_rule",
    ]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, marks=[] if path.stem in SHOWN_BY_DEFAULT else [pytest.mark.slow], id=path.stem
        )
        for path in NOTEBOOKS
    ],
)
def test_it_runs_and_prints_what_is_kept(path, tmp_path):
    if path.stem == FIRST:
        pytest.importorskip("torch", reason="recording needs torch: install .[dev-frameworks]")
    before = sorted(FOLDER.rglob("*"))
    executed = _execute(_read(path), tmp_path)
    _require_shown(executed)
    assert _printed(executed) == _printed(_read(path))
    assert sorted(FOLDER.rglob("*")) == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_short_and_leads_on(path):
    cells = _read(path).cells
    assert len(cells) <= MAX_CELLS
    assert cells[0].source.startswith("# ")
    assert "## Where to go next\n" in cells[-1].source
    for cell in cells:
        assert cell.source.count("\n") < MAX_CELL_LINES, cell.id
        if cell.cell_type == "code":
            assert not PRIVATE_NAME.search(cell.source), cell.id
        else:
            links = LINK.findall(cell.source)
            assert [x for x in links if not (FOLDER / x).exists()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_and_clean(path):
    assert path.stat().st_size < LARGEST_FILE
    code = _code(_read(path))
    _require_shown(_read(path))
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        for output in cell.outputs:
            pictures = output.get("data", {}).get("image/png", "")
            assert len(pictures) * 3 / 4 < LARGEST_PICTURE
            printed = output.get("text", "") + "".join(
                text for kind, text in output.get("data", {}).items() if kind.startswith("text/")
            )
            assert not ABSOLUTE_PATH.search(printed)


if __name__ == "__main__":
    import tempfile

    import nbformat

    for found in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(_execute(_read(found), Path(folder)), found)
        sys.stdout.write(f"kept the outputs of {found.name}\n")
