"""Measurements of one file, each made when it is first used: `Measured`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.options import DEFAULTS, Options
from tracelab.base.safe_text import counted
from tracelab.measures.blocking_calls import BlockingCallCosts, blocking_calls
from tracelab.measures.critical_path import CriticalPath, critical_paths
from tracelab.measures.exposed import Exposed, exposed
from tracelab.measures.idle_causes import Bubbles, bubbles
from tracelab.measures.idle_culprits import IdleCulprits, idle_culprits
from tracelab.measures.overlap_blockers import SerializedStreams, serialized_streams
from tracelab.measures.unprofiled_windows import StartUp, start_up
from tracelab.model.collectives import Collectives, collectives
from tracelab.model.cuda_graphs import Origins, origins
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import Host, observe_host
from tracelab.model.losses import DAMAGE, LossName, count_losses
from tracelab.model.phases import Phases
from tracelab.model.program.source_lines import SourceLines, readable_folders
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline, build_timeline
from tracelab.model.trace import ABSENT, Trace
from tracelab.read.cache import load_trace
from tracelab.read.json.metadata import READ_PLATFORMS
from tracelab.read.reader import read_arguments, read_trace_in_chunks
from tracelab.read.streams import Source

# Operators that only exist on Apple's GPUs.
_OF_APPLE = re.compile(r"aten::_?mps_")


class Measured:
    """One file, read, linked and measured.

    Each property is computed when it is first used, and then kept; one that is assigned before is
    not computed. `failures` is what bugs cost: names of the loss `failed_parts`.

    >>> from tracelab.read.sources import find_sources
    >>> [source] = find_sources(["traces/events_item.pt.trace.json.gz"])
    >>> Measured(source), len(Measured(source).windows)
    (<Measured of events_item.pt.trace.json.gz>, 6)
    """

    def __init__(self, source: Source, options: Options = DEFAULTS) -> None:
        self.source, self.options = source, options
        self.failures: list[LossName] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.source.path.rpartition('/')[2]}>"

    @cached_property
    def trace(self) -> Trace:
        """The file's events, from the cache if they are there."""
        read_file = load_trace if self.options.cache else read_trace_in_chunks
        return read_file(self.source, self.options.processes)

    def arguments(self, event_ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Read the "args" of a few events from the file, by event id, where they have any."""
        trace = self.trace
        file_indices = {event_id: int(trace.file_index[event_id]) for event_id in event_ids}
        is_whole = not any(map(trace.losses.get, DAMAGE))
        found = read_arguments(self.source, file_indices.values(), is_whole=is_whole)
        return {event_id: found.get(index, {}) for event_id, index in file_indices.items()}

    @cached_property
    def rank(self) -> int:
        """The rank that the file or its name gives, else 0."""
        return self.trace.info.rank or 0

    @cached_property
    def lines(self) -> SourceLines:
        """The program's source; a UsageError where the options name no folder."""
        folders, info = self.options.source, self.trace.info
        for folder in folders:
            if not Path(folder).is_dir():
                raise UsageError(f"`source`: {folder} is not a folder", option="source")
        return SourceLines(
            (*folders, *info.source_folders),
            info.source_scopes,
            info.source_texts,
            within=self.options.source_within or readable_folders(folders),
        )

    @cached_property
    def timeline(self) -> Timeline:
        """The GPU activities in order; an UnreadableInputError without any."""
        return order(self.trace, self.options)

    @cached_property
    def host(self) -> Host:
        """The work of the CPU's threads."""
        return observe_host(self.timeline)

    @cached_property
    def graph(self) -> Graph:
        """The dependencies between what ran."""
        return build_graph(self.host)

    @cached_property
    def collectives(self) -> Collectives:
        """The collective operations of this rank."""
        return collectives(self.timeline)

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The whole trace and every step, or the only step that the options name."""
        step, timeline = self.options.step, self.timeline
        if step is None:
            return timeline.windows
        chosen = tuple(window for window in timeline.windows if window.step == step)
        if not chosen:
            numbers = [step.number for step in timeline.steps]
            known = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
            raise UsageError(
                f"{timeline.trace.path}: there is no step {step}; the file's steps are: {known}"
            )
        return chosen

    @cached_property
    def origins(self) -> Origins:
        """The places in the program where the nodes of CUDA graphs were captured."""
        return origins(self.timeline, self.lines)

    @cached_property
    def phases(self) -> Phases:
        """The phases of a step that the host was in."""
        return Phases(self.host)

    @cached_property
    def blocking_calls(self) -> BlockingCallCosts:
        """The blocking calls, and what they cost."""
        return blocking_calls(self.graph, self.lines)

    @cached_property
    def bubbles(self) -> Bubbles:
        """The idle time of the whole file: the measures of one step need that of the others."""
        return bubbles(self.graph)

    @cached_property
    def start_up(self) -> StartUp:
        """The idle time that is there because the recording had just begun."""
        return start_up(self.graph, self.bubbles)

    @cached_property
    def idle_culprits(self) -> IdleCulprits:
        """The culprits of the idle time of the whole file."""
        return idle_culprits(self.graph, self.bubbles)

    @cached_property
    def exposed(self) -> Exposed:
        """The exposed communication and copies of the whole file."""
        return exposed(self.graph)

    @cached_property
    def serialized_streams(self) -> SerializedStreams:
        """The streams of a device that ran one after the other, in the whole file."""
        return serialized_streams(self.graph)

    @cached_property
    def critical_paths(self) -> tuple[CriticalPath, ...]:
        """The critical path of each window."""
        return critical_paths(self.graph, self.windows)


def order(trace: Trace, options: Options) -> Timeline:
    """Order a trace's GPU activities; an UnreadableInputError without any."""
    timeline = build_timeline(
        trace, comm_patterns=options.comm_pattern, step_pattern=options.step_on
    )
    is_launched = bool((timeline.launch_id != ABSENT).any())
    if trace.info.platform not in ("", *READ_PLATFORMS) and not is_launched:
        raise UnreadableInputError(
            f"{trace.path}: a trace of {trace.info.platform}, in a format that tracelab does not "
            f"read; it reads torch.profiler traces of CUDA, ROCm, {', '.join(READ_PLATFORMS)}"
        )
    if not len(timeline.event_id):
        events = counted(len(trace), "CPU event", "CPU events")
        if any(map(_OF_APPLE.match, trace.strings)):
            raise UnreadableInputError(
                f"{trace.path}: {events} of a program on Apple's MPS, whose GPU "
                "activity torch.profiler does not record"
            )
        # What was cut off may have held them; a whole file was recorded without the GPU.
        why = "" if trace.losses.get("truncated") else "; was ProfilerActivity.CUDA enabled?"
        raise UnreadableInputError(
            f"{trace.path}: {events} and no GPU activity: nothing to analyze"
            f"{count_losses(trace.losses)}{why}"
        )
    return timeline
