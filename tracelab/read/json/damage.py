"""Damage in the text of JSON: what breaks off, is mended or holds too much, and broken headers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

BREAKS_OFF, DAMAGED = -1, -2  # instead of where an element ends
# In one element, or beside the array: decoded, each takes up to 200 bytes, and two letters of text.
MAX_VALUES = 1_000_000

# It mostly holds an element, or shows that it is damaged.
_GLANCE_BYTES = 4096
_BARE_WORD = re.compile(rb"(?<=[:,\[])(\s*)-?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_CONTROL_TO_BLANK = bytes.maketrans(bytes(range(32)), b" " * 32)
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)')
_BARE_BACKSLASH = re.compile(rb'(\\["\\/])|\\')
_NAME_BEGIN = re.compile(rb'"name"\s*:\s*"')
_NAME_END = re.compile(rb'"\s*,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s)"\s*:')
_PHASE = re.compile(rb'"ph"\s*:')
_BARE_QUOTE = re.compile(rb'(?<!\\)"')

# Finds where an element ends. It takes more than JSON: the strict decoder has the last word.
_scan = json.JSONDecoder(strict=False, parse_int=str, parse_float=str).raw_decode


def count_values(text: bytes) -> int:
    """The most values that a JSON text holds."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def has_too_many(text: bytes) -> bool:
    """Return True if a text may hold more than `MAX_VALUES` values."""
    return len(text) > MAX_VALUES and count_values(text) > MAX_VALUES


def loads(text: bytes) -> Any:
    """Decode JSON; an orjson.JSONDecodeError if it is not JSON, or has too many values."""
    if has_too_many(text):
        raise orjson.JSONDecodeError("it has too many values", "", 0)
    return orjson.loads(text)


def end_of_element(text: bytes, start: int) -> int:
    """The end of the element that starts at an offset, or `BREAKS_OFF` or `DAMAGED`."""
    size = 0
    while size < len(text) - start:
        # Ever longer glances: of a huge text no damaged element costs more than it is long.
        size = max(_GLANCE_BYTES, 16 * size)
        glance = text[start : start + size]
        if has_too_many(glance):
            return DAMAGED
        try:
            end = _scan(glance.decode("latin-1"))[1]  # a character a byte: JSON's own are ASCII
        except (ValueError, RecursionError):
            if not breaks_off(b"[" + glance):
                return DAMAGED
        else:
            # At a glance's end a number may go on.
            if end < len(glance) or start + end == len(text):
                return start + end
    return BREAKS_OFF


def breaks_off(document: bytes) -> bool:
    """Return True if a text that is not JSON is the beginning of some: only its end is missing."""
    text = document.decode("utf-8", "replace")
    try:
        if not has_too_many(document):
            orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return error.pos >= len(text)
    return False


def versions(element: bytes) -> Iterator[bytes]:
    """An element's text as it is, then with more and more mended."""
    yield element
    mended = mend(element)
    yield mended
    # Last, because only the likely next key tells where a name with bare quotes ends.
    yield _escape_quotes_in_names(mended)


def _escape_quotes_in_names(text: bytes) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while begin := _NAME_BEGIN.search(text, offset):
        end = _NAME_END.search(text, begin.end())
        if end is None:
            break
        # A name that contained "ph" would have run into the next event; it may also end at it.
        phase = _PHASE.search(text, begin.end(), end.end())
        is_name = phase is None or phase.start() > end.start()
        stop = end.start() if is_name else begin.end()
        name = text[begin.end() : stop]
        parts += [text[offset : begin.end()], _BARE_QUOTE.sub(rb"\"", name)]
        offset = stop
    return b"".join((*parts, text[offset:]))


def mend(text: bytes) -> bytes:
    """Turn faults that trace writers are known for into JSON."""
    text = text.decode("utf-8", "replace").encode()
    text = _BARE_WORD.sub(rb"\1null", text.translate(_CONTROL_TO_BLANK))
    if any(escape[1] for escape in _ESCAPE.finditer(text)):
        # Who writes a Windows path with bare backslashes means none of them as an escape.
        text = _BARE_BACKSLASH.sub(lambda match: match[1] or rb"\\", text)
    return text


# Every string, so that nothing in it counts, and every bracket.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_OPENING, _CLOSING = (b"[", b"{"), (b"]", b"}")
_FIRST_OBJECT = re.compile(rb'\s*\{\s*"')
# An object that says its phase before anything is nested in it.
_EVENT = re.compile(rb'\{[^{}\[\]]{0,2000}?"ph"\s*:')
_KEY = re.compile(r'"(\w{1,100})"\s*:\s*')
_MAX_SALVAGED_BYTES = 1 << 20
_MAX_SCANS = 8
_DEEP_NESTING_BYTES = 10_000

# Python reads no integer of more than 4,300 digits.
_value_at = json.JSONDecoder(
    strict=False, parse_int=lambda digits: int(digits) if len(digits) < 20 else float(digits)
).raw_decode


def opening_of(key: str) -> re.Pattern[bytes]:
    """A pattern of a key with the bracket that opens the array under it."""
    return re.compile(rb'"%b"\s*:\s*\[' % re.escape(key.encode()))


def outermost_array(data: bytes, key: str) -> int | None:
    """The offset after the bracket that opens the array under a key of the outermost object.

    None without such a key.
    """
    opening = opening_of(key)
    depth = 0
    for token in _TOKEN.finditer(data):
        text = token[0]
        if text in _OPENING:
            depth += 1
        elif text in _CLOSING:
            depth -= 1
        elif depth == 1 and (match := opening.match(data, token.start())):
            return match.end()
    return None


def first_event(data: bytes, key: str) -> int | None:
    """The start of the events after a damaged header: after their array's bracket.

    Else it is what looks like the beginning of the first event, or None.
    """
    for match in opening_of(key).finditer(data):
        if _FIRST_OBJECT.match(data, match.end()):
            return match.end()
    event = _EVENT.search(data)
    return event.start() if event else None


def salvage(header: bytes) -> dict[str, Any]:
    """The keys of a damaged header whose values are whole; the first of each name."""
    text = mend(header[:_MAX_SALVAGED_BYTES]).decode("utf-8", "replace")
    found: dict[str, Any] = {}
    offset = wasted = 0
    while wasted <= _MAX_SCANS * len(text) and (key := _KEY.search(text, offset)):
        begin = offset = key.end()
        try:
            value, offset = _value_at(text, begin)
        except json.JSONDecodeError as error:
            wasted += error.pos - begin
        except RecursionError:
            wasted += _DEEP_NESTING_BYTES
        else:
            found.setdefault(key[1], value)
    return found
