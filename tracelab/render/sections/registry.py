"""List of all sections about a file: which come in the text, and in which part of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tracelab.base.arrays import OneLine, dataclass
from tracelab.render.section import Section, table_of_rows
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
from tracelab.render.sections.work import note_graphs, phases, work
from tracelab.render.text.hints import steps_hint
from tracelab.report.views import RankView, View


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
    return [table_of_rows(key, rows) for key, rows in view.other_tables.items() if rows]


def _window_entry(key: str, make: Callable[[View], list[Section]], part: str) -> Entry:
    return Entry(key, lambda x: make(x.view), part)


def _work_entry(key: str) -> Entry:
    return Entry(key, lambda x: work(x.view, key, x.top), key)


# In the order of the text; within a part of the page likewise.
SECTIONS = (
    _window_entry("times", times, "times"),
    _window_entry("idle", idle, "bubbles"),
    _window_entry("culprits", culprits, "bubbles"),
    _window_entry("graph_idle", graph_idle, "bubbles"),
    _window_entry("phases", phases, "phases"),
    _work_entry("kernels"),
    _work_entry("lines"),
    _work_entry("modules"),
    _work_entry("operators"),
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
