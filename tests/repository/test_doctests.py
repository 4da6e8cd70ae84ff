"""The examples in the package's docstrings and beside its tests, module by module."""

import doctest
import importlib
import shutil
from pathlib import Path

import pytest

import tracelab

ROOT = Path(__file__).parents[2]


def modules_with_examples():
    # Known by their text: importing all of them here would import torch as well.
    folders = {"tracelab": ROOT / "tracelab", "tracelab.workloads": ROOT / "workloads"}
    return sorted(
        ".".join([package, *path.relative_to(folder).with_suffix("").parts])
        for package, folder in folders.items()
        for path in folder.rglob("*.py")
        if ">>> " in path.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_hold(name, tmp_path, monkeypatch):
    # What they read, where they may write. Source is read from the current folder, links followed.
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    shutil.copytree(ROOT / "workloads", tmp_path / "workloads")
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name.removesuffix(".__init__"))
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")

    failed, attempted = doctest.testmod(module, extraglobs={"tracelab": tracelab})

    assert attempted
    assert not failed


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "doctests").glob("*.txt")), ids=lambda path: path.stem
)
def test_examples_beside_the_tests_hold(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    names = vars(importlib.import_module(path.stem))

    failed, attempted = doctest.testfile(str(path), module_relative=False, globs={**names})

    assert attempted
    assert not failed
