import gzip
import json
import os
from pathlib import Path

import pytest

from tests.build.files import (
    US,
    annotation,
    copy,
    kernel,
    launch,
    operator,
    step,
    sync_row,
    text,
    write,
)
from tracelab import analyze
from tracelab.analysis.analysis import analyze_source
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.options import Options
from tracelab.read.sources import find_sources

TRACES = Path(__file__).parents[3] / "traces"


def small(start=0.0):
    """Two steps of 50 us with a kernel each, launched and run in its step."""
    return [
        step(1, start * US, (start + 50) * US),
        launch((start + 1) * US, (start + 3) * US, 1),
        kernel((start + 5) * US, (start + 35) * US, correlation=1),
        step(2, (start + 50) * US, (start + 100) * US),
        launch((start + 51) * US, (start + 53) * US, 2),
        kernel((start + 60) * US, (start + 90) * US, "my_ring", correlation=2),
    ]


def about_rank(rank):
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 8}}


def ranks(report):
    return [(x.rank, x.rank_source) for x in report.traces]


# One file.


def test_windows_are_the_whole_trace_and_every_step(tmp_path):
    report = analyze(write(tmp_path / "t.json", small()))

    assert [(x.step, x.start_ns, x.end_ns) for x in report.windows] == [
        (None, 5 * US, 90 * US),
        (1, 0, 50 * US),
        (2, 50 * US, 100 * US),
    ]
    assert [(x.step, x.total_ns) for x in report.critical_path] == [
        (None, 85 * US),
        (1, 50 * US),
        (2, 50 * US),
    ]


def test_one_step_is_all_that_is_measured(tmp_path):
    report = analyze(write(tmp_path / "t.json", small()), Options(step=2))

    assert [(x.step, x.start_ns, x.end_ns) for x in report.windows] == [(2, 50 * US, 100 * US)]
    assert {x.step for x in (*report.overlaps, *report.critical_path, *report.syncs)} == {2}


def test_step_that_is_not_there_is_wrong_usage(tmp_path):
    path = write(tmp_path / "t.json", small())

    with pytest.raises(UsageError, match=r"no step 7; the file's steps are: 1 to 2$"):
        analyze(path, Options(step=7))


def test_step_of_a_file_without_steps_is_wrong_usage(tmp_path):
    path = write(tmp_path / "t.json", [kernel(0, 10 * US)])

    with pytest.raises(UsageError, match="no step 1; the file's steps are: none"):
        analyze(path, Options(step=1))


def test_comm_patterns(tmp_path):
    path = write(tmp_path / "t.json", small())

    plain, told = analyze(path), analyze(path, Options(comm_pattern=("^my_ring$",)))

    assert (plain.windows[0].devices[0].comm_ns, told.windows[0].devices[0].comm_ns) == (
        0,
        30 * US,
    )
    assert told.provenance.comm_patterns == ("^my_ring$",)


def test_step_pattern(tmp_path):
    events = [*small(), annotation("epoch", 0, 95 * US)]

    report = analyze(write(tmp_path / "t.json", events), Options(step_on="^epoch$"))

    assert [(x.step, x.end_ns) for x in report.windows] == [(None, 90 * US), (0, 95 * US)]
    assert report.provenance.step_pattern == "^epoch$"


@pytest.mark.parametrize("options", [Options(comm_pattern=("(",)), Options(step_on="(")])
def test_pattern_that_is_no_regular_expression_is_wrong_usage(tmp_path, options):
    with pytest.raises(UsageError, match="is not a valid regular expression"):
        analyze(write(tmp_path / "t.json", small()), options)


def test_trace_without_gpu_activities_says_so(tmp_path):
    path = write(
        tmp_path / "cpu.json",
        [operator("aten::mm", 0, 10 * US), operator("aten::mm", 10 * US, 15 * US)],
    )

    with pytest.raises(UnreadableInputError, match=r"cpu\.json: 2 .* no GPU activity"):
        analyze(path)


def test_analysis_keeps_what_a_closer_look_needs(tmp_path):
    (source,) = find_sources([write(tmp_path / "t.json", small())])

    analysis = analyze_source(source)

    assert len(analysis.timeline.event_id) == 2
    assert analysis.windows == analysis.timeline.windows
    assert len(analysis.blocking_calls.calls) == 0
    assert analysis.graph.host.timeline is analysis.timeline
    assert analysis.report.traces[0].path == source.path


# What is said of a file.


def test_facts_of_a_trace(tmp_path):
    # GIVEN versions as Kineto writes them, two devices, of which one worked, and every sort of loss
    # that the analysis counts
    before = {
        **about_rank(5),
        "cuda_runtime_version": 12040,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
    }
    events = [
        launch(0, 2 * US, 1),
        kernel(5 * US, 15 * US, correlation=1),
        kernel(8 * US, 18 * US, correlation=9),
        sync_row("Stream Wait Event", 3 * US, 3 * US, stream=7, correlation=3),
    ]

    # WHEN
    report = analyze(write(tmp_path / "t.json", events, before=before))

    # THEN
    (facts,) = report.traces
    assert (facts.rank, facts.rank_source) == (5, "metadata")
    assert (facts.objects, facts.events, facts.gpu_activities) == (4, 4, 2)
    assert facts.software == {"cuda": "12.4"}
    assert facts.gpus == {"0": "NVIDIA H200"}
    assert facts.losses == {
        "activities_without_launch": 1,
        "overlapping_activities": 1,
        "waits_without_record": 1,
        "edges_against_time": 1,
    }
    assert (facts.event_links.exact, facts.event_links.unresolved) == (0, 1)


