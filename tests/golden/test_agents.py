"""Briefs that are followed without a model: each row of the table, and the least of the counts."""

import pytest

from tests.benchmarks import agents
from tests.build.pairs import PAIRS
from tests.corpus import cases

TEXT = agents.DOCUMENT.read_text(encoding="utf-8")
PROGRAMS = agents.programs()
FAST = ("dcgan", "paper_fields", "music_attention")
# They may only rise.
MIN_LINES, MIN_FUNCTIONS, MIN_FIXES, MIN_BOTH, MIN_EDITS = 38, 50, 53, 38, 26


def rows_below(head):
    below = TEXT.partition(f"{head}\n")[2].splitlines()[1:]
    end = next((i for i, line in enumerate(below) if not line.startswith("|")), len(below))
    return [row.strip("| ").split(" | ") for row in below[:end]]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(x, id=x["name"], marks=() if x["name"] in FAST else pytest.mark.slow)
        for x in PROGRAMS
    ],
)
def test_a_brief_leads_where_the_table_says(program, tmp_path):
    followed = agents.follow(program, tmp_path)
    assert followed.row in TEXT.splitlines()
    assert followed.next_code == 0
    # A replay that does not fit what was recorded predicts nothing.
    is_predicted = "No savings predicted" not in followed.brief["verdict"]
    edit = followed.first["edit"] if is_predicted else None
    assert (followed.predicted_ms is None) == (edit is None)
    assert followed.edit_agrees is not False


@pytest.mark.parametrize(("name", "pair"), cases([(pair.defect, pair) for pair in PAIRS]))
def test_the_edit_of_a_pair_is_that_of_the_table(name, pair):
    assert agents.pair_row(pair) in TEXT.splitlines()
    assert name == pair.defect


def test_briefs_lead_to_the_known_line_and_fix_no_less_often():
    rows = rows_below(agents.HEAD)
    assert [row[0] for row in rows] == [program["name"] for program in PROGRAMS]
    assert len(rows) >= 30
    lines, fixes = [row[3] for row in rows], [row[6] for row in rows]
    is_there = [x in (agents.YES, agents.SOME, agents.FUNCTION) for x in lines]
    is_fixed = [x in (agents.YES, agents.OTHER_WORDS) for x in fixes]
    assert lines.count(agents.YES) >= MIN_LINES
    assert sum(is_there) >= MIN_FUNCTIONS
    assert sum(is_fixed) >= MIN_FIXES
    assert sum(map(min, is_there, is_fixed)) >= MIN_BOTH
    edits = [row[3] for row in rows_below(agents.PAIR_HEAD)]
    assert len(edits) == len(PAIRS)
    assert edits.count(agents.YES) >= MIN_EDITS


def test_counts_in_both_documents_are_those_of_the_table():
    rows = rows_below(agents.HEAD)
    lines, fixes = [row[3] for row in rows], [row[6] for row in rows]
    marked = len(rows) - lines.count(agents.UNMARKED)
    counted = [
        f"- Right line: {lines.count(agents.YES)} of {marked} programs",
        f"one of several lines in {lines.count(agents.SOME)} more",
        f"the right function in {lines.count(agents.FUNCTION)}.",
        f"- Right fix: {fixes.count(agents.YES)} of {len(rows)}, "
        f"and {fixes.count(agents.OTHER_WORDS)} in other words.",
    ]
    page = agents.DOCUMENT.parents[1] / "agents.md"
    for text in (TEXT, page.read_text(encoding="utf-8")):
        assert [x for x in counted if x not in text] == []
