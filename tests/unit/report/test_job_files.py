"""Which files are the ranks of one job: what they say, when they ran, how they are called."""

import json
import pickle
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from tests.build.files import US, kernel, launch, step, write
from tests.shared_traces import FOLDER, path_of
from tracelab import analyze, load_report
from tracelab.base.errors import UnreadableInputError
from tracelab.base.options import Options

TRACES = Path(__file__).parents[3] / "traces"


def steps_at(start_us=0.0):
    """Two steps of 50 us from there on."""
    return [
        event
        for number in (1, 2)
        for begin_us in [start_us + 50 * number]
        for event in (
            step(number, begin_us * US, (begin_us + 50) * US),
            launch((begin_us + 1) * US, (begin_us + 2) * US, number),
            kernel((begin_us + 5) * US, (begin_us + 35) * US, correlation=number),
        )
    ]


@pytest.fixture
def save(tmp_path):
    """Write a file of a rank; its path."""

    def run(name, rank=None, size=None, *, start_us=0.0, base_ns=None, groups=None):
        about = {"backend": "nccl", "rank": rank, "world_size": size}
        if groups is not None:
            about["pg_config"] = groups
        before = {} if rank is None else {"distributedInfo": about}
        before |= {} if base_ns is None else {"baseTimeNanoseconds": base_ns}
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        return write(path, steps_at(start_us), before=before)

    return run


def decided(*paths, **options):
    """Whether they are one job, why, and which were recorded together."""
    report = analyze([*paths], Options(cache=False, **options))
    decision = report.provenance.job
    assert (report.job is not None) == decision.is_job
    return decision.is_job, decision.why, decision.recordings


def missing(*paths, **options):
    """The ranks of which it is said that other ranks are missing."""
    findings = analyze([*paths], Options(cache=False, **options)).findings
    return [finding.rank for finding in findings if finding.rule == "TL909"]


# What files say of themselves.


def test_all_ranks_at_one_time_are_a_job(save):
    paths = [save(f"{name}.json", rank, 3) for rank, name in enumerate("cab")]

    assert decided(*paths) == (True, "3 of 3 ranks, recorded at the same time", ((0, 1, 2),))
    assert missing(*paths) == []
    assert analyze(paths).job.ranks == (0, 1, 2)


def test_some_ranks_of_a_job_are_one_and_the_others_are_missing(save):
    paths = [save(f"{rank}.json", rank, 128) for rank in (0, 7)]

    assert decided(*paths) == (True, "2 of 128 ranks, recorded at the same time", ((0, 7),))
    assert missing(*paths) == [0, 7]


def test_one_file_is_no_job(save):
    report = analyze(save("a.json", 0, 2))

    assert (report.job, report.provenance.job) == (None, None)


def test_different_sizes(save):
    paths = [save("a.json", 0, 2), save("b.json", 1, 4), save("c.json")]

    why = "the number of ranks differs: 2 in 1 file, 4 in 1 file and not given in 1 file"
    assert decided(*paths) == (False, why, ((0,), (1,), (2,)))


def test_ranks_of_two_runs_that_did_not_run_at_the_same_time(save):
    # Their steps are [50, 150) us, and as long 2 s later.
    paths = [save("a.json", 0, 2), save("b.json", 1, 2, start_us=2e6)]

    why = "they were not recorded at the same time: b began 2 s after a had ended"
    assert decided(*paths) == (False, why, ((0,), (1,)))
    assert missing(*paths) == [0, 1]


@pytest.mark.parametrize(("start_us", "is_job"), [(99.0, True), (100.0, False), (-99.0, True)])
def test_steps_must_run_at_one_moment(save, start_us, is_job):
    paths = [save("a.json", 0, 2), save("b.json", 1, 2, start_us=start_us)]

    assert decided(*paths)[0] is is_job


def test_three_files_without_a_common_moment(save):
    # GIVEN steps of [50, 150), [110, 210) and [170, 270) us
    paths = [save(f"{rank}.json", rank, 3, start_us=60 * rank) for rank in range(3)]

    assert decided(*paths)[2] == ((0, 1), (2,))


def test_clocks_begin_where_the_files_say(save):
    # The second file's clock begins 1 s later, its steps 1 s earlier in it.
    first = save("a.json", 0, 2, start_us=1e6, base_ns=10**18)
    second = save("b.json", 1, 2, base_ns=10**18 + 10**9)

    assert decided(first, second)[0]
    assert not decided(first, save("c.json", 1, 2, base_ns=10**18))[0]


def test_jobs_of_one_are_not_a_job(save):
    paths = [save(f"rank{rank}.json", 0, 1) for rank in (0, 1)]

    assert decided(*paths) == (False, "each is a job of one rank", ((0,), (1,)))


