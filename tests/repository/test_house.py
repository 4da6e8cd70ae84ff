"""The shape of the package: rooms, arrows between them, modules, imports of what draws.

A number here may only fall. Lower it with the change that lowers the count.
"""

import ast
from pathlib import Path

import networkx as nx
import pytest

from tests.repository.source_lines import count_code

PACKAGE = Path(__file__).parents[2] / "tracelab"
FILES = [path for path in PACKAGE.rglob("*.py") if not {"docs", "workloads"} & {*path.parts}]
DRAWERS = "tracelab.render"
BEHIND_MIDDLES = ("tracelab.model", "tracelab.measures", "tracelab.job", "tracelab.read")

MAX_ROOMS = 17
MAX_ARROWS = 86
MAX_MODULES = 246
MAX_DRAWER_IMPORTS = 0  # from what draws past Document and Scene
MAX_CODE_LINES = 40_966


def name_of(path):
    return ".".join(("tracelab", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


MODULES = {name_of(path): path for path in FILES}


def imports_of(path):
    """The package's modules that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in full)


ARROWS = {
    (name, other)
    for name, path in MODULES.items()
    for other in imports_of(path)
    if other in MODULES and other != name
}


def room_of(name):
    return ".".join(name.split(".")[:2])


def is_in(name, *packages):
    return name.startswith(tuple(f"{package}." for package in packages)) or name in packages


@pytest.fixture(scope="module")
def house():
    return nx.DiGraph((room_of(a), room_of(b)) for a, b in ARROWS if room_of(a) != room_of(b))


def test_there_are_no_more_rooms_and_arrows(house):
    assert len({*map(room_of, MODULES)}) <= MAX_ROOMS
    assert house.number_of_edges() <= MAX_ARROWS


def test_no_imports_of_rooms_go_round_in_a_circle(house):
    assert nx.is_directed_acyclic_graph(house)


def test_there_are_no_more_modules_and_lines_of_code():
    assert len(MODULES) <= MAX_MODULES
    assert sum(map(count_code, FILES)) <= MAX_CODE_LINES


def test_what_draws_reaches_no_further_past_document_and_scene():
    past = [(a, b) for a, b in ARROWS if is_in(a, DRAWERS) and is_in(b, *BEHIND_MIDDLES)]
    assert len(past) <= MAX_DRAWER_IMPORTS
