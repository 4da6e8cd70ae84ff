"""The one list of what happens between a file and its report, in order: `STAGES`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.intervals import Int64Array
from tracelab.base.options import DEFAULTS, Options
from tracelab.base.text import counted
from tracelab.findings.attribution import find_all
from tracelab.findings.context import Context
from tracelab.findings.finding import Finding, is_same_place
from tracelab.findings.first_use import FirstUse, find_first_use
from tracelab.findings.fixes import choose_fixes, predict_choices
from tracelab.findings.notes import few_blocks, recording_start
from tracelab.findings.places import sentence_of, with_surroundings
from tracelab.findings.prices import Priced, changed_programs, price_findings
from tracelab.findings.recognition import Recognized, recognize
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.findings.savings import Savings
from tracelab.job.rank_part import RankPart, rank_part
from tracelab.measures import window_times
from tracelab.measures.blocking_calls import BlockingCallCosts, blocking_calls
from tracelab.measures.bubbles import Bubbles, bubbles, with_beginnings_as_edges
from tracelab.measures.critical_path import CriticalPath, critical_paths
from tracelab.measures.exposed import Exposed, exposed
from tracelab.measures.idle_culprits import idle_culprits
from tracelab.measures.measure import Measure
from tracelab.measures.registry import MEASURES
from tracelab.measures.serialized_streams import SerializedStreams, serialized_streams
from tracelab.measures.start_up import StartUp, start_up
from tracelab.measures.what_ran import what_ran
from tracelab.model.collectives import collectives
from tracelab.model.cuda_graphs.origins import Origins, origins
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import observe_host
from tracelab.model.losses import count_losses
from tracelab.model.phases import Phases
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline, build_timeline, only_launched
from tracelab.model.trace import ABSENT, Trace
from tracelab.read.cache import load_trace
from tracelab.read.parallel import read_trace_in_chunks
from tracelab.read.platforms import READ_PLATFORMS
from tracelab.read.reader import read_arguments
from tracelab.read.streams import Source
from tracelab.report.build import build_report, build_trace_info
from tracelab.report.schema import LaunchedOnly, Note, Report, WhatIf
from tracelab.simulate.baseline import Baseline, find_baseline
from tracelab.simulate.basis import find_basis
from tracelab.simulate.causal_profile import CausalMetrics, causal_profile
from tracelab.simulate.host_clock import host_clock
from tracelab.simulate.sites import Sites
from tracelab.system.stages import Stage, call, run_stages


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """One file, analyzed, with what its job, a picture or a closer look needs beside the report."""

    graph: Graph
    windows: tuple[Window, ...]
    lines: SourceLines
    origins: Origins
    blocking_calls: BlockingCallCosts
    bubbles: Bubbles
    exposed: Exposed
    critical_paths: tuple[CriticalPath, ...]
    baseline: Baseline
    sites: Sites | None
    part: RankPart
    report: Report

    @property
    def timeline(self) -> Timeline:
        """The GPU activities in order."""
        return self.graph.host.timeline

    def __repr__(self) -> str:
        name = self.timeline.trace.path.rpartition("/")[2]
        return f"<Analysis of {name}: {self.report!r}>"


# --- the stages ---

# Operators that only exist on Apple's GPUs.
_OF_APPLE = re.compile(r"aten::_?mps_")

_FIRST_USE = (
    "The trace has no steps, and most of it is first use: loading, planning, compiling. Record "
    "later steps."
)

# The stages that the times of a window rest on.
_FOR_WINDOW_TIMES = frozenset(
    ("host", "graph", "blocking_calls", "bubbles", "start_up", "exposed", "tables")
)


def read(source: Source, options: Options) -> Trace:
    """A file's events, from the cache if they are there."""
    read_file = load_trace if options.cache else read_trace_in_chunks
    return read_file(source, options.processes)


