"""Reports of one file or of many: each file is analyzed, and what became of all is merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from numbers import Integral
from os import PathLike
from typing import Any

from tracelab.analysis.analysis import Analysis, analyze_source, predict_changes
from tracelab.base.arrays import Record
from tracelab.base.errors import CrashError, TracelabError, UsageError
from tracelab.base.options import DEFAULTS, Options, require_types, several, step_number
from tracelab.findings.fixes import ALL, choose_fixes, predictions_of, require_choices
from tracelab.findings.places import JOINT, TOGETHER
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.job.part import RankPart
from tracelab.job.replay import MAX_RANKS, TOO_MANY_RANKS
from tracelab.measures.measure import Measure
from tracelab.measures.registry import MEASURES
from tracelab.measures.window_times import PROFILED
from tracelab.model.losses import attempt, place_of
from tracelab.read.sources import Inputs, find_inputs
from tracelab.read.streams import Source
from tracelab.report.build import merge_reports
from tracelab.report.load import is_saved_report, load_source
from tracelab.report.schema import Report, Table, UnreadFile, WhatIf
from tracelab.simulate.predict import Prediction
from tracelab.simulate.program import Program


class FileResult(Record):
    """Result of one of several files."""

    source: Source
    report: Report | None
    error: TracelabError | None = None
    is_saved: bool = False
    part: RankPart | None = None
    more: Any = None


def analyze(
    paths: Inputs,
    options: Options = DEFAULTS,
    run: Callable[..., Iterable[Any]] = map,
    *,
    step: int | str | None = None,
    job: bool | None = None,
    step_on: str | None = None,
    comm_pattern: str | Sequence[str] | None = None,
    source: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    measures: Sequence[Measure] = MEASURES,
    rules: Sequence[Rule] = RULES,
    remedies: Sequence[Remedy] = REMEDIES,
) -> Report:
    """Analyze files, or folders of them, into one report.

    Args:
        paths: a file, a folder, a pattern (``"traces/*rank*.json.gz"``), a URL,
            bytes or an open file; or several of them.
        options: what to measure, and how.
        run: maps a function over the files, as `map` or a pool's `map` does.
        step: the only step to measure; "all" for the whole trace and each step.
        job: the files are the ranks of one job.
        step_on: regular expression of the annotations that are the steps.
        comm_pattern: regular expressions of further communication kernels.
        source: folders of the program's source.
        measures: the tables of the report, ``(*MEASURES, MINE)`` with one more.
        rules: what finds something, ``(*RULES, MINE)`` with one more.
        remedies: the pitfalls that are recognized, ``(MINE, *REMEDIES)`` with one more.

    Example:
        >>> report = tracelab.analyze("traces/events_item.pt.trace.json.gz")
        >>> report.findings[0].rule
        'TL101'

    Raises:
        UsageError: no path is given, or an option makes no sense.
        TracelabError: nothing could be analyzed; what could not while other files could stands in
            the report's provenance.
    """
    require_types(options=(options, Options), run=(run, Callable))
    several("measures", measures, Measure)
    several("rules", rules, Rule)
    several("remedies", remedies, Remedy)
    named = {"job": job, "step_on": step_on, "comm_pattern": comm_pattern, "source": source}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if step is not None:
        given["step"] = step_number(step)
    options = replace(options, **given)
    names, sources = find_inputs(paths, "paths", options.max_unpacked_bytes)
    each = partial(
        analyze_file,
        options=options,
        measures=measures,
        rules=rules,
        remedies=remedies,
        is_alone=len(sources) == 1,
    )
    return merge_results(run(each, sources), names, options)


def whatif(
    trace: Inputs | Analysis,
    *,
    fixes: str | int | Sequence[str | int] = (),
    edits: str | Callable[[Program], Program] | Sequence[str | Callable[[Program], Program]] = (),
    options: Options = DEFAULTS,
) -> WhatIf:
    """Predict what a step of a trace, or of a job, takes with changes: each alone, then all.

    Args:
        trace: a file, a URL, what `analyze_source` made of one, or the files of a job's ranks or
            their folder.
        fixes: of which findings: numbers in the report from 1 on, ids of rules, or "all", which is
            the default where no edit is given either.
        edits: texts such as "unblock:train.py:40", or functions from a `Program` of
            `tracelab.simulate.program` to the changed one. In a job they are made on every rank.
        options: how a file is analyzed.

    Example:
        >>> predicted = tracelab.whatif("traces/events_item.pt.trace.json.gz", fixes=1)
        >>> [prediction.edits for prediction in predicted.predictions]
        [('unblock:events.py:65',)]

    Raises:
        UsageError: one of them is neither a fix nor an edit, or files are not one job.
        TracelabError: the file cannot be analyzed.
    """
    require_types(options=(options, Options))
    asked = add_changes(options, fixes, edits)
    if not isinstance(trace, Analysis):
        names, sources = find_inputs(trace, "trace", options.max_unpacked_bytes)
        if len(sources) != 1:
            found = whatif_of_job(sources, names, asked).whatif
            assert found is not None
            return found
        [trace] = sources
    analysis = trace if isinstance(trace, Analysis) else analyze_source(trace, options)
    findings = analysis.report.findings
    found = predict_changes(analysis.baseline, analysis.sites, findings, asked)
    assert found is not None
    return found


def whatif_of_job(
    sources: Sequence[Source],
    paths: Sequence[str],
    options: Options,
    run: Callable[..., Iterable[Any]] = map,
) -> Report:
    """Report on a job, with what its step takes with the requested changes.

    Raises:
        UsageError: the files are not one job.
        TracelabError: nothing could be analyzed.
    """
    plain = replace(options, fixes=(), edits=())
    report = merge_results(run(partial(analyze_file, options=plain), sources), paths, plain)
    if report.job is None:
        raise UsageError(
            f"whatif predicts the step of one file or of one job; these {len(sources)} files are "
            "not one job (`job` says that they are)",
            option="job",
        )
    fixes = choose_fixes(report.findings, options.fixes, options.edits)
    edited = (fix.edits for fix in fixes if fix.edits and fix.name != TOGETHER)
    texts = (of[0] if callable(of[0]) else JOINT.join(map(str, of)) for of in edited)
    edits = tuple(dict.fromkeys(texts))
    baseline = report.job.baseline
    if baseline is None or baseline.printed is None or baseline.not_replayed is not None:
        why = None if baseline is None else baseline.not_replayed
        unknown = WhatIf(PROFILED, None, Table(), why or "The ranks cannot be replayed together.")
        return replace(report, whatif=unknown)
    known: dict[str, Prediction] = {}
    if edits:
        changed = replace(plain, edits=edits, prices=False)
        results = run(partial(analyze_file, options=changed), sources)
        replayed = merge_results(results, paths, changed)
        known = {one.name: one for one in replayed.whatif.predictions} if replayed.whatif else {}
    basis = baseline.printed
    predictions = predictions_of(fixes, known, report.findings, basis.step_ns)
    return replace(report, whatif=WhatIf(basis.name, baseline.error, Table(predictions)))


def add_changes(
    options: Options,
    fixes: str | int | Sequence[str | int],
    edits: str | Callable[[Program], Program] | Sequence[str | Callable[[Program], Program]],
) -> Options:
    """Add changes to predict to options, given alone or in a list.

    Raises:
        UsageError: one of them is neither a fix nor an edit.
    """
    some_fixes = several("fixes", fixes, str | Integral)
    some_edits = several("edits", edits, str | Callable)
    if not (some_fixes or some_edits):
        some_fixes = [ALL]
    texts = tuple(map(str, some_fixes))
    require_choices(texts, some_edits)
    return replace(options, fixes=texts, edits=tuple(some_edits))


def analyze_file(
    source: Source,
    options: Options,
    *,
    measures: Sequence[Measure] = MEASURES,
    rules: Sequence[Rule] = RULES,
    remedies: Sequence[Remedy] = REMEDIES,
    then: Callable[[Analysis], Any] | None = None,
    may_be_saved: bool = False,
    is_alone: bool = False,
) -> FileResult:
    """Report on one of several files; an expected error is a result, so that others go on."""
    try:
        if may_be_saved and is_saved_report(source):
            return FileResult(source, load_source(source), is_saved=True)
        analysis = analyze_source(
            source, options, measures=measures, rules=rules, remedies=remedies
        )
        more = then(analysis) if then else None
        part = None if is_alone else attempt(analysis.failures, "job", lambda: analysis.part)
        return FileResult(source, analysis.report, part=part, more=more)
    except TracelabError as error:
        return FileResult(source, None, error)
    except Exception as error:
        if is_alone or isinstance(error, MemoryError | ImportError):
            raise
        sentence = f"{source.path}: tracelab failed on it, which is a bug ({place_of(error)})"
        return FileResult(source, None, CrashError(sentence))


def merge_results(results: Iterable[FileResult], paths: Sequence[str], options: Options) -> Report:
    """Merge the reports of many files; those that could not be analyzed stand in its provenance.

    Raises:
        UsageError: a saved report is not the only file.
        TracelabError: none could be analyzed; the first error.
    """
    results = _gathered(results)
    for result in results:
        if result.is_saved and len(results) > 1:
            raise UsageError(
                f"{result.source.path} is a saved report: it cannot be combined with other files"
            )
        if result.is_saved and result.report is not None:
            return result.report
    reports = [result.report for result in results if result.report is not None]
    parts = [result.part for result in results if result.report is not None]
    failed = [(result.source, result.error) for result in results if result.error is not None]
    if not reports:
        raise failed[0][1]
    unread = [UnreadFile(source.path, str(error)) for source, error in failed]
    return merge_reports(reports, parts, paths, options, unread)


def report_of_each_recording(
    results: Iterable[FileResult], report: Report, options: Options
) -> list[Report]:
    """Report on each job among files, and on each other file, where they are not one job."""
    decision = report.provenance.job
    if decision is None or decision.is_job or all(len(x) == 1 for x in decision.recordings):
        return [report]
    path_of = {trace.rank: trace.path for trace in report.traces}
    by_path = {result.source.path: result for result in results}
    return [
        merge_results([by_path[path_of[rank]] for rank in ranks], (), options)
        for ranks in decision.recordings
    ]


def _gathered(results: Iterable[FileResult]) -> list[FileResult]:
    in_turn = iter(results)
    gathered = list(islice(in_turn, MAX_RANKS))
    others = list(map(drop_program, in_turn))
    return [*map(drop_program, gathered), *others] if others else gathered


def drop_program(result: FileResult) -> FileResult:
    """Drop what is replayed only in a job of few ranks."""
    if result.part is None:
        return result
    return replace(result, part=replace(result.part, program=TOO_MANY_RANKS))
