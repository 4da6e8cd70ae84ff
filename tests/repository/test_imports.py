"""Every module can be imported by itself, and the front door shows all that it has."""

import ast
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import networkx as nx
import pytest

import tracelab

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tracelab"
# What these are made for must be installed; programs run when they are imported.
NEED_OTHERS = ("tracelab.record.frameworks.", "tracelab.workloads.", "tracelab.__main__")
MODULES = [
    module.name
    for module in pkgutil.walk_packages([str(PACKAGE)], "tracelab.")
    if not module.name.startswith(NEED_OTHERS)
]


def test_every_package_is_installed():
    # In the working tree all of them are found, listed or not.
    packages = {"tracelab"} | {
        module.name for module in pkgutil.walk_packages([str(PACKAGE)], "tracelab.") if module.ispkg
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert packages == set(project["tool"]["setuptools"]["packages"])


def _imported_by(name):
    """The package's modules that must be loaded for one of them: its packages, what it imports."""
    path = ROOT.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = {name.rpartition(".")[0]}
    left = list(ast.parse(file.read_text(encoding="utf-8")).body)
    while left:
        node = left.pop()
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            left += ast.iter_child_nodes(node)
    return found.intersection(MODULES)


def test_every_module_can_be_the_first_to_be_imported_and_needs_no_torch():
    # If it loads in one order, it does in any, unless imports go round in a circle. Of a circle
    # each is imported first: a process each would take long, so the circle is forgotten before.
    # What it needs beside itself does not need it, and may stay.
    imports = nx.DiGraph((name, other) for name in MODULES for other in _imported_by(name))
    circles = [sorted(x) for x in nx.strongly_connected_components(imports) if len(x) > 1]
    code = f"""
import importlib, sys
sys.modules["torch"] = None
for name in {MODULES!r}:
    importlib.import_module(name)
for circle in {circles!r}:
    for first in circle:
        for name in circle:
            package, _, module = name.rpartition(".")
            vars(sys.modules[package]).pop(module, None)
        for name in circle:
            del sys.modules[name]
        importlib.import_module(first)
        for name in circle:
            importlib.import_module(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_public_names_are_there():
    assert [name for name in tracelab.__all__ if getattr(tracelab, name, None) is None] == []
    assert {*tracelab.__all__} <= {*dir(tracelab)}


def test_public_names_are_told_to_type_checkers():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [block] = [x for x in tree.body if isinstance(x, ast.If) and "TYPE" in ast.unparse(x.test)]
    typed = {alias.name for statement in block.body for alias in statement.names}
    assert typed | {"__version__"} == set(tracelab.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = tracelab.no_such
    assert not hasattr(tracelab, "no_such")
