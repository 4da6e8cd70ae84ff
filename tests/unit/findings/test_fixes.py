"""Which changes are predicted: those of findings, edits, and all of them together."""

import pytest

from tests.build.report_rows import make_finding
from tracelab.base.errors import UsageError
from tracelab.findings.finding import REST, Where
from tracelab.findings.fixes import choose_fixes, require_choices
from tracelab.findings.prices import changes_in
from tracelab.simulate.edits import Edit

HERE = Where(3, operator="aten::item", function="train", file="train.py", line=40, call="item")
WAIT, LOAD = Edit("unblock", "train.py:40"), Edit("load", value=0.0)


@pytest.fixture
def findings():
    """A wait, slow loading, a wait whose value is needed at once, and what the trace lacks."""
    return (
        make_finding("TL101", where=HERE, edit="unblock:train.py:40"),
        make_finding("TL302", edit="load=0"),
        make_finding("TL101", edit="unblock:train.py:50", saves_reason="true_dependency"),
        make_finding("TL903"),
    )


def faster(program):
    """A change of a user's own."""
    return program


def chosen(findings, *fixes, edits=()):
    return [(x.name, x.edits, x.findings) for x in choose_fixes(findings, fixes, edits)]


def test_number_counts_from_one(findings):
    assert chosen(findings, "1") == [("TL101 `item` in train (train.py:40)", (WAIT,), (0,))]


def test_what_comes_after_others_is_made_on_top_of_their_changes():
    graph = make_finding("TL301", edit="unblock:train.py:40 + graph", role=REST)
    [fix] = choose_fixes([make_finding("TL101", edit="unblock:train.py:40"), graph], ["2"], [])
    assert (fix.edits, fix.after) == ((Edit("graph"),), (WAIT,))


def test_rule_is_all_its_findings_as_far_as_a_replay_says_something_about_them(findings):
    assert chosen(findings, "tl101") == [("TL101 (2 findings)", (WAIT,), (0, 2))]


def test_all_is_each_finding_with_an_edit_and_last_all_of_them(findings):
    assert [(edits, indices) for _, edits, indices in chosen(findings, "all")] == [
        ((WAIT,), (0,)),
        ((LOAD,), (1,)),
        ((), (2,)),
        ((LOAD, WAIT), (0, 1, 2)),
    ]
    assert chosen(findings, "all")[-1][0] == "all together"


def test_each_alone_in_the_order_asked_for_then_together_each_change_once(findings):
    asked = chosen(findings, "2", edits=["load=0", "unblock", faster])
    assert [edits for _, edits, _ in asked] == [
        (LOAD,),
        (LOAD,),
        (Edit("unblock"),),
        (faster,),
        (faster, LOAD, Edit("unblock")),
    ]
    assert [name for name, _, _ in asked][1:] == ["load=0", "unblock", "faster", "all together"]


def test_what_is_asked_for_twice_is_predicted_once(findings):
    assert len(chosen(findings, "2", "2", "TL302")) == 1


@pytest.mark.parametrize(
    ("fix", "name", "indices"),
    [("9", "finding 9", ()), ("TL999", "TL999", ()), ("4", "TL903", (3,))],
)
def test_fix_that_matches_nothing_changes_nothing(findings, fix, name, indices):
    assert chosen(findings, fix) == [(name, (), indices)]


def test_text_of_several_edits_is_one_change():
    [fix] = choose_fixes((), (), ["unblock:train.py:40 + load=0"])
    assert (fix.name, fix.edits) == ("unblock:train.py:40 + load=0", (WAIT, LOAD))
    assert changes_in(fix.name) == fix.edits


@pytest.mark.parametrize("fix", ["0", "-1", "01", "first", "", "TL", "all,1"])
def test_fix_is_a_number_a_rule_or_all(fix):
    with pytest.raises(UsageError, match="the number of a finding") as caught:
        require_choices([fix], [])
    assert caught.value.option == "fixes"


def test_edit_that_is_none_is_refused_before_anything_is_read():
    with pytest.raises(UsageError, match="'banana' is not an edit"):
        require_choices([], [faster, "unblock", "banana"])