def order(trace: Trace, options: Options) -> Timeline:
    """A trace's GPU activities in order.

    Raises:
        UnreadableInputError: there is none.
    """
    timeline = build_timeline(
        trace, comm_patterns=options.comm_patterns, step_pattern=options.step_pattern
    )
    is_launched = bool((timeline.launch_id != ABSENT).any())
    if trace.info.platform not in ("", *READ_PLATFORMS) and not is_launched:
        raise UnreadableInputError(
            f"{trace.path}: a trace of {trace.info.platform}, in a format that tracelab does not "
            f"read; it reads torch.profiler traces of CUDA, ROCm, {', '.join(READ_PLATFORMS)}"
        )
    if not len(timeline.event_id):
        if any(map(_OF_APPLE.match, trace.strings)):
            raise UnreadableInputError(
                f"{trace.path}: {_events(trace)} of a program on Apple's MPS, whose GPU "
                "activity torch.profiler does not record"
            )
        # What was cut off may have held them; a whole file was recorded without the GPU.
        why = "" if trace.losses.get("truncated") else "; was ProfilerActivity.CUDA enabled?"
        raise UnreadableInputError(
            f"{trace.path}: {_events(trace)} and no GPU activity: nothing to analyze"
            f"{count_losses(trace.losses)}{why}"
        )
    return timeline


def _events(trace: Trace) -> str:
    return counted(len(trace), "CPU event", "CPU events")


def choose_windows(timeline: Timeline, options: Options) -> tuple[Window, ...]:
    """The whole trace and every step, or the only step that is asked for.

    Raises:
        UsageError: the file has no such step.
    """
    if options.step is None:
        return timeline.windows
    chosen = tuple(window for window in timeline.windows if window.step == options.step)
    if not chosen:
        numbers = [step.number for step in timeline.steps]
        known = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
        raise UsageError(
            f"{timeline.trace.path}: there is no step {options.step}; the file's steps are: {known}"
        )
    return chosen


def find_lines(trace: Trace, options: Options) -> SourceLines:
    """Where the program's source is looked for, to name lines.

    Raises:
        UsageError: a folder that is named as the source's is none.
    """
    for folder in options.source_folders:
        if not Path(folder).is_dir():
            raise UsageError(f"`source_folders`: {folder} is not a folder", option="source_folders")
    return SourceLines(
        (*options.source_folders, *trace.info.source_folders),
        trace.info.source_scopes,
        trace.info.source_texts,
    )


def all_bubbles(graph: Graph) -> Bubbles:
    """The idle time of the whole file: what is asked of one step needs that of the others, too."""
    return bubbles(graph)


def replay_unchanged(graph: Graph, first_use: FirstUse, options: Options) -> Baseline:
    """The steady steps as a replay reproduces them; nothing where nobody wants to know."""
    if not (options.prices or options.fixes or options.edits or options.profile_by):
        return Baseline(printed=find_basis(graph.host.timeline))
    return find_baseline(graph, _FIRST_USE if first_use.is_most else None)


def find_sites(
    graph: Graph,
    lines: SourceLines,
    baseline: Baseline,
    recognized: Recognized,
    first_use: FirstUse,
) -> Sites | None:
    """What the places of edits stand for; None where nothing can be replayed."""
    if baseline.program is None:
        return None
    return Sites(
        graph,
        lines,
        baseline.program,
        baseline.loose,
        recognized.places,
        first_use.event_id,
    )


