"""The table of remedies: each entry is whole."""

import re

from tests.checks import with_each
from tests.short_fixes import assert_short
from tracelab.findings.places import JOINT
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.simulate.edits import parse_edit


def test_each_has_a_name_of_its_own():
    ids = [remedy.id for remedy in REMEDIES]
    assert len(set(ids)) == len(ids) >= 40


@with_each(REMEDIES)
def test_each_is_whole(remedy):
    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", remedy.id)
    assert all((remedy.name, remedy.shows, remedy.not_when, remedy.source))
    assert remedy.url.startswith("https://")
    assert {*remedy.rules} <= {rule.id for rule in RULES}
    assert remedy.frames or remedy.operators or remedy.occurs
    for pattern in (remedy.frames, remedy.operators):
        re.compile(pattern)
    for text in (remedy.edit_of_finding or "queues").split(JOINT):
        parse_edit(text.replace("{place}", "train.py:40"))


@with_each(REMEDIES)
def test_fixes_are_from_the_newest_to_the_oldest(remedy):
    since = [tuple(map(int, (fix.since or "0.0").split("."))) for fix in remedy.fixes]
    assert since == sorted(since, reverse=True)
    assert len(set(since)) == len(since) > 0


@with_each(REMEDIES)
def test_each_fix_has_a_short_form_for_every_version(remedy):
    for torch in (None, *(f"{fix.since or '1.8'}.0" for fix in remedy.fixes)):
        assert_short(remedy.fix_for(torch).summary)
