"""What other projects' profilers leave on disk is analysed as it lies there.

Each folder is laid out as the project's newest release does it; the traces are made by hand, so
that the right answer is known: two spans of 100 us, each launching one kernel of 40 us.
"""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.build.files import US, annotation, kernel, launch, operator, write
from tests.figures import figures

WAIT = Path(__file__).parents[2] / "traces" / "events_wait.pt.trace.json.gz"
NS = 1795263371755872579


def spans(*names):
    """Annotations of the host one after another, each of which launches a kernel."""
    return [
        event
        for i, name in enumerate(names)
        for event in (
            annotation(name, 100 * i * US, (100 * i + 100) * US),
            launch((100 * i + 10) * US, (100 * i + 15) * US, i + 1),
            kernel((100 * i + 20) * US, (100 * i + 60) * US, correlation=i + 1),
        )
    ]


STEPS = spans("ProfilerStep#8", "ProfilerStep#9")


def save(path, events=STEPS, *, rank=None, world=2):
    """Write a trace, with what torch.distributed adds to it when it is initialised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"backend": "nccl", "rank": rank, "world_size": world, "pg_count": 1}
    write(
        path,
        events,
        before={"schemaVersion": 1} | ({"distributedInfo": about} if rank is not None else {}),
    )
    return path


def litter(folder, *names):
    """Files that are no traces."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"tp_size": 2}' if path.suffix == ".json" else "something else")


@pytest.fixture
def analyze(tracelab):
    """The report of a command that must succeed, and its words on stderr."""

    def run(*arguments):
        ran = tracelab("analyze", *arguments, "--json", "-")
        assert ran.code == 0, ran.err
        return json.loads(ran.out), ran.err

    return run


def files(report):
    """File name to rank and who said so."""
    return {Path(x["path"]).name: (x["rank"], x["rank_source"]) for x in report["traces"]}


def steps(report, rank=0):
    return [x["step"] for x in report["windows"] if x["rank"] == rank]


def busy_ns(report):
    """By rank, of the whole trace."""
    return {
        x["rank"]: sum(device["busy_ns"] for device in x["devices"])
        for x in report["windows"]
        if x["step"] is None
    }


# --- torch.profiler -------------------------------------------------------------------------


@pytest.mark.parametrize("use_gzip", [False, True])
def test_tensorboard_handler(analyze, tmp_path, use_gzip):
    """GIVEN a folder that PyTorch's own handler wrote, among TensorBoard's files
    THEN it is found; what it could not record here, work of a GPU, is put into it."""
    profiler = pytest.importorskip("torch").profiler
    for worker in ("rank1", None):  # without a name it is host, process and time
        handler = profiler.tensorboard_trace_handler(str(tmp_path), worker, use_gzip)
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], on_trace_ready=handler):
            pass
    written = list(tmp_path.iterdir())
    assert len(written) == 2
    for path in written:
        write(path, STEPS)
    litter(tmp_path, "events.out.tfevents.1795263371.host.77.0", "hparams.json")
    report, words = analyze(tmp_path)
    assert sorted(x["rank_source"] for x in report["traces"]) == ["filename", "position"]
    assert busy_ns(report) == {0: 80_000, 1: 80_000}
    assert steps(report) == steps(report, rank=1) == [None, 8, 9]
    assert words == ""


def test_exported_by_hand_under_any_name(analyze, tmp_path):
    """GIVEN traces of export_chrome_trace beside one of a handler and a file of something else
    THEN each trace is found, whatever the others are called."""
    save(tmp_path / "host_77.1795263371755872579.pt.trace.json.gz", rank=0, world=3)
    save(tmp_path / "trace_1.json", rank=1, world=3)
    save(tmp_path / "mine.json.gz", rank=2, world=3)
    litter(tmp_path, "config.json", "snapshot.pickle", "memory.html")
    report, words = analyze(tmp_path)
    assert [x["rank"] for x in report["traces"]] == [0, 1, 2]
    assert {x["rank_source"] for x in report["traces"]} == {"metadata"}
    assert words == ""


def test_folder_of_one_trace_and_other_json_is_one_trace(tracelab, tmp_path):
    shutil.copy(WAIT, tmp_path)
    litter(tmp_path, "config.json")
    picture = tmp_path / "timeline.png"
    assert tracelab("timeline", tmp_path, "--output", picture).code == 0
    assert picture.exists()