def test_different_process_groups(save):
    world, half = {"pg_size": 4}, {"pg_size": 2}
    first = save("a.json", 0, 4, groups=[world, half])

    assert decided(first, save("b.json", 1, 4, groups=[world]))[0]
    other = decided(first, save("c.json", 1, 4, groups=[world, world]))
    assert other == (False, "their process groups differ", ((0,), (1,)))


# The same rank twice.


def test_rank_that_was_recorded_twice(save):
    paths = [save("before.json", 0, 2), save("after.json", 0, 2, start_us=500)]

    why = "rank 0 is in several files: before and after"
    assert decided(*paths) == (False, why, ((0,), (1,)))
    report = analyze(paths)
    assert [(x.rank, x.rank_source, x.path) for x in report.traces] == [
        (0, "position", paths[0]),
        (1, "position", paths[1]),
    ]


@pytest.mark.parametrize("name", ["{run}/rank{rank}.json", "{run}_rank{rank}.json"])
@pytest.mark.parametrize("later_us", [0, 500])
def test_recordings_are_told_apart_by_time_folder_or_name(save, name, later_us):
    """GIVEN both ranks of one run and the first of another
    THEN the second rank of that one is missing."""
    paths = [save(name.format(run="a", rank=rank), rank, 2) for rank in (0, 1)]
    paths.append(save(name.format(run="b", rank=0), 0, 2, start_us=later_us))

    assert decided(*paths)[2] == ((0, 1), (2,))
    assert missing(*paths) == [2]


def test_twice_at_one_time_under_names_that_say_nothing(save):
    paths = [save("a.json", 0, 2), save("b.json", 1, 2), save("c.json", 0, 2)]

    assert decided(*paths)[2] == ((0,), (1,), (2,))


# Files that say nothing.


@pytest.mark.parametrize("name", ["rank{}.json", "x-rank-{}.17952633717{}5.pt.trace.json"])
def test_names_that_differ_only_in_the_rank(save, name):
    paths = [save(name.format(rank, rank)) for rank in (0, 1)]

    why = "their names differ only in the rank, and they were recorded at the same time"
    assert decided(*paths) == (True, why, ((0, 1),))


def test_names_that_differ_in_more(save):
    paths = [save("left_rank0.json"), save("right_rank1.json")]

    assert decided(*paths) == (False, "their names differ in more than the rank", ((0,), (1,)))


def test_a_file_that_names_no_rank(save):
    paths = [save("rank0.json"), save("mine.json")]

    assert decided(*paths) == (False, "nothing says which rank mine is", ((0,), (1,)))


# The caller's word.


def test_told_so_against_doubts(save):
    paths = [save("a.json", 0, 2), save("b.json", 1, 2, start_us=2e6)]

    assert decided(*paths, job=True) == (True, "the caller says so", ((0, 1),))
    assert missing(*paths, job=True) == []


@pytest.mark.parametrize("name", ["rank{}.json", "rank{}/trace.json"])
@pytest.mark.parametrize("given", [0, None])
def test_told_so_names_and_folders_say_which_rank(save, name, given):
    """GIVEN files that all call themselves rank 0, or nothing, and are called otherwise"""
    paths = [save(name.format(rank), given, 2) for rank in (5, 3)]

    report = analyze(paths, Options(job=True))

    assert [(x.rank, x.rank_source) for x in report.traces] == [(3, "filename"), (5, "filename")]


def test_told_so_without_any_rank(save):
    report = analyze([save("a.json", 0, 2), save("b.json", 0, 2)], Options(job=True))

    assert report.job.ranks == (0, 1)
    assert [x.rank_source for x in report.traces] == ["position", "position"]


# What becomes of it.


def test_saved_and_pickled(save, tmp_path):
    for size in (2, 1):
        report = analyze([save("rank0.json", 0, size), save("rank1.json", 1, size)])
        report.save(tmp_path / "saved.json")

        assert load_report(tmp_path / "saved.json") == report
        assert pickle.loads(pickle.dumps(report)) == report


@pytest.fixture(scope="module")
def saved_job():
    return analyze(sorted(TRACES.glob("straggler_more_work_rank*"))).to_json()


@pytest.mark.parametrize(
    "keys",
    [
        ("job", "collectives", 0, "ranks"),
        ("job", "stragglers", 0, "waiting_ranks"),
        ("steady", 0, "lengths_ns"),
    ],
)
def test_lists_of_different_lengths_are_damage(saved_job, tmp_path, keys):
    data = json.loads(saved_job)
    reduce(getitem, keys, data).append(7)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UnreadableInputError, match="is damaged"):
        load_report(path)


