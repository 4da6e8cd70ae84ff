"""The notebooks run as they are, and print what is kept in them.

After a change that they are to show, `python tests/golden/test_notebooks.py` keeps the new outputs.
"""

import os
import re
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
FIRST = "first_trace_in_five_minutes"
SECONDS_PER_CELL = 300  # of a machine that does much else; a cell takes a few
KERNEL_FOLDERS = ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR")
LARGEST_FILE = 500_000
LARGEST_PICTURE = 150_000
ABSOLUTE_PATH = re.compile(r"(?:^|[\s'\"(])(?:/|[A-Z]:\\)\w")


@pytest.fixture(scope="module", autouse=True)
def _packages():
    for package in ("ipykernel", "nbclient", "nbformat"):
        pytest.importorskip(package, reason=f"running notebooks needs {package}: install .[dev]")


def _read(path):
    import nbformat

    return nbformat.read(path, as_version=4)


def _execute(notebook, scratch):
    """Run all cells anew, in the notebooks' folder; what the kernel keeps goes elsewhere."""
    from nbclient import NotebookClient

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False,
        coalesce_streams=True,
    )
    with patch.dict(os.environ, dict.fromkeys(KERNEL_FOLDERS, str(scratch))):
        client.execute()
    notebook.metadata.language_info = {"name": "python"}  # not the version that ran it
    return notebook


def _printed(notebook):
    """The text that each cell printed or gave as its result; pictures and prose by type only."""
    return {
        cell.id: [
            x.text if x.output_type == "stream" else x.data["text/plain"] for x in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def test_all_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "a_pipeline_of_four_ranks",
        "find_the_missing_overlap",
        "first_trace_in_five_minutes",
        "the_graph_with_networkx",
        "which_fix_first",
    ]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.stem != FIRST else [], id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_it_runs_and_prints_what_is_kept(path, tmp_path):
    before = sorted(FOLDER.rglob("*"))
    kept = _printed(_read(path))
    assert _printed(_execute(_read(path), tmp_path)) == kept
    assert sorted(FOLDER.rglob("*")) == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_and_clean(path):
    assert path.stat().st_size < LARGEST_FILE
    code = [cell for cell in _read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        for output in cell.outputs:
            assert output.output_type in ("stream", "execute_result")
            assert output.get("name") != "stderr"
            pictures = output.get("data", {}).get("image/png", "")
            assert len(pictures) * 3 / 4 < LARGEST_PICTURE
            printed = output.get("text", "") + "".join(
                text for kind, text in output.get("data", {}).items() if kind.startswith("text/")
            )
            assert not ABSOLUTE_PATH.search(printed)
        assert cell.outputs, f"the cell {cell.id} shows nothing"


if __name__ == "__main__":
    import tempfile

    import nbformat

    for found in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(_execute(_read(found), Path(folder)), found)
        sys.stdout.write(f"kept the outputs of {found.name}\n")
