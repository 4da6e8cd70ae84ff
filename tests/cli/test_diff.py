import json
import shutil
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.figures import figures

TRACES = Path(__file__).parents[2] / "traces"


def trace(name):
    return TRACES / f"{name}.pt.trace.json.gz"


WAITS, FREE = trace("prefetch_copy_stream_synchronize"), trace("prefetch_copy_stream_pinned")
SINFUL, CLEAN = trace("train_step_sinful"), trace("train_step_clean")
EAGER, GRAPH = trace("two_streams_small"), trace("two_streams_small_graph")


@pytest.fixture
def saved(tracelab, tmp_path):
    file = tmp_path / "saved.json"
    tracelab("analyze", FREE, "--json", file)
    return file


def compared(tracelab, before, after, *options):
    return json.loads(tracelab("diff", before, after, *options, "--json", "-").out)


def test_first_line_is_the_verdict(tracelab, snapshot):
    ran = tracelab("diff", WAITS, FREE)
    assert (ran.code, ran.err) == (0, "")
    first = " ".join(ran.out.split("\n\n")[0].split())
    assert figures(first) == ["10.1 %", "2.54 ms", "2.28 ms", "2.28 ms", "202.0 µs", "37.44 µs"]
    assert first == snapshot


def test_json_holds_what_changed(tracelab):
    found = compared(tracelab, WAITS, FREE)
    assert found["schema"] == "tracelab.diff/1"
    assert found["different"] is True
    (rank,) = found["ranks"]
    assert rank["basis"] == "step"
    assert rank["length"]["before_ns"] == 2_535_213
    assert rank["length"]["after_ns"] == 2_280_306
    assert rank["length"]["noise_ns"] >= rank["length"]["after_spread_ns"]
    assert (found["verdict"], found["same_program"]) == ("shorter", True)
    (device,) = rank["devices"]
    assert device["bubbles"]["host_busy"]["beyond_noise"] is True
    assert device["figures"]["compute_ns"]["beyond_noise"] is False
    assert [x["matched"] for x in device["streams"]] == ["number", "number"]
    assert rank["calls"][0]["api"] == "cudaStreamSynchronize"
    assert (rank["calls"][0]["before_count"], rank["calls"][0]["after_count"]) == (1, 0)
    assert {x["name"] for x in rank["kernels"]} >= {"Memcpy HtoD (Pinned -> Device)"}


@pytest.mark.parametrize("name", ["events_wait", "train_step_clean"])
def test_same_program_twice_is_no_difference(tracelab, name):
    ran = tracelab("diff", trace(name), trace(f"{name}_plain"), "--max-regression", "0")
    assert ran.code == 0
    assert ran.out.startswith("No change beyond the noise of 1.")


def test_file_is_as_itself(tracelab):
    (rank,) = compared(tracelab, SINFUL, SINFUL)["ranks"]
    assert rank["length"]["difference_ns"] == 0
    assert {x["state"] for x in rank["findings"]} == {"same"}


def test_sinful_step_is_told_from_the_clean_one(tracelab):
    out = " ".join(tracelab("diff", SINFUL, CLEAN).out.split())
    assert "TL103 `empty_cache`" in out
    assert "idle 10.25 ms → 602.5 µs" in out
    assert "cudaFree · sinful" in out


def test_streams_of_a_graph_are_paired_by_how_busy_they_are(tracelab):
    (rank,) = compared(tracelab, EAGER, GRAPH)["ranks"]
    streams = rank["devices"][0]["streams"]
    assert [(x["before"], x["after"], x["matched"]) for x in streams] == [
        (13, 7, "order"),
        (17, 142, "order"),
    ]


def test_longer_step_fails_the_limit_only_beyond_it(tracelab):
    assert tracelab("diff", FREE, WAITS, "--max-regression", "20").code == 0
    ran = tracelab("diff", FREE, WAITS, "--max-regression", "5")
    assert ran.code == 1
    assert "11.2 % longer" in ran.err
    assert ran.out.startswith("A step got 11.2 % longer: 2.28 ms → 2.54 ms")
    assert tracelab("diff", WAITS, FREE, "--max-regression", "0").code == 0


@pytest.mark.parametrize("limit", ["-1", "nan", "inf", "much"])
def test_limit_that_is_none_is_wrong_usage(tracelab, limit):
    assert tracelab("diff", WAITS, FREE, f"--max-regression={limit}").code == 2


def test_too_few_steps_are_no_regression(tracelab, snapshot):
    options = ["--step-on", "^ProfilerStep#[23]$"]
    ran = tracelab("diff", FREE, WAITS, *options, "--max-regression", "5")
    assert ran.code == 0
    assert ran.err == snapshot
    out = compared(tracelab, FREE, WAITS, *options)
    assert (out["verdict"], out["ranks"][0]["basis"]) == ("cannot tell", "step")


def test_several_recordings_of_each_side(tracelab):
    before = ["events_item", "events_event_synchronize", "events_device_synchronize"]
    after = ["events_wait", "events_wait_plain"]
    sides = [x for name in before for x in ("--before", trace(name))]
    sides += [x for name in after for x in ("--after", trace(name))]
    found = json.loads(tracelab("diff", *sides, "--json", "-").out)
    [rank] = found["ranks"]
    assert found["verdict"] == "shorter"
    assert [len(rank[f"{side}_recordings"]) for side in ("before", "after")] == [3, 2]
    assert tracelab("diff", WAITS, *sides).code == 2
    assert tracelab("diff", "--before", WAITS).code == 2
    assert tracelab("diff", *sides, "--png", "x.png").code == 2


