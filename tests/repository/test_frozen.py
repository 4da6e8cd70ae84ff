"""The table of all outputs tells which of them a change has changed."""

from tests import frozen

SUBJECT = "pipeline_1f1b_few_4_rank0"  # a small one


def test_only_the_output_that_is_another_differs(monkeypatch):
    made = frozen.outputs_of(SUBJECT)
    monkeypatch.setattr(frozen, "outputs_of", lambda _: made)
    before = frozen.make_rows([SUBJECT])
    made["brief.json"] += " "
    after = frozen.make_rows([SUBJECT])
    assert frozen.differences(before, after) == [f"{SUBJECT}: brief.json"]


def test_only_a_check_of_other_outputs_fails(monkeypatch, tmp_path, capsys):
    made = {(SUBJECT, "full.txt"): "1", (SUBJECT, "page.html"): "2"}
    others = {("other", "full.txt"): "3"}
    monkeypatch.setattr(frozen, "TABLE", tmp_path / "frozen.tsv")
    monkeypatch.setattr(frozen, "make_table", lambda *_: made)
    frozen.write_table(others)
    some = ["--only", SUBJECT]
    assert frozen.main(["check", *some]) == 1
    assert capsys.readouterr().out.startswith(f"{SUBJECT}: full.txt, page.html\n")
    assert frozen.main(["write", *some]) == 0
    assert frozen.main(["check", *some]) == 0
    assert frozen.read_table() == made | others
    assert frozen.main(["check"]) == 1  # the other subject is gone
