import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
WAIT = TRACES / "events_wait.pt.trace.json.gz"
JOB = sorted(TRACES.glob("straggler_more_work_rank*"))
SCHEMA = json.loads((ROOT / "tracelab" / "report" / "report.schema.json").read_text())


def test_text_goes_to_stdout_and_nothing_else_does(tracelab):
    ran = tracelab("analyze", ITEM)
    assert ran.code == 0
    assert ran.err == ""
    assert "GPU 0  busy " in ran.out
    assert "\x1b" not in ran.out


def test_json_to_stdout_is_one_object_of_the_schema_and_no_text(tracelab):
    ran = tracelab("analyze", ITEM, "--json", "-")
    report = json.loads(ran.out)
    jsonschema.validate(report, SCHEMA)
    assert ran.code == 0
    assert report["schema"] == "tracelab.report/1"
    assert [window["step"] for window in report["windows"]] == [None, 2, 3, 4, 5, 6]


def test_json_file_is_written_beside_the_text(tracelab, tmp_path):
    file = tmp_path / "new folder" / "report.json"
    ran = tracelab("analyze", ITEM, "--json", file)
    assert "GPU 0  busy " in ran.out
    jsonschema.validate(json.loads(file.read_text()), SCHEMA)


def test_png_is_drawn_and_told_on_stderr(tracelab, tmp_path):
    file = tmp_path / "timeline.png"
    ran = tracelab("analyze", ITEM, "--png", file)
    assert ran.code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert str(file) in ran.err


def test_one_step_is_all_that_is_measured(tracelab):
    report = json.loads(tracelab("analyze", ITEM, "--step", "3", "--json", "-").out)
    assert {window["step"] for window in report["windows"]} == {3}
    assert {sync["step"] for sync in report["syncs"]} == {3}


def test_every_step_is_printed_on_request(tracelab):
    brief, full = tracelab("analyze", ITEM).out, tracelab("analyze", ITEM, "--step", "all").out
    assert len(full.splitlines()) > 2 * len(brief.splitlines())


def test_top_says_how_many_kernels_and_operators_are_shown(tracelab):
    brief, full = (tracelab("analyze", ITEM, "--top", n).out for n in ("1", "3"))
    assert "kernels more" in brief
    assert len(full.splitlines()) > len(brief.splitlines())


def test_tables_of_what_ran_are_in_the_json(tracelab):
    report = json.loads(tracelab("analyze", ITEM, "--json", "-").out)
    for key in ("kernels", "operators", "phases", "lines"):
        assert report[key]
        assert {(row["rank"], row["step"], row["sums"]["steps"]) for row in report[key]} == {
            (0, None, len(report["steady"][0]["steps"]))
        }


def test_unknown_step_names_the_steps_that_there_are(tracelab):
    ran = tracelab("analyze", ITEM, "--step", "9")
    assert ran.code == 2
    assert "2 to 6" in ran.err


def test_step_that_is_no_number_is_wrong_usage(tracelab):
    ran = tracelab("analyze", ITEM, "--step", "first")
    assert ran.code == 2
    assert "first" in ran.err


def test_annotations_can_be_the_steps(tracelab):
    ran = tracelab("analyze", ITEM, "--step-on", "^ProfilerStep#[45]$", "--json", "-")
    assert [window["step"] for window in json.loads(ran.out)["windows"]] == [None, 4, 5]


def test_kernels_become_communication_by_pattern(tracelab):
    plain = json.loads(tracelab("analyze", ITEM, "--json", "-").out)
    told = json.loads(tracelab("analyze", ITEM, "--comm-pattern", "nvjet", "--json", "-").out)
    before, after = (x["windows"][0]["devices"][0] for x in (plain, told))
    assert before["comm_ns"] == 0
    assert after["comm_ns"] == before["compute_ns"] > 0
    assert after["compute_ns"] == 0


def test_bad_pattern_is_wrong_usage(tracelab):
    ran = tracelab("analyze", ITEM, "--comm-pattern", "(")
    assert ran.code == 2
    assert "'('" in ran.err


