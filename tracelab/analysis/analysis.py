"""One file from its events to its report: `Analysis`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from tracelab.base.options import DEFAULTS, Options, require_types
from tracelab.findings.attribution import find_all
from tracelab.findings.candidates import Candidate
from tracelab.findings.context import Context
from tracelab.findings.finding import Finding, is_same_place
from tracelab.findings.fixes import choose_fixes, predict_choices
from tracelab.findings.places import add_surroundings, sentence_of
from tracelab.findings.prices import Priced, changed_programs, price_findings
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.findings.rules.serialized_streams import few_blocks
from tracelab.findings.rules.untypical_time import recording_start
from tracelab.job.part import RankPart, rank_part
from tracelab.measures import window_times
from tracelab.measures.measure import Measure
from tracelab.measures.measured import Measured
from tracelab.measures.registry import MEASURES
from tracelab.measures.unprofiled_windows import HostClock
from tracelab.measures.what_ran import WhatRan, what_ran
from tracelab.model.losses import attempt
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline, only_launched
from tracelab.model.trace import ABSENT
from tracelab.read.sources import Given, one_source
from tracelab.read.streams import Source
from tracelab.report.build import build_report, build_trace_info
from tracelab.report.schema import LaunchedOnly, Note, Report, Table, TraceInfo, WhatIf
from tracelab.simulate.baseline import Baseline, find_baseline, find_basis
from tracelab.simulate.causal_profile import CausalMetrics, causal_profile
from tracelab.simulate.host_clock import host_clock
from tracelab.simulate.program import Edited
from tracelab.simulate.sites import Sites

_MAY_FAIL = tuple(measure for measure in MEASURES if measure is not window_times.WINDOWS)
_FAILED = "The replay failed, which is a bug in tracelab."
_FIRST_USE = (
    "The trace has no steps, and most of it is first use: loading, planning, compiling. Record "
    "later steps."
)


class Analysis(Context):
    """One file, analyzed: its measurements, findings, prices and report, each made when used."""

    def __init__(
        self,
        source: Source,
        options: Options = DEFAULTS,
        *,
        measures: Sequence[Measure] = MEASURES,
        rules: Sequence[Rule] = RULES,
        remedies: Sequence[Remedy] = REMEDIES,
    ) -> None:
        super().__init__(source, options)
        self.measures, self.rules, self.remedies = measures, rules, remedies

    def open(self) -> Analysis:
        """Read the file and its steps; everything that can refuse the file, does so here."""
        _ = self.timeline, self.windows, self.lines
        return self

    @cached_property
    def baseline(self) -> Baseline:
        """The steady steps as a replay reproduces them; none if no prediction is requested."""
        options = self.options
        if not (options.prices or options.fixes or options.edits or options.profile_by):
            return Baseline(printed=find_basis(self.timeline))
        why_not = _FIRST_USE if self.first_use.is_most else None
        found = attempt(self.failures, "replay", lambda: find_baseline(self.graph, why_not))
        return found or _failed(self.timeline)

    @cached_property
    def sites(self) -> Sites | None:
        """The places of edits in the replayed program; None if nothing can be replayed."""
        baseline = self.baseline
        if (program := baseline.program) is None:
            return None
        of_file = self.recognized.places, self.first_use.event_id

        def make() -> Sites:
            return Sites(self.graph, self.lines, program, baseline.loose, *of_file)

        return attempt(self.failures, "replay", make)

    @cached_property
    def host_clock(self) -> HostClock | None:
        """The host's time without the profiler; None if it is not known."""
        return attempt(
            self.failures,
            "host times without the profiler",
            lambda: host_clock(self.graph, self.phases, self.baseline),
        )

    @cached_property
    def what_ran(self) -> WhatRan:
        """The launched work and the host's time, by operator, phase, line and module."""
        return what_ran(
            self.graph,
            self.windows,
            self.phases,
            self.lines,
            self.bubbles,
            self.host_clock,
            self.origins,
        )

    @cached_property
    def tables(self) -> dict[str, tuple[Any, ...]]:
        """The rows of every measure, by the key of its table."""
        return {measure.key: self._rows(measure) for measure in self.measures}

    def _rows(self, measure: Measure) -> tuple[Any, ...]:
        make = partial(self._call, measure)
        return attempt(self.failures, measure.key, make) or () if measure in _MAY_FAIL else make()

    def _call(self, measure: Measure) -> tuple[Any, ...]:
        parameters = inspect.signature(measure.rows).parameters.values()
        given = (x.name for x in parameters if x.default is x.empty or x.name in _NAMES)
        return tuple(measure.rows(**{name: getattr(self, name) for name in given}))

    @cached_property
    def launched_only(self) -> LaunchedOnly | None:
        """The whole trace without activities whose launch is not in the file; None without any."""
        return attempt(self.failures, "the trace without unlaunched work", self._launched_only)

    def _launched_only(self) -> LaunchedOnly | None:
        left_out = int((self.timeline.launch_id == ABSENT).sum())
        if not 0 < left_out < len(self.timeline.event_id):
            return None
        x = Measured(self.source, self.options)
        x.trace, x.lines = self.trace, self.lines
        x.timeline = only_launched(self.timeline, self.options.comm_pattern)
        [window] = window_times.window_times(
            x.graph, x.timeline.windows[:1], x.bubbles, x.start_up, x.exposed, x.blocking_calls
        )
        return LaunchedOnly(window.start_ns, window.end_ns, left_out, window.devices)

    @cached_property
    def found(self) -> tuple[Finding, ...]:
        """The findings by the share of time that is attributed to them."""
        return find_all(self, [self._guard(x) if x in RULES else x for x in self.rules])

    def _guard(self, rule: Rule) -> Rule:
        def find(context: Context) -> list[Candidate]:
            return attempt(self.failures, rule.id, lambda: rule.find(context)) or []

        return replace(rule, find=find)

    @cached_property
    def priced(self) -> Priced:
        """The findings with what they save, and what they save together."""
        found = self.found
        priced = attempt(
            self.failures, "savings", lambda: price_findings(found, self.baseline, self.sites, self)
        )
        return priced or price_findings(found, _failed(self.timeline), None, self)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, with what they save, and what the source says of their places."""
        found = self.priced.findings
        located = attempt(
            self.failures,
            "source of findings",
            lambda: add_surroundings(found, self.timeline, self.lines),
        )
        return located or found

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Facts to know in addition to the findings."""
        return attempt(self.failures, "notes", self._notes) or ()

    def _notes(self) -> tuple[Note, ...]:
        texts = (self._other_story(), few_blocks(self), recording_start(self))
        return tuple(Note(self.rank, self.window.step, text) for text in texts if text)

    def _other_story(self) -> str:
        """Say why the first finding of a step is not that of the steady steps; "" if it is."""
        findings, steady = self.findings, self.timeline.steady
        if self.window.step is None or steady is None:
            return ""
        of_steady = self._steady_analysis(steady.window).priced.findings
        first, of_step = (
            next((x for x in some if x.about == "program"), None) for some in (of_steady, findings)
        )
        if first is None or (of_step and is_same_place(of_step, first)):
            return ""
        alike = next((x for x in findings if is_same_place(x, first)), None)
        share = 100 * alike.bound_ns / max(1, self.window.length_ns) if alike else 0.0
        of_steps = len(steady.indices)
        seen = f", in {first.steps_seen} of {of_steps} of them" if first.steps_seen else ""
        return (
            f"This step has {share:.1f} % of the steady steps' first finding, {first.rule}{seen}: "
            f"{sentence_of(first.title, first.where)}."
        )

    def _steady_analysis(self, window: Window) -> Analysis:
        shared = {*vars(Measured), "recognized", "first_use", "baseline", "sites"}
        steady = Analysis(self.source, self.options, rules=self.rules, remedies=self.remedies)
        vars(steady).update({name: x for name, x in vars(self).items() if name in shared})
        steady.window, steady.failures = window, self.failures
        return steady

    @cached_property
    def whatif(self) -> WhatIf | None:
        """The steady steps with the changes that the options name; None without any."""
        return predict_changes(self.baseline, self.sites, self.findings, self.options)

    @cached_property
    def causal(self) -> tuple[CausalMetrics, ...]:
        """The causal profile that the options name; no rows without."""
        if self.options.profile_by is None or self.sites is None:
            return ()
        savings = ((x.rule, x.edit, x.saves_ns) for x in self.findings)
        return causal_profile(self.baseline, self.sites, self.options.profile_by, savings)

    @cached_property
    def changes(self) -> dict[str, Edited]:
        """The steady steps with the edit of each finding, by its text, and with all of them."""
        return changed_programs(self.findings, self.baseline, self.sites, self.options)

    @cached_property
    def part(self) -> RankPart:
        """The columns of this rank that its job needs."""
        return rank_part(
            self.graph,
            self.phases,
            self.collectives,
            self.bubbles,
            self.idle_culprits,
            self.exposed,
            self.lines,
            self.rank,
            self.windows,
            self.baseline,
            self.changes,
        )

    @cached_property
    def trace_info(self) -> TraceInfo:
        """The source of the file, how much is in it, what was lost."""
        return build_trace_info(self.graph, self.rank, self.launched_only, self.options)

    @cached_property
    def report(self) -> Report:
        """The report of the file."""
        return build_report(
            self.trace_info,
            self.tables,
            self.findings,
            self.notes,
            self.priced.savings,
            self.whatif,
            self.causal,
            self.options,
            self.failures,
        )


