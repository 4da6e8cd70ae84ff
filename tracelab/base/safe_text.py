"""Text from files, and their names, made harmless for terminals, pages and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

_MAX_BRIEF_LETTERS = 40
_SURROGATE = "[\ud800-\udfff]"
_NO_TEXT = "[\udc80-\udcff]"  # a byte of a file's name
_SELECTORS = "[\ufe00-\ufe0f]"  # they change a letter's look and width
# A URL: who asks, the host and the path, and what follows these. A password may hold what should be
# escaped in it: then what follows the colon is no port.
_URL = r"(://)([^/?#\s]*@|[^/?#\s]*:(?!\d*(?:[/?#\s]|$))\S*@)?([^?#\s'\"]*)([?#][^\s'\"]*?(?=[:,.)]*(?:[\s'\"]|$)))?"
# CI systems read a command at the beginning of a line, or after this anywhere.
_COMMAND = r"^(\s*):(?=:)|##(?=\[|vso\[)"
# In UTF-8: DEL, the C1 controls, and what is not seen but changes how what stands around it looks.
_UNSEEN = (
    rb"##(?=\[|vso\[)|\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]"
    rb"|\xef\xbb\xbf|\xef\xbf[\xb9-\xbb]|\xf3\xa0[\x80-\x81][\x80-\xbf]"
)


def clean(text: str) -> str:
    r"""Text of a file, on one line, without anything that a terminal acts upon."""
    text = re.sub(_NO_TEXT, _written_out, text)
    kept = (c if c.isprintable() else " " if c.isspace() else "" for c in text)
    return re.sub(_SELECTORS, "", "".join(kept))


def hide_secrets(text: str) -> str:
    """Remove the user, the password and the query of URLs: these may hold secrets.

    >>> hide_secrets("https://me:secret@host/a.json?token=1: no such file")
    'https://…@host/a.json?…: no such file'
    """
    return re.sub(_URL, lambda x: f"://{'…@' * bool(x[2])}{x[3]}{'?…' * bool(x[4])}", text)


def escape_commands(text: str) -> str:
    """The text, in which GitHub or Azure finds no command, whatever names a trace has."""
    return re.sub(
        _COMMAND, lambda x: "# #" if x[1] is None else f"{x[1]}: ", text, flags=re.MULTILINE
    )


def counted(count: int, one: str, many: str) -> str:
    """A number with its word."""
    return f"{count:,} {one if count == 1 else many}"


def visible(text: str) -> str:
    r"""Text of a file for a page, in which what is unseen or turns the writing is escaped."""
    if text.isprintable() and not re.search(_SELECTORS, text):
        return text
    text = re.sub(_NO_TEXT, _written_out, text)
    return "".join(
        c if (c.isprintable() and not re.match(_SELECTORS, c)) else _named(c) for c in text
    )


def brief(value: object) -> str:
    """A value as Python writes it, in a few words however long it is."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _MAX_BRIEF_LETTERS else f"{text[:_MAX_BRIEF_LETTERS]}…"


def escape_surrogates(text: str) -> str:
    r"""Text in which the bytes of a file's name that are no text are written out."""
    return re.sub(_SURROGATE, _written_out, text)


def json_bytes(content: Any, *, is_indented: bool = True) -> bytes:
    """A result as JSON, in which what a terminal may act upon is escaped.

    It is in lines that people read, or else in one line without blanks.
    """
    import orjson  # these two not for every message to stderr

    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if is_indented else 0)
    try:
        text = orjson.dumps(content, _plain, options)
    except orjson.JSONEncodeError:
        text = orjson.dumps(_textual(content), option=options)
    # The usual case needs no look at each text.
    is_usual = text.isascii() and b"\x7f" not in text and b"##" not in text
    return text if is_usual else re.sub(_UNSEEN, _escaped, text)


def _plain(content: Any) -> Any:
    # orjson knows no records, maps and tables.
    from msgspec import Struct, structs

    if isinstance(content, Struct):
        return structs.asdict(content)
    return dict(content) if isinstance(content, Mapping) else tuple(content)


def _escaped(character: re.Match[bytes]) -> bytes:
    units = character[0].decode().encode("utf-16-be").hex()
    return b"".join(b"\\u" + units[i : i + 4].encode() for i in range(0, len(units), 4))


def _named(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _written_out(surrogate: re.Match[str]) -> str:
    number = ord(surrogate[0])
    return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else f"\\u{number:04x}"


def _textual(content: Any) -> Any:
    if isinstance(content, str):
        return escape_surrogates(content)
    if is_dataclass(content):
        return {field.name: _textual(getattr(content, field.name)) for field in fields(content)}
    if isinstance(content, Mapping):
        return {_textual(key): _textual(value) for key, value in content.items()}
    if isinstance(content, Iterable):
        return [_textual(item) for item in content]
    return content
