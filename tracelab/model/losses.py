"""Losses: all ways in which a part of a file fails to reach the figures."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np

from tracelab.base.arrays import Record
from tracelab.base.errors import TracelabError
from tracelab.model.trace import Category, Trace

_Part = TypeVar("_Part")


class Loss(Record):
    """A kind of loss, a record of ``losses.toml``; a report counts how often it happened.

    Attributes:
        name: its key in a report's losses.
        severity: what it alone makes of a trace; a rule of its own may judge by the share.
        source: the stage that finds it.
        text: what is missing, and what that means.
        counted: False for what happens to a file once.
        group: those of one group are judged together; None where a rule is about it alone.
    """

    name: str
    severity: Literal["info", "warning"]
    source: Literal["reader", "timeline", "graph", "analysis"]
    text: str
    counted: bool = True
    group: Literal["damage", "times", "unknown"] | None = None


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        name: Loss(name, **record)
        for name, record in tomllib.loads(
            Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
        ).items()
    }
)
FAILED = "failed_parts"
DAMAGE = tuple(name for name, loss in LOSSES.items() if loss.group == "damage")


def count_losses(losses: Mapping[str, int]) -> str:
    """The losses in brackets, for the end of a sentence; "" without any."""
    counts = ", ".join(f"{name}: {count}" for name, count in losses.items() if count)
    return f" ({counts})" if counts else ""


_PACKAGE = Path(__file__).parents[1]
_MAX_NAMES_PER_LOSS = 10
_MAX_NAME_LETTERS = 200
_MAX_SHOWN_LETTERS = 60


class LossName(Record):
    """One name that a file gives to what tracelab does not know.

    Attributes:
        loss: which loss that is: "unknown_categories", ...
        name: as in the file, the end of a very long one cut off.
        count: how often.
        devices: the GPUs in whose rows it is, as far as the file says.
        gpu_ns: how long what is there took, ns, added up.
    """

    loss: str
    name: str
    count: int
    devices: tuple[int, ...] = ()
    gpu_ns: int = 0


def find_loss_names(trace: Trace) -> tuple[LossName, ...]:
    """The ten most frequent names of each such loss of a trace, most frequent first."""
    return tuple(
        LossName(loss, _cut(name, _MAX_NAME_LETTERS), count, *_measure_gpu_time(trace, loss, name))
        for loss, names in trace.loss_names.items()
        for name, count in _most_frequent(names.items())
    )


def attempt(failures: list[LossName], part: str, make: Callable[[], _Part]) -> _Part | None:
    """Make a part of the analysis; None if a bug prevents it, which is added to the failures.

    An error that is raised on purpose is no failure. `part` is a table, a rule's id, "replay", ...
    """
    try:
        return make()
    except (TracelabError, MemoryError, ImportError):
        raise
    except Exception as error:
        failures.append(LossName(FAILED, f"{part}: {place_of(error)}", 1))
        return None


def place_of(error: Exception) -> str:
    """Type of a raised error, and its line in the package: "IndexError at steps.py:47"."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    last = ([x for x in frames if Path(x.filename).is_relative_to(_PACKAGE)] or frames)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def merged_loss_names(names: Iterable[LossName]) -> tuple[LossName, ...]:
    """The names of several files together, of each loss the ten most frequent; no devices."""
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
    """Names of one loss in words, each with its count, and how many more there are of the total."""
    texts = [f"`{_shown(x.name)}` ({x.count:,}{_where(x.devices)})" for x in names]
    others = total - sum(x.count for x in names)
    more = f" and {others:,} with other names" if texts and others > 0 else ""
    return f"{', '.join(texts)}{more}"


def _most_frequent(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))[:_MAX_NAMES_PER_LOSS]


def _measure_gpu_time(trace: Trace, loss: str, name: str) -> tuple[tuple[int, ...], int]:
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


def _shown(name: str) -> str:
    return _cut(" ".join(name.replace("`", "'").split()), _MAX_SHOWN_LETTERS)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
