"""The rules themselves."""

import re
from collections.abc import Mapping
from itertools import chain
from types import ModuleType

import pytest

from tests.short_fixes import assert_short
from tracelab.findings import rules
from tracelab.findings.advice import needs
from tracelab.findings.registry import RULES, about_of
from tracelab.findings.remedy import NO_FIX, Instead, short_form
from tracelab.findings.rules import tl303_pipeline_bubble, tl304_straggler

MODULES = [
    needs,
    *(module for _, module in sorted(vars(rules).items()) if isinstance(module, ModuleType)),
]


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


@pytest.mark.parametrize("module", MODULES, ids=lambda x: x.__name__.rpartition(".")[2])
def test_each_fix_that_a_module_may_give_has_a_short_form(module):
    values = vars(module).values()
    tables = (value.values() for value in values if isinstance(value, Mapping))
    fixes = [x for x in chain(values, *tables) if isinstance(x, Instead) and x != NO_FIX]
    for fix in fixes:
        assert_short(fix.summary)


@pytest.mark.parametrize(
    "short",
    [
        *(
            text.format(stage=12, rank=120, more=16)
            for text in tl303_pipeline_bubble.SHORT.values()
        ),
        *(tl304_straggler.SHORT.get(cause, fix) for cause, fix in tl304_straggler.FIXES.items()),
    ],
)
def test_fixes_of_jobs_have_a_short_form(short):
    assert_short(short)


def test_rules_about_the_trace_show_no_code():
    assert {(x.before, x.after) for x in RULES if x.about == "trace"} == {("", "")}


def test_what_a_rule_is_about_is_known_by_its_id():
    assert [about_of(x) for x in ("TL101", "TL901", "TL910")] == ["program", "trace", "trace"]


@pytest.mark.parametrize("rule_id", ["TL9", "TL999", "", "MY1"])
def test_unknown_rules_are_about_the_program(rule_id):
    assert about_of(rule_id) == "program"