def test_trace_beside_what_it_was_unpacked_from_counts_once(analyze, tmp_path):
    packed = save(tmp_path / "rank0_trace.json.gz")
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    report, _ = analyze(tmp_path)
    assert files(report) == {"rank0_trace.json": (0, "filename")}


def test_rank_in_the_file_wins_over_its_name(analyze, tmp_path):
    save(tmp_path / "rank0_trace.json", rank=1)
    report, _ = analyze(tmp_path)
    assert files(report) == {"rank0_trace.json": (1, "metadata")}


def test_independent_replicas_keep_the_numbers_of_their_names(analyze, tmp_path):
    """GIVEN jobs of one, each of which is rank 0 to itself
    THEN each has the rank of its name, not that of its place in the folder."""
    for replica in (3, 1, 12):
        save(tmp_path / f"rank{replica}_trace.json.gz", rank=0, world=1)
    report, words = analyze(tmp_path)
    assert files(report) == {
        f"rank{replica}_trace.json.gz": (replica, "filename") for replica in (1, 3, 12)
    }
    assert words == ""


# --- torchtitan -----------------------------------------------------------------------------


@pytest.fixture
def torchtitan(tmp_path):
    """Two iterations of two ranks."""
    for iteration in (10, 20):
        for rank in (0, 1):
            folder = tmp_path / "profiling" / "traces" / f"iteration_{iteration}"
            save(folder / f"rank{rank}_trace.json.gz", rank=rank)
    litter(
        tmp_path,
        "profiling/memory_snapshot/step_000000000010/000000_step_10.pickle",
        "comm_traces/rank_0",
        "tb/20261121/events.out.tfevents.1.host.1.0",
        "checkpoint/step-10/.metadata",
    )
    return tmp_path


def test_torchtitan_iteration(analyze, torchtitan):
    report, words = analyze(torchtitan / "profiling" / "traces" / "iteration_20")
    assert files(report) == {
        "rank0_trace.json.gz": (0, "metadata"),
        "rank1_trace.json.gz": (1, "metadata"),
    }
    assert steps(report, rank=1) == [None, 8, 9]
    assert words == ""


def test_torchtitan_iterations_are_kept_apart(analyze, torchtitan):
    """GIVEN two iterations in one folder, which each have a rank 0
    THEN none is added to the other: the files are numbered as they lie there, and said to be."""
    report, _ = analyze(torchtitan)
    got = [(x["rank"], x["rank_source"], Path(x["path"]).parts[-2:]) for x in report["traces"]]
    assert got == [
        (0, "position", ("iteration_10", "rank0_trace.json.gz")),
        (1, "position", ("iteration_10", "rank1_trace.json.gz")),
        (2, "position", ("iteration_20", "rank0_trace.json.gz")),
        (3, "position", ("iteration_20", "rank1_trace.json.gz")),
    ]
    assert busy_ns(report) == dict.fromkeys(range(4), 80_000)


def test_text_tells_files_apart_that_are_not_one_job(tracelab, torchtitan, snapshot):
    printed = tracelab("analyze", torchtitan).out
    rows = re.findall(r"^(iteration_\d+)/rank_trace +(\d)", printed, re.MULTILINE)
    assert rows == [("iteration_10", "2"), ("iteration_20", "2")]  # ranks
    full = tracelab("analyze", torchtitan, "--full").out
    headings = re.findall(r"^── .*/(iteration_\d+/rank\d)", full, re.MULTILINE)
    full_rows = re.findall(r"^ +(iteration_\d+/rank\d)_trace ", full, re.MULTILINE)
    names = [f"iteration_{x}/rank{rank}" for x in (10, 20) for rank in (0, 1)]
    assert headings == full_rows == names
    assert {"0"} <= {*figures(printed)}
    assert printed == snapshot
    assert "Not one job: rank 0 is in several files" in full