def fill_tables(
    measures: Sequence[Measure], results: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """The rows of every measure, by the key of its table."""
    return {measure.key: tuple(call(measure.rows, results)) for measure in measures}


def measure_launched_only(
    timeline: Timeline, options: Options, stages: Sequence[Stage]
) -> LaunchedOnly | None:
    """The whole trace by the same stages, without the activities whose launch is not in the file.

    None where that is no activity, or all of them.
    """
    left_out = int((timeline.launch_id == ABSENT).sum())
    if not 0 < left_out < len(timeline.event_id):
        return None
    launched = only_launched(timeline, options.comm_patterns)
    given = {
        "timeline": launched,
        "windows": launched.windows[:1],
        "measures": (window_times.MEASURE,),
    }
    needed = [stage for stage in stages if stage.name in _FOR_WINDOW_TIMES]
    [window] = run_stages(needed, given)["tables"]["windows"]
    return LaunchedOnly(window.start_ns, window.end_ns, left_out, window.devices)


def choose_rank(trace: Trace) -> int:
    """The rank that the file or its name gives, else 0."""
    return trace.info.rank or 0


def look_at(
    source: Source,
    graph: Graph,
    origins: Origins,
    windows: tuple[Window, ...],
    rank: int,
    bubbles: Bubbles,
    start_up: StartUp,
    idle_culprits: Int64Array,
    exposed: Exposed,
    serialized_streams: SerializedStreams,
    phases: Phases,
    blocking_calls: BlockingCallCosts,
    lines: SourceLines,
    recognized: Recognized,
    first_use: FirstUse,
) -> Context:
    """What the rules look at: the steady window.

    Of a file without steady steps it is the whole trace, and of a report of one step the step.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    [window, *_] = windows
    if window.step is None and timeline.steady is not None:
        window = timeline.steady.window
    return Context(
        graph=graph,
        origins=origins,
        window=window,
        rank=rank,
        bubbles=with_beginnings_as_edges(timeline, bubbles),
        start_up=start_up,
        idle_culprits=idle_culprits,
        exposed=exposed,
        serialized_streams=serialized_streams,
        phases=phases,
        blocking_calls=blocking_calls,
        losses=trace.losses,
        lines=lines,
        recognized=recognized,
        first_use=first_use,
        arguments=partial(_arguments, source, trace),
    )


def find_pitfalls(graph: Graph, remedies: Sequence[Remedy], source: Source) -> Recognized:
    """What remedies are recognized by in the file."""
    return recognize(graph, remedies, partial(_arguments, source, graph.host.timeline.trace))


def find_origins(timeline: Timeline, lines: SourceLines, source: Source) -> Origins:
    """Where in the program the nodes of CUDA graphs were captured."""
    return origins(timeline, lines, partial(_arguments, source, timeline.trace))


def findings_of(priced: Priced, graph: Graph, lines: SourceLines) -> tuple[Finding, ...]:
    """The findings, with what they save, and what the source says of their places."""
    return with_surroundings(priced.findings, graph.host.timeline, lines)


def savings_of(priced: Priced) -> tuple[Savings, ...]:
    """What their fixes save together."""
    return priced.savings


def take_notes(
    context: Context,
    rules: Sequence[Rule],
    findings: tuple[Finding, ...],
    baseline: Baseline,
    sites: Sites | None,
) -> tuple[Note, ...]:
    """What to know beside the findings."""
    texts = (
        _other_story(context, rules, findings, baseline, sites),
        few_blocks(context),
        recording_start(context),
    )
    return tuple(Note(context.rank, context.window.step, text) for text in texts if text)


def _other_story(
    context: Context,
    rules: Sequence[Rule],
    findings: tuple[Finding, ...],
    baseline: Baseline,
    sites: Sites | None,
) -> str:
    """Why the first finding of a step is not that of the steady steps; "" if it is."""
    steady = context.timeline.steady
    if context.window.step is None or steady is None:
        return ""
    in_steady = replace(context, window=steady.window)
    of_steady = price_findings(find_all(in_steady, rules), baseline, sites, in_steady).findings
    first, of_step = (
        next((x for x in some if x.about == "program"), None) for some in (of_steady, findings)
    )
    if first is None or (of_step and is_same_place(of_step, first)):
        return ""
    alike = next((x for x in findings if is_same_place(x, first)), None)
    share = 100 * alike.bound_ns / max(1, context.window.length_ns) if alike else 0.0
    seen = f", in {first.steps_seen} of {len(steady.indices)} of them" if first.steps_seen else ""
    return (
        f"This step has {share:.1f} % of the steady steps' first finding, {first.rule}{seen}: "
        f"{sentence_of(first.title, first.where)}."
    )


def predict_changes(
    baseline: Baseline, sites: Sites | None, findings: tuple[Finding, ...], options: Options
) -> WhatIf | None:
    """What the steady steps would take with the changes that are asked for; None without any."""
    if not (options.fixes or options.edits):
        return None
    fixes = choose_fixes(findings, options.fixes, options.edits)
    return WhatIf(
        basis=baseline.printed_basis.name,
        baseline_error=baseline.error,
        predictions=() if sites is None else predict_choices(baseline, sites, fixes, findings),
        not_replayed=baseline.not_replayed,
        is_of_trace=baseline.is_share,
    )


def profile_causes(
    baseline: Baseline, sites: Sites | None, findings: tuple[Finding, ...], options: Options
) -> tuple[CausalMetrics, ...]:
    """The causal profile that is asked for; no rows without."""
    if options.profile_by is None or sites is None:
        return ()
    return causal_profile(baseline, sites, options.profile_by, findings)


STAGES: tuple[Stage, ...] = (
    # read
    Stage("trace", read),
    # model
    Stage("timeline", order),
    Stage("host", observe_host),
    Stage("graph", build_graph),
    Stage("collectives", collectives),
    Stage("windows", choose_windows),
    Stage("lines", find_lines),
    Stage("origins", find_origins),
    # measure
    Stage("blocking_calls", blocking_calls),
    Stage("bubbles", all_bubbles),
    Stage("start_up", start_up),
    Stage("idle_culprits", idle_culprits),
    Stage("exposed", exposed),
    Stage("serialized_streams", serialized_streams),
    Stage("critical_paths", critical_paths),
    Stage("phases", Phases),
    # recognize
    Stage("recognized", find_pitfalls),
    Stage("first_use", find_first_use),
    # replay
    Stage("baseline", replay_unchanged),
    Stage("sites", find_sites),
    Stage("host_clock", host_clock),
    Stage("what_ran", what_ran),
    Stage("tables", fill_tables),
    Stage("launched_only", measure_launched_only),
    # find
    Stage("rank", choose_rank),
    Stage("context", look_at),
    Stage("found", find_all),
    Stage("priced", price_findings),
    Stage("findings", findings_of),
    Stage("savings", savings_of),
    Stage("notes", take_notes),
    # predict what is asked for
    Stage("whatif", predict_changes),
    Stage("causal", profile_causes),
    # what its job needs of it
    Stage("changes", changed_programs),
    Stage("part", rank_part),
    # report
    Stage("trace_info", build_trace_info),
    Stage("report", build_report),
)


# --- running them ---


def analyze_source(
    source: Source,
    options: Options = DEFAULTS,
    *,
    measures: Sequence[Measure] = MEASURES,
    rules: Sequence[Rule] = RULES,
    remedies: Sequence[Remedy] = REMEDIES,
    stages: Sequence[Stage] = STAGES,
) -> Analysis:
    """Analyze one file.

    Args:
        source: the file.
        options: what to measure.
        measures: the tables of the report.
        rules: what finds something in it.
        remedies: the pitfalls that are recognized in it.
        stages: what happens in between.

    Raises:
        UnreadableInputError: it is not a trace, or it holds no GPU activity.
        UsageError: a pattern is wrong, or the step asked for is not in the file.
    """
    given = {
        "source": source,
        "options": options,
        "measures": measures,
        "rules": rules,
        "remedies": remedies,
        "stages": stages,
    }
    results = run_stages(stages, given)
    return Analysis(**{field.name: results[field.name] for field in fields(Analysis)})


def _arguments(source: Source, trace: Trace, event_ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The arguments of a few events by event id, empty where the file has none."""
    file_indices = {event_id: int(trace.file_index[event_id]) for event_id in event_ids}
    arguments = read_arguments(source, file_indices.values())
    return {event_id: arguments.get(index, {}) for event_id, index in file_indices.items()}
