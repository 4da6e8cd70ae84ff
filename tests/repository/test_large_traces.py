"""The inputs of the benchmarks: a real trace again and again reads as that many real traces."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from tests.benchmarks.large_traces import PLAIN, ROOT, repeat
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category
from tracelab.read.reader import read_trace
from tracelab.read.streams import Source

SMALL = ROOT / "traces/prefetch_copy_stream_pinned.pt.trace.json.gz"
COPIES = 3
# The profiler's own event stands once in a file, whatever is repeated.
ONCE = 1


def read(path):
    return read_trace(Source(str(path), None, named=True))


@pytest.fixture(scope="module")
def one():
    return read(SMALL)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    output = tmp_path_factory.mktemp("large") / "trace.json"
    repeat(SMALL, COPIES * len(gzip.decompress(SMALL.read_bytes())), output)
    return read(output)


def by_copy(many, column):
    return column[: len(many) - ONCE].reshape(COPIES, -1)


def test_it_has_every_event_in_every_copy_and_loses_none(one, many):
    assert len(many) - ONCE == COPIES * (len(one) - ONCE)
    assert not any(many.losses.values())
    assert many.metadata == one.metadata
    for category in set(Category) - {Category.OVERHEAD}:
        assert len(many.of_category(category)) == COPIES * len(one.of_category(category))


def test_the_copies_follow_one_another_without_overlap(many):
    starts, ends = by_copy(many, many.start_ns), by_copy(many, many.end_ns)
    assert (ends[:-1].max(axis=1) <= starts[1:].min(axis=1)).all()
    assert (starts - starts[:, :1] == (starts - starts[:, :1])[0]).all()


def test_every_copy_has_steps_of_its_own(one, many):
    def steps(trace):
        names = [trace.name_of(i) for i in trace.of_category(Category.ANNOTATION)]
        return [x for x in names if x.startswith("ProfilerStep#")]

    assert len(set(steps(many))) == len(steps(many)) == COPIES * len(steps(one)) > 0


@pytest.mark.parametrize("column", ["correlation", "wait_correlation"])
def test_ids_link_as_in_the_original_and_only_within_a_copy(one, many, column):
    ids = by_copy(many, getattr(many, column))
    told = ids[0] != ABSENT
    assert told.any()
    assert (told == (ids != ABSENT)).all()
    first = getattr(one, column)
    moved = ids[:, told] - first[first != ABSENT]
    assert (moved == moved[:, :1]).all()
    highest, lowest = ids[:, told].max(axis=1), ids[:, told].min(axis=1)
    assert (highest[:-1] < lowest[1:]).all()


def test_every_activity_finds_its_launch_in_its_own_copy(many):
    size = (len(many) - ONCE) // COPIES
    calls = many.of_category(*HOST_CALLS)
    launch = dict(zip(many.correlation[calls].tolist(), calls.tolist(), strict=True))
    activities = many.of_category(*GPU_ACTIVITIES)
    launches = np.array([launch[x] for x in many.correlation[activities].tolist()])
    assert (launches // size == activities // size).all()


def test_what_is_not_in_the_profilers_formatting_is_refused(tmp_path):
    compact = tmp_path / "compact.json.gz"
    compact.write_bytes(gzip.compress(b'{"traceEvents":[]}'))
    with pytest.raises(ValueError, match="formatting"):
        repeat(compact, 1e6, tmp_path / "trace.json")


def test_it_is_about_as_large_as_asked(tmp_path):
    repeat(PLAIN, 2e7, output := tmp_path / "trace.json")
    assert output.stat().st_size == pytest.approx(2e7, rel=0.15)
