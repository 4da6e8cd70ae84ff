"""Read the elements of one huge JSON array in pieces of bounded size.

A piece is cut at the last ``}, {`` of what was read, and the cut is only believed when the piece
then parses by itself: it began at an element, so a complete parse proves that it ends at one
(JSON is unambiguous). A piece that does not parse is read element by element: an element that
merely breaks off waits for more of the file, known writers' faults are mended, and what is still
no JSON is counted.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import orjson

from tracelab.errors import UnreadableInputError
from tracelab.read.streams import READ_ERRORS

PIECE_BYTES = 512 * 1024  # stays in the processor's cache, which halves the decoding time
# Nothing but the array grows with a trace, so an element or a header above this is no trace.
LIMIT_BYTES = 64 * 1024 * 1024
# After this much damage in one stretch nothing readable will come any more.
_DAMAGE_LIMIT_BYTES = 2 * 1024 * 1024
# A damaged element may hold what looks like its end (objects in a list), but not often.
_MOST_ENDS = 8

# The array's end is sought among so many brackets when its last element is damaged.
_MOST_BRACKETS = 64
_GLANCE_BYTES = 4096  # mostly holds an element, or shows that it is damaged
_BREAKS_OFF, _DAMAGED = -1, -2

_BLANK = b"\xef\xbb\xbf \t\r\n"
_LAST_CUT = re.compile(rb".*\}(\s*,\s*)(?=\{)", re.DOTALL)
_NEXT = re.compile(rb",\s*(?=\{)")
_BEGIN = re.compile(rb"[^\s,]")
_END = re.compile(rb"\}(?=[\s,]*(?:[{\]]|\Z))")
_BRACKET = re.compile(rb"\](?=\s*(?:[,}]|\Z))")

_BARE_WORD = re.compile(rb"(?<=[:,\[])(\s*)-?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_CONTROL_TO_BLANK = bytes.maketrans(bytes(range(32)), b" " * 32)
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)')
_BARE_BACKSLASH = re.compile(rb'(\\["\\/])|\\')
# A name that held "ph" would have run into the next event.
_NAME = re.compile(
    rb'("name"\s*:\s*")((?:(?!"ph"\s*:).)*?)("\s*,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s)"\s*:)',
    re.DOTALL,
)
_BARE_QUOTE = re.compile(rb'(?<!\\)"')

# Finds where an element ends. It takes more than JSON: the strict decoder has the last word.
_scan = json.JSONDecoder(strict=False, parse_int=str, parse_float=str).raw_decode


@dataclass(frozen=True, slots=True)
class _Piece:
    elements: list[Any]
    unread: bytes = b""  # may become an element when more of the file is known
    damaged: int = 0  # so many elements of the unread text are no JSON, whatever may follow
    after: bytes | None = None  # what follows the array, if it ends in this piece


class _Found(NamedTuple):
    elements: list[Any]  # one
    end: int
    mended: bool


class ArrayReader:
    """Iterate over the array under `key` of a JSON object, or over a bare array, in pieces.

    Args:
        stream: the decompressed bytes.
        path: what errors call the stream.
        key: the object's key that holds the array.
        decode: turns the text of a JSON array into a list; raises ValueError where it is none.
        is_element: tells an element from an object that is nested in one.

    Attributes:
        metadata: the object's other keys, complete only when the iteration is.
        losses: counts by the names of `tracelab.model.trace.LOSSES`.
    """

    def __init__(
        self,
        stream: io.BufferedIOBase,
        path: str,
        key: str,
        decode: Callable[[bytes], list[Any]],
        is_element: Callable[[Any], bool],
    ) -> None:
        self.metadata: dict[str, Any] = {}
        self.losses: Counter[str] = Counter()
        self._stream = stream
        self._path = path
        self._key = key
        self._decode = decode
        self._is_element = is_element
        self._bare = False

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield lists of elements.

        Raises:
            UnreadableInputError: the file is not JSON, or holds no such array.
        """
        rest, limit, any_read = self._find_array(), LIMIT_BYTES, False
        while True:
            fresh = self._read() if len(rest) <= limit else b""
            text, gap, rest = rest + fresh, b"", b""
            if fresh:
                cut = _LAST_CUT.match(text)
                if cut is None:
                    rest = text
                    continue
                text, gap, rest = text[: cut.start(1)], cut[1], text[cut.end(1) :]
            piece = self._parse(text)
            yield piece.elements
            any_read = any_read or bool(piece.elements)
            if piece.after is not None:
                self._read_trailer(piece.after + gap + rest)
                return
            if not fresh:
                if piece.unread and not any_read:
                    raise self._unreadable("no event in it can be read")
                self._end_early(piece)
                return
            if piece.unread:
                rest = piece.unread + gap + rest
            limit = _DAMAGE_LIMIT_BYTES if piece.damaged else LIMIT_BYTES

    def _unreadable(self, reason: str) -> UnreadableInputError:
        return UnreadableInputError(f"{self._path}: {reason}")

    def _read(self) -> bytes:
        """The next bytes, or none at the end; damaged compression is an end, and a loss."""
        parts: list[bytes] = []
        missing = 0 if self.losses["truncated"] else PIECE_BYTES
        try:
            # `read` would throw away the good bytes before the damage that it meets.
            while missing and (part := self._stream.read1(missing)):
                parts.append(part)
                missing -= len(part)
        except READ_ERRORS:
            self.losses["truncated"] = 1
        return b"".join(parts)

    def _find_array(self) -> bytes:
        """Read up to the array's opening bracket; returns the bytes after it."""
        pattern = re.compile(rb'"' + re.escape(self._key.encode()) + rb'"\s*:\s*\[')
        data, searched = b"", 0
        while len(data) <= LIMIT_BYTES:
            fresh = self._read()
            data = data + fresh if data else fresh.lstrip(_BLANK)
            if data[:1] == b"[":
                self._bare = True
                return data[1:]
            if data and data[:1] != b"{":
                raise self._unreadable("neither a JSON object nor a list, so it is no trace")
            # The same text in a nested object would not close like this. It is not there often.
            for match in islice(pattern.finditer(data, searched), _MOST_BRACKETS):
                if self._read_metadata(data[: match.end() - 1] + b"null}"):
                    return data[match.end() :]
            if not fresh:
                raise self._unreadable(self._why_no_array(data))
            searched = max(0, len(data) - 256)
        raise self._unreadable(f'no "{self._key}" list in its first {LIMIT_BYTES >> 20} MiB')

    def _why_no_array(self, data: bytes) -> str:
        if self.losses["truncated"]:
            return "the compressed data is damaged before the first event"
        if not data:
            return "the file is empty"
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError:
            return "it ends before the first event, or is not valid JSON"
        return f'this JSON has no "{self._key}" list, so it is no profiler trace'

    def _read_metadata(self, text: bytes) -> bool:
        """Take the keys of an object, if it is one; the array itself is not in it."""
        for mended, version in enumerate((text, _mend(text))):
            try:
                self.metadata.update(orjson.loads(version))
            except orjson.JSONDecodeError:
                continue
            self.metadata.pop(self._key, None)
            self.losses["repairs"] += mended
            return True
        return False

    def _parse(self, text: bytes) -> _Piece:
        """Read a text that starts at an element and should end at one, or at the array's end."""
        document = b"[" + text
        try:
            return _Piece(self._decode(document + b"]"))
        except ValueError:
            pass
        try:
            orjson.loads(document)
            end = len(document)
        except orjson.JSONDecodeError as error:  # its position is in characters
            end = len(error.doc[: error.pos].encode())
        try:
            return _Piece(self._decode(document[:end]), after=document[end:])
        except ValueError:
            return self._parse_one_by_one(text)

    def _parse_one_by_one(self, text: bytes) -> _Piece:
        """Read a text that is damaged, or that was cut inside an element."""
        elements: list[Any] = []
        position = 0
        while begin := _BEGIN.search(text, position):
            start, at_end = begin.start(), begin[0] == b"]"
            commas_due = position > 0 and not at_end
            self.losses["repairs"] += text.count(b",", position, start) != commas_due
            if at_end:
                return _Piece(elements, after=text[start + 1 :])
            end = _end_of_element(text, start)
            if end == _BREAKS_OFF:
                return _Piece(elements, unread=text[start:])
            found, lost = self._read_one(text, start, end), 0
            if found is None:
                found, lost = self._resume(text, start)
            if found is None:
                return _Piece(elements, unread=text[start:], damaged=lost)
            elements += found.elements
            position = found.end
            self.losses["repairs"] += found.mended
            self.losses["unparsable_events"] += lost
        return _Piece(elements)

    def _read_one(self, text: bytes, start: int, end: int) -> _Found | None:
        """The element at a place, mended if need be; its end is sought where it is not known."""
        known = end > start
        ends = (end,) if known else (match.end() for match in _END.finditer(text, start))
        for stop in islice(ends, _MOST_ENDS):
            may_end_later = False
            for mended, version in enumerate(_versions(text[start:stop])):
                try:
                    return _Found(self._decode(b"[" + version + b"]"), stop, mended > 0)
                except ValueError:
                    may_end_later = may_end_later or _breaks_off(b"[" + version)
            if not may_end_later:
                break
        return None

    def _resume(self, text: bytes, start: int) -> tuple[_Found | None, int]:
        """The first element after a damaged one, if this text holds it; and how many are lost."""
        lost = 1
        for comma in _NEXT.finditer(text, start):
            end = _end_of_element(text, comma.end())
            if end == _BREAKS_OFF:  # the rest of it may show that it is the one
                break
            found = self._read_one(text, comma.end(), end)
            if found is None:
                lost += 1
            elif all(map(self._is_element, found.elements)):
                return found, lost
        return None, lost

    def _end_early(self, piece: _Piece) -> None:
        """The file is over, but its array is not; or the array's last element is damaged."""
        brackets = list(_BRACKET.finditer(piece.unread if piece.damaged else b""))
        for bracket in brackets[-_MOST_BRACKETS:]:
            if self._closes(piece.unread[bracket.end() :]):
                self.losses["unparsable_events"] += piece.damaged
                return
        if piece.unread or not self._bare:  # a bare list needs no closing bracket
            self.losses["truncated"] = 1

    def _read_trailer(self, text: bytes) -> None:
        """Read what follows the array."""
        while len(text) <= LIMIT_BYTES and (fresh := self._read()):
            text += fresh
        if not self._closes(text):
            broken_off = _breaks_off(b'{"":0' + text)
            self.losses["truncated" if broken_off else "unreadable_metadata"] = 1

    def _closes(self, text: bytes) -> bool:
        """Take what follows the array, if the file ends as it should."""
        if self._bare:
            return not text.strip()
        return self._read_metadata(b'{"%b":null%b' % (self._key.encode(), text))


