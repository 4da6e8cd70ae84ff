"""Tools for agents, asked over stdin and stdout with the SDK's own client."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundled_traces import FOLDER
from tracelab.analysis import reports
from tracelab.base import __version__
from tracelab.base.errors import UsageError
from tracelab.base.options import Options
from tracelab.cli import answers, mcp as command
from tracelab.cli.answers import MAX_LETTERS, MAX_PICTURE_BYTES, Traces, answer_to

pytest.importorskip("mcp_types", reason="needs tracelab-gpu[mcp]")
import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

ROOT = FOLDER.parent
SINFUL, CLEAN = (f"traces/train_step_{name}.pt.trace.json.gz" for name in ("sinful", "clean"))
RANKS = [f"traces/straggler_more_work_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
TOOLS = ["analyze", "finding", "whatif", "diff", "explain", "picture"]


def talk(conversation, *folders, cwd=ROOT):
    """What a conversation with a server in a process of its own returns."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tracelab", "mcp", *map(str, folders)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    async def connected():
        async with Client(server) as client:
            return await conversation(client)

    return anyio.run(connected)


def ask(*questions, folders=(), cwd=ROOT):
    """The results of questions, each a tool and its arguments, one after the other."""

    async def one_by_one(client):
        return [await client.call_tool(tool, arguments) for tool, arguments in questions]

    return talk(one_by_one, *folders, cwd=cwd)


def text_of(result):
    assert not result.is_error, result.content
    [content] = result.content
    assert len(content.text) <= MAX_LETTERS
    return content.text


def sentence_of(result):
    assert result.is_error
    [content] = result.content
    assert "Traceback" not in content.text
    assert "\n" not in content.text
    return content.text


def test_six_read_only_tools_whose_arguments_are_described():
    async def listed(client):
        return (await client.list_tools()).tools

    tools = talk(listed)
    assert [tool.name for tool in tools] == TOOLS
    for tool in tools:
        assert tool.annotations.read_only_hint
        assert not tool.annotations.open_world_hint
        assert tool.description.endswith(".")
        assert tool.input_schema["additionalProperties"] is False
        arguments = tool.input_schema["properties"].values()
        assert all(one["description"].endswith(".") for one in arguments)


def test_answers_are_those_of_the_commands(tracelab, monkeypatch):
    brief, found, predicted, explained, compared, picture, part, job = ask(
        ("analyze", {"paths": SINFUL}),
        ("finding", {"path": SINFUL, "n": "1"}),  # clients write numbers as texts
        ("whatif", {"path": SINFUL, "fix": 1}),
        ("explain", {"word": "empty-cache-in-loop"}),
        ("diff", {"before": SINFUL, "after": CLEAN}),
        ("picture", {"path": SINFUL}),
        ("picture", {"path": SINFUL, "finding": 1}),
        ("analyze", {"paths": RANKS}),
    )
    monkeypatch.chdir(ROOT)
    line, _, screen = text_of(brief).partition("\n")
    assert f"{line}\n" == tracelab("analyze", SINFUL, "--brief").out
    assert screen == tracelab("analyze", SINFUL).out
    assert text_of(predicted) == tracelab("whatif", SINFUL, "--fix", 1).out
    assert text_of(explained) == tracelab("explain", "empty-cache-in-loop").out
    assert text_of(compared) == tracelab("diff", SINFUL, CLEAN).out
    assert text_of(job).partition("\n")[2] == tracelab("analyze", *RANKS).out
    full = text_of(found)
    first = json.loads(line)["findings"][0]
    assert full.startswith("1. critical · saves 23 %")
    assert f"Edit: {first['edit']}" in full
    assert f"Code: {first['place']['code']}" in full
    assert f"Events: {', '.join(map(str, first['evidence']['events']))}" in full
    for result in (picture, part):
        [image] = result.content
        content = base64.b64decode(image.data)
        assert image.mime_type == "image/png"
        assert content.startswith(b"\x89PNG")
        assert len(content) <= MAX_PICTURE_BYTES


