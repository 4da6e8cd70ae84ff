"""The place of a finding, as a person reads it and as an edit names it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple

from tracelab.base.file_names import shortest_ends
from tracelab.base.names import threads_of
from tracelab.findings.finding import Finding, Where, call_site_of
from tracelab.job.path import PathSegment
from tracelab.model.program.call_sites import CallSite, ProgramFunction, program_functions
from tracelab.model.program.source_lines import MODULE, SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.wording import describe, function_text

JOINT = " + "  # between the edits of one finding
TOGETHER = "all together"  # the name of all changes in one
ALL_SPECIFIC = "all of one place"  # the name of those of findings that are not generic
PLACE = "{place}"  # in the edit of a candidate
# Not `re.escape`: it escapes blanks and hyphens as well, which is hard to read.
_SPECIAL, _ESCAPED = re.compile(r"[][.^$*+?{}()|\\]"), r"\\\g<0>"


def edit_text(edit: str | None, where: Where) -> str | None:
    """The edit of a candidate with the most exact place that the file gives; None without one.

    >>> where = Where(1, operator="aten::item", function="train", file="/src/train.py", line=40)
    >>> edit_text("unblock:{place}", where), edit_text("queues", where)
    ('unblock:train.py:40', 'queues')
    """
    if edit is None or PLACE not in edit:
        return edit
    return next((edit.replace(PLACE, place) for place in places_of(where)), None)


def places_of(where: Where) -> list[str]:
    r"""List the names of the place of a finding in an edit, the most exact first.

    >>> places_of(Where(1, api="cudaMemcpyAsync", activity="Memcpy HtoD (Pinned -> Device)"))
    ['cudaMemcpyAsync', 'kernel:Memcpy HtoD \\(Pinned -> Device\\)']
    """
    places = []
    if where.file and where.line is not None:
        places.append(f"{file_name(where.file)}:{where.line}")
    if where.function and where.call:
        places.append(f"{where.function}.{where.call}")
    places += [name for name in (where.function, where.operator, where.api) if name]
    if where.activity:
        places.append(f"kernel:{_SPECIAL.sub(_ESCAPED, where.activity)}")
    return places


def add_surroundings(
    findings: Iterable[Finding], timeline: Timeline, lines: SourceLines
) -> tuple[Finding, ...]:
    """Findings with what the source says of their places besides the line.

    Args:
        findings: of one trace.
        timeline: the trace.
        lines: where to look for the program's source.
    """
    found = cache(partial(surroundings, timeline, lines=lines))

    def located(finding: Finding) -> Finding:
        where = finding.where
        if where.file is None:
            return finding
        more = found(call_site_of(where))
        return replace(finding, where=replace(where, **more._asdict()))

    return tuple(map(located, findings))


def place_text(where: Where, files: Iterable[str] = ()) -> str:
    """Describe the place of a finding in a few words; "" if the file does not say.

    Args:
        where: its place.
        files: the source files of what it is shown with: a name that several of them have is given
            with its folder.

    >>> place_text(Where(1, function="train", file="src/train.py", line=40, call="item"))
    'train.py:40 in train'
    >>> place_text(Where(1, function="train", file="src/train.py", lines=(40, 44, 51)))
    'train.py:40, 44 or 51 in train'
    >>> place_text(Where(1, function="train", file="src/train.py", function_line=27))
    'train.py in train (entered at line 27)'
    >>> place_text(Where(1, function="f", file="a/x.py", line=3), ["a/x.py", "b/x.py"])
    'a/x.py:3 in f'
    >>> place_text(Where(1, annotation="forward", operator="aten::linear"))
    'in "forward" (annotation)'
    >>> place_text(Where(1, operator="aten::linear")), place_text(Where(1))
    ('in `aten::linear`', '')
    """
    by = "" if where.waited_in is None else f", in {threads_of(where.waited_in)}"
    if where.file is None:
        if where.annotation is not None:
            return f'in "{where.annotation}" (annotation){by}'
        return f"in `{where.operator}`{by}" if where.operator is not None else by.lstrip(", ")
    lines = _one_of([where.line] if where.line is not None else where.lines)
    function = f" in {function_text(where.function)}" if where.function else ""
    entered = ""
    if not lines and where.function_line is not None:
        entered = f" (entered at line {where.function_line})"
    return f"{_shown_file(where.file, files)}{lines}{function}{entered}{by}"


def sentence_of(title: str, where: Where) -> str:
    """The title of a finding with its place, for where no line of its own says that.

    An annotation is no part of it: it stands beside the figures.

    >>> where = Where(1, function="train", file="train.py", line=40, call="item")
    >>> sentence_of("`item()` makes the CPU wait for the GPU", where)
    '`item()` makes the CPU wait for the GPU: train.py:40 in train'
    >>> sentence_of("`aten::item` makes the CPU wait for the GPU", Where(1, operator="aten::item"))
    '`aten::item` makes the CPU wait for the GPU'
    """
    places = ", ".join(
        filter(None, (place_text(replace(where, annotation=None)), where.captured_at))
    )
    return title if not places or places.removeprefix("in ") in title else f"{title}: {places}"


def _one_of(lines: Iterable[int]) -> str:
    """Lines behind the name of their file; "" for none.

    >>> _one_of([40]), _one_of([40, 44, 51]), _one_of([])
    (':40', ':40, 44 or 51', '')
    """
    *others, last = map(str, lines) if lines else [""]
    listed = f"{', '.join(others)} or {last}" if others else last
    return f":{listed}" if listed else ""


def _shown_file(path: str, files: Iterable[str]) -> str:
    """The name of a file, with its folder where the name alone does not tell it.

    >>> _shown_file("/src/train.py", ()), _shown_file("model/__init__.py", ())
    ('train.py', 'model/__init__.py')
    """
    short = shortest_ends(tuple(dict.fromkeys((path, *files))))[0]
    folder, separator, name = path.replace("\\", "/").rpartition("/")
    if short == name and name.startswith("__") and separator:
        return f"{folder.rpartition('/')[2]}/{name}"
    return short


def file_name(path: str) -> str:
    r"""The name of a file without its folders, whichever system wrote the path.

    >>> file_name("/src/train.py"), file_name("C:\\src\\train.py")
    ('train.py', 'train.py')
    """
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name


def segment_text(segment: PathSegment) -> str:
    """Describe the place of a stretch of a job's critical path."""
    site = CallSite(
        operator=segment.operator,
        function=segment.function,
        file=segment.file,
        line=segment.line,
        call=segment.call,
    )
    # A function that called nothing is where the host itself was.
    return describe(site, "" if segment.file is None else segment.name)


_MAX_LINES = 5


class Surroundings(NamedTuple):
    """The source around a call site.

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
    """Find what the source contains around a call site.

    A call site may stand for calls of several functions of one name in one file: the result is true
    for each of them.

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
    is_some = 1 < len(together) <= _MAX_LINES
    return Surroundings(together if is_some else (), _only(functions, lines))


def _only(functions: list[ProgramFunction], lines: SourceLines) -> int | None:
    """Find the line at which all of these are entered; None where they differ."""
    entries = {_entry(function, lines) for function in functions}
    return entries.pop() if len(entries) == 1 else None


def _entry(function: ProgramFunction, lines: SourceLines) -> int | None:
    """Find the line at which a function is entered; None where neither source nor trace has it."""
    frame = function.frame
    if frame.function == MODULE:
        return None
    entry = lines.entry_of(frame.file, frame.function, frame.line)
    return entry if entry is not None or not function.was_entered else frame.line


def _code(functions: list[ProgramFunction], site: CallSite, lines: SourceLines) -> str | None:
    """Find the text of the line of a call site; None where that is not certain."""
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
