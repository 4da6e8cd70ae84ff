"""The critical path of a job, from rank to rank."""

import pickle
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tests.build.jobs import (
    KnownClocks,
    Turn,
    job_of,
    matches_of,
    one_clock,
    part_of,
    rows_of_job,
)
from tests.build.random_rows import random_rows
from tests.build.rows import US, comm, graph, kernel, launch, python, step
from tests.bundled_traces import PATHS
from tests.examples import examples
from tests.reference.job_path import slow_job_path
from tests.reference.ticks import TICK, scaled
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.job.operation_members import find_members
from tracelab.job.path import find_job_path
from tracelab.model.collectives import collectives
from tracelab.model.trace import ABSENT


def path_of(parts, matches, clocks=None):
    clocks = clocks or one_clock(len(parts))
    return find_job_path(find_members(parts, matches, clocks))


def assert_tiles(path):
    """Every account of a path has its length, and its stretches follow each other."""
    assert path.total_ns == path.end_ns - path.start_ns
    assert sum(path.by_kind.values()) == path.total_ns
    assert sum(each.total_ns for each in path.by_rank) == path.total_ns
    assert sum(each.total_ns for each in path.segments) == path.total_ns
    assert min(each.total_ns for each in path.segments) > 0
    for rank in path.by_rank:
        assert sum(rank.by_kind.values()) == rank.total_ns
        stretches = [each for each in path.stretches if each.rank == rank.rank]
        assert sum(each.end_ns - each.start_ns for each in stretches) == rank.total_ns
    bounds = [path.start_ns, *(each.end_ns for each in path.stretches)]
    assert [each.start_ns for each in path.stretches] == bounds[:-1]
    assert bounds[-1] == path.end_ns
    assert all(before < after for before, after in pairwise(bounds))
    assert all(one.rank != other.rank for one, other in pairwise(path.stretches))


# What must hold of every job; that the walk ends at all is a part of it.


@st.composite
def random_jobs(draw):
    """Random ranks that all begin at once, and the collectives in which they meet."""
    ranks = []
    for _ in range(draw(st.integers(2, 3))):
        rows = draw(random_rows())
        if not any("nccl" in row.name for row in rows):
            rows = [*rows, launch(7, 8, 1001), comm(10, 20, correlation=1001, stream=20)]
        ranks.append([row for row in scaled(rows) if not row.name.startswith("ProfilerStep")])
    firsts = [graph(*rows).host.timeline.windows[0].start_ns for rows in ranks]
    offsets = [max(firsts) - first for first in firsts]
    kernels = [collectives(graph(*rows).host.timeline) for rows in ranks]
    events = [
        graph(*rows).host.timeline.event_id[found.row].tolist()
        for rows, found in zip(ranks, kernels, strict=True)
    ]
    meetings = list(zip(*events, strict=False))
    for meeting in meetings:  # nobody leaves before all have come
        arrivals = [
            rows[event].start + offset
            for rows, event, offset in zip(ranks, meeting, offsets, strict=True)
        ]
        for rows, event, offset in zip(ranks, meeting, offsets, strict=True):
            end = max(rows[event].end, max(arrivals) - offset + TICK * draw(st.integers(0, 2)))
            rows[event] = replace(rows[event], end=end)
    return ranks, offsets, meetings


