"""``tracelab check``: hold a trace to budgets, so that a CI job can guard a training step."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab.cli import saved
from tracelab.cli.flags import sentence_of
from tracelab.cli.numbers import parse_assignments, parse_number
from tracelab.cli.options import CommPattern, NoCache, StepOn
from tracelab.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.system.console import (
    output_in_color,
    output_width,
    save_result,
    tell,
    write_result,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelab.analysis import Failure
    from tracelab.comparison.budgets import Budgets
    from tracelab.options import Options
    from tracelab.read.streams import Source
    from tracelab.report.schema import Report

# torch.profiler's x.pt.trace.json, torchtitan's rank0_trace.json, SGLang's x-TP-0.trace.json.
_TRACE_NAME = re.compile(r"trace\.json(\.gz)?$")


class Format(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    GITHUB = "github"


def check(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Traces or saved reports (analyze --json), folders of them, URLs.",
        ),
    ],
    max_idle: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Idle time of the worst GPU.")
    ] = None,
    min_overlap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A:B=PERCENT", help="Share of kind A that runs beside B: comm:compute=80."
        ),
    ] = None,
    max_exposed: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=PERCENT", help="Unhidden copies or communication: copy=2."),
    ] = None,
    max_blocking_calls: Annotated[
        str | None, typer.Option(metavar="N", help="Blocking calls a step.")
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="No finding above info of this rule: TL101, TL2."),
    ] = None,
    max_step_ms: Annotated[str | None, typer.Option(metavar="MS", help="The median step.")] = None,
    max_regression: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="How much longer than the baseline's median step."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FILE", help="A saved report or a trace to compare with.")
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file of budgets; else the table tool.tracelab.check of a pyproject.",
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="Only step N, not the whole trace.")
    ] = None,
    step_on: StepOn = None,
    comm_pattern: CommPattern = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="Text, or GitHub's annotations and the text.")
    ] = Format.TEXT,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as JUnit XML as well.")
    ] = None,
    no_cache: NoCache = False,
) -> None:
    """Hold a trace to budgets: exit code 1 when one is broken."""
    from tracelab.comparison.budgets import check as hold_to
    from tracelab.comparison.budgets import require_checkable
    from tracelab.comparison.budgets_toml import parse_budgets
    from tracelab.options import PROFILER_STEP, Options
    from tracelab.render.ci import github_annotations, junit_xml, without_github_commands
    from tracelab.render.text.budgets import render_budgets

    given: dict[str, Any] = {
        "max-idle": parse_number(max_idle, "--max-idle"),
        "min-overlap": parse_assignments(min_overlap or (), "--min-overlap", "comm:compute=80"),
        "max-exposed": parse_assignments(max_exposed or (), "--max-exposed", "copy=2"),
        "max-blocking-calls": parse_number(max_blocking_calls, "--max-blocking-calls"),
        "forbid": list(forbid or ()),
        "max-step-ms": parse_number(max_step_ms, "--max-step-ms"),
        "max-regression": parse_number(max_regression, "--max-regression"),
        "baseline": baseline,
    }
    flags = parse_budgets({k: v for k, v in given.items() if v is not None}, "the command line")
    wanted = _of_file(budgets).updated(flags)
    require_checkable(wanted)
    options = Options(
        comm_patterns=tuple(comm_pattern or ()),
        step_pattern=step_on or PROFILER_STEP,
        step=step,
        cache=not no_cache,
    )
    reports, missing = _read_all(paths, options, step_on)
    before = None if wanted.baseline is None else _read_baseline(wanted.baseline, options, step_on)
    results = hold_to(wanted, reports, step=step, baseline=before)
    if junit is not None:
        save_result(junit, lambda path: path.write_bytes(junit_xml(results)))
    text = render_budgets(results, width=output_width(), color=output_in_color())
    if output_format is Format.GITHUB:
        text = github_annotations(results) + without_github_commands(text)
    write_result(text)
    _tell_of_traces(reports)
    if missing:
        raise typer.Exit(3)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


# --- what is allowed ---


def _of_file(named: Path | None) -> Budgets:
    """The budgets of the file that is named, else of the nearest pyproject.toml that has any."""
    from tracelab.comparison.budgets import Budgets

    if named is not None:
        return _parsed(named, at_top=True) or Budgets()
    folder = Path.cwd()
    for file in (parent / "pyproject.toml" for parent in (folder, *folder.parents)):
        if file.is_file() and (found := _parsed(file, at_top=False)) is not None:
            return found
    return Budgets()


def _parsed(file: Path, *, at_top: bool) -> Budgets | None:
    from dataclasses import replace

    from tracelab.comparison.budgets_toml import parse_toml

    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{file}: this is no TOML: it is not UTF-8") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read the budgets of {file}: {reason}") from None
    found = parse_toml(text, str(file), at_top=at_top)
    if found is None or found.baseline is None or "://" in found.baseline:
        return found
    return replace(found, baseline=str(file.parent / found.baseline))


# --- what was measured ---


def _read_all(
    paths: Sequence[str], options: Options, step_on: str | None
) -> tuple[list[Report], bool]:
    """The reports of all files: one of all traces, and the saved ones.

    Returns:
        the reports, and whether one that counts could not be read.
    """
    from dataclasses import replace

    from tracelab.analysis import Failure, merge_reports
    from tracelab.cli.many_files import map_files, processes_for_one
    from tracelab.read.sources import find_sources

    sources = find_sources(paths)
    options = replace(options, processes=processes_for_one(len(sources)))
    as_saved: list[Report] = []
    measured: list[Report] = []
    failures: list[Failure] = []
    for report, is_saved in map_files(partial(_read_or_fail, options=options), sources):
        if isinstance(report, Failure):
            failures.append(report)
        else:
            (as_saved if is_saved else measured).append(report)
    for report in as_saved:
        _require_same_options(report, options, step_on)
    if not as_saved and not measured:
        raise failures[0].error
    for failure in failures:
        tell(f"left out: {sentence_of(failure.error)}")
    merged = [merge_reports(measured, paths, options)] if measured else []
    return [*merged, *as_saved], any(_counts(failure.source) for failure in failures)


def _counts(source: Source) -> bool:
    """Whether a file that cannot be analysed leaves the answer incomplete.

    A folder may hold other files; but what calls itself a trace may be the rank that breaks, unless
    it has all that was recorded and no GPU is in it: vLLM's front end leaves such a trace.
    """
    if source.named:
        return True
    return bool(_TRACE_NAME.search(source.path)) and not _is_whole_without_gpu(source)


def _is_whole_without_gpu(source: Source) -> bool:
    """Whether a file is a trace, undamaged, in which no GPU did anything."""
    from tracelab.model.trace import GPU_ACTIVITIES
    from tracelab.read.reader import read_trace

    try:
        trace = read_trace(source)
    except TracelabError:
        return False
    return not trace.losses and not len(trace.of_category(*GPU_ACTIVITIES))


def _read_baseline(path: str, options: Options, step_on: str | None) -> Report:
    from dataclasses import replace

    from tracelab.analysis import merge_reports
    from tracelab.read.sources import find_sources

    whole = replace(options, step=None)
    found = [_read(source, whole) for source in find_sources([path])]
    for report, is_saved in found:
        if is_saved:
            _require_same_options(report, replace(whole, comm_patterns=()), step_on)
    if len(found) > 1 and any(is_saved for _, is_saved in found):
        raise UsageError(f"{path}: a baseline is one saved report, or the traces of one job")
    return found[0][0] if len(found) == 1 else merge_reports([x for x, _ in found], [path], whole)


def _read_or_fail(source: Source, options: Options) -> tuple[Report | Failure, bool]:
    """The same, in whichever process: an expected error is returned, so that others go on."""
    from tracelab.analysis import Failure

    try:
        return _read(source, options)
    except TracelabError as error:
        return Failure(source, error), False


def _read(source: Source, options: Options) -> tuple[Report, bool]:
    """A trace, analysed, or a saved report, and whether it was one."""
    from tracelab.analysis import analyze_source

    if saved.is_report(source):
        return saved.load(source), True
    try:
        return analyze_source(source, options).report, False
    except UnreadableInputError:
        if saved.is_report_in_any_order(source):
            return saved.load(source), True
        raise


def _require_same_options(report: Report, options: Options, step_on: str | None) -> None:
    """Refuse to measure a saved report anew: it no longer has what that would need."""
    made = report.provenance
    path = report.traces[0].path if report.traces else "the report"
    if options.comm_patterns and options.comm_patterns != made.comm_patterns:
        raise UsageError(
            f"--comm-pattern is for traces; the saved report of {path} was made with "
            f"{', '.join(made.comm_patterns) or 'none'}"
        )
    if step_on and step_on != made.step_pattern:
        raise UsageError(
            f"--step-on is for traces; in the saved report of {path} steps are {made.step_pattern}"
        )


def _tell_of_traces(reports: Sequence[Report]) -> None:
    """Say what the traces lack: a figure from a damaged trace must not look like any other."""
    from tracelab.findings.finding import INFO
    from tracelab.findings.rules.trace_quality import is_about_the_trace

    for report in reports:
        paths = {trace.rank: trace.path for trace in report.traces}
        for finding in report.findings:
            if is_about_the_trace(finding) and finding.severity != INFO:
                tell(f"{paths.get(finding.rank, 'trace')}: {finding.rule}: {finding.title}")
        for file in report.provenance.unread:
            tell(f"left out of the saved report: {file.reason}")


# --- what is said ---
