"""The communication operations of real captures, counted against their operators and peers."""

from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path

import pytest

from tests.bundled_traces import PATHS as BUNDLED, name_of
from tests.shared_traces import FOLDER, path_of
from tracelab.model.collectives import Group, Operation, collectives
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import ABSENT, COLLECTIVE_OPERATOR
from tracelab.read.reader import read_trace
from tracelab.read.streams import Source

JOBS = defaultdict(dict)
for _path in BUNDLED:
    _job, _, _rank = name_of(_path).rpartition("_rank")
    if _job:
        JOBS[_job][int(_rank)] = _path
JOBS = {job: ranks for job, ranks in JOBS.items() if len(ranks) > 1}  # of others one is bundled
EIGHT_RANKS = sorted((FOLDER / "param_dlrm_8ranks").glob("*.json.gz"))


def operations_of(path):
    timeline = build_timeline(read_trace(Source(str(path), None, named=True)))
    return timeline, collectives(timeline)


def counts(path):
    """How often the file has each operation."""
    _, found = operations_of(path)
    return Counter(Operation(operation).name for operation in found.operation.tolist())


def test_every_operation_of_a_job_has_its_kernel_and_its_peer(bundled_job):
    """GIVEN all ranks of a bundled job
    THEN every kernel has operations, every operator that moves something is one of them, and what
    one rank sends to another is what that one receives from it."""
    sent, received = Counter(), Counter()
    for rank, path in JOBS[bundled_job].items():
        timeline, found = operations_of(path)
        trace = timeline.trace
        assert set(found.row) == set((timeline.kind == Kind.COMM).nonzero()[0])
        names = ("1", "2") if bundled_job.startswith("two_groups") else ("0",)
        ranks = tuple(range(len(JOBS[bundled_job])))
        assert set(found.groups) == {Group(name, ranks, len(ranks)) for name in names}
        issued = [
            event
            for event in range(len(trace))
            if trace.name_of(event) == COLLECTIVE_OPERATOR
            and trace.messages.in_bytes[trace.message_row[event]] > 0
        ]
        assert sorted(found.operator_id.tolist()) == issued
        columns = (found.operation, found.peer_rank, found.in_bytes, found.out_bytes)
        for operation, peer, in_bytes, out_bytes in zip(*columns, strict=True):
            assert operation not in (Operation.SEND_RECV, Operation.UNKNOWN)
            assert in_bytes > 0
            if operation == Operation.SEND:
                sent[rank, peer, in_bytes] += 1
            elif operation == Operation.RECV:
                received[peer, rank, out_bytes] += 1
            else:
                assert peer == ABSENT
    assert sent == received
    assert bool(sent) == bundled_job.startswith("pipeline")


@pytest.mark.whole_corpus
def test_bundled_jobs_have_every_kind_of_kernel():
    one_of_each = [next(iter(ranks.values())) for ranks in JOBS.values()]
    assert set(chain.from_iterable(map(counts, one_of_each))) == {
        "ALL_GATHER",
        "ALL_REDUCE",
        "BROADCAST",
        "RECV",
        "REDUCE_SCATTER",
        "SEND",
    }


@pytest.mark.skipif(not EIGHT_RANKS, reason=f"no job of eight ranks in {FOLDER}")
def test_old_files_say_the_operation_by_the_operators_around_the_launch():
    """PyTorch of 2023 writes no arguments of collectives; SendRecv kernels are all-to-alls."""
    for path in EIGHT_RANKS:
        timeline, found = operations_of(path)
        names = Counter(Operation(operation).name for operation in found.operation.tolist())
        assert names == {"ALL_TO_ALL": 5, "ALL_REDUCE": 3}, path.name
        assert found.groups == (Group("", (), None),)
        assert {timeline.trace.name_of(event) for event in found.operator_id.tolist()} == {
            COLLECTIVE_OPERATOR
        }
        assert set(found.sequence) == set(found.in_bytes) == set(found.peer_rank) == {ABSENT}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hta_sampled_rank0", {"ALL_TO_ALL": 4, "ALL_REDUCE": 4, "ALL_GATHER": 2}),
        # RCCL has one kernel for all; five of them were launched before the recording.
        ("tracelens_mi300_resnet_ddp8", {"ALL_REDUCE": 6, "BROADCAST": 6, "UNKNOWN": 5}),
        # DeepSeek's own kernels, not those of a library of collectives.
        ("deepseek_dualpipe_h800", {"UNKNOWN": 36}),
        ("tracelens_sglang_decode", {}),
    ],
)
def test_operations_of_real_files(name, expected):
    assert counts(Path(path_of(name))) == expected
