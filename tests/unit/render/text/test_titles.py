"""Titles of findings: whole on the first screen, however long the names in them are."""

from itertools import permutations

import pytest

from tests.build.report_rows import make_finding, make_steady_report
from tests.checks import with_each
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.rules.untypical_time import title_of
from tracelab.findings.rules.waiting_ranks import PIPELINE
from tracelab.render.document import document_of
from tracelab.render.text.screen import screen

OPERATOR = "`aten::_scaled_dot_product_flash_attention_backward`"
ONCE = [remedy for remedy in REMEDIES if remedy.is_first_use]
FUNCTION = "`clip_gradients_and_scale_them_on_all_ranks()`"
KERNEL = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"


def lines_of_title(title):
    """The lines of a title, which are those behind the price and before the fix."""
    report = make_steady_report(findings=(make_finding(title=title, fix_short="Fix it."),))
    lines = [line.text.strip() for line in screen(document_of(report), width=80)]
    price = next(i for i, line in enumerate(lines) if line.startswith("1  "))
    return lines[price : lines.index("Fix it.")]


def is_whole(title):
    return not any(line.endswith("…") for line in lines_of_title(title))


def test_a_title_that_is_too_long_is_cut():
    assert not is_whole("It waits for something else. " * 6)


@with_each([remedy for remedy in REMEDIES if remedy.title])
def test_of_a_remedy(remedy):
    assert is_whole(remedy.title)


def test_of_what_comes_once():
    # GIVEN any two kinds of first use, the most expensive first, and others or none
    for largest in permutations(ONCE, 2):
        assert is_whole(title_of(largest))
        assert is_whole(title_of([*largest, ONCE[0]]))
    assert title_of(ONCE[:1]) == ONCE[0].title


@pytest.mark.parametrize("case", PIPELINE.cases.values(), ids=lambda x: x.cause)
def test_of_a_pipeline(case):
    assert is_whole(case.title.format(stage=15))


@pytest.mark.parametrize(
    "title",
    [
        f"{OPERATOR} returns memory to CUDA, and the next step allocates it again",
        f"The copy to the GPU by {FUNCTION} does not overlap with compute, because {OPERATOR} "
        "blocks",
        f"The all-gather in {FUNCTION} does not overlap with compute, and {KERNEL} waits",
        f"{KERNEL} starts only after {KERNEL} of another stream, although no event makes it wait",
        f"{KERNEL} delays another stream without any event, because {OPERATOR} blocks",
        f"After that: the CPU cannot launch kernels fast enough, mostly in {OPERATOR}",
        f"Ranks 0, 2 and 3 wait for rank 1, because it launches late because of {FUNCTION}",
    ],
)
def test_long_names_are_shortened(title):
    assert is_whole(title)