def test_versions_of_a_capture_by_tracelab_and_of_rocm(tmp_path):
    about = {"torch": "2.11.0", "cuda": "13.0", "event_records": "cupti"}
    ours = {"tracelab": about, "cuda_runtime_version": 13000}
    rocm = {"hip_runtime_version": 60300000}

    reports = [
        analyze(write(tmp_path / "t.json", small(), before=before)) for before in (ours, rocm)
    ]

    assert [x.traces[0].software for x in reports] == [
        {"torch": "2.11.0", "cuda": "13.0"},
        {"hip": "6.3.0"},
    ]


def test_file_without_losses_has_none(tmp_path):
    (facts,) = analyze(write(tmp_path / "t.json", small())).traces

    assert facts.losses == {}
    assert facts.launched_only is None


def test_long_kernels_that_no_rule_knows_are_listed(tmp_path):
    # 200 us in all: 1 % is 2 us. my_b takes 3 us in two calls, my_c 1.9 us.
    events = [
        kernel(0, 150 * US),
        kernel(150 * US, 195_100, "my_a"),
        kernel(196 * US, 197 * US, "my_b"),
        kernel(198 * US, 200 * US, "my_b"),
        kernel(200 * US, 201_900, "my_c"),
    ]

    (facts,) = analyze(write(tmp_path / "t.json", events)).traces

    assert [(x.name, x.count, x.total_ns) for x in facts.unrecognised] == [
        ("my_a", 1, 45_100),
        ("my_b", 2, 3_000),
    ]


def test_whole_trace_again_without_what_was_launched_before_it(tmp_path):
    # Without the kernel whose launch is not there, it is [20, 40) with 5 us idle.
    events = [
        kernel(0, 10 * US, correlation=7),
        launch(12 * US, 13 * US, 1),
        kernel(20 * US, 30 * US, correlation=1),
        launch(14 * US, 15 * US, 2),
        kernel(35 * US, 40 * US, correlation=2),
    ]

    (facts,) = analyze(write(tmp_path / "t.json", events)).traces

    again = facts.launched_only
    assert (again.left_out, again.start_ns, again.end_ns) == (1, 20 * US, 40 * US)
    (device,) = again.devices
    assert (device.busy_ns, device.idle_ns) == (15 * US, 5 * US)
    assert sum(device.bubbles.values()) == 5 * US


def test_file_in_which_nothing_was_launched_is_not_measured_again(tmp_path):
    (facts,) = analyze(write(tmp_path / "t.json", [kernel(0, 10 * US)])).traces

    assert facts.losses == {"activities_without_launch": 1}
    assert facts.launched_only is None


def test_blocking_calls_are_summed_by_place_the_dearest_first(tmp_path):
    # GIVEN in each of two steps an .item() and in the second a .cpu() too
    events = []
    for number, start in ((1, 0), (2, 100)):
        events += [
            step(number, start * US, (start + 100) * US),
            launch((start + 1) * US, (start + 3) * US, 10 * number),
            kernel((start + 5) * US, (start + 20) * US, correlation=10 * number),
            operator("aten::item", (start + 8) * US, (start + 28) * US),
            launch(
                (start + 10) * US, (start + 22) * US, 10 * number + 1, name="cudaStreamSynchronize"
            ),
            launch((start + 40) * US, (start + 42) * US, 10 * number + 2),
            kernel((start + 44) * US, (start + 64) * US, correlation=10 * number + 2),
        ]
    events += [
        operator("aten::to", 146 * US, 176 * US),
        launch(147 * US, 174 * US, 50, name="cudaMemcpyAsync"),
        copy(166 * US, 172 * US, name="Memcpy DtoH (Device -> Pageable)", correlation=50),
        launch(180 * US, 181 * US, 51),
        kernel(182 * US, 185 * US, correlation=51),
    ]

    # WHEN
    report = analyze(write(tmp_path / "t.json", events))

    # THEN each .item() costs the 12 us that it blocks of the idle [20, 44) of its step, the copy
    # [164, 166) before itself and [172, 182) after it
    found = [
        (x.step, x.operator, x.kind, x.count, x.blocked_ns, x.caused_idle_ns) for x in report.syncs
    ]
    assert found == [
        (None, "aten::item", "stream", 2, 24 * US, 24 * US),
        (None, "aten::to", "copy", 1, 27 * US, 12 * US),
        (1, "aten::item", "stream", 1, 12 * US, 12 * US),
        (2, "aten::to", "copy", 1, 27 * US, 12 * US),
        (2, "aten::item", "stream", 1, 12 * US, 12 * US),
    ]