def test_two_recordings_against_one(tracelab):
    """Some kernels are on one side only."""
    ran = tracelab(
        "diff", "--before", CLEAN, "--before", trace("train_step_clean_plain"), "--after", SINFUL
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("A step got ")


def test_different_programs_are_said_to_be_so(tracelab):
    ran = tracelab("diff", EAGER, CLEAN, "--max-regression", "5")
    assert ran.code == 0
    assert ran.out.startswith("These are two different programs")
    assert "nothing is checked" in ran.err
    found = compared(tracelab, EAGER, CLEAN)
    assert found["same_program"] is False
    assert {"before", "after", "basis", "length"} <= found["ranks"][0].keys()


def test_limit_needs_the_same_steps_on_both_sides(tracelab, tmp_path):
    one = tmp_path / "one.json"
    tracelab("analyze", FREE, "--step", "3", "--json", one)
    assert tracelab("diff", WAITS, one).code == 0
    ran = tracelab("diff", WAITS, one, "--max-regression", "5")
    assert ran.code == 2
    assert "too few" in ran.err


def test_saved_report_is_taken_on_either_side(tracelab, saved):
    figures = [compared(tracelab, *sides)["ranks"][0] for sides in ((WAITS, saved), (WAITS, FREE))]
    assert figures[0]["kernels"] is None
    of_kernels = {"kernels": 0, "speed_percent": 0, "length": 0}
    assert {**figures[0], **of_kernels} == {**figures[1], **of_kernels}
    assert "before is a saved report" in tracelab("diff", saved, WAITS).out


def test_saved_report_with_other_patterns_is_told(tracelab, saved):
    out = tracelab("diff", WAITS, saved, "--comm-pattern", "nothing").out
    assert "different patterns" in out


def test_saved_report_has_no_picture(tracelab, saved, tmp_path):
    ran = tracelab("diff", WAITS, saved, "--png", tmp_path / "x.png")
    assert ran.code == 2
    assert "saved report" in ran.err


def test_damaged_report_is_unreadable(tracelab, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": "tracelab.report/1"}')
    assert tracelab("diff", bad, WAITS).code == 3


def test_picture_has_both_steps_on_one_scale(tracelab, tmp_path):
    file = tmp_path / "both.png"
    ran = tracelab("diff", EAGER, GRAPH, "--png", file)
    assert ran.code == 0
    assert f"drew {file}" in ran.err
    picture = (imread(file)[:, :, :3] * 255).round()
    assert picture.shape[1] == 1600
    blue = (abs(picture - [0, 0x72, 0xB2]) < 2).all(axis=2)
    above, below = blue[: len(blue) // 2], blue[len(blue) // 2 : -60]
    assert above.any(axis=0).nonzero()[0].max() > 1500
    # 94.2 of 1367 µs: 92 of 1330 columns.
    assert 320 <= below.any(axis=0).nonzero()[0].max() <= 240 + 93


def test_picture_of_unknown_format_is_wrong_usage(tracelab, tmp_path):
    assert tracelab("diff", WAITS, FREE, "--png", tmp_path / "x.bmp").code == 2


def test_ranks_are_compared_one_by_one(tracelab, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, variant, ranks in ((before, "default", (0, 1)), (after, "side", (1,))):
        folder.mkdir()
        for rank in ranks:
            shutil.copy(trace(f"ddp_hook_{variant}_stream_rank{rank}"), folder)
    found = compared(tracelab, before, TRACES / "ddp_hook_side_stream_rank[01].*")
    assert [x["after"]["rank"] for x in found["ranks"]] == [0, 1]
    found = compared(tracelab, before, after)
    assert [x["after"]["rank"] for x in found["ranks"]] == [1]
    assert found["only_before"] == [0]
    ran = tracelab("diff", before, after, "--png", tmp_path / "x.png")
    assert ran.code == 2
    assert "several" in ran.err


def test_more_ranks_than_fit_have_their_table(tracelab, snapshot):
    pattern = TRACES / "pipeline_*_few_4_rank*"
    out = tracelab("diff", pattern, pattern).out
    assert {"8"} <= {*figures(out)}
    assert out == snapshot
    assert "compare its files alone" in out


def test_comm_pattern_is_passed_on(tracelab):
    found = compared(tracelab, WAITS, FREE, "--comm-pattern", "gemm")
    figures = found["ranks"][0]["devices"][0]["figures"]
    assert figures["comm_ns"]["before_ns"] > 2_000_000
    assert figures["compute_ns"]["before_ns"] == 0


def test_unreadable_side_is_exit_code_3(tracelab, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("nonsense")
    for sides in ((bad, WAITS), (WAITS, bad), (WAITS, tmp_path / "none.json")):
        ran = tracelab("diff", *sides)
        assert ran.code == 3
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1


def test_file_of_a_folder_that_is_no_trace_is_told(tracelab, tmp_path):
    shutil.copy(FREE, tmp_path / "a.json.gz")
    (tmp_path / "b.json").write_text("{}")
    ran = tracelab("diff", WAITS, tmp_path)
    assert ran.code == 0
    assert "b.json" in ran.err


def test_one_side_is_wrong_usage(tracelab):
    assert tracelab("diff", WAITS).code == 2


def test_output_fits_its_width(tracelab, monkeypatch):
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        for sides in ((SINFUL, CLEAN), (EAGER, GRAPH), (trace("peer_copy_default"), WAITS)):
            lines = tracelab("diff", *sides).out.splitlines()
            assert max(map(len, lines)) <= width