def test_two_iterations_of_one_rank_do_not_stand_in_for_the_other_rank(analyze, torchtitan):
    """GIVEN rank 0 of a job of two, twice
    THEN it is said that a rank is missing; with the other rank it is missing in one iteration."""
    traces = torchtitan / "profiling" / "traces"
    ours = [traces / f"iteration_{x}" / "rank0_trace.json.gz" for x in (10, 20)]
    other = traces / "iteration_10" / "rank1_trace.json.gz"

    def missing(*paths):
        return [x["rank"] for x in analyze(*paths)[0]["findings"] if x["rule"] == "TL909"]

    assert missing(*ours) == [0, 1]
    assert missing(*ours, other) == [1]


# --- Lightning ------------------------------------------------------------------------------


def test_lightning(analyze, tmp_path):
    """GIVEN PyTorchProfiler's files: stage, name, rank on the machine, action
    THEN the rank is the one inside the file: the one in the name is of one machine only."""
    events = [
        *spans("ProfilerStep#3", "ProfilerStep#4"),
        annotation("[pl][profile]run_training_batch", 5 * US, 65 * US),
        annotation("[pl][profile][Strategy]DDPStrategy.training_step", 8 * US, 28 * US),
        annotation("[pl][profile]run_training_batch", 105 * US, 165 * US),
    ]
    for rank, local in ((2, 0), (3, 1)):
        action = f"[Strategy]DDPStrategy.training_step.{NS}.pt.trace.json"
        save(tmp_path / f"fit-perf-{local}-{action}", events, rank=rank, world=4)
        litter(tmp_path, f"fit-perf-{local}.txt")
    litter(tmp_path, "hparams.yaml", "metrics.csv")
    report, words = analyze(tmp_path)
    assert [(x["rank"], x["rank_source"]) for x in report["traces"]] == [
        (2, "metadata"),
        (3, "metadata"),
    ]
    assert steps(report, rank=2) == [None, 3, 4]
    assert words == ""
    report, _ = analyze(tmp_path, "--step-on", r"^\[pl\]\[profile\]run_training_batch$")
    assert steps(report, rank=3) == [None, 0, 1]


@pytest.mark.parametrize(
    "name",
    [
        "rank{}_trace.json",  # torchtitan's
        "rank{}_trace.json.gz",
        "1795263371.7-TP-{}.trace.json.gz",  # SGLang's
        "1795263371.7-TP-{}-DECODE.trace.json.gz",
        "dp0_pp0_tp{0}_dcp0_ep{0}_rank{0}.1795263371755872579.pt.trace.json.gz",  # vLLM's
    ],
)
@pytest.mark.parametrize("keep", [False, True], ids=["nothing", "the beginning"])
def test_rank_that_cannot_be_read_makes_a_check_fail(tracelab, tmp_path, name, keep):
    """GIVEN two ranks, one of which is damaged before its first work of a GPU
    THEN the other one's budgets are judged, and the exit code says that it is not the whole job."""
    save(tmp_path / name.format(0), rank=0)
    damaged = save(tmp_path / name.format(1), rank=1)
    assert tracelab("check", tmp_path, "--max-idle", "70").code == 0
    content = damaged.read_bytes()
    content = gzip.decompress(content) if damaged.suffix == ".gz" else content
    content = content[: content.index(b'"kernel"')] if keep else b""
    damaged.write_bytes(gzip.compress(content) if damaged.suffix == ".gz" else content)
    ran = tracelab("check", tmp_path, "--max-idle", "70")
    assert (ran.code, "1 budget passed." in ran.out) == (3, True)
    assert f"left out: {damaged}" in ran.err


def test_rank_without_the_step_that_is_judged_makes_a_check_fail(tracelab, tmp_path):
    save(tmp_path / "rank0_trace.json", rank=0)
    save(tmp_path / "rank1_trace.json", spans("ProfilerStep#9"), rank=1)
    for step, code in (("9", 0), ("8", 3)):
        assert tracelab("check", tmp_path, "--step", step, "--max-idle", "70").code == code


def test_lightning_without_a_schedule(analyze, tmp_path):
    batch = "[pl][profile]run_training_batch"
    path = save(tmp_path / f"fit-perf-0-x.{NS}.pt.trace.json", spans(batch, batch, batch))
    report, _ = analyze(path)
    assert steps(report) == [None, 0, 1, 2]