def job_parts(ranks, meetings):
    parts = [
        part_of(rank, [replace(row, start=row.start // US, end=row.end // US) for row in rows])
        for rank, rows in enumerate(ranks)
    ]
    index_of = [{event: i for i, event in enumerate(part.kernel_id.tolist())} for part in parts]
    matches = matches_of(
        *([(rank, index_of[rank][event]) for rank, event in enumerate(x)] for x in meetings)
    )
    return parts, matches


def assert_is_slow_path(path, ranks, offsets, meetings):
    """The path is the one that the slow walk finds, on each rank and of each kind."""
    expected = slow_job_path([graph(*rows) for rows in ranks], offsets, meetings)
    of_kind = Counter()
    stretches = []
    for rank, start, end, kind in expected:
        of_kind[rank, kind.name.lower()] += end - start
        if stretches and stretches[-1][0] == rank:
            stretches[-1] = (rank, stretches[-1][1], end)
        else:
            stretches.append((rank, start, end))
    measured = {
        (each.rank, kind): length
        for each in path.by_rank
        for kind, length in each.by_kind.items()
        if length
    }
    assert measured == dict(of_kind)
    assert [(each.rank, each.start_ns, each.end_ns) for each in path.stretches] == stretches


@examples(60)
@given(random_jobs())
def test_path_is_the_one_that_a_slow_walk_finds(job):
    ranks, offsets, meetings = job
    parts, matches = job_parts(ranks, meetings)

    path = path_of(parts, matches, KnownClocks(tuple(offsets), (0,) * len(ranks)))

    if path.total_ns:
        assert_tiles(path)
    assert_is_slow_path(path, ranks, offsets, meetings)


_turns = st.builds(
    Turn,
    compute=st.integers(1, 400),
    idle=st.integers(0, 2).map(lambda x: 150 * x),
    beside=st.integers(0, 2).map(lambda x: 100 * x),
)


@examples(60)
@given(st.data())
def test_path_of_ranks_that_meet_often_is_the_one_that_a_slow_walk_finds(data):
    count, turns = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 6))
    groups = data.draw(
        st.sampled_from(
            [None] if count < 4 else [None, [[(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 1, 2, 3)]]]
        )
    )
    job = [data.draw(st.lists(_turns, min_size=turns, max_size=turns)) for _ in range(count)]
    rows, matches = rows_of_job(*job, transfer=12, collectives_per_step=1, groups=groups)
    begin = [launch(50, 51, 9001), kernel(52, 53, correlation=9001)]
    rows = [
        begin + [row for row in of_rank if not row.name.startswith("ProfilerStep")]
        for of_rank in rows
    ]
    parts = [part_of(rank, of_rank) for rank, of_rank in enumerate(rows)]

    path = path_of(parts, matches)

    assert_tiles(path)
    meetings = []
    for first, end in pairwise(matches.first.tolist()):
        meeting = [ABSENT] * count
        for rank, index in zip(
            matches.part_index[first:end], matches.operation_index[first:end], strict=True
        ):
            meeting[rank] = int(parts[rank].kernel_id[index])
        meetings.append(meeting)
    ranks = [
        [replace(row, start=row.start * US, end=row.end * US) for row in of_rank]
        for of_rank in rows
    ]
    assert_is_slow_path(path, ranks, [0] * count, meetings)


# One rule after the other.


def shares(path):
    """(rank, kind, name) to its length in us; host work of the hand-made rows has no names."""
    return {(x.rank, x.kind, x.name): x.total_ns / US for x in path.segments}


def test_path_goes_to_the_rank_that_came_last_and_stays_where_it_computes():
    # GIVEN rank 1 that computes for 300 us before the first collective, rank 0 for 100, and then
    # rank 0 for 250 before the second, rank 1 for 50; each moves data for 10 us
    # (before the second one the host is busy for 5 us)
    parts, matches = job_of([100, Turn(250, idle=5)], [300, Turn(50, idle=5)])

    path = path_of(parts, matches)

    # THEN until the first collective rank 1 counts, then, through it, rank 0 to the end: of the
    # first transfer nothing is on rank 1, which the path leaves when its kernel arrives
    assert path.steps == (0, 1)
    assert_tiles(path)
    assert [(x.rank, x.start_ns // US, x.end_ns // US) for x in path.stretches] == [
        (1, 90, 400),
        (0, 400, 675),
    ]
    figures = shares(path)
    assert figures[1, "compute", "gemm"] == 300
    assert figures[0, "compute", "gemm"] == 250
    assert figures[0, "comm", "all_reduce"] == 20
    assert (1, "comm", "all_reduce") not in figures
    assert figures[0, "host", "train.py(3): prepare"] == 5
    assert sum(figures.values()) == 675 - 90


def test_path_is_the_same_after_parts_came_from_other_processes():
    parts, matches = job_of([100, Turn(250, idle=5)], [300, Turn(50, idle=5)])

    assert path_of(pickle.loads(pickle.dumps(parts)), matches) == path_of(parts, matches)


def test_clocks_that_are_off_do_not_break_the_tiling():
    # GIVEN the same job, but the clock of rank 1 is 3 us ahead, and said to be right within 4
    ranks = [100, Turn(250, idle=5)], [300, Turn(50, idle=5)]
    parts, matches = job_of(*ranks)
    clocks = KnownClocks((0, 3 * US), (0, 4 * US))

    path = path_of(parts, matches, clocks)

    # THEN rank 1 arrives and ends 3 us later, and the first transfer is so much shorter
    assert_tiles(path)
    assert [(x.rank, x.start_ns // US, x.end_ns // US) for x in path.stretches] == [
        (1, 93, 403),
        (0, 403, 665),
        (1, 665, 678),
    ]
    assert shares(path)[0, "comm", "all_reduce"] == 7


def test_rank_that_arrives_after_the_end_by_its_clock_loses_the_difference():
    # GIVEN that the clock of rank 1 is 15 us ahead: by it the kernel of rank 0 ends before it came
    parts, matches = job_of([100, Turn(250, idle=5)], [300, Turn(50, idle=5)])

    path = path_of(parts, matches, KnownClocks((0, 15 * US), (0, 4 * US)))

    # THEN the path was on rank 1 until that kernel ends, with 5 us less of what rank 1 did longest
    assert_tiles(path)
    assert [(x.rank, x.start_ns // US, x.end_ns // US) for x in path.stretches] == [
        (1, 105, 410),
        (0, 410, 665),
        (1, 665, 690),
    ]
    assert shares(path)[1, "compute", "gemm"] == 295


def test_wait_within_the_error_of_the_clocks_is_nobodys_fault():
    parts, matches = job_of([100], [102])

    path = path_of(parts, matches, one_clock(2, residual=US))

    # THEN the last to end decides alone, here of two at once the first
    assert {x.rank for x in path.stretches} == {0}
    assert shares(path)[0, "comm", "all_reduce"] == 12


def test_job_without_common_operations_or_without_steps():
    parts, matches = job_of([100], [300])
    assert path_of(parts, matches_of()) is None
    assert path_of([parts[0], replace(parts[1], ways=None)], matches) is None

    # GIVEN no steps: both recordings, from when both have begun, at 98 us
    rows, matches = rows_of_job([100], [300], transfer=10, collectives_per_step=1)
    rows = [[row for row in some if not row.name.startswith("ProfilerStep")] for some in rows]
    path = path_of([part_of(rank, some) for rank, some in enumerate(rows)], matches)
    assert path.steps == ()
    assert_tiles(path)
    assert (path.start_ns, path.end_ns) == (100 * US, 410 * US)


def test_window_begins_when_the_last_rank_has_begun():
    # GIVEN two ranks of which the second begins its first step 37 us later, by its clock
    parts, matches = job_of([100], [100])

    path = path_of(parts, matches, KnownClocks((0, 37 * US), (0, 0)))

    # THEN so much of the first one's compute is not of the window; where the path was then is known
    # to a 64th of the step
    assert (path.start_ns, path.end_ns) == (127 * US, 247 * US)
    assert_tiles(path)


def test_places_beyond_the_largest_are_others():
    # GIVEN more kernels of different names before the collective than are listed
    count = 205
    rows = [launch(0, 1, 1), kernel(1, 10, correlation=1)]
    for number in range(count):
        rows += [
            launch(4, 5, 10 + number),
            kernel(10 + 6 * number, 16 + 6 * number, f"k{number}", correlation=10 + number),
        ]
    end = 10 + 6 * count
    rows += [launch(6, 7, 999), comm(end, end + 20, correlation=999)]
    parts = [part_of(rank, rows) for rank in (0, 1)]

    path = path_of(parts, matches_of([(0, 0), (1, 0)]))

    assert_tiles(path)
    figures = shares(path)
    assert len(figures) == 201
    assert figures[0, "compute", "others"] > 0


def test_host_work_is_named_by_what_the_host_was_in():
    # GIVEN a host that prepares for 900 us, and then trains until the launch at 1000
    rows = [
        step(0, 0, 1_100),
        python("train.py(3): prepare", 0, 900),
        python("train.py(9): train", 900, 1_100),
        launch(1_000, 1_001, 1),
        comm(1_010, 1_100, correlation=1),
    ]
    parts = [part_of(rank, rows) for rank in (0, 1)]

    path = path_of(parts, matches_of([(0, 0), (1, 0)]))

    assert_tiles(path)
    # THEN it is sampled every 10 us
    assert shares(path) == {
        (0, "host", "train.py(3): prepare"): pytest.approx(900, abs=10),
        (0, "host", "train.py(9): train"): pytest.approx(100, abs=10),
        (0, "launch", "ncclDevKernel_AllReduce"): 9,
        (0, "comm", "all_reduce"): 90,
    }
    [prepare] = [x for x in path.segments if x.name == "train.py(3): prepare"]
    assert (prepare.function, prepare.file) == ("prepare", "train.py")


# Real jobs.


@pytest.mark.parametrize(
    ("name", "share_of_rank", "kind", "least_of_kind"),
    [
        ("straggler_more_work", {0: 0.99}, "compute", 0.95),
        ("straggler_slow_loader", {0: 0.99}, "host", 0.2),
        ("late_launch_checksum", {0: 0.99}, "host", 0.6),
        ("tensor_parallel_uneven", {0: 0.99}, "compute", 0.9),
        ("two_groups_one_late", {1: 0.99}, "compute", 0.95),
        ("pipeline_1f1b_few_4", {3: 0.5, 0: 0.1, 1: 0.1, 2: 0.1}, "compute", 0.8),
    ],
)
def test_path_of_a_real_job_runs_through_the_rank_that_decides(
    name, share_of_rank, kind, least_of_kind
):
    paths = [path for path in PATHS if path.name.startswith(f"{name}_rank")]

    path = analyze(paths, Options(cache=False)).job.critical_path

    assert_tiles(path)
    share = {each.rank: each.total_ns / path.total_ns for each in path.by_rank}
    assert all(share[rank] >= least for rank, least in share_of_rank.items())
    assert path.by_kind[kind] >= least_of_kind * path.total_ns
    assert path.by_kind["unknown"] <= 0.01 * path.total_ns
