"""The place of a finding, as a person reads it and as an edit names it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath

from tracelab.base.names import shortest_ends, threads_of
from tracelab.findings.finding import Finding, Where
from tracelab.job.part import SITE_FIELDS
from tracelab.job.path import PathSegment
from tracelab.model.program.call_sites import CallSite, ProgramFunction, program_functions
from tracelab.model.program.source_lines import MODULE, SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.wording import describe, function_text

JOINT = " + "  # between the edits of one finding
TOGETHER = "all together"  # the name of all changes in one
ALL_SPECIFIC = "all of one place"  # the name of those of findings that are not generic
_MAX_LINES = 5

PLACE = "{place}"  # in the edit of a candidate
# Not `re.escape`: it escapes blanks and hyphens as well, which is hard to read.
_SPECIAL, _ESCAPED = re.compile(r"[][.^$*+?{}()|\\]"), r"\\\g<0>"


def edit_text(edit: str | None, where: Where) -> str | None:
    """Put the most exact place that the file gives into the edit of a candidate.

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
    """Add to findings of a trace what the source says of their places besides the line."""
    return tuple(replace(x, where=add_lines(x.where, timeline, lines)) for x in findings)


def place_text(where: Where) -> str:
    """Describe the place of a finding in a few words; "" if the file does not say.

    >>> place_text(Where(1, function="train", file="src/train.py", line=40, call="item"))
    'train.py:40 in train'
    >>> place_text(Where(1, function="train", file="src/train.py", lines=(40, 44, 51)))
    'train.py:40, 44 or 51 in train'
    >>> place_text(Where(1, function="train", file="src/train.py", function_line=27))
    'train.py in train (entered at line 27)'

    >>> place_text(Where(1, annotation="forward", operator="aten::linear"))
    'in "forward" (annotation)'
    """
    by = "" if where.waited_in is None else f", in {threads_of(where.waited_in)}"
    if where.file is None:
        if where.annotation is not None:
            return f'in "{where.annotation}" (annotation){by}'
        return f"in `{where.operator}`{by}" if where.operator is not None else by.lstrip(", ")
    numbers = [*map(str, where.lines if where.line is None else (where.line,))]
    lines = " or ".join(filter(None, (", ".join(numbers[:-1]), *numbers[-1:])))
    function = f" in {function_text(where.function)}" if where.function else ""
    entered = ""
    if not lines and where.function_line is not None:
        entered = f" (entered at line {where.function_line})"
    line = f":{lines}" if lines else ""
    return f"{_shown_file(where.file)}{line}{function}{entered}{by}"


def sentence_of(title: str, where: Where) -> str:
    """Add its place to the title of a finding, but no annotation.

    >>> where = Where(1, function="train", file="train.py", line=40, call="item")
    >>> sentence_of("`item()` makes the CPU wait for the GPU", where)
    '`item()` makes the CPU wait for the GPU: train.py:40 in train'
    """
    place = place_text(replace(where, annotation=None))
    places = ", ".join(filter(None, (place, where.captured_at)))
    return title if not places or places.removeprefix("in ") in title else f"{title}: {places}"


def _shown_file(path: str) -> str:
    folder, separator, name = path.replace("\\", "/").rpartition("/")
    if name.startswith("__") and separator:
        return f"{folder.rpartition('/')[2]}/{name}"
    return shortest_ends((path,))[0]


def file_name(path: str) -> str:
    r"""Return the name of a file without its folders, whichever system wrote the path.

    >>> file_name("/src/train.py"), file_name("C:\\src\\train.py")
    ('train.py', 'train.py')
    """
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name


def segment_text(segment: PathSegment) -> str:
    """Describe the place of a stretch of a job's critical path."""
    site = CallSite(**{name: getattr(segment, name) for name in SITE_FIELDS})
    return describe(site, "" if segment.file is None else segment.name)


def add_lines(where: Where, timeline: Timeline, lines: SourceLines) -> Where:
    """Add the lines of which it is one, that of its function, and the text of its own."""
    if where.file is None:
        return where
    functions = [
        function
        for function in program_functions(timeline)
        if (function.frame.file, function.frame.function) == (where.file, where.function)
        and (where.call is None or where.call in dict(function.calls))
    ]
    entries = {_entry(function, lines) for function in functions}
    entry = entries.pop() if len(entries) == 1 else None
    possible = [
        (function, _lines_of(function, name, lines))
        for function in functions
        for call, name in function.calls
        if call == where.call
    ]
    if where.line is not None:
        texts = {
            lines.text_of(x.frame.file, x.frame.function, x.frame.line, where.line)
            for x, among in possible
            if where.line in among
        }
        return replace(where, function_line=entry, code=texts.pop() if len(texts) == 1 else None)
    together = set[int]().union(*(among for _, among in possible))
    is_some = all(among for _, among in possible) and 1 < len(together) <= _MAX_LINES
    return replace(where, function_line=entry, lines=tuple(sorted(together)) if is_some else ())


def _lines_of(function: ProgramFunction, name: str, lines: SourceLines) -> Collection[int]:
    frame = function.frame
    return lines.lines_of(frame.file, frame.function, frame.line, name, function.others)


def _entry(function: ProgramFunction, lines: SourceLines) -> int | None:
    frame = function.frame
    if frame.function == MODULE:
        return None
    entry = lines.entry_of(frame.file, frame.function, frame.line)
    return entry if entry is not None or not function.was_entered else frame.line