@pytest.mark.parametrize(
    ("name", "option"), [("forward", "--step-on '^forward$'"), ("a 0", "--step-on '^a 0$'")]
)
def test_what_repeats_is_offered_where_no_steps_are_found(
    tracelab, analyze, tmp_path, name, option
):
    """GIVEN a file of annotations that are nobody's steps
    THEN the screen says how to use them, and doing so works."""
    path = save(tmp_path / "mine.json", spans(name, name))
    words = " ".join(tracelab("analyze", path).out.split())
    assert option in words
    assert option in " ".join(tracelab("analyze", path, "--full").out.split())
    report, _ = analyze(path)
    ((offered),) = report["traces"][0]["repeated_annotations"]
    assert (offered["name"], offered["count"], offered["gpu_share"]) == (name, 2, 1.0)
    report, _ = analyze(path, "--step-on", offered["pattern"])
    assert steps(report) == [None, 0, 1]


# --- vLLM -----------------------------------------------------------------------------------

ON_VLLM = "^execute_(context|new)_"


@pytest.fixture
def vllm(tmp_path):
    """Two workers, their tables, and the front end, which records no GPU."""
    events = spans("execute_context_1(512)_generation_0(0)", "execute_context_0(0)_generation_8(8)")
    for rank in (0, 1):
        name = f"dp0_pp0_tp{rank}_dcp0_ep{rank}_rank{rank}.{NS}.pt.trace.json.gz"
        save(tmp_path / name, events, rank=rank)
        litter(tmp_path, f"profiler_out_{rank}.txt")
    save(tmp_path / f"host_77.async_llm.{NS}.pt.trace.json.gz", [operator("o", US, 3 * US)])
    return tmp_path


def test_vllm(analyze, vllm):
    report, words = analyze(vllm)
    assert [(x["rank"], x["rank_source"]) for x in report["traces"]] == [
        (0, "metadata"),
        (1, "metadata"),
    ]
    assert steps(report) == [None]
    (line,) = words.splitlines()
    assert "async_llm" in line
    assert "no GPU activity" in line
    report, _ = analyze(vllm, "--step-on", ON_VLLM)
    assert steps(report, rank=1) == [None, 0, 1]


def test_vllm_steps_are_found_without_an_option(tracelab, analyze, tmp_path):
    """GIVEN a worker that prefilled once and decoded twice
    THEN these are the steps, and the report says by what they were found."""
    name = f"dp0_pp0_tp0_dcp0_ep0_rank0.{NS}.pt.trace.json.gz"
    decode = "execute_context_0(0)_generation_8(8)"
    path = save(tmp_path / name, spans("execute_context_1(512)_generation_0(0)", decode, decode))
    report, words = analyze(path)
    assert steps(report) == [None, 0, 1, 2]
    (trace,) = report["traces"]
    assert re.search(trace["step_pattern"], decode)
    assert trace["repeated_annotations"] == []
    assert words == ""
    assert trace["step_pattern"] in tracelab("analyze", path).out
    assert trace["step_pattern"] in tracelab("analyze", path, "--full").out


def test_vllm_job_without_steps_is_told_what_repeats(tracelab, vllm):
    words = " ".join(tracelab("analyze", vllm).out.split())
    assert r"--step-on '^execute_context_\d+\(\d+\)_generation_\d+\(\d+\)$'" in words


def test_vllm_front_end_breaks_no_check(tracelab, vllm):
    """GIVEN budgets that the workers keep or break
    THEN they decide, and the front end, of whose GPU there is nothing to say, is left out."""
    for percent, code in (("42", 1), ("43", 0)):  # 60 of 140 us are idle
        ran = tracelab("check", vllm, "--max-idle", percent)
        assert ran.code == code
        (line,) = ran.err.splitlines()
        assert line.startswith("tracelab: left out: ")
        assert "async_llm" in line
    # AND named by itself it is what was asked for
    (front_end,) = vllm.glob("*async_llm*")
    assert tracelab("check", vllm, front_end, "--max-idle", "43").code == 3


def test_vllm_before_0_12(analyze, tmp_path):
    events = spans("execute_new_1_cached_0", "execute_new_0_cached_1")
    save(tmp_path / f"fb3a-rank-1.{NS}.pt.trace.json.gz", events)
    report, _ = analyze(tmp_path, "--step-on", ON_VLLM)
    assert [x["rank"] for x in report["traces"]] == [1]
    assert steps(report, rank=1) == [None, 0, 1]


