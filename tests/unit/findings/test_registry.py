"""The rules themselves."""

import re

import pytest

from tests.short_fixes import assert_short
from tracelab.findings.advice import needs
from tracelab.findings.finding import Where
from tracelab.findings.registry import RULES, about_of
from tracelab.findings.remedy import short_form
from tracelab.findings.rule import Case

CASES = [
    pytest.param(case, id=f"{rule.id} {name}")
    for rule in RULES
    for name, case in rule.cases.items()
    if case.fix
]
VALUES = {
    "figures": "Each of the 4 stages computes nothing in 3.0 % of the schedule.",
    **dict.fromkeys(("slowest_us", "twin_us", "shortest_us", "length_us", "latency_us"), 12.5),
    "number": 30,
    "percent": 12.5,
    "longer": "12.0 %",
    "microbatches": "",
    "more": 16,
    "rank": 120,
    "stage": 12,
    "switches": "`torch.backends.cudnn.allow_tf32 = True`",
}


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


@pytest.mark.parametrize("rule", [x for x in RULES if x.fix], ids=lambda x: x.id)
def test_the_fix_of_a_rule_has_a_short_form(rule):
    assert_short(short_form(rule.fix, rule.fix_short))


@pytest.mark.parametrize("case", CASES)
def test_each_fix_of_a_case_has_a_short_form(case):
    names = {"what", "reason", "at", "period", "thread", "does", "blocked", "other", "often"}
    filled = case.filled(**VALUES, **dict.fromkeys(names, "it"))

    assert_short(filled.short)
    assert "{" not in filled.title + filled.fix + filled.short


def test_fixes_by_need_have_a_short_form():
    for fix in needs._MOVES.values():
        assert_short(fix.summary)


def test_a_case_is_filled_with_values():
    case = Case(cause="memset", title="{what} fills memory", fix="Use {what}.", edit="x:{place}")

    candidate = case.candidate(Where(1), {"what": "`empty`"}, evidence=(3,))

    assert (candidate.title, candidate.cause) == ("`empty` fills memory", "memset")
    assert (candidate.fix, candidate.fix_short) == ("Use `empty`.", "Use `empty`.")
    assert (candidate.edit, candidate.evidence) == ("x:{place}", (3,))


def test_rules_about_the_trace_show_no_code():
    assert {(x.before, x.after) for x in RULES if x.about == "trace"} == {("", "")}


def test_what_a_rule_is_about_is_known_by_its_id():
    assert [about_of(x) for x in ("TL101", "TL901", "TL910")] == ["program", "trace", "trace"]


@pytest.mark.parametrize("rule_id", ["TL9", "TL999", "", "MY1"])
def test_unknown_rules_are_about_the_program(rule_id):
    assert about_of(rule_id) == "program"
