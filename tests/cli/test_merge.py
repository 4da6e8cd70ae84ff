"""``tracelab merge``: nodes reduce their own files, and what they give comes to the same."""

import gzip
import lzma
from pathlib import Path

import msgspec
import pytest

TRACES = Path(__file__).parents[2] / "traces"
ONE_NODE = [TRACES / f"straggler_more_work_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]


@pytest.fixture
def parts(tracelab, tmp_path):
    """Analyze the files of each node by themselves, into a file of parts each."""

    def write(*nodes, options=()):
        written = [tmp_path / f"node{number}.parts" for number in range(len(nodes))]
        for files, path in zip(nodes, written, strict=True):
            assert tracelab("analyze", *files, *options, "--parts", path).code in (0, 3)
        return written

    return write


def outputs_of(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["pipeline_1f1b_few_4", "ddp_hook_side_stream", "uneven_lengths_drawn", "fsdp_item"]
)
def test_merged_parts_come_to_what_one_process_says_of_all_files(tracelab, parts, tmp_path, name):
    files = sorted(TRACES.glob(f"{name}_rank*.gz"))
    written = parts(files[:1], files[1:])

    for form in ([], ["--full"], ["--top", 3], ["--markdown"], ["--brief"], ["--json", "-"]):
        of_all, merged = tracelab("analyze", *files, *form), tracelab("merge", *written, *form)
        assert merged == of_all
        assert len(merged.out) > 500
    saved = [tmp_path / "all", tmp_path / "merged"]
    for command, paths, folder in zip(("analyze", "merge"), (files, written), saved, strict=True):
        more = ("--json", folder / "report.json", "--csv", folder, "--redact")
        assert tracelab(command, *paths, *more).code == 0
    assert outputs_of(saved[0]) == outputs_of(saved[1])
    assert len(outputs_of(saved[0])) > 10


@pytest.mark.parametrize("options", [[], ["--step", 2], ["--redact"]], ids=str)
def test_merged_parts_give_the_same_picture(tracelab, parts, tmp_path, options):
    files = sorted(TRACES.glob("pipeline_1f1b_few_4_rank*.gz"))
    (of_all, merged), step = (tmp_path / "all.png", tmp_path / "merged.png"), options[:2]
    of_parts = [] if "--step" in options else options
    if "--redact" in options:
        step = []

    assert tracelab("analyze", *files, *options, "--png", of_all).code == 0
    ran = tracelab("merge", *parts(files[:3], files[3:], options=step), *of_parts, "--png", merged)

    assert (ran.code, ran.err) == (0, f"tracelab: drew {merged}\n")
    assert merged.read_bytes() == of_all.read_bytes()


def test_page_of_merged_parts_is_that_of_the_saved_report(tracelab, parts, tmp_path):
    saved, page, of_saved = (tmp_path / x for x in ("job.json", "job.html", "saved.html"))
    written = parts(ONE_NODE[:1], ONE_NODE[1:])

    ran = tracelab("merge", *written, "--json", saved, "--html", page)
    assert ran.code == 0
    assert "the page has no timelines" in ran.err
    assert tracelab("analyze", saved, "--html", of_saved).code == 0

    assert page.read_bytes() == of_saved.read_bytes()
    assert "Rank 0 makes rank 1 wait 11.6 ms a step" in page.read_text()


def test_picture_of_parts_that_are_no_job_is_refused(tracelab, parts, tmp_path):
    picture = tmp_path / "rank.png"
    ran = tracelab("merge", *parts(ONE_NODE[:1]), "--png", picture)
    assert (ran.code, ran.out, picture.exists()) == (2, "", False)
    assert "parts have no kernels" in ran.err


def test_options_and_unread_files_of_the_nodes_are_kept(tracelab, parts, tmp_path):
    broken = tmp_path / "rank2.json"
    broken.write_text('{"traceEvents": [')
    nodes = [[ONE_NODE[0]], [broken, ONE_NODE[1]]]
    options = ("--job", "--step", 4, "--no-prices")

    merged = tracelab("merge", *parts(*nodes, options=options), "--full")

    assert merged == tracelab("analyze", *nodes[0], *nodes[1], *options, "--full")
    assert merged.code == 3
    assert f"left out: {broken}" in merged.err


def test_parts_of_a_large_job_are_small_and_hold_no_program(tracelab, tmp_path):
    path, small, large = (tmp_path / name for name in ("rank0.json", "small", "large"))
    text = gzip.decompress(ONE_NODE[0].read_bytes())
    path.write_bytes(text)
    tracelab("analyze", path, "--parts", small)
    path.write_bytes(text.replace(b'"world_size": 2', b'"world_size": 32'))
    tracelab("analyze", path, "--parts", large)

    assert large.stat().st_size < 0.8 * small.stat().st_size


def test_missing_ranks_are_told(tracelab, parts):
    [path] = parts([TRACES / "pipeline_1f1b_few_4_rank0.pt.trace.json.gz"])
    assert "This is one rank of 4." in tracelab("merge", path, "--full").out


def test_parts_that_are_damaged_or_something_else_are_refused(tracelab, parts, tmp_path):
    [path] = parts(ONE_NODE)
    cut, other = tmp_path / "cut", tmp_path / "other"
    cut.write_bytes(path.read_bytes()[:-100])
    content = msgspec.msgpack.decode(lzma.decompress(path.read_bytes())) | {"version": "0.0.1"}
    other.write_bytes(lzma.compress(msgspec.msgpack.encode(content)))

    for file, reason in {
        cut: "is damaged",
        ONE_NODE[0]: "is damaged, or no file of parts",
        tmp_path / "gone": "no such file",
        other: "tracelab 0.0.1",
    }.items():
        ran = tracelab("merge", file)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith(f"tracelab: {file}: ")
        assert reason in ran.err
        assert ran.err.count("\n") == 1


def test_a_rank_that_is_there_twice_and_different_options_are_wrong_usage(tracelab, parts):
    path, other = parts(ONE_NODE, ONE_NODE[:1])
    ran = tracelab("merge", path, other)
    assert (ran.code, ran.out) == (2, "")
    assert f"rank 0 is in {path} and in {other}" in ran.err

    [third] = parts(ONE_NODE[1:], options=["--no-prices"])
    third = third.rename(third.with_name("third"))
    [path] = parts(ONE_NODE[:1])
    ran = tracelab("merge", path, third)
    assert (ran.code, ran.out) == (2, "")
    assert "`prices`" in ran.err


def test_parts_need_traces_and_are_not_redacted(tracelab, tmp_path):
    saved, path = tmp_path / "report.json", tmp_path / "parts"
    tracelab("analyze", ONE_NODE[0], "--json", saved)
    ran = tracelab("analyze", saved, "--parts", path)
    assert (ran.code, path.exists()) == (2, False)
    ran = tracelab("analyze", ONE_NODE[0], "--parts", path, "--redact")
    assert (ran.code, path.exists()) == (2, False)
    assert "--redact cannot be combined with --parts" in ran.err