@pytest.fixture
def closed(tmp_path):
    """A folder with a trace, and ways out of it."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "step.json.gz").write_bytes((ROOT / CLEAN).read_bytes())
    (folder / "broken.json").write_text('{"traceEvents": [{"ph": "X", "ts":')
    (folder / "text.json").write_text("this is no trace")
    (folder / "link.json.gz").symlink_to(ROOT / SINFUL)
    (folder / "up").symlink_to(ROOT / "traces")
    (folder / "several").mkdir()
    (folder / "several" / "a.trace.json.gz").symlink_to(ROOT / SINFUL)
    os.mkfifo(folder / "pipe")
    return folder


def test_nothing_outside_of_the_folders_is_read(closed):
    ways = [
        str(ROOT / SINFUL),
        f"../../../{ROOT}/{SINFUL}",
        "/etc/passwd",
        "/nowhere/at/all",
        "link.json.gz",
        "up",
        f"up/{Path(SINFUL).name}",
        "several",
        "..",
        "step.json.gz\0",
    ]
    questions = [("analyze", {"paths": [way]}) for way in ways]
    questions += [
        (tool, {key: ways[0], **more})
        for tool, key, more in (
            ("finding", "path", {"n": 1}),
            ("whatif", "path", {}),
            ("picture", "path", {}),
            ("diff", "before", {"after": "step.json.gz"}),
            ("diff", "after", {"before": "step.json.gz"}),
        )
    ]
    results = ask(*questions, cwd=closed)
    assert len(results) == 15
    for result in results:
        assert f"lies outside of {closed}" in sentence_of(result)


def test_errors_are_the_sentences_of_the_commands(closed, tracelab, monkeypatch):
    trace = "step.json.gz"
    alike = [
        (("analyze", {"paths": "none.json"}), ("analyze", "none.json")),
        (("analyze", {"paths": 999 * "long"}), ("analyze", 999 * "long")),
        (("analyze", {"paths": ""}), ("analyze", "")),
        (("analyze", {"paths": "broken.json"}), ("analyze", "broken.json")),
        (("analyze", {"paths": "text.json"}), ("analyze", "text.json")),
        (("explain", {"word": "xyzzy"}), ("explain", "xyzzy")),
        (("whatif", {"path": trace, "edit": "cut"}), ("whatif", trace, "--edit=cut")),
        (("diff", {"before": "none.json", "after": trace}), ("diff", "none.json", trace)),
        (("picture", {"path": trace, "finding": 99}), ("timeline", trace, "--finding", 99)),
    ]
    others = [
        (("analyze", {"paths": "https://example.org/a.json"}), "only files are read, no URLs"),
        (("analyze", {"paths": "pipe"}), "pipe: is neither a file nor a folder"),
        (("analyze", {"path": trace}), "analyze: Object contains unknown field `path`"),
        (("finding", {"path": trace}), "finding: Object missing required field `n`"),
        (("finding", {"path": trace, "n": "two"}), "finding: Expected `int`, got `str`"),
        (("finding", {"path": trace, "n": 99}), "there is no finding 99; there are "),
        (("erase", {}), "there is no tool erase; there are: analyze, finding, whatif"),
    ]
    results = ask(*(question for question, _ in (*alike, *others)), cwd=closed)
    sentences = list(map(sentence_of, results))
    monkeypatch.chdir(closed)
    for sentence, (_, arguments) in zip(sentences, alike, strict=False):
        assert tracelab(*arguments).err == f"tracelab: {sentence}\n"
    for sentence, (_, part) in zip(sentences[len(alike) :], others, strict=True):
        assert part in sentence


def test_two_questions_at_a_time_are_both_answered():
    async def both(client):
        found = {}

        async def put(word, tool, arguments):
            found[word] = await client.call_tool(tool, arguments)

        async with anyio.create_task_group() as group:
            group.start_soon(put, "one", "analyze", {"paths": SINFUL})
            group.start_soon(put, "other", "picture", {"path": CLEAN})
            group.start_soon(put, "third", "explain", {"word": "TL101"})
        return found

    found = talk(both)
    assert text_of(found["one"]).startswith('{"schema":"tracelab.brief/1"')
    assert found["other"].content[0].type == "image"
    assert text_of(found["third"]).startswith("TL101")


def test_stdout_has_messages_of_the_protocol_alone():
    asked = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "picture", "arguments": {"path": SINFUL}},
        },
    ]
    # Its stdin stays open until the last answer: at its end the server ends.
    with subprocess.Popen(
        [sys.executable, "-m", "tracelab", "mcp"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        server.stdin.write("".join(f"{json.dumps(one)}\n" for one in asked))
        server.stdin.flush()
        answered = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
        rest, said = server.stdout.read(), server.stderr.read()
    assert [one["id"] for one in answered] == [1, 2]
    assert answered[0]["result"]["serverInfo"]["version"] == __version__
    assert (server.returncode, rest) == (0, "")
    assert said == f"tracelab: serving an agent about traces in {ROOT} until stdin ends\n"


def test_an_answer_that_is_too_long_is_cut_at_a_line():
    edit = " + ".join(f"scale:kernel:{number}{80 * 'gemm'}=0.5" for number in range(40))
    [result] = ask(("whatif", {"path": SINFUL, "edit": edit}))
    cut = text_of(result)
    kept, _, end = cut.removesuffix("\n").rpartition("\n")
    whole = answers.WhatIf(str(ROOT / SINFUL), edit=edit).answer(Traces([str(FOLDER)], Options()))
    assert len(whole) > 2 * MAX_LETTERS
    assert len(cut) > MAX_LETTERS - 300
    assert "`tracelab whatif` in a terminal prints all" in end
    assert whole.partition("\n")[2].startswith(f"{kept.partition(chr(10))[2]}\n")


def test_a_picture_of_too_many_bytes_is_drawn_smaller(monkeypatch):
    traces = Traces([str(FOLDER)], Options())
    question = {"path": str(ROOT / SINFUL)}
    large = answer_to("picture", question, traces)
    monkeypatch.setattr(answers, "MAX_PICTURE_BYTES", len(large) - 1)
    assert len(answer_to("picture", question, traces)) < len(large)
    monkeypatch.setattr(answers, "MAX_PICTURE_BYTES", 1000)
    with pytest.raises(UsageError, match="too many bytes; draw it with `tracelab timeline`"):
        answer_to("picture", question, traces)


def test_ranks_of_a_job_are_drawn_and_predicted_together():
    traces = Traces([str(FOLDER)], Options())
    paths = [str(ROOT / path) for path in RANKS]
    assert answer_to("picture", {"path": paths}, traces).startswith(b"\x89PNG")
    assert "level:rank:0" in answer_to("whatif", {"path": paths, "fix": 1}, traces)
    with pytest.raises(UsageError, match="a finding is drawn in one trace; these are several"):
        answer_to("picture", {"path": paths, "finding": 1}, traces)


def test_few_analyses_of_a_job_are_kept(tmp_path):
    for rank in range(6):
        trace = FOLDER / f"pipeline_1f1b_few_4_rank{rank % 4}.pt.trace.json.gz"
        (tmp_path / f"step_rank{rank}.json.gz").write_bytes(trace.read_bytes())
    traces = Traces([str(tmp_path)], Options())
    results = traces.results(str(tmp_path))
    assert [result.more for result in results] == [None] * 6
    assert traces._analyze.cache_info().currsize == answers._MAX_KEPT == 4


def test_a_saved_report_answers_what_needs_no_trace(tmp_path, tracelab):
    saved = tmp_path / "report.json"
    tracelab("analyze", ROOT / SINFUL, "--json", saved)
    traces = Traces([str(tmp_path)], Options())
    assert answer_to("analyze", {"paths": str(saved)}, traces).startswith('{"schema"')
    assert answer_to("finding", {"path": str(saved), "n": 1}, traces).startswith("1. critical")
    for tool in ("whatif", "picture"):
        with pytest.raises(UsageError, match="this needs the trace; it is a saved report"):
            answer_to(tool, {"path": str(saved)}, traces)


def test_a_trace_is_analyzed_once_until_its_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "step.json.gz"
    path.write_bytes((ROOT / SINFUL).read_bytes())
    read = []

    def analyze_file(source, *arguments, **more):
        read.append(source.path)
        return reports.analyze_file(source, *arguments, **more)

    monkeypatch.setattr(answers, "analyze_file", analyze_file)
    traces = Traces([str(tmp_path)], Options())
    questions = [
        ("analyze", {"paths": str(path)}),
        ("finding", {"path": str(path), "n": 1}),
        ("whatif", {"path": str(path)}),
        ("picture", {"path": str(path)}),
        ("diff", {"before": str(path), "after": str(path)}),
    ]
    before = [answer_to(*question, traces) for question in questions]
    assert read == [str(path)]
    path.write_bytes((ROOT / CLEAN).read_bytes())
    after = [answer_to(*question, traces) for question in questions[:1]]
    assert read == [str(path)] * 2
    assert after[0] != before[0]


@pytest.mark.parametrize(
    ("folder", "code"), [(ROOT, "torch.cuda.empty_cache()"), (FOLDER, None)], ids=["in", "outside"]
)
def test_source_outside_of_the_folders_is_not_quoted(folder, code, monkeypatch):
    monkeypatch.chdir(ROOT)  # the trace names "workloads/train_step.py"
    answer = answer_to("analyze", {"paths": SINFUL}, Traces([str(folder)], Options()))
    assert json.loads(answer.partition("\n")[0])["findings"][0]["place"]["code"] == code


def test_a_bug_is_one_sentence(monkeypatch):
    def fail(*_):
        raise KeyError("lane")

    monkeypatch.setattr(answers, "answer_to", fail)
    sentence = sentence_of(command._answer("analyze", {}, None))
    assert "this is a bug in tracelab" in sentence
    assert "KeyError: 'lane'" in sentence


def test_what_is_missing_is_said(tracelab, tmp_path, monkeypatch):
    ran = tracelab("mcp", tmp_path / "none")
    assert (ran.code, ran.err) == (2, f"tracelab: {tmp_path}/none: is not a folder\n")
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    ran = tracelab("mcp")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.endswith("the MCP SDK: pip install 'tracelab-gpu[mcp]'\n")
