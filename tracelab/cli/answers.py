"""Answers to agents' questions about traces, as ``tracelab mcp`` serves them.

Clients show a question's docstring, and the text at each argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import (
    FileResult,
    add_changes,
    analyze_file,
    merge_results,
    report_of_each_recording,
    whatif,
    whatif_of_job,
)
from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.base.names import is_within
from tracelab.base.options import Options, several
from tracelab.comparison.compare import compare_sides, launches_of, merge_side
from tracelab.comparison.diff import Side
from tracelab.outputs.picture import draw, draw_results, part_of
from tracelab.read.sources import find_sources
from tracelab.read.streams import Source, is_url
from tracelab.render.brief import render_brief
from tracelab.render.glossary import explanation
from tracelab.render.picture.save import Look
from tracelab.render.section import Chapter
from tracelab.render.sections.findings import numbered_finding
from tracelab.render.text.report import (
    draw as draw_text,
    render_predictions,
    render_result,
    render_text,
)

MAX_LETTERS = 10_000
# Clients refuse results of more than 1 MB, and base64 adds a third.
MAX_PICTURE_BYTES = 700_000
_WIDTHS_PX = (1600, 1000, 600)
# Two recordings of two ranks.
_MAX_KEPT = 4
_TEXT: Mapping[str, Any] = {"width": 100, "color": False}

Recording = Annotated[
    str | list[str],
    Meta(description="A trace (.json, .json.gz), a folder, a saved report, or the ranks of a job."),
]


def _itself(analysis: Analysis) -> Analysis:
    return analysis


class Traces:
    """Traces below some folders, each analyzed once until its file changes.

    Nothing outside the folders is read, links followed.

    Raises:
        UsageError: one of them is no folder.
    """

    def __init__(self, folders: Iterable[str], options: Options) -> None:
        self.folders = tuple(map(os.path.realpath, folders))
        for folder in self.folders:
            if not Path(folder).is_dir():
                raise UsageError(f"{folder}: is not a folder")
        self.options = replace(options, source_within=self.folders)
        # By the state of the file: changed files are read again.
        self._find = lru_cache(_MAX_KEPT)(lambda path, _: find_sources([path]))
        self._analyze = lru_cache(_MAX_KEPT)(lambda source, _: self._analyze_file(source))

    def sources(self, paths: str | Sequence[str]) -> list[Source]:
        """Find the files of paths.

        Raises:
            UsageError: one lies outside of the folders, or is neither a file nor a folder.
            UnreadableInputError: one does not exist.
        """
        found: dict[str, Source] = {}
        for path in several("paths", paths, str):
            self._require_within(path)
            state = _state_of(path)
            if state is not None and Path(path).is_file():
                sources = self._find(path, state)
            elif state is None or Path(path).is_dir():
                sources = find_sources([path])
            else:
                raise UsageError(f"{path}: is neither a file nor a folder")
            for source in sources:
                self._require_within(source.path)
            found |= {source.path: source for source in sources}
        return list(found.values())

    def results(
        self, paths: str | Sequence[str], reduce: Callable[[Analysis], Any] | None = None
    ) -> list[FileResult]:
        """Analyze these files; `FileResult.more` holds what one of them is reduced to.

        Few analyses are kept: those of a large job exceed the memory.
        """
        sources = self.sources(paths)

        def reduced(source: Source) -> FileResult:
            result = self._analyze(source, _state_of(source.path))
            if result.more is None:
                return result
            part = result.more.part if len(sources) > 1 else None
            return replace(result, part=part, more=reduce and reduce(result.more))

        return list(map(reduced, sources))

    def side(self, paths: str | Sequence[str]) -> Side:
        """Make one side of a comparison."""
        return merge_side(
            self.results(paths, launches_of), several("paths", paths, str), self.options
        )

    def _analyze_file(self, source: Source) -> FileResult:
        return analyze_file(source, self.options, then=_itself, may_be_saved=True, is_alone=True)

    def _require_within(self, path: str) -> None:
        if is_url(path):
            raise UsageError(f"{path}: only files are read, no URLs")
        if not is_within(path, self.folders):
            folders = " and ".join(self.folders)
            raise UsageError(f"{path}: lies outside of {folders}, which `tracelab mcp` may read")


def _state_of(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class Question(Record, forbid_unknown_fields=True):
    """Arguments of a question, and how it is answered.

    Attributes:
        command: prints all of an answer that is too long.
    """

    command: ClassVar[str]

    def answer(self, traces: Traces) -> str | bytes:
        """Return text, or the content of a PNG file."""
        raise NotImplementedError


class Analyze(Question):
    """Tell why the GPUs of a PyTorch program are not busy, and what to change.

    The answer is one line of JSON (tracelab.brief/1: findings with place, fix, edit and predicted
    saving), then the same as text. Start here, and begin with the first finding.
    """

    paths: Recording
    command = "analyze --full"

    def answer(self, traces: Traces) -> str:
        """Return the brief, and the first screen."""
        results = traces.results(self.paths)
        report = merge_results(results, several("paths", self.paths, str), traces.options)
        recordings = report_of_each_recording(results, report, traces.options)
        brief = render_brief(report, recordings=recordings).decode()
        return brief + render_text(report, recordings=recordings, **_TEXT)


class Finding(Question):
    """Print one finding in full: evidence, price, place, and the whole fix with code to write."""

    path: Recording
    n: Annotated[int, Meta(description="The number that `analyze` gave it, from 1 on.")]
    command = "analyze --full"

    def answer(self, traces: Traces) -> str:
        """Return the finding."""
        report = merge_results(
            traces.results(self.path), several("path", self.path, str), traces.options
        )
        return draw_text([Chapter("", (numbered_finding(report, self.n),))], **_TEXT)


class WhatIf(Question):
    """Predict, by replay of the trace, how long a step takes with a change and what it saves.

    Without `fix` and `edit` the changes are the fixes of all findings.
    """

    path: Recording
    fix: Annotated[
        str | int | None,
        Meta(description="The number of a finding, the id of a rule such as TL101, or 'all'."),
    ] = None
    edit: Annotated[
        str | None,
        Meta(description="KIND[:PLACE][=VALUE], such as unblock:train.py:40; a finding's `edit`."),
    ] = None
    command = "whatif"

    def answer(self, traces: Traces) -> str:
        """Return the predictions."""
        fixes = () if self.fix is None else self.fix
        asked = add_changes(traces.options, fixes, self.edit or ())
        sources, paths = traces.sources(self.path), several("path", self.path, str)
        if len(sources) > 1:
            return render_predictions(whatif_of_job(sources, paths, asked), **_TEXT)
        [analysis] = _require_traces(traces.results(self.path, _itself))
        predicted = whatif(analysis, fixes=asked.fixes, edits=asked.edits, options=traces.options)
        return render_predictions(replace(analysis.report, whatif=predicted), **_TEXT)


class Diff(Question):
    """Compare two recordings of a program: did a step get shorter, and what changed."""

    before: Recording
    after: Recording
    command = "diff"

    def answer(self, traces: Traces) -> str:
        """Return the difference."""
        return render_result(
            compare_sides(traces.side(self.before), traces.side(self.after)), **_TEXT
        )


class Explain(Question):
    """Explain a rule (TL101), a remedy, a cause of idle time, or any word of an answer."""

    word: Annotated[str, Meta(description="Such as TL101, scalar-read, host_busy or exposed.")]
    command = "explain"

    def answer(self, traces: Traces) -> str:  # noqa: ARG002 (it is about none)
        """Return the explanation."""
        return explanation([self.word], _TEXT["width"])


class Picture(Question):
    """Draw what ran when, why the GPU was idle, and where the first findings are, as a PNG."""

    path: Recording
    finding: Annotated[
        int | None, Meta(description="The number of the finding whose worst place is drawn.")
    ] = None
    command = "timeline"

    def answer(self, traces: Traces) -> bytes:
        """Return the picture, smaller if it would have too many bytes."""
        is_alone = len(traces.sources(self.path)) == 1
        results = traces.results(self.path, _itself if is_alone else part_of)
        shown = _require_traces(results)
        if self.finding is not None and not is_alone:
            raise UsageError("a finding is drawn in one trace; these are several")
        report = merge_results(results, several("path", self.path, str), traces.options)
        for width_px in _WIDTHS_PX:
            if is_alone:
                picture = draw(shown[0], finding=self.finding, width_px=width_px)
            else:
                picture = draw_results(report, results, look=Look(width_px))
            content = picture.png()
            if len(content) <= MAX_PICTURE_BYTES:
                return content
        raise UsageError("the picture has too many bytes; draw it with `tracelab timeline`")


QUESTIONS: Mapping[str, type[Question]] = {
    question.__name__.lower(): question
    for question in (Analyze, Finding, WhatIf, Diff, Explain, Picture)
}


def _require_traces(results: Iterable[FileResult]) -> list[Any]:
    for result in results:
        if result.error is not None:
            raise result.error
        if result.is_saved:
            raise UsageError(f"{result.source.path}: this needs the trace; it is a saved report")
    return [result.more for result in results]


def schema_of(question: type[Question]) -> dict[str, Any]:
    """Return the JSON schema of a question's arguments."""
    _, schemas = msgspec.json.schema_components([question])
    keys = ("type", "properties", "required", "additionalProperties")
    return {key: schemas[question.__name__][key] for key in keys}


def answer_to(name: str, arguments: Mapping[str, Any], traces: Traces) -> str | bytes:
    """Answer with text of at most `MAX_LETTERS`, or a PNG of at most `MAX_PICTURE_BYTES`.

    Raises:
        UsageError: there is no such question, or its arguments are others.
        TracelabError: it cannot be answered.
    """
    if name not in QUESTIONS:
        raise UsageError(f"there is no tool {name}; there are: {', '.join(QUESTIONS)}")
    try:
        question = msgspec.convert(arguments, QUESTIONS[name], strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}") from None
    answer = question.answer(traces)
    return _cut(answer, question.command) if isinstance(answer, str) else answer


def _cut(text: str, command: str) -> str:
    if len(text) <= MAX_LETTERS:
        return text
    end = f"\nCut at {MAX_LETTERS:,} characters; `tracelab {command}` in a terminal prints all.\n"
    kept = text[: MAX_LETTERS - len(end)]
    return (kept.rpartition("\n")[0] or kept) + end
