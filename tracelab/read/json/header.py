"""What stands before the events of a trace: where they begin, whatever is wrong before them."""

from __future__ import annotations

import json
import re
from typing import Any

from tracelab.read.json.damage import mend

# Every string, so that nothing in it counts, and every bracket. One that nothing closes reaches to
# the end: no quote in it is looked at again.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_OPENING, _CLOSING = (b"[", b"{"), (b"]", b"}")
_FIRST_OBJECT = re.compile(rb'\s*\{\s*"')
# An object that says its phase before anything is nested in it.
_EVENT = re.compile(rb'\{[^{}\[\]]{0,2000}?"ph"\s*:')
_KEY = re.compile(r'"(\w{1,100})"\s*:\s*')
_LARGEST_SALVAGED = 1 << 20
_MOST_SCANNED = 8  # times its length
_NESTED_TOO_DEEP = 10_000  # bytes that are scanned until then

_value_at = json.JSONDecoder(strict=False).raw_decode


def opening_of(key: str) -> re.Pattern[bytes]:
    """A pattern of a key with the bracket that opens the array under it.

    >>> opening_of("events").search(b'{"rank": 3, "events" : [{"ph": "X"}]').end()
    24
    """
    return re.compile(rb'"%b"\s*:\s*\[' % re.escape(key.encode()))


def outermost_array(data: bytes, key: str) -> int | None:
    """The offset after the bracket that opens the array under a key of the outermost object.

    >>> outermost_array(b'{"a": {"b": [1]}, "b": [2]}', "b")
    24

    Returns:
        None where there is no such key.
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
    """Where the events begin after a damaged header: after the bracket that opens their array.

    Where that is damaged, too, it is the beginning of the first event.

    >>> first_event(b'{"rank": ?, "events": [{"name": "a"}]', "events")
    23
    >>> first_event(b'{"rank": 3, "evil": [{"name": "a", "ph": "X"}]', "events")
    21

    Returns:
        None where nothing looks like an event.
    """
    for match in opening_of(key).finditer(data):
        if _FIRST_OBJECT.match(data, match.end()):
            return match.end()
    event = _EVENT.search(data)
    return event.start() if event else None


def salvage(header: bytes) -> dict[str, Any]:
    """The keys of a damaged header whose values are whole; the first of each name.

    >>> salvage(b'{"rank": 3, "share": ?, "job": {"size": 8}, "job": 1')
    {'rank': 3, 'job': {'size': 8}}
    """
    text = mend(header[:_LARGEST_SALVAGED]).decode("utf-8", "replace")
    found: dict[str, Any] = {}
    offset = wasted = 0
    while wasted <= _MOST_SCANNED * len(text) and (key := _KEY.search(text, offset)):
        begin = offset = key.end()
        try:
            value, offset = _value_at(text, begin)
        except json.JSONDecodeError as error:
            wasted += error.pos - begin
        except RecursionError:
            wasted += _NESTED_TOO_DEEP
        else:
            found.setdefault(key[1], value)
    return found
