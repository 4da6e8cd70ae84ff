"""Remedies of reads that the host needs for what it copies to the GPU next."""

from __future__ import annotations

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import PAGEABLE_H2D, Row, annotation, operator
from tracelab.model.trace import Category

PAGEABLE_D2H = "Memcpy DtoH (Device -> Pageable)"
FOUND = ("read-for-next-input", "read-that-goes-back", "computed-input")


def copy_of(size_bytes):
    def make(start, end, name, *, correlation):
        return Row(
            name,
            Category.MEMCPY,
            start,
            end,
            device=0,
            stream=7,
            correlation=correlation,
            copied_bytes=size_bytes,
        )

    return make


def rounds(*, computes_us, read_bytes=512, written_bytes=2_048, between=None):
    """Four rounds: some kernels, a read that blocks, work of the host, and a copy that blocks."""

    def make(program):
        for at in range(100, 4_100, 1_000):
            for begin in range(at - 40, at + 20, 10):
                program.launch(begin, begin + 2, after=3, lasts=4)
            program.add(operator, "aten::to", at + 19, at + 41)
            reads = copy_of(read_bytes)
            program.launch(
                at + 20, at + 40, make=reads, name=PAGEABLE_D2H, call="cudaMemcpyAsync", lasts=5
            )
            if between:
                program.add(annotation, between, at + 45, at + 60)
            then = at + 40 + computes_us
            program.add(operator, "aten::to", then - 1, then + 21)
            writes = copy_of(written_bytes)
            program.launch(
                then, then + 20, make=writes, name=PAGEABLE_H2D, call="cudaMemcpyAsync", lasts=5
            )

    return make


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (rounds(computes_us=200), {"read-for-next-input": 20, "computed-input": 20}),
        # As soon as the host launches otherwise: it computes nothing.
        (rounds(computes_us=15), {}),
        (rounds(computes_us=15, written_bytes=512), {"read-that-goes-back": 20}),
        # A batch of data, and one from a loader.
        (rounds(computes_us=200, written_bytes=1 << 24), {}),
        (rounds(computes_us=200, between=LOADER), {}),
    ],
)
def test_reads_that_feed_the_next_copy(program, found):
    assert {name: n for name, n in recognized(program).items() if name in FOUND} == found
