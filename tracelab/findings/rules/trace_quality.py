"""TL901 to TL910: what the trace itself lacks, and what that does to the other numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import numpy as np

from tracelab.findings.facts import Context
from tracelab.findings.finding import INFO, WARNING, Finding, Where
from tracelab.findings.rule import Candidate, Rule
from tracelab.model.host import Blocking
from tracelab.model.lookup import match_names
from tracelab.model.losses import LOSSES
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

_SYNCHRONIZES = (Blocking.DEVICE, Blocking.STREAM, Blocking.EVENT)
OTHER_RANKS = "TL909"
_MUCH = 0.05  # of the GPU's busy time: so much without a launch spoils the causes

# What a rule says: how many, what, and the severity; None to stay silent.
Answer = tuple[int, str, str] | None


def is_about_the_trace(finding: Finding) -> bool:
    """Whether a finding is about the trace itself, not about where time is lost."""
    return finding.rule.startswith("TL9")


def _damaged(facts: Context) -> Answer:
    return _lost(facts, "damage")


def _no_sync_rows(facts: Context) -> Answer:
    trace = facts.trace
    if len(trace.of_category(Category.SYNC)):
        return None
    blocking = facts.graph.host.blocking_calls  # without the profiler's own and NCCL's watchdog's
    host_calls = trace.of_category(*HOST_CALLS)
    calls = int(match_names(trace, host_calls, lambda x: "StreamWaitEvent" in x).sum())
    calls += int(np.isin(blocking.kind, _SYNCHRONIZES).sum())
    return (
        (calls, f"{calls} waits and synchronizes stand in the trace as calls alone", INFO)
        if calls
        else None
    )


def _no_stacks(facts: Context) -> Answer:
    if len(facts.trace.of_category(Category.PYTHON)):
        return None
    return 1, "no Python functions were recorded", INFO


def _unresolved(facts: Context) -> Answer:
    count = facts.graph.links.unresolved
    return (count, f"{count} stream waits do not say what they waited for", INFO) if count else None


def _without_launch(facts: Context) -> Answer:
    timeline = facts.timeline
    lone = timeline.launch_id == ABSENT
    length = (timeline.end_ns - timeline.start_ns).astype(float)
    share = float(length[lone].sum() / max(1.0, length.sum()))
    told = f"{int(lone.sum())} GPU activities ({100 * share:.1f} % of their time) have no launch"
    return (int(lone.sum()), told, WARNING if share >= _MUCH else INFO) if lone.any() else None


def _overlapping(facts: Context) -> Answer:
    count = facts.timeline.overlapping_count
    told = f"{count} activities begin before the one before them in their stream has ended"
    return (count, told, INFO) if count else None


def _before_launch(facts: Context) -> Answer:
    count = started_before_launch(facts.timeline)
    told = f"{count} activities begin before their launch: the host's clock and the GPU's disagree"
    return (count, told, WARNING) if count else None


def started_before_launch(timeline: Timeline) -> int:
    """How many activities start before the call that launched them."""
    launched = timeline.launch_id != ABSENT
    called = timeline.trace.start_ns[timeline.launch_id[launched]]
    return int((timeline.start_ns[launched] < called).sum())


def _bad_times(facts: Context) -> Answer:
    return _lost(facts, "times")


def _lost(facts: Context, group: str) -> Answer:
    """What was lost of a group: warnings first, and one of them makes it a warning."""
    losses = [loss for loss in LOSSES if loss.group == group and facts.losses.get(loss.name)]
    if not losses:
        return None
    losses.sort(key=lambda loss: loss.severity != WARNING)
    count = sum(facts.losses[loss.name] for loss in losses)
    return count, "; ".join(loss.text for loss in losses), losses[0].severity


def _other_ranks(facts: Context) -> Answer:
    size = facts.trace.info.world_size
    if size is None or size < 2:
        return None
    return size, f"this is one rank of {size}", INFO


def _profiler(facts: Context) -> Answer:
    if facts.unprofiled_ns is None or facts.unprofiled_step_ns is None:
        return None
    steps = [x.end_ns - x.start_ns for x in facts.timeline.steps]
    profiled_ms, unprofiled_ms = statistics.median(steps) / 1e6, facts.unprofiled_step_ns / 1e6
    told = f"a step takes {profiled_ms:.2f} ms here and {unprofiled_ms:.2f} ms without the profiler"
    return 1, told, INFO


def _claims(
    ask: Callable[[Context], Answer], cause: str, fix: str, facts: Context
) -> list[Candidate]:
    answer = ask(facts)
    if answer is None:
        return []
    count, told, severity = answer
    title = told[0].upper() + told[1:]
    return [Candidate(title, cause, Where(count), (), fix, severity_override=severity)]


def _rule(
    number: int, name: str, matters: str, decides: str, fix: str, ask: Callable[[Context], Answer]
) -> Rule:
    cause = name.replace(" ", "_")
    return Rule(
        id=f"TL{number}",
        name=name,
        matters=matters,
        decides=decides,
        before="",
        after="",
        fix=fix,
        find=partial(_claims, ask, cause, fix),
    )


QUALITY_RULES = (
    _rule(
        901,
        "damaged file",
        "What could not be read is in no number: times and counts are those of the rest.",
        "It counts what the reader had to leave out or mend; the report's losses list it.",
        "Record again, fewer steps; look for a full disk or a killed process.",
        _damaged,
    ),
    _rule(
        902,
        "no synchronisation rows",
        "Without them no stream is known to have waited, so idle that was a dependency is "
        "`unknown`, and overlap that an event prevented looks like late work.",
        "The file has calls that wait and no row of CUPTI that says for what.",
        "`torch.profiler.profile(..., experimental_config=torch._C._profiler._ExperimentalConfig("
        "enable_cuda_sync_events=True))`, or `tracelab.capture`.",
        _no_sync_rows,
    ),
    _rule(
        903,
        "no Python stacks",
        "Findings name operators and calls of CUDA, not functions and lines.",
        "The file holds no Python function.",
        "`with_stack=True`; it slows the host, so compare times without it.",
        _no_stacks,
    ),
    _rule(
        904,
        "unresolved waits",
        "What those streams waited for is not known: their idle may be `unknown`, and the critical "
        "path may take another way.",
        "It counts the stream waits whose record the file does not name and that could not be "
        "inferred either: most of them delayed nothing.",
        "`tracelab.capture` brings the records back.",
        _unresolved,
    ),
    _rule(
        905,
        "launches before the recording",
        "They are busy time, but belong to no step, and idle before them has no known cause.",
        "It counts the activities whose launch is not in the file; from 5 % of the activities' "
        "time on it warns.",
        "Synchronize before the first recorded step; `tracelab.capture` does.",
        _without_launch,
    ),
    _rule(
        906,
        "overlapping activities",
        "One stream runs one activity at a time, except where the launch lets the next one begin "
        "early. These overlap without that: their common time is counted once.",
        "It counts the activities that begin before the one before them in their stream ends, "
        "without those under programmatic dependent launch or within one CUDA graph.",
        "Look whether two processes share the file; record each into its own.",
        _overlapping,
    ),
    _rule(
        907,
        "kernels before their launch",
        "Clocks that disagree shift the host against the GPU: causes that rest on both, "
        "`host_busy` and `launch` above all, are off by as much.",
        "It counts the activities that begin before the call that launched them.",
        "Update the driver and PyTorch; record again.",
        _before_launch,
    ),
    _rule(
        908,
        "impossible times",
        "Events with a negative or an absurd length are in no number.",
        "It counts what the reader left out for its times.",
        "Record again; a clock of the machine may have wrapped or been set.",
        _bad_times,
    ),
    _rule(
        909,
        "other ranks",
        "A collective on this rank lasts until the slowest rank has come: one file cannot tell "
        "waiting from transferring.",
        "The file says how many ranks there were, and not all of them were given.",
        "Record every rank, and analyse their files together.",
        _other_ranks,
    ),
    _rule(
        910,
        "profiler overhead",
        "The profiler slows the host, so idle that waits for the host is longer here than in the "
        "real step. TL301's bound leaves that out.",
        "It compares the median step with the time of a step that the capture measured without "
        "the profiler, and speaks from 10 % on.",
        "Record without stacks and shapes to come closer to the real step.",
        _profiler,
    ),
)
