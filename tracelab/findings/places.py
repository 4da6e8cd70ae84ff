"""The place of a finding, as an edit names it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath

from tracelab.findings.finding import Where

JOINT = " + "  # between the edits of one finding
TOGETHER = "all together"  # the name of all changes at once
ALL_SPECIFIC = "all of one place"  # the name of those of findings that are not generic
PLACE = "{place}"  # in the edit of a candidate
# Not `re.escape`: it escapes blanks and hyphens as well, which nobody wants to read.
_SPECIAL, _ESCAPED = re.compile(r"[][.^$*+?{}()|\\]"), r"\\\g<0>"


def edit_text(edit: str | None, where: Where) -> str | None:
    """The edit of a candidate with the most exact place that the file gives; None without one.

    >>> where = Where(1, operator="aten::item", function="train", file="/src/train.py", line=40)
    >>> edit_text("unblock:{place}", where), edit_text("queues", where)
    ('unblock:train.py:40', 'queues')
    """
    texts = edit_texts(edit, where)
    return texts[0] if texts else None


def edit_texts(edit: str | None, where: Where) -> list[str]:
    """The edit of a candidate with each place that the file gives, the most exact first.

    >>> edit_texts("pin:{place}", Where(1, operator="aten::to", function="train", call="to"))
    ['pin:train.to', 'pin:train', 'pin:aten::to']
    """
    if edit is None or PLACE not in edit:
        return [] if edit is None else [edit]
    return [edit.replace(PLACE, place) for place in places_of(where)]


def places_of(where: Where) -> list[str]:
    r"""How an edit can name the place of a finding, the most exact first.

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


def file_name(path: str) -> str:
    r"""The name of a file without its folders, whichever system wrote the path.

    >>> file_name("/src/train.py"), file_name("C:\\src\\train.py")
    ('train.py', 'train.py')
    """
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name
