"""The documents and their site: links lead somewhere, commands exist and run, pages are short."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tracelab.cli.main import COMMANDS, _app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "tracelab" / "docs"
_LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
)
DOCUMENTS = [ROOT / name for name in _LISTED.stdout.split() if (ROOT / name).exists()]


def name_of(path):
    return str(path.relative_to(ROOT))


CHANGES = ROOT / "CHANGELOG.md"  # names commands that are no more
PAGES = [path for path in DOCUMENTS if path == ROOT / "README.md" or path.is_relative_to(DOCS)]

MAX_WORDS = 1_200  # of prose on a page: of all that is neither a block of code nor a table
MAX_ALL_WORDS = 56_930  # of all pages, as `wc -w` counts; they were 72,050

BLOCK = re.compile(r"^(```+)(.*)\n((?:.*\n)*?)\1$", re.MULTILINE)
OPERATORS = {"|", "||", "&&", ";", ">", ">>"}
APP = typer.main.get_command(_app(COMMANDS))
SHOWS = {"", "COMMAND", "--help", "--version", "-V", "--install-completion", "--show-completion"}
COMMAND = re.compile(r"^(?:\$ )?(?:torchrun .*-m |python -m )?tracelab ")


def prose_of(text):
    return re.sub(r"^\|.*$", "", BLOCK.sub("", text), flags=re.MULTILINE)


def anchors_of(path):
    """The names that GitHub and the site give to headings."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shown_commands(text):
    """Yield the lines of blocks of code that call tracelab."""
    for _, language, block in BLOCK.findall(text):
        lines = [] if language == "text" else block.replace("\\\n", " ").splitlines()
        yield from (line.removeprefix("$ ") for line in lines if COMMAND.match(line))


def mentioned_commands(text):
    """Yield what sentences and tables mention of commands: often only an option."""
    for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        line = " ".join(code.split())
        if COMMAND.match(f"{line} "):
            yield line


def words_of(line):
    """The words behind the program's name, up to what the shell does with the output."""
    words = shlex.split(COMMAND.sub("", f"{line} "), comments=True)
    ends = [place for place, word in enumerate(words) if word in OPERATORS]
    return words[: min(ends, default=len(words))]


def refusal(line, more=()):
    """What the parser of the command says against a line; None if it takes it."""
    name, *given = [*words_of(line), *more] or [""]
    command = APP.commands.get(name)
    if command is None:
        return None if name in SHOWS else f"{line}: no such command"
    try:
        context = command.context_class(command, **command.context_settings)
        command.make_parser(context).parse_args(given)
    except Exception as error:  # typer's own, by any name that its versions give it
        return f"{line}: {error}"
    return None


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_between_files_lead_to_a_file_and_a_heading(path):
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", path.read_text())):
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if re.match(r"[a-z]+:", target):
            continue
        is_there = file in DOCUMENTS if file.suffix == ".md" else file.exists()
        is_off_site = file.suffix == ".md" and DOCS in path.parents and DOCS not in file.parents
        if not is_there or is_off_site or (anchor and anchor not in anchors_of(file)):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("path", [x for x in DOCUMENTS if x != CHANGES], ids=name_of)
def test_commands_of_a_document_are_those_of_the_command_line(path):
    text = path.read_text()
    refused = [refusal(line) for line in shown_commands(text)]
    # A sentence may name an option without a value.
    refused += [refusal(x) and refusal(x, ["1"]) for x in mentioned_commands(text)]
    assert [*filter(None, refused)] == []


def test_a_command_that_is_not_there_and_an_option_that_is_not_are_refused():
    assert refusal("tracelab analyse TRACE")
    assert refusal("tracelab analyze TRACE --pgn FILE")
    assert refusal("torchrun -m tracelab run train.py --epochs 1") is None


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_is_short(path):
    assert len(prose_of(path.read_text()).split()) <= MAX_WORDS


def test_every_page_is_in_a_table_of_contents():
    listed = {(DOCS / "index.md").resolve()}
    for path in PAGES:
        for _, language, block in BLOCK.findall(path.read_text()):
            if language == "{toctree}":
                names = re.findall(r"^(?:.* <)?([\w/]+)>?$", block, re.MULTILINE)
                listed |= {(path.parent / f"{name}.md").resolve() for name in names}
    others = {ROOT / "README.md", DOCS / "SKILL.md"}  # not on the site, or for programs alone
    assert {*PAGES} - listed - others == set()


def test_all_pages_together_have_no_more_words():
    assert sum(len(path.read_text().split()) for path in PAGES) <= MAX_ALL_WORDS


RUNNABLE = sorted(
    line
    for path in DOCUMENTS
    for line in {*shown_commands(path.read_text()), *mentioned_commands(path.read_text())}
    if any(any(ROOT.glob(word)) for word in words_of(line) if word.startswith("traces/"))
)


@pytest.mark.slow
@pytest.mark.parametrize("line", RUNNABLE)
def test_commands_about_bundled_traces_run(line, tmp_path):
    for name in ("traces", "workloads"):
        (tmp_path / name).symlink_to(ROOT / name)
    program = f'tracelab() {{ "{sys.executable}" -m tracelab "$@"; }}'
    done = subprocess.run(
        ["bash", "-c", f"{program}\n{line}"], cwd=tmp_path, capture_output=True, check=False
    )
    failed_budget = line.startswith("tracelab check") and done.returncode == 1
    assert done.returncode == 0 or failed_budget, done.stderr.decode()


def test_some_commands_run():
    assert len(RUNNABLE) >= 5
