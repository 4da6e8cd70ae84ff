"""The workloads are part of the package: no module of the user's own stands in for them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "tracelab"


@pytest.fixture(params=["module", "package"])
def folder_of_the_user(request, tmp_path):
    """A folder with a ``workloads`` of the user's own, which cannot be imported."""
    folder = tmp_path / "project"
    broken = folder / ("workloads.py" if request.param == "module" else "workloads/__init__.py")
    broken.parent.mkdir(parents=True)
    broken.write_text("raise RuntimeError('this is not what was asked for')")
    return folder


@pytest.fixture(params=["in place", "installed"])
def import_path(request, tmp_path):
    """Where tracelab is found: the repository, or a folder with a copy of the package."""
    if request.param == "in place":
        return ROOT
    leave_out = shutil.ignore_patterns("__pycache__")
    # The link tracelab/workloads becomes a folder, as an installation has it.
    shutil.copytree(PACKAGE, tmp_path / "installed" / "tracelab", ignore=leave_out)
    assert not (tmp_path / "installed" / "tracelab" / "workloads").is_symlink()
    return tmp_path / "installed"


def test_workloads_of_the_users_own_do_not_get_in_the_way(folder_of_the_user, import_path):
    command = [sys.executable, "-m", "tracelab", "workload", "--list"]
    ran = subprocess.run(
        command,
        cwd=folder_of_the_user,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(import_path)},
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    assert "copy_stream_pinned" in ran.stdout


def test_each_workload_is_a_module_that_runs():
    from tracelab.workloads.catalog import CATALOG

    for name in {entry.workload for entry in CATALOG}:
        program = (PACKAGE / "workloads" / f"{name}.py").read_text()
        assert f'sys.exit(run("{name}", VARIANTS' in program
