"""A pair of ranks that serves requests, of `tests/programs/serving.py`: the first one is late."""

from collections import Counter
from pathlib import Path

import pytest

from tracelab import analyze
from tracelab.base.options import Options
from tracelab.render.registry import render_as

FILES = sorted((Path(__file__).parents[1] / "data" / "serving").glob("*.gz"))
LAYERS, TOKENS, PROMPTS = 6, 12, 4


@pytest.fixture(scope="module")
def report():
    return analyze(FILES, Options(cache=False))


def test_steps_are_those_that_decode(report):
    assert [len(trace.step_pattern) > 0 for trace in report.traces] == [True, True]
    assert [len(row.steps) for row in report.steady] == [TOKENS, TOKENS]
    assert all(300_000 < step.length_ns < 700_000 for step in report.steps)


def test_all_reduces_of_graphs_are_matched_as_those_of_nccl_are(report):
    found = [x for x in report.job.collectives if x.ranks == (0, 1)]
    assert {x.operation for x in found} == {"all_reduce"}
    assert Counter(x.message_bytes for x in found) == {
        None: LAYERS * TOKENS,
        512 * 2048 * 2: LAYERS * PROMPTS,
    }
    assert not report.job.unmatched


def test_skew_of_all_reduces_without_a_size_is_against_those_of_their_batch(report):
    batches = Counter(x.batch for x in report.job.collectives)
    assert batches == {"": LAYERS * PROMPTS, "decode 8": 36, "decode 64": 36}
    assert len({x.kernel for x in report.job.collectives if x.batch}) == 1
    firsts = [x for x in report.job.collectives if x.batch and max(x.wait_ns) > 15_000]
    assert len(firsts) == TOKENS - 1
    # It is known without any clock: the longest kernel waits for the other rank.
    assert all(abs(x.skew_ns - max(x.wait_ns)) < 2_000 for x in firsts)
    shown = render_as(report, "text", recordings=[report], full=True, width=100, color=False)
    rows = [line.split() for line in shown.splitlines() if "all_reduce" in line]
    assert [row[2:5] for row in rows if "decode" in row] == [
        ["decode", "8", "36"],
        ["decode", "64", "36"],
    ]


def test_phases_are_apart_by_number_of_requests(report):
    rows = [(x.rank, x.phase, x.sequences, x.count) for x in report.served_steps]
    assert rows == [
        (rank, *kind)
        for rank in (0, 1)
        for kind in (("decode", 8, 6), ("decode", 64, 6), ("prefill", 1, 4))
    ]
    decode, _, prefill = report.served_steps[:3]
    assert decode.busy_ns < decode.length_ns < prefill.length_ns
    # The other rank began to record later, and the first one waited for it.
    assert prefill.longest_ns > 200_000_000


def test_the_late_rank_is_named_with_what_it_does(report):
    [straggler] = report.job.stragglers
    assert straggler.rank == 0
    assert "dumps" in str(straggler)