def _failed(timeline: Timeline) -> Baseline:
    return Baseline(printed=find_basis(timeline), not_replayed=_FAILED)


STAGES: tuple[str, ...] = tuple(
    name
    for kind in (Measured, Context, Analysis)
    for name, member in vars(kind).items()
    if isinstance(member, cached_property)
)
"""The properties of an `Analysis` in the order in which they are defined, to list and to time."""

_NAMES = frozenset((*STAGES, "source", "options", "measures", "rules", "remedies"))


def analyze_source(
    source: Given,
    options: Options = DEFAULTS,
    *,
    measures: Sequence[Measure] = MEASURES,
    rules: Sequence[Rule] = RULES,
    remedies: Sequence[Remedy] = REMEDIES,
) -> Analysis:
    """Read one file, to be analyzed as far as its properties are used.

    Args:
        source: a file, a URL, bytes or an open file.
        options: what to measure.
        measures: the tables of the report.
        rules: the rules that find something in it.
        remedies: the pitfalls that are recognized in it.

    Example:
        >>> analyze_source("traces/events_item.pt.trace.json.gz").report.findings[0].rule
        'TL101'

    Raises:
        UnreadableInputError: it is not a trace, or it holds no GPU activity.
        UsageError: a pattern is wrong, or the requested step is not in the file.
    """
    require_types(options=(options, Options))
    file = one_source(source, max_unpacked_bytes=options.max_unpacked_bytes)
    return Analysis(file, options, measures=measures, rules=rules, remedies=remedies).open()


def predict_changes(
    baseline: Baseline, sites: Sites | None, findings: Sequence[Finding], options: Options
) -> WhatIf | None:
    """Predict the steady steps with the changes that are requested; None without any."""
    if not (options.fixes or options.edits):
        return None
    fixes = choose_fixes(findings, options.fixes, options.edits)
    predictions = predict_choices(baseline, sites, fixes, findings) if sites is not None else ()
    return WhatIf(
        basis=baseline.printed.name,
        baseline_error=baseline.error,
        predictions=Table(predictions),
        not_replayed=baseline.not_replayed,
        is_of_trace=baseline.is_share,
    )