def _end_of_element(text: bytes, start: int) -> int:
    """Where the element at a place ends, or `_BREAKS_OFF` or `_DAMAGED`."""
    for size in (_GLANCE_BYTES, len(text)):
        glance = text[start : start + size]
        try:
            end = _scan(glance.decode("latin-1"))[1]  # a character a byte: JSON's own are ASCII
        except (ValueError, RecursionError):
            if not _breaks_off(b"[" + glance):
                return _DAMAGED
        else:
            # At a glance's end a number may go on.
            if end < len(glance) or start + end == len(text):
                return start + end
    return _BREAKS_OFF


def _breaks_off(document: bytes) -> bool:
    """Whether a text that is no JSON is the beginning of some: only its end is missing."""
    text = document.decode("utf-8", "replace")
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return error.pos >= len(text)
    return False


def _versions(element: bytes) -> Iterator[bytes]:
    """An element's text as it is, then with more and more mended."""
    yield element
    mended = _mend(element)
    yield mended
    # Last, because only the likely next key tells where a name with bare quotes ends.
    yield _NAME.sub(lambda match: match[1] + _BARE_QUOTE.sub(rb'\\"', match[2]) + match[3], mended)


def _mend(text: bytes) -> bytes:
    """Turn faults that trace writers are known for into JSON."""
    text = text.decode("utf-8", "replace").encode()
    text = _BARE_WORD.sub(rb"\1null", text.translate(_CONTROL_TO_BLANK))
    if any(escape[1] for escape in _ESCAPE.finditer(text)):
        # Who writes a Windows path with bare backslashes means none of them as an escape.
        text = _BARE_BACKSLASH.sub(lambda match: match[1] or rb"\\", text)
    return text
