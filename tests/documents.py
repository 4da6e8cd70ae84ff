"""Write every document that holds figures anew: ``python -m tests.documents``, ``make documents``.

A document is its own template: tables are found by their first line, screens by the command before
them. Rows of traces that are not here (of other people's GPUs, outside the repository) stay.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests import corpus
from tests.benchmarks import first_findings, predictions, remedies
from tests.build import capture_tables, pairs
from tests.build.json_schema import brief_schema, json_schema
from tests.build.pipelines_measured import PIPELINES, pipeline_row
from tests.bundled_traces import PATHS, files_of, report_of
from tests.golden.test_steps import tells_the_story
from tracelab.cli.main import main as command_line
from tracelab.record.trace_handler import report_lines

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "tracelab" / "docs"
_OUTPUT = re.compile(r"(^```\n(tracelab .+)\n```\n\n```text\n)((?:.*\n)*?)(?=```)", re.MULTILINE)
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Document:
    """A document with figures.

    Attributes:
        path: of the file.
        renew: from its text to the text with the figures of today.
    """

    path: Path
    renew: Callable[[str], str]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


def with_table(text: str, head: str, rows: Iterable[str], *, keeps_others: bool = False) -> str:
    """Replace the rows below a table's first line; rows with other first cells may stay.

    >>> with_table("| a |\\n|---|\\n| `x` | 1 |\\n| `y` | 2 |\\n", "| a |", ["| `x` | 3 |"])
    '| a |\\n|---|\\n| `x` | 3 |\\n'
    """
    before, line, after = text.partition(f"{head}\n")
    assert line, f"no table begins with {head}"
    below = re.match(r"\|[-|]+\|\n((?:\|.*\n)*)", after)
    assert below is not None, f"no rows below {head}"
    new = list(rows)
    if keeps_others:
        first_cells = {row.split(" | ")[0] for row in new}
        new += [row for row in below[1].splitlines() if row.split(" | ")[0] not in first_cells]
    rest = after[below.end() :]
    return "".join((before, line, after[: below.start(1)], *(f"{row}\n" for row in new), rest))


def with_lines(text: str, lines: Iterable[str]) -> str:
    """Replace the lines that differ from these in their numbers alone.

    >>> with_lines("3 of 4\\n", ["2 of 4"])
    '2 of 4\\n'
    """
    for line in lines:
        pattern = re.sub(r"\d+", r"\\d+", re.escape(line))
        text, count = re.subn(f"^{pattern}$", lambda _, line=line: line, text, flags=re.MULTILINE)
        assert count == 1, f"{count} lines are like {line!r}"
    return text


def with_outputs(text: str) -> str:
    """Replace each block of text that follows a command by what the command prints.

    A block with lines ``[...]`` is a part of it: as many lines from each part's first line on.
    """

    def renewed(shown: re.Match[str]) -> str:
        printed = printed_by(shown[2])
        parts = shown[3].split("[...]\n")
        if len(parts) > 1:
            lines = printed.splitlines(keepends=True)
            printed = "[...]\n".join(_same_part(part, lines) for part in parts)
        return shown[1] + printed

    return _OUTPUT.sub(renewed, text)


def _same_part(part: str, lines: list[str]) -> str:
    """The lines that begin like the part does, but for their numbers."""
    body = part.splitlines(keepends=True)
    begins = [_NUMBER.sub("", line) for line in lines]
    begin = begins.index(_NUMBER.sub("", body[0])) if body else 0
    return "".join(lines[begin : begin + len(body)])


def printed_by(command: str) -> str:
    """What a command about bundled traces prints, run where the documents run it."""
    printed = io.StringIO()
    words = [x for word in command.split() for x in _files(word) or [word]]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with (
        contextlib.chdir(ROOT),
        mock.patch("sys.argv", words),
        mock.patch.dict(os.environ, environment, clear=True),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        command_line()
    return printed.getvalue()


def _files(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))


def _findings(text: str) -> str:
    head = "| capture | above info by what fixes save | 2 % or more attributed |"
    text = with_table(text, head, map(capture_tables.found_row, corpus.LINES.values()))
    head = "| defect | fix | rules | attributed | shorter |"
    text = with_table(text, head, map(capture_tables.pair_row, capture_tables.PAIRS))
    [head] = [line for line in text.splitlines() if line.startswith("| bundled pipeline |")]
    return with_table(text, head, map(pipeline_row, PIPELINES))


def _first_findings(text: str) -> str:
    count = sum(map(tells_the_story, PATHS))
    text = re.sub(
        r"in \d+ of the \d+ bundled traces", f"in {count} of the {len(PATHS)} bundled traces", text
    )
    rows = map(first_findings.row, first_findings.traces())
    return with_table(text, first_findings.HEAD, rows, keeps_others=True)


def _log(text: str) -> str:
    """The lines that a training's log gets."""
    lines = report_lines(report_of(*files_of("train_step_sinful")))
    logged = "".join(f"tracelab: {line}\n" for line in lines)
    return re.sub(r"(?<=^```\n)(?:tracelab: (?!more:).*\n)+", lambda _: logged, text, flags=re.M)


def _predictions(text: str) -> str:
    outcomes = pairs.outcomes()
    head, _, *rows = predictions.table(outcomes)
    return with_lines(with_table(text, head, rows), predictions.summary(outcomes))


def _remedies_measured(text: str) -> str:
    found = remedies.outcomes()
    head, _, *rows = remedies.table(found)
    return with_lines(with_table(text, head, rows), [remedies.summary(found)])


def _workloads(text: str) -> str:
    for gpus, begin in ((1, "| workload, one GPU |"), (2, "| workload, several GPUs |")):
        lines = [x for x in corpus.LINES.values() if min(x["gpus"], 2) == gpus]
        [head] = [line for line in text.splitlines() if line.startswith(begin)]
        text = with_table(text, head, map(capture_tables.workload_row, lines))
    return text


def _with_outputs() -> list[Document]:
    """The pages that show what a command prints."""
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [Document(x, with_outputs) for x in pages if _OUTPUT.search(x.read_text("utf-8"))]


SCREENS = _with_outputs()
DOCUMENTS = (
    *SCREENS,
    Document(ROOT / "workloads" / "README.md", _workloads),
    Document(DOCS / "evidence" / "findings.md", _findings),
    Document(DOCS / "evidence" / "first_findings.md", _first_findings),
    Document(DOCS / "record.md", _log),
    Document(DOCS / "evidence" / "remedies_measured.md", _remedies_measured),
    Document(DOCS / "evidence" / "predictions.md", _predictions),
    Document(
        ROOT / "tracelab" / "report" / "report.schema.json",
        lambda _: json.dumps(json_schema(), indent=2) + "\n",
    ),
    Document(
        ROOT / "tracelab" / "report" / "brief.schema.json",
        lambda _: json.dumps(brief_schema(), indent=2) + "\n",
    ),
)


def main() -> None:
    for document in DOCUMENTS:
        text = document.path.read_text(encoding="utf-8")
        renewed = document.renew(text)
        print(f"{'same' if renewed == text else 'changed':8} {document.name}")
        document.path.write_text(renewed, encoding="utf-8")


if __name__ == "__main__":
    main()
