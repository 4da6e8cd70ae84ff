"""Rules that the tests themselves keep."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
MODULES = sorted(TESTS.rglob("test_*.py"))
MAX_LETTERS = 40


def is_prose(node):
    """True for a text of more letters than a phrase has, in at least five words."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and sum(map(str.isalpha, node.value)) > MAX_LETTERS
        and node.value.count(" ") >= 4
    )


def compared(test):
    """The parts of an asserted expression that are compared with something."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from node.args if node.func.attr in ("startswith", "endswith") else ()


def test_asserts_are_about_data_and_not_about_sentences():
    """A sentence belongs into a snapshot, which one flag writes anew."""
    assert [
        f"{path.relative_to(TESTS)}:{x.lineno}"
        for path in MODULES
        for x in ast.walk(ast.parse(path.read_text()))
        if isinstance(x, ast.Assert)
        for part in compared(x.test)
        if not isinstance(part, ast.Call) and any(map(is_prose, ast.walk(part)))
    ] == []
