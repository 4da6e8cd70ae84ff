"""Cells of the text report's tables as a page shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tracelab.arrays import OneLine
from tracelab.glossary import CAUSES, KINDS, PATH_KINDS
from tracelab.render.text.cells import PART
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.render.words import bare_name

_COLORED = ("cause", "kind", "biggest idle cause")  # columns
_LONG = 48  # letters of a name
_SHARE = re.compile(r"[<>]?(\d+(?:\.\d+)?) %")
_CODE = re.compile(r"name|call|operator|line|module|kernel|what and where|where|inside|file")
_FITS: Mapping[Fit, str] = MappingProxyType(
    {Fit.NUMBER: "", Fit.LABEL: "label", Fit.BRIEF: "label", Fit.PROSE: "prose"}
)
_COLORS: Mapping[str, str] = MappingProxyType(
    {
        **{term.name: term.key for term in (*PATH_KINDS.terms, *CAUSES.terms)},
        **{term.key: term.key for term in (*PATH_KINDS.terms, *CAUSES.terms, *KINDS.terms)},
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class Shown(OneLine):
    """A cell.

    Example row: ``Shown(text="gemm", full="void gemm<float>(...)", more=("compute",), ...)``

    Attributes:
        text: its first part; of a long name of C++ that which tells people what it is.
        full: the whole of that name, where it is cut.
        more: its other parts.
        rest: what of it follows the text, where another row has the same text for another name.
        fit: the name of the class that aligns it; "" of numbers.
        is_head: whether it names its row.
        is_code: whether it is a name of the program.
        kind: the name of the color that it has in charts, or "".
        share: of what is a share, in percent, or "".
    """

    text: str
    full: str
    rest: str
    more: tuple[str, ...]
    fit: str
    is_head: bool
    is_code: bool
    kind: str
    share: str


def fit_class(fit: Fit) -> str:
    """The class of a column's cells."""
    return _FITS[fit]


def shown_cells(section: Section) -> Iterator[list[Shown]]:
    """The rows of a table."""
    is_headed = section.columns[0].fit is not Fit.PROSE
    rows = [
        [
            _shown(column, cell, is_head=is_headed and index == 0)
            for index, (column, cell) in enumerate(zip(section.columns, row, strict=True))
        ]
        for row in section.rows
    ]
    texts = Counter(cell.text for row in rows for cell in row if cell.full)
    for row in rows:
        yield [
            replace(cell, rest=cell.full.partition(cell.text)[2]) if texts[cell.text] > 1 else cell
            for cell in row
        ]


def _shown(column: Column, cell: str, *, is_head: bool) -> Shown:
    text, *more = cell.split(PART) if column.fit in (Fit.LABEL, Fit.BRIEF) else [cell]
    title = column.title.replace("\n", " ")
    is_code = column.fit is Fit.LABEL and bool(_CODE.match(title)) and bool(text.strip())
    short = bare_name(text) if is_code and len(text) > _LONG else text
    share = _SHARE.fullmatch(cell)
    return Shown(
        text=short,
        full=text if short != text else "",
        rest="",
        more=tuple(more),
        fit=_FITS[column.fit],
        is_head=is_head,
        is_code=is_code,
        kind=_COLORS.get(text.strip(), "") if title in _COLORED else "",
        share=share[1] if share and not is_head and cell != "0 %" else "",
    )
