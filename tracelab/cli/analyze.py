"""``tracelab analyze``: what the GPUs did, why they were idle, and what the host waited for."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab.base.errors import CrashError, TracelabError, UnreadableInputError, UsageError
from tracelab.cli.options import (
    Analyzed,
    Brief,
    Csv,
    Full,
    Html,
    Json,
    Markdown,
    Png,
    Redact,
    Top,
    analyzes,
    require_one,
    require_outputs,
    require_saved_options,
)
from tracelab.system.console import (
    output_in_color,
    output_width,
    tell,
    write_result,
)

if TYPE_CHECKING:
    from tracelab.analysis.analysis import Analysis
    from tracelab.analysis.reports import FileResult
    from tracelab.base.options import Options
    from tracelab.outputs.registry import Requests
    from tracelab.read.streams import Source
    from tracelab.report.schema import Report

MAX_PICTURES = 20


@analyzes(
    "step_on", "comm_pattern", "source", "jobs", "job", "no_prices", "no_cache", "max_unpacked"
)
def analyze(
    analyzed: Analyzed,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Traces (.json, .pftrace, .gz), folders of them, URLs; or a saved report.",
        ),
    ],
    full: Full = False,
    markdown: Markdown = False,
    brief: Brief = False,
    json: Json = None,
    csv: Csv = None,
    png: Png = None,
    html: Html = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the trace with tracks of the findings, for Perfetto: .json or .json.gz.",
        ),
    ] = None,
    parts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what `tracelab merge` needs of these files."),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="N|all", help="Only step N; 'all' prints every table, of every step."),
    ] = None,
    top: Top = None,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="serial, processes, threads, dask://HOST:PORT or MODULE:FUNCTION.",
        ),
    ] = None,
    all_pairs: Annotated[
        bool,
        typer.Option(
            "--all-pairs", help="Print the overlap of all pairs of streams, even of many."
        ),
    ] = False,
    all_pictures: Annotated[
        bool,
        typer.Option("--all", help="With --png: draw every file, however many they are."),
    ] = False,
    redact: Redact = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Recompute sums, tilings and one in a hundred bindings by slow code, or fail.",
        ),
    ] = False,
) -> None:
    """Tell why GPUs were not busy, what to change, and what that saves."""
    from tracelab.analysis.parts import pack_parts
    from tracelab.analysis.reports import merge_results
    from tracelab.base.options import step_number
    from tracelab.cli.many_files import map_files
    from tracelab.outputs.registry import paths_of
    from tracelab.read.sources import find_sources
    from tracelab.system.files import write_file

    is_whole = {"--full": full, "--top": top is not None, "--step all": step == "all"}
    form = chosen_form(markdown=markdown, brief=brief, json=json, is_whole=is_whole)
    sources = find_sources(paths, analyzed.max_unpacked_bytes)
    options = analyzed.options(len(sources), executor, step=step_number(step), all_pairs=all_pairs)
    _require_shown({"--perfetto": perfetto, "--parts": parts}, redact=redact)
    requests = requests_of({"png": png, "html": html, "perfetto": perfetto}, len(sources))
    outputs = [json, csv and csv / "findings.csv", parts, *paths_of(requests)]
    require_outputs(sources, files=outputs)
    if png is not None and not (all_pictures or analyzed.job):
        _require_few(sources)
    is_alone = len(sources) == 1 and parts is None
    read = partial(
        _analyze, requests=requests, options=options, is_alone=is_alone, is_verified=verify
    )
    results = map_files(read, sources, spec=executor, jobs=analyzed.jobs)
    report = merge_results(results, paths, options)
    if results[0].is_saved:
        needs_trace = {
            "--png": png,
            "--perfetto": perfetto,
            "--parts": parts,
            "--step": options.step,
        }
        require_saved_options(report, options, needs_trace)
    if verify:
        _verify(report, results)
    if parts is not None:
        write_file(parts, pack_parts(results, paths, options))
    look = look_of(full=full, top=top) | {"every_step": step == "all"}
    show(report, results, options, form, look, requests, json=json, csv=csv, redact=redact)


def show(
    report: Report,
    results: Sequence[FileResult],
    options: Options,
    form: str,
    look: dict[str, Any],
    requests: Requests,
    *,
    json: str | None,
    csv: Path | None,
    redact: bool,
) -> None:
    """Print a report as `form`, write the requested outputs, and exit with the fitting code.

    Further options of the text are its `look`; `csv` is a folder.
    """
    from tracelab.analysis.reports import report_of_each_recording
    from tracelab.outputs.registry import write_files
    from tracelab.render.csv_tables import write_csv
    from tracelab.render.registry import render_as
    from tracelab.report.redact import Redaction

    # With a thousand ranks, collections would take long.
    gc.freeze()
    recordings = report_of_each_recording(results, report, options)
    redaction = Redaction(report) if redact else None
    if redaction is not None:
        report, *recordings = map(redaction.apply, (report, *recordings))
    if json is not None and json != "-":
        report.save(json)
    look = {**look, "width": output_width(), "color": output_in_color()} if form == "text" else {}
    look |= {} if form == "json" else {"recordings": recordings}
    result = render_as(report, form, **look)
    write_result(result if isinstance(result, str) else result.decode())
    if csv is not None:
        tell(f"wrote {len(write_csv(report, csv))} tables to {csv}")
    written = write_files(report, results, requests, redaction)
    for one in written:
        tell(str(one))
    for file in report.provenance.unread:
        tell(f"left out: {file.reason}")
    # Folders may hold other files, but files requested by name must count.
    if any(result.error and result.source.named for result in results):
        raise typer.Exit(3)
    for one in written:
        if isinstance(one, TracelabError):
            raise typer.Exit(one.exit_code)


def chosen_form(
    *, markdown: bool, brief: bool, json: str | None, is_whole: Mapping[str, bool]
) -> str:
    """Return the renderer for stdout; refuse two, or all of no text."""
    results = {"--markdown": markdown, "--brief": brief, "--json -": json == "-"}
    for flag, is_given in is_whole.items():
        require_one({**results, flag: is_given and not results["--json -"]})
    return (require_one(results) or "text").strip("- ")


def look_of(*, full: bool, top: int | None) -> dict[str, Any]:
    """Return the options of a text by its flags."""
    return {"full": full} if top is None else {"full": True, "top": top}


def _require_shown(paths: Mapping[str, Path | None], *, redact: bool) -> None:
    for (flag, path), holds in zip(paths.items(), ("bytes of the trace", "reports"), strict=True):
        if redact and path is not None:
            raise UsageError(
                f"--redact cannot be combined with {flag}, which writes {holds} as they are, with "
                "their paths, host names and arguments"
            )


def requests_of(paths: Mapping[str, Path | None], files: int) -> Requests:
    """Return requests for outputs of N files, those with a path."""
    from tracelab.outputs.output import Request

    return {name: Request(path, files) for name, path in paths.items() if path is not None}


def _analyze(
    source: Source, options: Options, requests: Requests, *, is_alone: bool, is_verified: bool
) -> FileResult:
    from tracelab.analysis.reports import analyze_file

    then = partial(_reduce, requests=requests, is_verified=is_verified)
    return analyze_file(source, options, then=then, may_be_saved=True, is_alone=is_alone)


def _reduce(analysis: Analysis, requests: Requests, *, is_verified: bool) -> dict[str, Any]:
    from tracelab.analysis.verify import verify_file
    from tracelab.outputs.registry import reduce_file

    verified = {"verified": verify_file(analysis)} if is_verified else {}
    return reduce_file(analysis, requests) | verified


def _verify(report: Report, results: Sequence[FileResult]) -> None:
    from tracelab.analysis.verify import verify

    verified = verify(report, [x.more["verified"] for x in results if x.more])
    if verified.differences and results[0].is_saved:
        raise UnreadableInputError(f"{results[0].source.path}: the report is damaged: {verified}")
    if verified.differences:
        raise CrashError(f"this is a bug in tracelab: {verified}")
    tell(str(verified))


def _require_few(sources: Sequence[Source]) -> None:
    ranks = {source.rank for source in sources} - {None}
    if len(sources) > MAX_PICTURES and len(ranks) < len(sources):
        raise UsageError(
            f"--png would draw {len(sources)} pictures, because the file names do not show "
            "that they are one job: pass --all to draw all of them, or --job if they are its "
            "ranks"
        )
