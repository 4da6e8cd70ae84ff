"""The rules themselves."""

import re

import pytest

from tracelab.findings.registry import RULES, about_of


def test_every_rule_has_its_own_id_and_is_explained():
    assert len({x.id for x in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"TL[12349]\d\d", rule.id)
        assert rule.name
        assert rule.matters.endswith((".", ")"))
        assert rule.decides.endswith((".", ")"))


@pytest.mark.parametrize("rule", [x for x in RULES if x.about != "trace"], ids=lambda x: x.id)
def test_defect_and_fix_are_python(rule):
    assert rule.before != rule.after
    for code in (rule.before, rule.after):
        compile(code, rule.id, "exec")


def test_rules_about_the_trace_show_no_code():
    assert {(x.before, x.after) for x in RULES if x.about == "trace"} == {("", "")}


def test_what_a_rule_is_about_is_known_by_its_id():
    assert [about_of(x) for x in ("TL101", "TL901", "TL910")] == ["program", "trace", "trace"]


@pytest.mark.parametrize("rule_id", ["TL9", "TL999", "", "MY1"])
def test_unknown_rules_are_about_the_program(rule_id):
    assert about_of(rule_id) == "program"
