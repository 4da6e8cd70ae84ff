"""Text of files as Markdown in which it is only text, whatever GitHub acts upon.

Names in a trace can hold Markdown, HTML, a mention that notifies a person, a reference to an issue,
a formula, or a link. Code spans are made where our sentences have backticks; a name with backticks
of its own moves where they begin and end, and nothing more.
"""

from __future__ import annotations

import re

from tracelab.base.text import clean

_CODE = re.compile(r"(`[^`]+`)")
# A quote, a heading, a list, the line below a heading.
_BLOCK = re.compile(r"^(>|#+(?=\s|$)|[+-](?=\s|$)|\d+(?=[.)](?:\s|$))|[=-](?=[=-]*\s*$))")
# Markup, runs of underscores, and what begins a mention, an issue, a link or an emoji.
_SPECIAL = re.compile(
    r"[\\`*~\[\]&<|$]|(?<!_)_+|@(?=\w)|#(?=\d)|\bGH-(?=\d)|\bwww(?=\.)"
    r"|(?<!:):(?=//|[\w+-]+:(?!:))",
    re.IGNORECASE,
)
_ENTITIES = {"&": "&amp;", "<": "&lt;", "|": "&#124;", "$": "<span>$</span>"}
_BREAK = "&#8203;"  # a space without width


def code(text: str) -> str:
    """Return text as a code span.

    >>> code("loss.item()"), code("a`b")
    ('`loss.item()`', '``a`b``')
    """
    text = clean(text)
    if not text.strip():
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    is_padded = text[0] in "` " or text[-1] in "` "
    return f"{fence} {text} {fence}" if is_padded else f"{fence}{text}{fence}"


def code_in_cell(text: str) -> str:
    """Return text as code in a cell of a table, where a code span cannot hold every character.

    >>> code_in_cell("train.py"), code_in_cell("a|b")
    ('`train.py`', '<code>a&#124;b</code>')
    """
    if not re.search(r"[|\\`]", text):
        return code(text)
    return f"<code>{_escaped(clean(text))}</code>"


def prose(text: str, *, is_cell: bool = False) -> str:
    r"""Return a sentence whose parts in backticks are code spans and whose rest is text.

    >>> prose("`item` makes *@octocat* wait")
    '`item` makes \\*@&#8203;octocat\\* wait'

    Args:
        text: one line.
        is_cell: it stands in a cell of a table.
    """
    as_code = code_in_cell if is_cell else code
    parts = _CODE.split(clean(text).strip())
    texts = [as_code(part[1:-1]) if i % 2 else _escaped(part) for i, part in enumerate(parts)]
    return "".join(texts) if is_cell else _BLOCK.sub(_disarmed, "".join(texts))


def _escaped(text: str) -> str:
    """Escape everything that is more than text."""
    return _SPECIAL.sub(_as_text, text)


def _as_text(special: re.Match[str]) -> str:
    found = special[0]
    if found in _ENTITIES:
        return _ENTITIES[found]
    if found[0] == "_":  # inside of a word it is only text
        around = (
            special.string[special.start() - 1 : special.start()],
            special.string[special.end() : special.end() + 1],
        )
        return found if all(map(str.isalnum, around)) else r"\_" * len(found)
    return f"\\{found}" if found in r"\`*~[]" else found + _BREAK


def _disarmed(start: re.Match[str]) -> str:
    """Escape the beginning of what would be a block; of a number what follows it."""
    return f"{start[0]}\\" if start[0][0].isdigit() else f"\\{start[0]}"
