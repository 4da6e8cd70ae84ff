"""Sorts of files that can be written, and requests for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult, analyze_file, merge_results
from tracelab.base.arrays import Record
from tracelab.base.errors import TracelabError, UsageError
from tracelab.base.options import Options, require_types
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.read.sources import Inputs, find_inputs
from tracelab.render.scene import Scene
from tracelab.report.schema import Report
from tracelab.system.files import identities, require_output

# Files, and what writes each to its path.
Saves = Iterable[tuple[Path, Callable[[Path], object]]]


class Request(Record):
    """A request for an output of N files: ``Request(path=Path("step.html"), files=1)``."""

    path: Path
    files: int


class Output(Record):
    """A sort of file that can be written.

    Attributes:
        verb: its past tense: "drew".
        suffixes: endings of its names.
        refusal: the sentence about another name, as ``{}``.
        is_of_all: True if one file can show several traces.
        is_of_each: True if each of several traces can have a file.
        reduce: of one file, in the process that analyzes it.
        saves: `FileResult.more` is the result of `reduce`.
        hint: how to use them, or "".
    """

    name: str
    verb: str
    suffixes: tuple[str, ...]
    refusal: str
    is_of_all: bool
    is_of_each: bool
    reduce: Callable[[Analysis, Scene], Any]
    saves: Callable[[Report, Sequence[FileResult], Request], Saves]
    hint: str = ""

    def require_name(self, path: Path, argument: str = "") -> None:
        """Raise `UsageError` for another ending of a file or argument."""
        if not self._suffix(path):
            name = f"`{argument}`: " if argument else ""
            raise UsageError(name + self.refusal.format(path))

    def paths(self, path: Path, files: int) -> list[Path]:
        """List the files that may be written for N traces."""
        whole = [path] if self.is_of_all or files == 1 else []
        return whole + (self.numbered(path, files) if self.is_of_each and files > 1 else [])

    def numbered(self, path: Path, files: int) -> list[Path]:
        """List the files of several traces: ``step-0.png``, ..."""
        suffix = path.name[len(path.name) - len(self._suffix(path)) :]
        stem = path.name.removesuffix(suffix)
        return [path.with_name(f"{stem}-{index}{suffix}") for index in range(files)]

    def write(
        self, report: Report, results: Sequence[FileResult], request: Request
    ) -> list[Path | TracelabError]:
        """Write each file that is possible."""
        written: list[Path | TracelabError] = []
        for path, save in self.saves(report, results, request):
            try:
                save(path)
                written.append(path)
            except TracelabError as error:
                written.append(error)
        return written

    def write_to(
        self,
        trace: Inputs,
        path: str | PathLike[str],
        options: Options,
    ) -> Report:
        """Analyze files, write this output, return their report."""
        require_types(path=(path, str | PathLike), options=(options, Options))
        target = Path(path)
        self.require_name(target, "path")
        names, sources = find_inputs(trace, "trace", options.max_unpacked_bytes)
        require_output(target, identities(source.path for source in sources))
        request = Request(target, len(sources))
        results = [
            analyze_file(source, options, then=lambda x: self.reduce(x, scene_of_file(x)))
            for source in sources
        ]
        report = merge_results(results, names, options)
        for written in self.write(report, results, request):
            if isinstance(written, TracelabError):
                raise written
        return report

    def _suffix(self, path: Path) -> str:
        name = path.name.lower()
        fitting = [x for x in self.suffixes if name.endswith(x) and name != x]
        return max(fitting, key=len, default="")
