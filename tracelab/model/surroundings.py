"""What the source says of a call site besides its line: what it may be, and what stands there."""

from __future__ import annotations

from dataclasses import dataclass

from tracelab.base.arrays import OneLine
from tracelab.model.program.call_sites import CallSite, ProgramFunction, program_functions
from tracelab.model.program.source_lines import MODULE, SourceLines
from tracelab.model.timeline import Timeline

_MOST_LINES = 5  # among more nobody looks


@dataclass(frozen=True, slots=True, repr=False)
class Surroundings(OneLine):
    """What the source says of a call site besides its line.

    Example: ``Surroundings(lines=(40, 44), function_line=27)``: it is one of two lines of a
    function that is entered at line 27.

    Attributes:
        lines: where its line is not known, those of which it is one, ascending; empty where they
            are many, or not all known.
        function_line: the line at which the function is entered; None where several functions of
            that name call so.
        code: the text of its line; None where it may not be what ran.
    """

    lines: tuple[int, ...] = ()
    function_line: int | None = None
    code: str | None = None


def surroundings(timeline: Timeline, site: CallSite, lines: SourceLines) -> Surroundings:
    """What the source says of a call site besides its line.

    A call site may stand for calls of several functions of one name in one file: what is said is
    true of each of them.

    Args:
        timeline: the trace.
        site: a call site of it.
        lines: where to look for the program's source.
    """
    functions = [
        function
        for function in program_functions(timeline)
        if (function.frame.file, function.frame.function) == (site.file, site.function)
        and (site.call is None or site.call in dict(function.calls))
    ]
    if site.line is not None:
        return Surroundings((), _only(functions, lines), _code(functions, site, lines))
    possible = [
        lines.lines_of(
            function.frame.file,
            function.frame.function,
            function.frame.line,
            name,
            function.others,
        )
        for function in functions
        for call, name in function.calls
        if call == site.call
    ]
    together = tuple(sorted(set().union(*possible))) if all(possible) else ()
    is_some = 1 < len(together) <= _MOST_LINES
    return Surroundings(together if is_some else (), _only(functions, lines))


def _only(functions: list[ProgramFunction], lines: SourceLines) -> int | None:
    """The line at which all of these are entered, None where they differ."""
    entries = {_entry(function, lines) for function in functions}
    return entries.pop() if len(entries) == 1 else None


def _entry(function: ProgramFunction, lines: SourceLines) -> int | None:
    """The line at which a function is entered, None where neither source nor trace says it."""
    frame = function.frame
    if frame.function == MODULE:
        return None
    entry = lines.entry_of(frame.file, frame.function, frame.line)
    return entry if entry is not None or not function.was_entered else frame.line


def _code(functions: list[ProgramFunction], site: CallSite, lines: SourceLines) -> str | None:
    """The text of the line of a call site, None where that is not certain."""
    if site.line is None:
        return None
    texts = {
        lines.text_of(x.frame.file, x.frame.function, x.frame.line, site.line)
        for x in functions
        for call, name in x.calls
        if call == site.call
        and site.line
        in lines.lines_of(x.frame.file, x.frame.function, x.frame.line, name, x.others)
    }
    return texts.pop() if len(texts) == 1 else None
