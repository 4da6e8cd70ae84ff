"""Read the elements of one huge JSON array in pieces of bounded size.

A piece is cut at the last ``}, {`` and believed when it then parses by itself. Any other is read
element by element, and writers' known faults are mended.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import orjson

from tracelab.base.arrays import Record
from tracelab.base.errors import UnreadableInputError
from tracelab.read.json.damage import (
    BREAKS_OFF,
    breaks_off,
    end_of_element,
    first_event,
    has_too_many,
    loads,
    mend,
    opening_of,
    outermost_array,
    salvage,
    versions,
)
from tracelab.read.streams import read_as_far

PIECE_BYTES = 512 * 1024  # stays in the processor's cache, which halves the decoding time
# Nothing but the array grows with a trace: with an element or a header above this it is not one.
LIMIT_BYTES = 16 * 1024 * 1024
# A list that begins with more and no object holds something else: millions of numbers.
_MAX_BYTES_WITHOUT_OBJECT = 4 * 1024 * 1024
# After this much damage in one stretch nothing readable will come any more.
_DAMAGE_LIMIT_BYTES = 2 * 1024 * 1024
# A damaged element may hold what looks like its end (objects in a list), but not often.
_MAX_TRIED_ENDS = 8
_MAX_MENDED_BYTES = 256 * 1024
# Limits in one stretch of damage, and in the text before and after the array.
_MAX_TRIED_BYTES, _MAX_MENDED_HEADER_BYTES = 2 * 1024 * 1024, 8 * 1024 * 1024
# After so many damaged elements in a row the next counts only if it is whole, small and ends soon.
_MAX_MENDED_IN_A_ROW = 64
_MAX_BYTES_AFTER_DAMAGE = 16 * 1024
_ENDS_AFTER_DAMAGE = 2

# Brackets tried as the end of an array with a damaged last element, and keys tried as its
# beginning.
_MAX_BRACKETS = 64

_DAMAGED_OBJECT = re.compile(rb'\[\s*"(?:[^"\\]|\\.)*+"\s*:', re.DOTALL)  # a key, in a list
_BLANK = b"\xef\xbb\xbf \t\r\n"
_LAST_CUT = re.compile(rb".*\}(\s*,\s*)(?=\{)", re.DOTALL)
_NEXT = re.compile(rb",\s*(?=\{)")
_BEGIN = re.compile(rb"[^\s,]")
_END = re.compile(rb"\}(?=[\s,]*(?:[{\]]|\Z))")
_BRACKET = re.compile(rb"\](?=\s*(?:[,}]|\Z))")


class _Piece(Record):
    elements: list[Any]
    unread: bytes = b""  # may become an element when more of the file is known
    damaged: int = 0  # elements of the unread text that are not JSON, whatever may follow
    after: bytes | None = None  # what follows the array, if it ends in this piece


class _Element(NamedTuple):
    decoded: list[Any]
    end: int
    is_mended: bool


class ArrayReader:
    """Iterate over the array under `key` of a JSON object, or over a bare array, in pieces.

    Args:
        path: what errors call the stream.
        decode: turns the text of a JSON array into a list; raises ValueError for other text.
        is_element: tells an element from an object that is nested in one.

    Attributes:
        metadata: the object's other keys, complete only when the iteration is.
        losses: counts by the names in `tracelab.model.losses.LOSSES`.
        begin, end: the bytes of the stream after the opening bracket and at the closing one, or
            where the last whole element ends; known when the iteration is over.
        breaks_off: the stream is over before the array is, or before what follows it is.
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
        self._decode_any = decode
        self._is_element = is_element
        self.begin = self.end = 0
        self.is_bare = self.breaks_off = False
        self._read_bytes = 0
        self._unread = io.BytesIO()  # what was read too far
        self._tried_bytes = self._mended_beside = 0

    def __iter__(self) -> Iterator[list[Any]]:
        rest, limit_bytes, any_read = self._find_array(), LIMIT_BYTES, False
        self.begin = self._place(len(rest))
        while True:
            read = self._read(len(rest)) if len(rest) <= limit_bytes else b""
            text, gap, rest = rest + read, b"", b""
            if read:
                cut = _LAST_CUT.match(text)
                if cut is None:
                    if not any_read and len(text) > _MAX_BYTES_WITHOUT_OBJECT and b"{" not in text:
                        raise self._unreadable("a list of something other than events")
                    rest = text
                    continue
                text, gap, rest = text[: cut.start(1)], cut[1], text[cut.end(1) :]
            piece = self._parse(text)
            yield piece.elements
            any_read = any_read or bool(piece.elements)
            if piece.after is not None:
                trailer = piece.after + gap + rest
                self.end = self._place(len(trailer)) - 1
                self._read_trailer(trailer)
                return
            if not read:
                if piece.unread and not any_read:
                    raise self._unreadable("none of its events can be read")
                self.end = self._place(len(piece.unread))
                self._end_early(piece)
                return
            if piece.unread:
                rest = piece.unread + gap + rest
            limit_bytes = _DAMAGE_LIMIT_BYTES if piece.damaged else LIMIT_BYTES

    def _unreadable(self, reason: str) -> UnreadableInputError:
        return UnreadableInputError(f"{self._path}: {reason}")

    def _decode(self, text: bytes) -> list[Any]:
        if has_too_many(text):
            raise ValueError
        return self._decode_any(text)

    def _place(self, unparsed_bytes: int) -> int:
        too_far = self._unread.getbuffer().nbytes - self._unread.tell()
        return self._read_bytes - too_far - unparsed_bytes

    def _read(self, held: int = 0) -> bytes:
        """The next bytes, or none at the end; damaged compression is an end, and a loss."""
        # As many as are held, up to the limit: what grows is looked at only a few times then.
        wanted = max(PIECE_BYTES, min(held, LIMIT_BYTES - held))
        if unread := self._unread.read(wanted):
            return unread
        if self.losses["truncated"]:
            return b""
        read, is_damaged = read_as_far(self._stream, wanted)
        if is_damaged:
            self.losses["truncated"] = 1
        self._read_bytes += len(read)
        return read

    def _find_array(self) -> bytes:
        opening = opening_of(self._key)
        data, read, searched, tries = b"", b" ", 0, 0
        while read and len(data) <= LIMIT_BYTES:
            read = self._read(len(data))
            data = data + read if data else read.lstrip(_BLANK)
            if data[:1] == b"[" and not _DAMAGED_OBJECT.match(data):
                self.is_bare = True
                return data[1:]
            # The same text in a nested object would not close like this. It is not there often.
            for match in islice(opening.finditer(data, searched), _MAX_BRACKETS - tries):
                if self._read_metadata(data[: match.end() - 1] + b"null}"):
                    return data[match.end() :]
                searched, tries = match.end(), tries + 1
            searched = max(searched, len(data) - 256)
        self._unread = io.BytesIO(data)
        self._unread.seek(self._find_array_after_damage(data, is_all=not read))
        return self._read()

    def _find_array_after_damage(self, data: bytes, *, is_all: bool) -> int:
        """The start of the array after a header that is damaged or full of nested arrays."""
        begin = outermost_array(data, self._key)
        if begin is not None and self._read_metadata(data[: begin - 1] + b"null}"):
            return begin
        if (is_all and not has_too_many(data)) or data[:1] != b"{":
            reason = self._why_no_array(data)
        else:
            reason = f'no "{self._key}" list in its first {LIMIT_BYTES >> 20} MiB'
        begin = first_event(data, self._key)
        if begin is None:
            raise self._unreadable(reason)
        self.losses["unreadable_metadata"] = 1
        self.metadata |= salvage(data[:begin])
        return begin

    def _why_no_array(self, data: bytes) -> str:
        if not data and not self.losses["truncated"]:
            return "the file is empty"
        if data[:1] not in (b"", b"{"):
            return "neither a JSON object nor a list, so it is not a profiler trace"
        if self.losses["truncated"]:
            return "the compressed data is damaged before the first event"
        try:
            loads(data)
        except orjson.JSONDecodeError:
            return "it ends before the first event, or is not valid JSON"
        return f'this JSON has no "{self._key}" list, so it is not a profiler trace'

    def _read_metadata(self, text: bytes) -> bool:
        for is_mended in (False, True):
            if is_mended:
                self._mended_beside += len(text)
                if self._mended_beside > _MAX_MENDED_HEADER_BYTES:
                    break
            try:
                self.metadata.update(loads(mend(text) if is_mended else text))
            except orjson.JSONDecodeError:
                continue
            self.metadata.pop(self._key, None)
            self.losses["repairs"] += is_mended
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
            loads(document)
            end = len(document.rstrip())
        except orjson.JSONDecodeError as error:  # its position is in characters
            end = len(error.doc[: error.pos].encode().rstrip())
        try:
            return _Piece(self._decode(document[:end]), after=document[end:])
        except ValueError:
            return self._parse_one_by_one(text)

    def _parse_one_by_one(self, text: bytes) -> _Piece:
        elements: list[Any] = []
        offset = 0
        ends = [match.end() for match in _END.finditer(text)]
        while begin := _BEGIN.search(text, offset):
            start, is_end = begin.start(), begin[0] == b"]"
            commas_due = offset > 0 and not is_end
            self.losses["repairs"] += text.count(b",", offset, start) != commas_due
            if is_end:
                return _Piece(elements, after=text[start + 1 :])
            end = end_of_element(text, start)
            if end == BREAKS_OFF:
                return _Piece(elements, unread=text[start:])
            self._tried_bytes = 0
            element, lost = self._read_one(text, start, end, ends), 0
            if element is None:
                element, lost = self._resume(text, start, ends)
            if element is None:
                return _Piece(elements, unread=text[start:], damaged=lost)
            elements += element.decoded
            offset = element.end
            self.losses["repairs"] += element.is_mended
            self.losses["unparsable_events"] += lost
        return _Piece(elements)

    def _read_one(self, text: bytes, start: int, end: int, ends: list[int]) -> _Element | None:
        """The element at an offset, mended if need be; its end is sought where it is not known."""
        first = bisect_right(ends, start)
        for possible_end in (end,) if end > start else ends[first : first + _MAX_TRIED_ENDS]:
            may_end_later = False
            length = possible_end - start
            tries = None if length <= _MAX_MENDED_BYTES else 1
            for repairs, version in enumerate(islice(versions(text[start:possible_end]), tries)):
                self._tried_bytes += length
                try:
                    return _Element(self._decode(b"[" + version + b"]"), possible_end, repairs > 0)
                except ValueError:
                    may_end_later = may_end_later or breaks_off(b"[" + version)
            if not may_end_later or self._tried_bytes > _MAX_TRIED_BYTES:
                break
        return None

    def _resume(self, text: bytes, start: int, ends: list[int]) -> tuple[_Element | None, int]:
        """The first element after a damaged one, if this text holds it; and how many are lost."""
        lost = 1
        for comma in _NEXT.finditer(text, start):
            if lost < _MAX_MENDED_IN_A_ROW and self._tried_bytes <= _MAX_TRIED_BYTES:
                end = end_of_element(text, comma.end())
                if end == BREAKS_OFF:  # the rest of it may show that it is the one
                    break
                element = self._read_one(text, comma.end(), end, ends)
            else:
                element = self._read_small(text, comma.end(), ends)
            if element is None:
                lost += 1
            elif all(map(self._is_element, element.decoded)):
                return element, lost
        return None, lost

    def _read_small(self, text: bytes, start: int, ends: list[int]) -> _Element | None:
        """The element at an offset, if it is whole as it stands and not large."""
        first = bisect_right(ends, start)
        for end in ends[first : first + _ENDS_AFTER_DAMAGE]:
            if end - start > _MAX_BYTES_AFTER_DAMAGE:
                break
            try:
                orjson.loads(element := text[start:end])
                return _Element(self._decode(b"[" + element + b"]"), end, is_mended=False)
            except ValueError:
                continue
        return None

    def _end_early(self, piece: _Piece) -> None:
        """The file is over, but its array is not; or the array's last element is damaged."""
        brackets = list(_BRACKET.finditer(piece.unread if piece.damaged else b""))
        for bracket in brackets[-_MAX_BRACKETS:]:
            if self._closes(piece.unread[bracket.end() :]):
                self.end += bracket.start()
                self.losses["unparsable_events"] += piece.damaged
                return
        self.breaks_off = True
        if piece.unread or not self.is_bare:  # a bare list needs no closing bracket
            self.losses["truncated"] = 1

    def _read_trailer(self, text: bytes) -> None:
        while len(text) <= LIMIT_BYTES and (read := self._read(len(text))):
            text += read
        if not self._closes(text):
            self.breaks_off = breaks_off(b'{"":0' + text)
            self.losses["truncated" if self.breaks_off else "unreadable_metadata"] = 1

    def _closes(self, text: bytes) -> bool:
        if self.is_bare:
            return not text.strip()
        return self._read_metadata(b'{"%b":null%b' % (self._key.encode(), text))
