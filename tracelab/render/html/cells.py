"""Cells of the text report's tables as a page shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tracelab.base.arrays import OneLine, dataclass
from tracelab.render.section import PART, Column, Fit, Section
from tracelab.render.words import bare_name, shorten
from tracelab.report.glossary import CAUSES, KINDS, PATH_KINDS

_COLORED = ("cause", "kind", "biggest idle cause")  # columns
# A longer name is shortened; its tooltip has the full name, cut.
_MAX_NAME_LETTERS, _MAX_FULL_NAME_LETTERS = 48, 300
_SHARE = re.compile(r"[<>]?(\d+(?:\.\d+)?) %")
_CODE = re.compile(r"name|call|operator|line|module|kernel|what|where|inside|file")
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


@dataclass(frozen=True, slots=True, repr=False)
class Table(OneLine):
    """A table: ``Table(titles=(("cause", "label"), ("time", "")), rows=((Shown(...), ...),))``.

    Attributes:
        titles: of the columns, each with the name of the class that aligns it.
        rows: the cells.
    """

    titles: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Shown, ...], ...]


def table_of(section: Section) -> Table:
    """The table of a section."""
    is_headed = section.columns[0].fit is not Fit.PROSE
    by_column = zip(section.columns, zip(*section.rows, strict=True), strict=True)
    fits = [_fit(column, cells) for column, cells in by_column]
    titles = [column.title.replace("-\n", "").replace("\n", " ") for column in section.columns]
    rows = [
        [
            _shown(column, title, fit, cell, is_head=is_headed and index == 0)
            for index, (column, title, fit, cell) in enumerate(
                zip(section.columns, titles, fits, row, strict=True)
            )
        ]
        for row in section.rows
    ]
    texts = Counter(cell.text for row in rows for cell in row if cell.full)
    return Table(
        tuple(zip(titles, fits, strict=True)),
        tuple(
            tuple(
                replace(x, rest=x.full.partition(x.text)[2]) if texts[x.text] > 1 else x
                for x in row
            )
            for row in rows
        ),
    )


def _fit(column: Column, cells: Sequence[str]) -> str:
    """Return the alignment of a column: words have none, whatever column they are in."""
    is_words = column.fit is Fit.NUMBER and not any(re.search(r"\d", cell) for cell in cells)
    return "words" if is_words and any(map(str.strip, cells)) else _FITS[column.fit]


def _shown(column: Column, title: str, fit: str, cell: str, *, is_head: bool) -> Shown:
    text, *more = cell.split(PART) if column.fit in (Fit.LABEL, Fit.BRIEF) else [cell]
    is_code = column.fit is Fit.LABEL and bool(_CODE.match(title)) and bool(text.strip())
    short = bare_name(text) if is_code and len(text) > _MAX_NAME_LETTERS else text
    share = _SHARE.fullmatch(cell)
    return Shown(
        text=short,
        full=shorten(text, _MAX_FULL_NAME_LETTERS) if short != text else "",
        rest="",
        more=tuple(more),
        fit=fit,
        is_head=is_head,
        is_code=is_code,
        kind=_COLORS.get(text.strip(), "") if title in _COLORED else "",
        share=share[1] if share and not is_head and cell != "0 %" else "",
    )
