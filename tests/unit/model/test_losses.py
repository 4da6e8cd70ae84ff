"""The table of losses is complete, and says of each what the rules and the screen rest on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tracelab
from tracelab.findings.finding import INFO, WARNING
from tracelab.model.losses import FAILED, LOSSES, count_losses
from tracelab.model.lost_work import KINDS

PACKAGE = Path(tracelab.__file__).parent
COUNTERS = (
    *sorted((PACKAGE / "read").rglob("*.py")),
    PACKAGE / "model" / "steps.py",  # the annotations that are not steps
    PACKAGE / "report" / "build.py",
)
NAMES_OF_COUNTS = ("losses", "_losses", "is_lost", "unused")


def name_of(node: ast.AST) -> str | None:
    """The last name of an expression like ``self._losses``."""
    return getattr(node, "attr", getattr(node, "id", None))


def texts_in(nodes) -> set[str]:
    return {
        part.value
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }


def counted_in(path: Path) -> set[str]:
    """The names under which a module counts.

    As ``losses["name"]``, ``losses = {"name": ...}`` and ``unused.update(("name", ...) ...)``.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Subscript) and name_of(node.value) in NAMES_OF_COUNTS:
            names |= texts_in([node.slice])
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            counts = any(name_of(target) in NAMES_OF_COUNTS for target in node.targets)
            names |= texts_in(filter(None, node.value.keys if counts else []))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            counts = node.func.attr == "update" and name_of(node.func.value) in NAMES_OF_COUNTS
            names |= texts_in(node.args if counts else [])
    return names


def test_every_loss_that_is_counted_is_in_the_table_and_every_one_there_is_counted():
    assert set().union(KINDS, [FAILED], *map(counted_in, COUNTERS)) == set(LOSSES)


def test_the_reader_counts_those_that_it_is_said_to_find():
    in_reader = set().union(*(counted_in(path) for path in COUNTERS if "read" in path.parts))
    assert in_reader == {loss.name for loss in LOSSES.values() if loss.source == "reader"}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=lambda loss: loss.name)
def test_severities_are_those_of_findings_and_a_group_is_of_the_reader(loss):
    assert loss.severity in (INFO, WARNING)
    # Arrows are judged with the calls whose work is lost, by their share.
    assert (loss.group is not None) == (
        loss.source == "reader" and loss.name != "arrows_without_end"
    )


def test_losses_for_the_end_of_a_sentence():
    assert count_losses({}) == count_losses({"truncated": 0}) == ""
    assert count_losses({"truncated": 1, "repairs": 2}) == " (truncated: 1, repairs: 2)"
