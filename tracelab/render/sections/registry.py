"""List of all sections about a file: which come in the text, and in which part of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from tracelab.base.arrays import OneLine, dataclass
from tracelab.render.section import Column, Fit, Section, more_rows
from tracelab.render.sections.files import (
    causes_by_step,
    launched_only,
    left_out_steps,
    losses,
    steps,
    unrecognised,
)
from tracelab.render.sections.idle import blocking_calls, culprits, graph_idle, idle
from tracelab.render.sections.times import critical_path, latencies, overlap, starts, streams, times
from tracelab.render.sections.work import (
    kernels,
    lines,
    modules,
    note_graphs,
    operators,
    phases,
)
from tracelab.render.text.hints import ALL_IN_JSON, steps_hint
from tracelab.render.words import percent_text, time_text
from tracelab.report.views import RankView, View

_MAX_ROWS = 10
_KEYS = ("rank", "step")


@dataclass(frozen=True, slots=True, repr=False)
class Subject(OneLine):
    """A file, and the window of it that sections are about.

    Attributes:
        rank: the file.
        view: the window.
        top: how many kernels, lines, modules and operators to show.
        pattern: of the annotations that are steps; None where the steps are shown without hints.
    """

    rank: RankView
    view: View
    top: int
    pattern: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Entry(OneLine):
    """The sections of one sort.

    Attributes:
        key: names them.
        make: makes them, none if there is nothing to say.
        part: the part of the page that has them; "" for none.
        in_text: True if the full text has them.
        of_window: True if the text of a single step has them, too.
    """

    key: str
    make: Callable[[Subject], list[Section]]
    part: str
    in_text: bool = True
    of_window: bool = True


def _steps(subject: Subject) -> list[Section]:
    rank, pattern = subject.rank, subject.pattern
    if rank.whole is None or not (rank.steps or pattern is not None):
        return []
    further = [f"Not steady: {text}." for text in left_out_steps(rank)]
    if pattern is not None:
        further += filter(None, [steps_hint(rank.trace)])
    return [steps(rank, further, pattern or "")]


def other_tables(view: View) -> list[Section]:
    """Show each table of a measure that is not the package's."""
    return [_table(key, rows) for key, rows in view.other_tables.items() if rows]


def _table(key: str, rows: tuple[Any, ...]) -> Section:
    names = [x.name for x in fields(rows[0]) if x.name not in _KEYS]
    cells = [[cell(name, getattr(row, name)) for name in names] for row in rows[:_MAX_ROWS]]
    return Section(
        table_title(key),
        columns=tuple(
            Column(column_title(name), fit) for name, (_, fit) in zip(names, cells[0], strict=True)
        ),
        rows=tuple(tuple(text for text, _ in row) for row in cells),
        notes=tuple(more_rows(len(rows) - len(cells), "row", "rows", ALL_IN_JSON)),
    )


def _window_entry(key: str, make: Callable[[View], list[Section]], part: str) -> Entry:
    return Entry(key, lambda x: make(x.view), part)


def _work_entry(key: str, make: Callable[[View, int], list[Section]]) -> Entry:
    return Entry(key, lambda x: make(x.view, x.top), key)


# In the order of the text; within a part of the page likewise.
SECTIONS = (
    _window_entry("times", times, "times"),
    _window_entry("idle", idle, "bubbles"),
    _window_entry("culprits", culprits, "bubbles"),
    _window_entry("graph_idle", graph_idle, "bubbles"),
    _window_entry("phases", phases, "phases"),
    _work_entry("kernels", kernels),
    _work_entry("lines", lines),
    _work_entry("modules", modules),
    _work_entry("operators", operators),
    _window_entry("streams", streams, "times"),
    _window_entry("overlap", overlap, "overlap"),
    _window_entry("blocking_calls", blocking_calls, "blocking-calls"),
    _window_entry("critical_path", critical_path, "critical-path"),
    _window_entry("starts", starts, "starts"),
    _window_entry("latencies", latencies, "starts"),
    _window_entry("other", other_tables, "other"),
    Entry("losses", lambda x: losses(x.rank.trace), "losses", in_text=False),
    Entry("kernels_unknown", lambda x: unrecognised(x.rank.trace), "unrecognized", of_window=False),
    Entry(
        "launched", lambda x: launched_only(x.rank.trace, x.view), "unrecognized", of_window=False
    ),
    Entry("steps", _steps, "bubbles", of_window=False),
    Entry("step_causes", lambda x: causes_by_step(x.rank), "bubbles", in_text=False),
)
# The parts of the page in order, with their titles; "" for that of the first section.
PARTS = {
    "bubbles": "Idle by cause and step",
    "times": "Busy and idle",
    "overlap": "",
    "blocking-calls": "",
    "critical-path": "",
    "phases": "",
    "kernels": "",
    "operators": "",
    "lines": "",
    "modules": "",
    "starts": "",
    "other": "Other tables",
    "losses": "",
    "unrecognized": "",
}


def text_sections(subject: Subject) -> list[Section]:
    """Make the sections of the full text; of a single step only those about its window."""
    is_file = subject.view is subject.rank.main
    entries = [x for x in SECTIONS if x.in_text and (x.of_window or is_file)]
    return [section for _, made in _made(subject, entries) for section in made]


def page_sections(subject: Subject) -> dict[str, list[Section]]:
    """Make the sections of the page, by part; a part may have none."""
    entries = [entry for part in PARTS for entry in SECTIONS if entry.part == part]
    parts: dict[str, list[Section]] = {part: [] for part in PARTS}
    for entry, made in _made(subject, entries):
        parts[entry.part] += made
    return parts


def _made(subject: Subject, entries: Iterable[Entry]) -> list[tuple[Entry, list[Section]]]:
    made = [(entry, entry.make(subject)) for entry in entries]
    note_graphs(subject.view, [(entry.key, sections) for entry, sections in made])
    return made


def table_title(key: str) -> str:
    """A table's title: its key as words.

    >>> table_title("longest_gaps")
    'Longest gaps'
    """
    return key.replace("_", " ").capitalize()


def column_title(name: str) -> str:
    """A column's title: its name as words, without the unit that its cells show.

    >>> column_title("idle_ns")
    'idle'
    """
    return name.removesuffix("_ns").removesuffix("_share").replace("_", " ")


def cell(name: str, value: Any) -> tuple[str, Fit]:
    """A value as a table shows it, by its type and the unit that its column's name ends in.

    >>> cell("idle_ns", 1500)[0], cell("busy_share", 0.25)[0], cell("count", 1200)[0]
    ('1.50 \u00b5s', '25.0 %', '1,200')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value], Fit.NUMBER
    if isinstance(value, int) and name.endswith("_ns"):
        return time_text(value), Fit.NUMBER
    if isinstance(value, int | float) and name.endswith("_share") and math.isfinite(1e6 * value):
        return percent_text(round(1_000_000 * value), 1_000_000), Fit.NUMBER
    if isinstance(value, int | float):
        return f"{value:,}", Fit.NUMBER
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(name, part)[0]}" for key, part in value.items()), Fit.PROSE
    return str(value), Fit.LABEL
