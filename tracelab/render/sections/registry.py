"""List of all sections about a file, in the order of the text and the page."""

from __future__ import annotations

from collections.abc import Callable

from tracelab.base.arrays import Record
from tracelab.render.section import Section, keyed, table_of_rows
from tracelab.render.sections.files import (
    launched_only,
    left_out_steps,
    steps,
    unrecognised,
)
from tracelab.render.sections.idle import blocking_calls, culprits, graph_idle, idle
from tracelab.render.sections.times import critical_path, latencies, overlap, starts, streams, times
from tracelab.render.sections.work import note_graphs, phases, work
from tracelab.render.text.hints import steps_hint
from tracelab.report.views import RankView, View


class Subject(Record):
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


class Entry(Record):
    """The sections of one sort.

    Attributes:
        key: names them; sections of one key are one part of the page.
        make: makes them, none if there is nothing to say.
        of_window: True if the text of a single step has them, too.
    """

    key: str
    make: Callable[[Subject], list[Section]]
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


def _view_entry(key: str, make: Callable[[View], list[Section]]) -> Entry:
    return Entry(key, lambda x: make(x.view))


def _work_entry(key: str) -> Entry:
    return Entry(key, lambda x: work(x.view, key, x.top))


SECTIONS = (
    _view_entry("times", times),
    _view_entry("bubbles", idle),
    _view_entry("bubbles", culprits),
    _view_entry("bubbles", graph_idle),
    _view_entry("phases", phases),
    _work_entry("kernels"),
    _work_entry("lines"),
    _work_entry("modules"),
    _work_entry("operators"),
    _view_entry("times", streams),
    _view_entry("overlap", overlap),
    _view_entry("blocking-calls", blocking_calls),
    _view_entry("critical-path", critical_path),
    _view_entry("starts", starts),
    _view_entry("starts", latencies),
    _view_entry("other", other_tables),
    Entry("unrecognized", lambda x: unrecognised(x.rank.trace), of_window=False),
    Entry("unrecognized", lambda x: launched_only(x.rank.trace, x.view), of_window=False),
    Entry("bubbles", _steps, of_window=False),
)


def text_sections(subject: Subject) -> list[Section]:
    """Make the sections about a window; about a single step only those that are of it."""
    is_file = subject.view is subject.rank.main
    made = [(x.key, x.make(subject)) for x in SECTIONS if x.of_window or is_file]
    note_graphs(subject.view, made)
    return [section for key, sections in made for section in keyed(key, sections)]