def test_report_of_before_there_were_jobs(save, tmp_path):
    report = analyze([save("rank0.json", 0, 2), save("rank1.json", 1, 2)])
    data = json.loads(report.to_json())
    del data["provenance"]["job"]
    data["job"] = None
    for trace in data["traces"]:
        for key in ("world_size", "world_groups", "recorded", "unused_steps"):
            del trace[key]
    (tmp_path / "saved.json").write_text(json.dumps(data))

    loaded = load_report(tmp_path / "saved.json")

    assert (loaded.job, loaded.provenance.job, loaded.traces[0].recorded) == (None, None, None)
    assert [x.rank for x in loaded.traces] == [0, 1]


def test_full_text_of_a_job_names_ranks_and_files(tracelab, save, tmp_path):
    for rank in (0, 1):
        save(f"run/rank{rank}.json", rank, 2)

    lines = tracelab("analyze", tmp_path, "--full").out.splitlines()

    named = [line.split()[:2] for line in lines if line.startswith("   ")]
    assert ["0", "rank0"] in named
    assert ["1", "rank1"] in named


def test_text_of_files_that_are_no_job_speaks_of_files(tracelab, save, tmp_path):
    for number in range(5):
        save(f"run/{number}.json", 0, 1)

    text = tracelab("analyze", tmp_path).out

    assert "Not one job: " in text
    assert "pass --job" in text
    assert "5 ranks" not in text
    assert "5 ranks" in tracelab("analyze", tmp_path, "--job").out
    # The chapters of so many files are left out, and the text says so.
    full = tracelab("analyze", tmp_path, "--full").out
    assert "analyze it alone" in full
    assert "Ranks" not in full
    assert "Ranks" in tracelab("analyze", tmp_path, "--full", "--job").out


# Real files.


def bundled(*names):
    return decided(*(str(TRACES / f"{name}.pt.trace.json.gz") for name in names))


def test_two_ranks_of_a_bundled_job():
    job = bundled("ddp_hook_side_stream_rank0", "ddp_hook_side_stream_rank1")

    assert job == (True, "2 of 2 ranks, recorded at the same time", ((0, 1),))


def test_four_stages_of_a_bundled_pipeline():
    assert bundled(*(f"pipeline_1f1b_few_4_rank{rank}" for rank in range(4))) == (
        True,
        "4 of 4 ranks, recorded at the same time",
        ((0, 1, 2, 3),),
    )


def test_ranks_of_two_bundled_runs(snapshot):
    is_job, why, recordings = bundled("ddp_hook_no_hook_rank0", "ddp_hook_side_stream_rank1")

    assert (is_job, recordings) == (False, ((0,), (1,)))
    assert why == snapshot


def test_the_same_rank_of_two_bundled_runs(snapshot):
    is_job, why, _ = bundled("ddp_hook_no_hook_rank0", "ddp_hook_side_stream_rank0")

    assert not is_job
    assert why == snapshot


def test_folder_of_bundled_traces(tmp_path, snapshot):
    """GIVEN two jobs of two ranks, one rank of another, and a program of one process
    THEN each of the complete jobs is one recording, and only the single rank misses another."""
    for name in (
        "collectives_all_gather_sync_rank0",
        "collectives_all_gather_sync_rank1",
        "collectives_broadcast_sync_rank0",
        "collectives_broadcast_sync_rank1",
        "straggler_even_rank1",
        "two_streams_small_graph",
    ):
        file = f"{name}.pt.trace.json.gz"
        (tmp_path / file).symlink_to(TRACES / file)

    is_job, why, recordings = decided(str(tmp_path))
    assert (is_job, recordings) == (False, ((0, 1), (2, 3), (4,), (5,)))
    assert why == snapshot
    assert missing(str(tmp_path)) == [4]


def test_programs_of_one_process_are_no_job(snapshot):
    is_job, why, _ = bundled("events_item", "events_wait")

    assert not is_job
    assert why == snapshot


@pytest.mark.slow
def test_eight_real_ranks():
    folder = FOLDER / "param_dlrm_8ranks"
    if not folder.exists():
        pytest.skip(f"{folder} is not here")

    assert decided(str(folder)) == (
        True,
        "8 of 8 ranks, recorded at the same time",
        (tuple(range(8)),),
    )


def test_two_real_ranks_of_128():
    paths = [path_of(f"hta_sampled_rank{rank}") for rank in (0, 1)]

    assert decided(*paths) == (True, "2 of 128 ranks, recorded at the same time", ((0, 1),))
    assert missing(*paths) == [0, 1]
