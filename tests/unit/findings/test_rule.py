"""The recipe of ``tracelab.findings.rule``: a rule is one file, registered by one line."""

import inspect
import re
import textwrap
from types import SimpleNamespace

import pytest

from tests.build.files import US, complete_event, kernel, launch, write
from tracelab import analyze
from tracelab.findings import rule as recipe
from tracelab.findings.registry import RULES


@pytest.fixture
def own_rule():
    """The rule of the recipe, from its text."""
    text = re.search(r"\n\n( {7}\"\"\"TL208.*?)\n\n2\. ", inspect.getdoc(recipe), re.DOTALL)[1]
    module = {}
    exec(compile(textwrap.dedent(text), "tl208_memset.py", "exec"), module)
    assert len(text.splitlines()) < 40
    return module["RULE"]


def test_rule_of_the_recipe_works_with_one_line_of_registration(own_rule, tmp_path, snapshot):
    # GIVEN a memset of 50 us between two kernels, and its launch
    memset = complete_event(
        "Memset (Device)",
        "gpu_memset",
        60 * US,
        110 * US,
        device=0,
        stream=7,
        correlation=2,
        pid=0,
        tid=7,
    )
    events = [
        *(launch(3 * i * US, (3 * i + 2) * US, i + 1) for i in range(3)),
        kernel(10 * US, 60 * US, correlation=1),
        memset,
        kernel(110 * US, 160 * US, correlation=3),
    ]

    # WHEN
    report = analyze(write(tmp_path / "hand.json", events), rules=(*RULES, own_rule))

    # THEN
    [finding] = [x for x in report.findings if x.rule == own_rule.id]
    assert finding.title == "`memset` fills memory"
    assert (finding.cost_ns, finding.bound_ns, finding.about) == (50_000, 50_000, "program")
    assert finding.fix == snapshot


def test_rule_needs_no_more_than_its_texts_and_a_function():
    bare = recipe.Rule(id="MY1", name="", matters="", decides="", find=lambda _: [])

    assert (bare.fix, bare.before, bare.after, bare.about) == ("", "", "", "program")
    assert bare.find(SimpleNamespace()) == []