def test_vllm_replicas(analyze, tmp_path):
    """GIVEN two data parallel replicas, whose workers are both called rank 0
    THEN the rank inside the file is taken, and without it none is made up for the second."""
    first, second = (f"dp{i}_pp0_tp0_dcp0_ep{i}_rank0.{NS}.pt.trace.json.gz" for i in (0, 1))
    for with_rank, source in ((True, "metadata"), (False, "position")):
        for i, name in enumerate((first, second)):
            save(tmp_path / name, rank=i if with_rank else None)
        report, _ = analyze(tmp_path)
        assert files(report) == {
            first: (0, "metadata" if with_rank else "filename"),
            second: (1, source),
        }


# --- SGLang ---------------------------------------------------------------------------------

ON_SGLANG = r"^step\["
DECODES = ["step[DECODE bs=8]", "step[DECODE bs=8]", "step[DECODE bs=7]"]


@pytest.fixture
def sglang(tmp_path):
    """Two ranks by stage, their merged file, the server's arguments and a memory snapshot."""
    folder = tmp_path / "1795263371.5"
    stages = {
        "EXTEND": ("step[EXTEND bs=1 toks=512]", "step[EXTEND bs=1 toks=64]"),
        "DECODE": ("step[DECODE bs=8]", "step[DECODE bs=8 g_sq=8 forward_id=7]"),
    }
    for rank in (0, 1):
        for stage, names in stages.items():
            path = folder / f"1795263371.7-TP-{rank}-{stage}.trace.json.gz"
            save(path, spans(*names), rank=rank)
    save(folder / "merged-1795263371.7.trace.json.gz", STEPS * 4, rank=0)
    litter(folder, "server_args.json", "1795263371.9-TP-0-memory-DECODE.pickle")
    return folder


def test_sglang_stage(analyze, sglang):
    decode = sorted(sglang.glob("*-DECODE.trace.json.gz"))
    report, words = analyze(*decode, "--step-on", ON_SGLANG)
    assert list(files(report).values()) == [(0, "metadata"), (1, "metadata")]
    assert steps(report) == steps(report, rank=1) == [None, 0, 1]
    assert words == ""


def test_sglang_steps_are_found_without_an_option(analyze, tmp_path):
    path = save(tmp_path / "1795263371.7-TP-0-DECODE.trace.json.gz", spans(*DECODES))
    report, words = analyze(path)
    assert steps(report) == [None, 0, 1, 2]
    assert words == ""


def test_sglang_folder(analyze, sglang):
    """GIVEN both stages and the merged file in one folder
    THEN the stages are kept apart, and nothing is counted twice."""
    report, words = analyze(sglang)
    assert files(report) == {
        "1795263371.7-TP-0-DECODE.trace.json.gz": (0, "position"),
        "1795263371.7-TP-0-EXTEND.trace.json.gz": (1, "position"),
        "1795263371.7-TP-1-DECODE.trace.json.gz": (2, "position"),
        "1795263371.7-TP-1-EXTEND.trace.json.gz": (3, "position"),
    }
    recordings = report["provenance"]["job"]["recordings"]
    assert recordings == [[0, 2], [1, 3]]
    assert busy_ns(report) == dict.fromkeys(range(4), 80_000)
    assert words == ""


def test_sglang_rank_by_name(analyze, tmp_path):
    """GIVEN traces that lost the rank inside, of two pipeline stages of two ranks
    THEN the first stage's ranks are known from the names; the others' are said to be guesses."""
    for tp in (0, 1):
        for pp in (0, 1):
            save(tmp_path / f"1795263371.7-TP-{tp}-PP-{pp}.trace.json.gz")
    report, _ = analyze(tmp_path)
    assert files(report) == {
        "1795263371.7-TP-0-PP-0.trace.json.gz": (0, "filename"),
        "1795263371.7-TP-1-PP-0.trace.json.gz": (1, "filename"),
        "1795263371.7-TP-0-PP-1.trace.json.gz": (2, "position"),
        "1795263371.7-TP-1-PP-1.trace.json.gz": (3, "position"),
    }
