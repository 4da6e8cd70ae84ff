"""Every word of the code's own lists is in the glossary."""

from dataclasses import fields

import pytest

from tracelab.findings.finding import Finding
from tracelab.findings.registry import RULES
from tracelab.findings.rules.waiting_ranks import PIPELINE, STRAGGLER
from tracelab.job.pipeline import BubbleParts
from tracelab.measures.critical_path import PathKind
from tracelab.measures.graph_idle import NodeWait
from tracelab.measures.idle_causes import Cause
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.binding import Constraint, Reason
from tracelab.model.blocking_calls import Blocking
from tracelab.model.cuda_graphs import Basis
from tracelab.model.graph import EdgeKind
from tracelab.model.kernel_kinds import Kind
from tracelab.model.losses import LOSSES
from tracelab.model.phases import Phase
from tracelab.render.glossary import normalized
from tracelab.report import glossary


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (glossary.CAUSES, Cause),
        (glossary.REASONS_UNKNOWN, [reason for reason in Reason if reason]),
        (glossary.BLOCKERS, OverlapBlocker),
        (glossary.KINDS, Kind),
        (glossary.BLOCKING_KINDS, Blocking),
        (glossary.PATH_KINDS, PathKind),
        (glossary.CONSTRAINTS, Constraint),
        (glossary.BY_KEY["graph_idle"], NodeWait),
        (glossary.BY_KEY["edges"], EdgeKind),
        (glossary.PHASES, Phase),
        (glossary.ORIGINS, Basis),
    ],
    ids=lambda x: getattr(x, "key", ""),
)
def test_every_member_has_a_meaning(group, words):
    assert {word.name.lower() for word in words} <= set(group.meanings)


def test_every_part_of_a_bubble_and_every_cause_of_it_has_a_meaning():
    parts = {field.name for field in fields(BubbleParts)}
    assert parts | set(PIPELINE.cases) == set(glossary.PIPELINE.meanings)


def test_every_field_of_a_finding_and_every_loss_has_a_meaning():
    assert {field.name for field in fields(Finding)} <= set(glossary.BY_KEY["finding"].meanings)
    assert set(LOSSES) == set(glossary.BY_KEY["losses"].meanings)


def test_every_cause_that_a_rule_names_has_a_meaning():
    judged = [x for x in RULES if x.about == "program" and x not in (PIPELINE, STRAGGLER)]
    named = {case.cause for rule in judged for case in rule.cases.values()}
    assert "pageable" in named
    known = {**glossary.FINDING_CAUSES.meanings, **glossary.BLOCKERS.meanings}
    assert named <= {*known, "latency"}  # the title of TL207 says what that is


def test_every_rule_is_of_a_family():
    families = tuple(glossary.FAMILIES.meanings)
    assert [rule.id for rule in RULES if not rule.id.startswith(families)] == []


@pytest.mark.parametrize("group", glossary.GROUPS, ids=lambda group: group.key)
def test_no_word_stands_twice_in_a_group_and_meanings_are_phrases(group):
    keys = [normalized(term.key) for term in group.terms]
    assert len(set(keys)) == len(keys)
    assert not [term.meaning for term in group.terms if term.meaning.endswith(".")]
    assert not [term.detail for term in group.terms if term.detail and term.detail[-1] != "."]