# Several files.


def test_ranks_come_from_the_metadata_then_from_the_name_then_from_the_position(tmp_path):
    # GIVEN files that say rank 1, rank 2 by name, and two that say nothing
    paths = [
        write(tmp_path / "a.json", small()),
        write(tmp_path / "b.json", small(), before=about_rank(1)),
        write(tmp_path / "c_rank2.json", small()),
        write(tmp_path / "d.json", small()),
    ]

    # WHEN
    report = analyze(paths)

    # THEN the others take the first ranks that are free
    assert ranks(report) == [(0, "position"), (1, "metadata"), (2, "filename"), (3, "position")]
    assert [x.path for x in report.traces] == paths
    for part in (report.windows, report.critical_path):
        assert [x.rank for x in part if x.step is None] == [0, 1, 2, 3]
    assert report.provenance.paths == tuple(paths)


def test_metadata_wins_over_the_name(tmp_path):
    path = write(tmp_path / "rank3.json", small(), before=about_rank(4))

    assert ranks(analyze(path)) == [(4, "metadata")]


def test_two_files_never_have_one_rank(tmp_path):
    # Two traces of programs that each were rank 0 are not one rank.
    paths = [
        write(tmp_path / "before.json", small(), before=about_rank(0)),
        write(tmp_path / "after.json", small(), before=about_rank(0)),
        write(tmp_path / "rank1.json", small()),
    ]

    report = analyze(paths)

    # Numbers say nothing of ranks then: they are the files' places.
    assert ranks(report) == [(0, "position"), (1, "position"), (2, "position")]
    assert [x.path for x in report.traces] == paths
    assert [x.rank for x in report.windows] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_folder_is_all_its_traces(tmp_path):
    for rank in (1, 0):
        (tmp_path / f"rank{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text(small())))

    report = analyze(str(tmp_path))

    assert ranks(report) == [(0, "filename"), (1, "filename")]
    assert report.provenance.paths == (str(tmp_path),)


def test_file_that_cannot_be_read_does_not_stop_the_others(tmp_path):
    good = write(tmp_path / "good.json", small())
    bad = tmp_path / "bad.json"
    bad.write_text("no trace")
    cpu = write(tmp_path / "cpu.json", [operator("aten::mm", 0, 10 * US)])

    report = analyze([str(bad), good, cpu])

    assert [x.path for x in report.traces] == [good]
    assert [x.path for x in report.provenance.unread] == [str(bad), cpu]
    assert "no GPU activity" in report.provenance.unread[1].reason


def test_step_that_one_file_lacks_does_not_stop_the_others(tmp_path, snapshot):
    good = write(tmp_path / "good.json", small())
    other = write(tmp_path / "other.json", [kernel(0, 10 * US)])

    report = analyze([good, other], Options(step=1))

    assert [x.step for x in report.windows] == [1]
    assert report.provenance.unread == snapshot


def test_nothing_that_can_be_read_raises_the_first_error(tmp_path):
    paths = [
        write(tmp_path / name, [operator("aten::mm", 0, 10 * US)]) for name in ("a.json", "b.json")
    ]

    with pytest.raises(UnreadableInputError, match=r"a\.json"):
        analyze(paths)


def test_no_path_is_wrong_usage():
    with pytest.raises(UsageError, match="no file, folder or URL"):
        analyze([])


def test_any_map_runs_over_the_files(tmp_path):
    paths = [write(tmp_path / f"rank{i}.json", small(start=i)) for i in range(3)]
    seen = []

    def run(function, sources):
        seen.extend(source.path for source in sources)
        return [function(source) for source in sources]

    assert analyze(paths, run=run) == analyze(paths)
    assert seen == paths


def test_expected_errors_are_returned_so_that_they_can_cross_processes(tmp_path):
    (source,) = find_sources([write(tmp_path / "cpu.json", [operator("aten::mm", 0, 10 * US)])])

    result = analyze_file(source, Options())

    assert (result.source, result.report) == (source, None)
    assert isinstance(result.error, UnreadableInputError)
    with pytest.raises(UnreadableInputError):
        merge_results([result], [source.path], Options())


def test_source_is_looked_for_where_the_program_had_its_modules(tmp_path, monkeypatch):
    """GIVEN a recording that names the folder THEN it is read from if below the current one."""
    recorded = json.loads(
        gzip.decompress((TRACES / "prefetch_copy_stream_synchronize.pt.trace.json.gz").read_bytes())
    )
    recorded["tracelab"]["source_folders"] = os.pathsep.join([str(TRACES.parent), "/elsewhere"])
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(recorded))
    lines = []
    for folder in (tmp_path, TRACES.parent.parent):
        monkeypatch.chdir(folder)
        [call] = [x for x in analyze(str(file)).syncs if x.step is None]
        lines.append((call.file, call.line))
    assert lines == [("workloads/prefetch.py", None), ("workloads/prefetch.py", 61)]
