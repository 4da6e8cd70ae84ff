"""Files for agents: the skill, the index for models, the set-up of MCP."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.bundled_traces import files_of
from tests.repository.test_site import DOCS, ROOT, words_of

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
SKILL, INDEX, PAGE = DOCS / "SKILL.md", DOCS / "llms.txt", DOCS / "agents.md"
TRAINING = """
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


def blocks_of(path, language=""):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def test_skill_has_a_name_and_says_when_to_use_it():
    front = re.match(r"---\n(.*?)\n---\n", SKILL.read_text(), re.DOTALL)[1]
    keys = dict(line.split(": ", 1) for line in front.splitlines())
    assert keys.keys() == {"name", "description"}
    assert keys["name"] == "tracelab"
    assert 100 < len(keys["description"]) < 1024


def test_commands_of_the_skill_run_one_after_the_other(tmp_path):
    """Without a GPU a recording is of the CPU alone: bundled ones take its place."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "train.py").write_text(TRAINING)
    [before], [after] = files_of("train_step_sinful"), files_of("train_step_clean")
    recorded = {"before": before, "after": after}
    lines = [line for block in blocks_of(SKILL) for line in block.splitlines()]
    printed = {}
    for line in lines:
        name, *words = words_of(line)
        ran = subprocess.run(
            [sys.executable, "-m", "tracelab", name, *words],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, (line, ran.stderr)
        printed[name] = ran.stdout
        if name == "run":
            folder = words[words.index("-o") + 1]
            [trace] = (tmp_path / folder).glob("*.json.gz")
            shutil.copy(recorded.pop(folder), trace)
    assert recorded == {}
    assert [*printed] == ["run", "analyze", "whatif", "explain", "diff"]
    first = json.loads(printed["analyze"])["findings"][0]
    assert first["place"]["function"] == "sinful"
    assert f"1. {first['rule']}" in printed["whatif"]
    assert printed["diff"].startswith("A step got 36.8 % shorter")


def test_keys_that_the_skill_and_the_page_name_are_in_the_schema():
    schema = json.loads((DOCS.parent / "report" / "brief.schema.json").read_text())
    known = {*schema["properties"]}.union(*(one["properties"] for one in schema["$defs"].values()))
    named = {
        key
        for path, pattern in ((SKILL, r"^- `([\w.\[\]]+)`"), (PAGE, r"^\| `([\w.\[\]]+)` \|"))
        for name in re.findall(pattern, path.read_text(), re.MULTILINE)
        for key in re.findall(r"[a-z_]+", name)
    }
    assert len(named) > 12
    assert {*schema["properties"]} - named <= {
        "schema",
        "version",
        "files",
        "file_count",
        "about",
        "more",
    }
    assert named - known <= {"analyze", "finding", "whatif", "diff", "explain", "picture"}


def test_links_of_the_index_for_models_are_pages_of_the_site():
    links = re.findall(r"^- \[.+?\]\((.+?)\): (.+)$", INDEX.read_text(), re.MULTILINE)
    files = [DOCS / target.replace(".html", ".md") for target, _ in links]
    assert [str(file) for file in files if not file.is_file()] == []
    assert all(sentence.endswith(".") for _, sentence in links)
    shown = blocks_of(DOCS / "index.md", "{toctree}")
    pages = {
        DOCS / f"{name}.md" for block in shown for name in re.findall(r"^[\w/]+$", block, re.M)
    }
    assert len(pages) > 10
    assert pages - {*files} <= {DOCS / "reference/index.md", DOCS / "develop/index.md"}


def test_set_up_of_a_client_starts_the_server(tmp_path):
    pytest.importorskip("mcp_types", reason="needs tracelab-gpu[mcp]")
    import anyio
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    [text] = blocks_of(PAGE, "json")
    [(name, server)] = json.loads(text)["mcpServers"].items()
    assert (name, server["command"]) == ("tracelab", "tracelab")
    rows = re.findall(r"^\| `(\w+)` \| `(?:path|before|word)", PAGE.read_text(), re.MULTILINE)

    async def listed():
        arguments = ["-m", "tracelab", *server["args"]]
        parameters = StdioServerParameters(
            command=sys.executable, args=arguments, cwd=tmp_path, env=ENVIRONMENT
        )
        async with Client(parameters) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert anyio.run(listed) == rows
