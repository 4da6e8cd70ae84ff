"""``tracelab check``: budgets of a trace, to guard a training step in CI."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab.base.errors import TracelabError, UsageError, reason_of
from tracelab.cli.options import (
    Analyzed,
    Markdown,
    analyzes,
    require_one,
    require_outputs,
    require_saved_options,
    sentence_of,
)
from tracelab.system.console import output_in_color, output_width, tell, write_result
from tracelab.system.files import write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracelab.base.options import Options
    from tracelab.comparison.budgets import Budgets
    from tracelab.read.streams import Source
    from tracelab.report.schema import Report

# torch.profiler's x.pt.trace.json and x.pftrace, torchtitan's rank0_trace.json, SGLang's
# x-TP-0.trace.json.
_TRACE_NAME = re.compile(r"(trace\.json|\.pftrace)(\.gz)?$")


class Format(StrEnum):
    """Format of the printed result."""

    TEXT = "text"
    GITHUB = "github"


@analyzes("step_on", "comm_pattern", "no_cache", "max_unpacked")
def check(
    analyzed: Analyzed,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Traces or saved reports (analyze --json), folders of them, URLs.",
        ),
    ],
    max_idle: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Idle share of the worst GPU.")
    ] = None,
    min_overlap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A:B=PERCENT", help="Share of kind A overlapped with B: comm:compute=80."
        ),
    ] = None,
    max_exposed: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=PERCENT", help="Exposed copies or communication: copy=2."),
    ] = None,
    max_blocking_calls: Annotated[
        float | None, typer.Option(metavar="N", help="Blocking calls per step.")
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="No finding above info of this rule: TL101, TL2."),
    ] = None,
    max_step_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="The median steady step.")
    ] = None,
    max_regression: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="How much longer than the baseline's median step."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FILE", help="A saved report or a trace to compare with.")
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file of budgets (default: tool.tracelab.check in pyproject.toml).",
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="Only step N, not the steady steps.")
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="Text, or GitHub annotations and text.")
    ] = Format.TEXT,
    markdown: Markdown = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as JUnit XML as well.")
    ] = None,
) -> None:
    """Check a trace against budgets: exit code 1 if one fails.

    Budgets apply to the steady steps, or to the whole trace if no step is steady.
    """
    from tracelab.base.names import is_share
    from tracelab.comparison.budget_check import check as hold_to
    from tracelab.comparison.budgets import parse_budgets, require_checkable
    from tracelab.read.sources import find_sources
    from tracelab.read.streams import is_url
    from tracelab.render.budgets import (
        github_annotations,
        junit_xml,
        render_budgets,
        render_markdown,
    )

    require_one({"--markdown": markdown, "--format github": output_format is Format.GITHUB})
    given: dict[str, Any] = {
        "max-idle": max_idle,
        "min-overlap": parse_assignments(min_overlap or (), "--min-overlap", "comm:compute=80"),
        "max-exposed": parse_assignments(max_exposed or (), "--max-exposed", "copy=2"),
        "max-blocking-calls": max_blocking_calls,
        "forbid": list(forbid or ()),
        "max-step-ms": max_step_ms,
        "max-regression": max_regression,
        "baseline": baseline,
    }
    flags = parse_budgets({k: v for k, v in given.items() if v is not None}, "the command line")
    found, file = _budgets_of_file(budgets)
    wanted = found.updated(flags)
    named = wanted.baseline
    if baseline is None and named is not None and (is_url(named) or is_share(named)):
        # The file may be a pull request's, and the machine has more rights.
        raise UsageError(f"{file}: only --baseline may name a file of another host: {named}")
    require_checkable(wanted)
    sources, others = (
        find_sources(names, analyzed.max_unpacked_bytes)
        for names in (paths, [] if wanted.baseline is None else [wanted.baseline])
    )
    options = analyzed.options(len(sources), step=step)
    require_outputs((*sources, *others), files=[junit], other_inputs=[file])
    reports, missing = _read_all(sources, paths, options)
    before = None
    if wanted.baseline is not None:
        before = _read_baseline(others, wanted.baseline, options)
    results = hold_to(wanted, reports, step=step, baseline=before)
    if junit is not None:
        write_file(junit, junit_xml(results))
    if markdown:
        text = render_markdown(results)
    else:
        text = render_budgets(results, width=output_width(), color=output_in_color())
    is_for_github = output_format is Format.GITHUB
    write_result(text, github_annotations(results) if is_for_github else "")
    checked = reports if before is None else [*reports, before]
    _tell_of_traces(checked)
    if missing or any(report.has_failed_parts for report in checked):
        raise typer.Exit(3)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


# --- what is allowed ---


def _budgets_of_file(named: Path | None) -> tuple[Budgets, Path | None]:
    from tracelab.comparison.budgets import Budgets

    if named is not None:
        return _parsed(named, at_top=True) or Budgets(), named
    folder = Path.cwd()
    for file in (parent / "pyproject.toml" for parent in (folder, *folder.parents)):
        if file.is_file() and (found := _parsed(file, at_top=False)) is not None:
            return found, file
    return Budgets(), None


def _parsed(file: Path, *, at_top: bool) -> Budgets | None:
    from dataclasses import replace

    from tracelab.comparison.budgets import parse_toml
    from tracelab.read.streams import is_url

    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{file}: this is not a valid TOML file: it is not UTF-8") from None
    except OSError as error:
        raise UsageError(f"cannot read the budgets of {file}: {reason_of(error)}") from None
    found = parse_toml(text, str(file), at_top=at_top)
    if found is None or found.baseline is None or is_url(found.baseline):
        return found
    return replace(found, baseline=str(file.parent / found.baseline))


def parse_assignments(texts: Iterable[str], flag: str, example: str) -> dict[str, float]:
    """Return the table of KEY=NUMBER flags, as in TOML."""
    assignments: dict[str, float] = {}
    for text in texts:
        key, _, number = text.rpartition("=")
        try:
            assignments[key.strip()] = float(number)
        except ValueError:
            key = ""
        if not key:
            raise UsageError(f"{flag} takes a kind and a percentage, as {example}, not {text!r}")
    return assignments


# --- what was measured ---


def _read_all(
    sources: Sequence[Source], paths: Sequence[str], options: Options
) -> tuple[list[Report], bool]:
    from tracelab.analysis.reports import analyze_file, merge_results
    from tracelab.cli.many_files import map_files

    read = partial(analyze_file, options=options, may_be_saved=True, is_alone=len(sources) == 1)
    results = map_files(read, sources)
    saved = [x.report for x in results if x.is_saved and x.report is not None]
    measured = [x for x in results if x.report is not None and not x.is_saved]
    for report in saved:
        require_saved_options(report, options)
    failed = [(x.source, x.error) for x in results if x.error is not None]
    if not saved and not measured:
        raise failed[0][1]
    for _, error in failed:
        tell(f"left out: {sentence_of(error)}")
    merged = [merge_results(measured, paths, options)] if measured else []
    return [*merged, *saved], any(_counts(source) for source, _ in failed)


def _counts(source: Source) -> bool:
    """Return True if the answer is incomplete without this file.

    A folder may hold other files; but a file named as a trace may be the rank that breaks, unless
    it has no GPU in it, as of vLLM's front end.
    """
    from tracelab.read.reader import read_trace

    if source.named or not _TRACE_NAME.search(source.path):
        return source.named
    try:
        trace = read_trace(source)
    except TracelabError:
        return True
    return bool(trace.losses or len(trace.activities))


def _read_baseline(sources: Sequence[Source], path: str, options: Options) -> Report:
    from tracelab.analysis.reports import analyze_file, merge_results

    whole = replace(options, step=None)
    results = [analyze_file(x, whole, may_be_saved=True) for x in sources]
    for result in results:
        if result.error is not None:
            raise result.error
    report = merge_results(results, [path], whole)
    if results[0].is_saved:
        require_saved_options(report, replace(whole, comm_pattern=()))
    return report


def _tell_of_traces(reports: Sequence[Report]) -> None:
    """Figures from a damaged trace must not look like any other."""
    from tracelab.findings.finding import INFO

    for report in reports:
        paths = {trace.rank: trace.path for trace in report.traces}
        if report.has_failed_parts:
            tell(f"{report.traces[0].path}: a bug in tracelab cost parts of its analysis")
        for finding in report.findings:
            if finding.about == "trace" and finding.severity != INFO:
                tell(f"{paths.get(finding.rank, 'trace')}: {finding.rule}: {finding.title}")
        for file in report.provenance.unread:
            tell(f"left out of the saved report: {file.reason}")
