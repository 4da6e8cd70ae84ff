"""TL909: other ranks."""

import pytest

from tests.build.files import write
from tests.build.finding_events import clean
from tracelab.findings.finding import INFO


def of_rank(rank, size):
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": size}}


@pytest.mark.parametrize(("size", "said"), [(1, []), (2, [("TL909", INFO, 2)])])
def test_one_rank_of_several(lacks, size, said):
    assert lacks(*clean(), before=of_rank(0, size)) == said


def test_other_ranks_are_missed_until_all_are_there(tmp_path, lacks_of_files):
    paths = [write(tmp_path / f"r{i}.json", clean(), before=of_rank(i, 3)) for i in range(3)]

    assert lacks_of_files(*paths[:2]) == [("TL909", INFO, 3)] * 2
    assert lacks_of_files(*paths) == []


@pytest.mark.parametrize("size", ["two", None, 2.0])
def test_number_of_ranks_that_is_none(lacks, size):
    assert lacks(*clean(), before=of_rank(0, size)) == []