def test_source_is_looked_for_where_the_user_says(tracelab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain, told = (
        json.loads(tracelab("analyze", ITEM, *options, "--json", "-").out)["syncs"][0]
        for options in ((), ("--source", tmp_path, "--source", ROOT))
    )
    assert plain["file"] == told["file"] == "workloads/events.py"
    assert plain["line"] is None
    assert ".item()" in (ROOT / told["file"]).read_text().splitlines()[told["line"] - 1]


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_trace_names_no_source_outside_of_the_given_folders(
    tracelab, tmp_path, monkeypatch, is_linked
):
    """GIVEN a trace that names a file by its whole path, or a link to it from the current folder
    THEN it is read from within its folder, or with --source, only."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    shutil.copy(ROOT / "workloads/events.py", there)
    (here / "link.py").symlink_to(there / "events.py")
    named = here / "link.py" if is_linked else there / "events.py"
    content = gzip.decompress((ROOT / ITEM).read_bytes())
    trace = tmp_path / "trace.json"
    trace.write_bytes(content.replace(b"workloads/events.py(", f"{named}(".encode()))

    def line_from(folder, *options):
        monkeypatch.chdir(folder)
        return json.loads(tracelab("analyze", trace, *options, "--json", "-").out)["syncs"][0][
            "line"
        ]

    assert line_from(here) is line_from("/") is None
    assert line_from(here, "--source", there) == line_from(there) == 65


def test_a_source_folder_that_does_not_exist_is_wrong_usage(tracelab, tmp_path):
    ran = tracelab("analyze", ITEM, "--source", tmp_path / "gone")
    assert ran.code == 2
    assert "--source" in ran.err
    assert "gone is not a folder" in ran.err


def test_calls_without_a_line_say_how_to_get_one(tracelab, tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    report = json.loads(tracelab("analyze", ITEM, "--json", "-").out)
    titles = [x["title"] for x in report["findings"] if x["rule"] == "TL903"]
    assert len(titles) == 1
    assert titles[0] == snapshot


def test_unknown_option_is_wrong_usage(tracelab):
    assert tracelab("analyze", ITEM, "--no-such-option").code == 2


def test_picture_of_unknown_format_is_wrong_usage(tracelab, tmp_path):
    ran = tracelab("analyze", ITEM, "--png", tmp_path / "timeline.bmp")
    assert ran.code == 2
    assert ".svg" in ran.err


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"])
def test_several_files_are_one_report(tracelab, executor):
    ran = tracelab("analyze", ITEM, WAIT, "--executor", executor, "--json", "-")
    report = json.loads(ran.out)
    assert [trace["rank"] for trace in report["traces"]] == [0, 1]
    assert {trace["rank_source"] for trace in report["traces"]} == {"position"}
    assert {window["rank"] for window in report["windows"]} == {0, 1}


def test_a_job_is_one_picture(tracelab, tmp_path):
    ran = tracelab("analyze", *JOB, "--png", tmp_path / "job.png", "--jobs", "2")
    assert ran.code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["job.png"]
    assert f"drew {tmp_path / 'job.png'}" in ran.err


def test_a_job_of_one_step_is_one_picture(tracelab, tmp_path):
    ran = tracelab("analyze", *JOB, "--step", 4, "--png", tmp_path / "job.svg")
    assert ran.code == 0
    assert "step 4" in (tmp_path / "job.svg").read_text()


def test_several_pictures_are_numbered(tracelab, tmp_path):
    tracelab("analyze", ITEM, WAIT, "--png", tmp_path / "x.png", "--jobs", "2")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x-0.png", "x-1.png"]


@pytest.fixture
def many(tmp_path):
    """A folder of so many files that are no trace, of the same rank or of one each."""

    def folder(count, *, of_one_job=False):
        for i in range(count):
            name = f"rank{i}" if of_one_job else f"run{i}_rank0"
            (tmp_path / f"{name}.pt.trace.json").write_text("{")
        return tmp_path

    return folder


def test_a_picture_of_each_of_many_files_has_to_be_asked_for(tracelab, many, snapshot):
    ran = tracelab("analyze", many(21), "--png", "x.png")
    assert ran.code == 2
    assert ran.err == snapshot
    assert not ran.out


@pytest.mark.parametrize(
    ("count", "of_one_job", "more"),
    [(20, False, []), (21, True, []), (21, False, ["--all"]), (21, False, ["--job"])],
)
def test_few_files_one_job_and_all_are_analyzed(tracelab, many, count, of_one_job, more):
    folder = many(count, of_one_job=of_one_job)
    ran = tracelab("analyze", folder, "--png", folder / "x.png", "--jobs", 1, *more)
    assert ran.code == 3  # none can be read, which is seen only where they are read


def test_unknown_executor_lists_the_forms(tracelab):
    ran = tracelab("analyze", ITEM, WAIT, "--executor", "cluster")
    assert ran.code == 2
    assert "dask://" in ran.err


def test_folder_leaves_out_what_is_no_trace_and_says_so(tracelab, tmp_path):
    (tmp_path / "a.json.gz").write_bytes(ITEM.read_bytes())
    (tmp_path / "b.json").write_text('{"not": "a trace"}')
    ran = tracelab("analyze", tmp_path, "--json", "-")
    report = json.loads(ran.out)
    assert ran.code == 0
    assert len(report["traces"]) == 1
    assert "b.json" in report["provenance"]["unread"][0]["path"]
    assert "b.json" in ran.err


def test_named_file_that_cannot_be_read_fails_though_the_other_is_analysed(tracelab, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("nonsense")
    ran = tracelab("analyze", ITEM, bad, "--json", "-")
    assert ran.code == 3
    assert len(json.loads(ran.out)["traces"]) == 1
    assert "bad.json" in ran.err


def _trace(*events):
    return json.dumps({"traceEvents": list(events)})


_STEP = {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1,
    "ts": 0, "dur": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("hello", "not a profiler trace"),
        ("[1, 2", "complete event"),
        ('{"a": 1}', "traceEvents"),
        ('{"traceEvents": []}', "complete event"),
        ("\n\x02@\x05", "complete event"),  # a packet of Perfetto, which says nothing
        (_trace(_STEP), "no GPU activity"),
        ("[]", "complete event"),
    ],
)
def test_unusable_file_is_one_sentence_and_exit_code_3(tracelab, tmp_path, content, words):
    file = tmp_path / "trace.json"
    file.write_text(content)
    ran = tracelab("analyze", file)
    assert ran.code == 3
    assert ran.out == ""
    assert words in ran.err
    assert str(file) in ran.err
    assert len(ran.err.splitlines()) == 1


def test_missing_file_is_one_sentence_and_exit_code_3(tracelab, tmp_path):
    ran = tracelab("analyze", tmp_path / "none.json")
    assert ran.code == 3
    assert "no such file" in ran.err


def test_truncated_trace_is_analysed_and_says_so(tracelab, tmp_path):
    file = tmp_path / "cut.json"
    content = gzip.decompress(ITEM.read_bytes())
    file.write_bytes(content[: len(content) * 9 // 10])
    ran = tracelab("analyze", file, "--json", "-")
    assert ran.code == 0
    assert json.loads(ran.out)["traces"][0]["losses"]["truncated"] == 1


@pytest.mark.parametrize("duration", [0, 5])
def test_trace_of_one_event(tracelab, tmp_path, duration):
    kernel = {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": duration,
        "args": {"device": 0, "stream": 7},
    }  # fmt: skip
    file = tmp_path / "one.json"
    file.write_text(_trace(kernel))
    report = json.loads(tracelab("analyze", file, "--json", "-").out)
    assert report["windows"][0]["devices"][0]["busy_ns"] == duration * 1000


def test_picture_that_cannot_be_drawn_leaves_the_report(tracelab, tmp_path):
    kernel = {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 0,
        "args": {"device": 0, "stream": 7},
    }  # fmt: skip
    file = tmp_path / "one.json"
    file.write_text(_trace(kernel))
    ran = tracelab("analyze", file, "--png", tmp_path / "one.png")
    assert ran.code == 2
    assert "no steps found" in ran.out
    assert "there is nothing to draw" in ran.err


def _run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tracelab", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_output_survives_a_terminal_that_knows_only_ascii():
    done = _run("analyze", ITEM, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0
    assert done.stderr == b""


def test_closed_pipe_is_no_error():
    command = f"{sys.executable} -m tracelab analyze {ITEM} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_module_is_the_command():
    done = _run("--version")
    assert done.stdout.decode().strip() == "0.1.0"


def test_losses_stand_in_the_sentence_that_refuses_a_file(tracelab, tmp_path):
    file = tmp_path / "trace.json"
    file.write_text(_trace({**_STEP, "dur": -1}))
    assert "(negative_durations: 1)" in tracelab("analyze", file).err
    file.write_text(_trace(_STEP)[:-2] + ', {"ph": "X", "ca')
    ran = tracelab("analyze", file)
    assert "(truncated: 1)" in ran.err
    assert "CUDA on?" not in ran.err


@pytest.fixture
def repeated(tmp_path):
    """A trace in which step 5 comes twice, and step 6 after it."""
    kernel = {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2,
        "args": {"device": 0, "stream": 7},
    }  # fmt: skip
    file = tmp_path / "trace.json"
    later = {**_STEP, "ts": 40, "name": "ProfilerStep#6"}
    file.write_text(
        _trace(
            kernel,
            {**_STEP, "name": "ProfilerStep#5"},
            {**_STEP, "name": "ProfilerStep#5", "ts": 20},
            later,
        )
    )
    return file


def test_a_repeated_step_number_is_a_loss_and_the_others_stay(tracelab, repeated):
    ran = tracelab("analyze", repeated, "--json", "-")
    report = json.loads(ran.out)
    assert [window["step"] for window in report["windows"]] == [None, 5, 6]
    assert report["traces"][0]["losses"]["repeated_steps"] == 1
    printed = " ".join(tracelab("analyze", repeated, "--full").out.split())
    assert "1 x 'ProfilerStep#5'" in printed


def test_steps_are_asked_for_as_the_file_names_them(tracelab, repeated):
    report = json.loads(tracelab("analyze", repeated, "--step", 6, "--json", "-").out)
    assert [(window["step"], window["start_ns"]) for window in report["windows"]] == [(6, 40_000)]
    for step in (0, 1, 2):
        ran = tracelab("analyze", repeated, "--step", step)
        assert (ran.code, "the file's steps are: 5 to 6" in ran.err) == (2, True)


@pytest.mark.parametrize("digits", ["9" * 20, "9" * 5_000, "0" * 19])
def test_a_step_number_too_long_to_be_one_is_a_loss(tracelab, repeated, digits):
    repeated.write_text(repeated.read_text().replace("ProfilerStep#6", f"ProfilerStep#{digits}"))
    report = json.loads(tracelab("analyze", repeated, "--json", "-").out)
    assert [window["step"] for window in report["windows"]] == [None, 5]
    assert report["traces"][0]["losses"]["repeated_steps"] == 2


@pytest.mark.parametrize("step", ["9" * 20, "9" * 5_000, "x" * 5_000])
def test_an_absurd_step_is_wrong_usage_in_one_line(tracelab, step):
    ran = tracelab("analyze", ITEM, "--step", step)
    assert ran.code == 2
    assert len(ran.err) < 300


@pytest.mark.parametrize("number", [[], {}, None, "0", True, 2**70, -1, 1.5])
def test_odd_device_numbers_are_no_names(tracelab, repeated, number):
    text = json.dumps({"deviceProperties": [{"id": number, "name": "GPU"}, 7, None]})
    repeated.write_text(text[:-1] + ", " + repeated.read_text().lstrip()[1:])
    ran = tracelab("analyze", repeated, "--json", "-")
    assert (ran.code, json.loads(ran.out)["traces"][0]["gpus"]) == (0, {})
