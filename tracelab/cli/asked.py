"""What `tracelab analyze` is asked to write beside its text, and what each file gives to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelab.base.arrays import OneLine
from tracelab.base.errors import TracelabError, UsageError

if TYPE_CHECKING:
    from tracelab.analysis.analysis import Analysis
    from tracelab.analysis.reports import FileResult
    from tracelab.base.options import Options
    from tracelab.read.streams import Source
    from tracelab.report.redact import Redaction
    from tracelab.report.schema import Report

MOST_PICTURES = 20  # that are drawn without being asked for all of them
PICTURE, PAGE, TRACE = "picture", "page", "trace"


@dataclass(frozen=True, slots=True, repr=False)
class Asked(OneLine):
    """Where a picture, a page and a trace with tracks go; None for none.

    Attributes:
        png, html, perfetto: that.
        redact: without what tells where they were made.

    Example: ``Asked(png=Path("timeline.png"), html=None, perfetto=None, redact=False)``.
    """

    png: Path | None
    html: Path | None
    perfetto: Path | None
    redact: bool = False

    def pictures(self, files: int) -> list[Path]:
        """Where pictures may go: of a file or a job there is one, of other files one of each.

        Raises:
            UsageError: its name is not that of a picture.
        """
        if self.png is None:
            return []
        from tracelab.outputs.drawing import numbered
        from tracelab.render.picture.save import require_format

        require_format(self.png)
        return [self.png] if files == 1 else [self.png, *numbered(self.png, files)]

    def others(self, files: int) -> list[Path]:
        """Where the page and the traces go.

        Raises:
            UsageError: a name is not that of one, or the trace is to be redacted.
        """
        if self.redact and self.perfetto is not None:
            raise UsageError(
                "--redact cannot be combined with --perfetto, which writes the bytes of the trace "
                "as they are, with its paths, host names and arguments"
            )
        from tracelab.outputs.pages import numbered_traces, require_page, require_trace

        paths = []
        if self.html is not None:
            require_page(self.html)
            paths.append(self.html)
        if self.perfetto is not None:
            require_trace(self.perfetto)
            paths += numbered_traces(self.perfetto, files)
        return paths

    def require_few(self, sources: Sequence[Source]) -> None:
        """Refuse to draw each of many files, unless their names tell that they are one job.

        Raises:
            UsageError: there are many.
        """
        ranks = {source.rank for source in sources} - {None}
        if self.png is not None and len(sources) > MOST_PICTURES and len(ranks) < len(sources):
            raise UsageError(
                f"--png would draw {len(sources)} pictures, because the file names do not show "
                "that they are one job: pass --all to draw all of them, or --job if they are its "
                "ranks"
            )

    def makers(self, files: int) -> dict[str, Callable[[Analysis], Any]]:
        """What makes the part of each of so many files, by what it is for."""
        makers: dict[str, Callable[[Analysis], Any]] = {}
        if self.png is not None:
            from tracelab.outputs.drawing import for_picture
            from tracelab.report.redact import ALONE

            makers[PICTURE] = for_picture(self.png, files, ALONE if self.redact else "")
        if self.html is not None:
            from tracelab.outputs.pages import part_of_page

            makers[PAGE] = part_of_page
        if self.perfetto is not None:
            from tracelab.outputs.perfetto import part_of_perfetto

            makers[TRACE] = part_of_perfetto
        return makers


def analyze_for(source: Source, options: Options, asked: Asked, files: int) -> FileResult:
    """Analyze one of so many files, and make its parts of what is asked for, in any process."""
    from tracelab.analysis.reports import analyze_file

    then = partial(_parts, makers=asked.makers(files))
    return analyze_file(source, options, then=then, may_be_saved=True)


def _parts(analysis: Analysis, makers: dict[str, Callable[[Analysis], Any]]) -> dict[str, Any]:
    return {name: make(analysis) for name, make in makers.items()}


def merge(results: Sequence[FileResult], paths: Sequence[str], options: Options) -> Report:
    """One report of all files, or the saved one that is the only file.

    Raises:
        UsageError: a saved report is not the only file.
        TracelabError: none could be analyzed.
    """
    from tracelab.analysis.reports import merge_results

    saved = [result for result in results if result.is_saved]
    if saved and len(results) > 1:
        raise UsageError(
            f"{saved[0].source.path} is a saved report: it cannot be combined with other files"
        )
    if saved and saved[0].report is not None:
        return saved[0].report
    return merge_results(results, paths, options)


def write_all(
    asked: Asked,
    report: Report,
    results: Sequence[FileResult],
    options: Options,
    run: Callable[..., Iterable[Any]],
    redaction: Redaction | None = None,
) -> list[str | TracelabError]:
    """Write what is asked for.

    Args:
        asked: what that is.
        report: of all files.
        results: of each, from `analyze_for`.
        options: how the files were analyzed.
        run: maps a function over files, as `map` or a pool's `map` does.
        redaction: what the report went through; None for none.

    Returns:
        what was written, in words; instead of what could not be, why.
    """
    messages: list[str | TracelabError] = []
    titles = ["" if redaction is None else redaction.of(x.source.path) for x in results]
    if redaction is not None:
        results = [replace(result, more=redaction.of(result.more)) for result in results]
    if asked.png is not None:
        from tracelab.outputs.drawing import draw_results

        drawn = draw_results(report, _of(results, PICTURE), asked.png, options, run, titles)
        messages += [x if isinstance(x, TracelabError) else f"drew {x}" for x in drawn]
    if asked.html is not None:
        from tracelab.outputs.pages import save_page

        try:
            save_page(report, [result.more for result in _of(results, PAGE)], asked.html)
            messages.append(f"wrote {asked.html}")
        except TracelabError as error:
            messages.append(error)
    if asked.perfetto is not None:
        from tracelab.outputs.pages import save_traces

        written = save_traces(report, _of(results, TRACE), asked.perfetto)
        messages += [x if isinstance(x, TracelabError) else f"wrote {x}" for x in written]
    return messages


def _of(results: Sequence[FileResult], name: str) -> list[FileResult]:
    """The results, each with its part of one of the things that are asked for."""
    return [replace(x, more=None if x.more is None else x.more[name]) for x in results]
