"""Losses: all ways in which a part of a file fails to reach the figures, and its names in the file.

The names come from the file: there may be many, and they may be long, or anything at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np

from tracelab.base.arrays import OneLine, dataclass
from tracelab.model.trace import Category, Trace


@dataclass(frozen=True, slots=True, repr=False)
class Loss(OneLine):
    """A kind of loss; a report counts how often it happened.

    Example: ``Loss("negative_durations", "warning", "reader", "events with a negative duration
    were left out", group="times")``.

    Attributes:
        name: its key in a report's losses.
        severity: what it alone makes of a trace; a rule of its own may judge by the share.
        source: the stage that finds it.
        text: what is missing, and what that means.
        counted: whether its count says something; False for what happens to a file once.
        group: those of one group are judged together; None where a rule is about it alone.
    """

    name: str
    severity: Literal["info", "warning"]
    source: Literal["reader", "timeline", "graph"]
    text: str
    counted: bool = True
    group: Literal["damage", "times", "unknown"] | None = None


# In the order of a report. A loss that is zero is not listed there.
LOSSES = (
    Loss(
        "truncated",
        "warning",
        "reader",
        "the file is truncated: the events after that point are missing",
        counted=False,
        group="damage",
    ),
    Loss(
        "unparsable_events",
        "warning",
        "reader",
        "events that are not valid JSON were left out",
        group="damage",
    ),
    Loss(
        "repairs",
        "info",
        "reader",
        "places that were not valid JSON (bare nan or inf, bare quotes or backslashes, "
        "broken UTF-8, stray commas) were repaired and used",
        group="damage",
    ),
    Loss(
        "incomplete_events",
        "warning",
        "reader",
        "events without a name, a time or a duration were left out",
        group="damage",
    ),
    Loss(
        "negative_durations",
        "warning",
        "reader",
        "events with a negative duration were left out",
        group="times",
    ),
    Loss(
        "absurd_times",
        "warning",
        "reader",
        "events with an impossible time or duration were left out",
        group="times",
    ),
    Loss(
        "endless_functions",
        "info",
        "reader",
        "Python functions that would end after the function that called them were left out: "
        "the profiler missed their end, as it does in code of torch.compile",
        group="times",
    ),
    Loss(
        "unmatched_begin_end",
        "warning",
        "reader",
        "begin or end events without their partner were left out",
        group="damage",
    ),
    Loss(
        "unknown_phases",
        "warning",
        "reader",
        "events with a phase that the format does not define were left out",
        group="damage",
    ),
    Loss(
        "unreadable_metadata",
        "warning",
        "reader",
        "the text before or after the events is not valid JSON: rank or versions may be missing",
        counted=False,
        group="damage",
    ),
    Loss(
        "activities_without_lane",
        "warning",
        "reader",
        "GPU activities without a device or stream were left out",
        group="damage",
    ),
    Loss(
        "unknown_categories",
        "info",
        "reader",
        "events of categories that tracelab does not know were left out",
        group="unknown",
    ),
    Loss(
        "copies_without_direction",
        "info",
        "reader",
        "copies whose direction the file does not say: they are busy time, but no finding is about "
        "them",
        group="unknown",
    ),
    Loss(
        "unknown_memories",
        "info",
        "reader",
        "copies and memsets of a kind of memory that is not known: whether it is pinned cannot be "
        "judged",
        group="unknown",
    ),
    Loss(
        "unknown_waits",
        "info",
        "reader",
        "waits of a kind that tracelab does not know were left out",
        group="unknown",
    ),
    Loss(
        "unresolved_node_links",
        "info",
        "reader",
        "dependencies between nodes of CUDA graphs that begin or end where no node does were left "
        "out",
        group="unknown",
    ),
    Loss(
        "arrows_without_end",
        "info",
        "reader",
        "arrows from launches to GPU activities that are not in the file: somebody filtered it, or "
        "a part of it was lost",
    ),
    Loss(
        "activities_without_launch",
        "info",
        "timeline",
        "GPU activities whose launch is not in the file: they are busy time, but belong to no step",
    ),
    Loss(
        "launches_without_activity",
        "info",
        "timeline",
        "kernel launches whose kernel is not in the file (cut off or dropped): the steps that "
        "launched them are incomplete and do not count as steady",
    ),
    Loss(
        "copies_without_activity",
        "info",
        "timeline",
        "asynchronous copies that are in the file only as calls: the steps that asked for them "
        "are incomplete and do not count as steady",
    ),
    Loss(
        "replays_without_activity",
        "info",
        "timeline",
        "replays of CUDA graphs of which nothing that they ran is in the file: the steps that "
        "launched them are incomplete and do not count as steady",
    ),
    Loss(
        "incomplete_replays",
        "info",
        "timeline",
        "replays of CUDA graphs that lack nodes which another replay of the graph has: the steps "
        "that launched them are incomplete and do not count as steady",
    ),
    Loss(
        "overlapping_activities",
        "info",
        "timeline",
        "GPU activities that start before the previous one on their stream has ended, although "
        "their launch does not allow that: the time in which both ran is counted once",
    ),
    Loss(
        "nested_steps",
        "info",
        "timeline",
        "step annotations inside another step: the outer one is the step, and their work is part "
        "of it",
    ),
    Loss(
        "repeated_steps",
        "warning",
        "timeline",
        "step annotations with the number of an earlier step, or one too long to be a number: "
        "the number stands for the first of them, the work of the others is in no step, only in "
        "the whole trace",
    ),
    Loss(
        "streams_not_compared",
        "info",
        "timeline",
        "streams left out of the overlap table, which compares only the busiest streams",
    ),
    Loss(
        "waits_without_record",
        "info",
        "graph",
        "stream waits whose event record is not in the file, so their source is unknown",
    ),
    Loss(
        "edges_against_time",
        "info",
        "graph",
        "dependencies that would run backward in time were left out: activities or calls overlap "
        "that should not, or two clocks disagree",
    ),
)
DAMAGE = tuple(loss.name for loss in LOSSES if loss.group == "damage")

LOSSES_BY_NAME: Mapping[str, Loss] = MappingProxyType({loss.name: loss for loss in LOSSES})


def count_losses(losses: Mapping[str, int]) -> str:
    """The losses in brackets, for the end of a sentence; "" without any.

    >>> count_losses({"truncated": 1, "repairs": 0, "unknown_phases": 3})
    ' (truncated: 1, unknown_phases: 3)'
    """
    counts = ", ".join(f"{name}: {count}" for name, count in losses.items() if count)
    return f" ({counts})" if counts else ""


_MAX_NAMES_PER_LOSS = 10
_MAX_NAME_LETTERS = 200
_MAX_SHOWN_LETTERS = 60


@dataclass(frozen=True, slots=True, repr=False)
class LossName(OneLine):
    """One name that a file gives to what tracelab does not know.

    Attributes:
        loss: which loss that is: "unknown_categories", ...
        name: as in the file, the end of a very long one cut off.
        count: how often.
        devices: the GPUs in whose rows it is, as far as the file says.
        gpu_ns: how long what is there took, ns, added up.

    Example row: ``LossName(loss="unknown_categories", name="graph_foo_node", count=12,
    devices=(0,), gpu_ns=36_000)``.
    """

    loss: str
    name: str
    count: int
    devices: tuple[int, ...] = ()
    gpu_ns: int = 0


def find_loss_names(trace: Trace) -> tuple[LossName, ...]:
    """Return the ten most frequent names of each such loss of a trace, most frequent first."""
    return tuple(
        LossName(loss, _cut(name), count, *_measure_gpu_time(trace, loss, name))
        for loss, names in trace.loss_names.items()
        for name, count in _most_frequent(names.items())
    )


def merged_loss_names(names: Iterable[LossName]) -> tuple[LossName, ...]:
    """The names of several files together, of each loss the ten most frequent; no devices.

    >>> one = LossName("unknown_waits", "sync_7", 2)
    >>> merged_loss_names([one, one])[0].count
    4
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    gpu_ns: Counter[tuple[str, str]] = Counter()
    for x in names:
        counts[x.loss][x.name] += x.count
        gpu_ns[x.loss, x.name] += x.gpu_ns
    return tuple(
        LossName(loss, name, count, gpu_ns=gpu_ns[loss, name])
        for loss, of_loss in counts.items()
        for name, count in _most_frequent(of_loss.items())
    )


def listed_names(names: Sequence[LossName], total: int) -> str:
    """Names in words, each with its count, and how many more there are.

    >>> listed_names([LossName("unknown_categories", "graph_foo_node", 12, (0,))], total=15)
    '`graph_foo_node` (12, on GPU 0) and 3 with other names'

    Args:
        names: of one loss.
        total: the count of that loss.
    """
    texts = [f"`{_shown(x.name)}` ({x.count:,}{_where(x.devices)})" for x in names]
    others = total - sum(x.count for x in names)
    more = f" and {others:,} with other names" if texts and others > 0 else ""
    return f"{', '.join(texts)}{more}"


def _most_frequent(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))[:_MAX_NAMES_PER_LOSS]


def _measure_gpu_time(trace: Trace, loss: str, name: str) -> tuple[tuple[int, ...], int]:
    """On which devices something of this name ran, and how long, ns."""
    if loss == "unknown_categories":
        of_name = trace.unknown_gpu_ns.get(name, {})
        return tuple(sorted(of_name)), sum(of_name.values())
    events = trace.of_category(Category.MEMCPY, Category.MEMSET)
    if loss == "unknown_waits" or name not in trace.strings:
        return (), 0
    events = events[trace.name_index[events] == trace.strings.index(name)]
    devices = np.unique(trace.device_number[events]).tolist()
    return tuple(devices), int(trace.duration_ns[events].sum())


def _where(devices: Sequence[int]) -> str:
    if not devices:
        return ""
    return f", on GPU {devices[0]}" if len(devices) == 1 else f", on {len(devices)} GPUs"


def _cut(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LETTERS else f"{name[: _MAX_NAME_LETTERS - 1]}…"


def _shown(name: str) -> str:
    """A name between backticks: in one line, without any."""
    text = " ".join(name.replace("`", "'").split())
    return text if len(text) <= _MAX_SHOWN_LETTERS else f"{text[: _MAX_SHOWN_LETTERS - 1]}…"
