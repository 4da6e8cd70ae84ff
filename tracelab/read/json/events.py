"""The text of a trace's events, decoded: what is used of each, and nothing else.

The layout of PyTorch's own CUPTI collector (`torch/profiler/_cuspy/trace.py`) is put into Kineto's:
it has a copy's direction and memory in arguments, rows of CUDA graphs' nodes that are no streams,
and annotations of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import orjson

from tracelab.read.json.fields import (
    FURTHER,
    GRAPH_NODE,
    Arguments,
    Event,
    MessageArguments,
    NodeArguments,
)
from tracelab.read.json.numbers import Number


class Words(msgspec.Struct):
    """Words of trace files, from ``words.toml``, which says what each list is."""

    categories: dict[str, frozenset[str]]
    memories: dict[str, str]
    written: dict[str, frozenset[str]]


WORDS = msgspec.toml.decode(Path(__file__).with_name("words.toml").read_bytes(), type=Words)

_RENAMED = frozenset(("Memcpy", "Memset"))  # where Kineto says between what and in which memory
_STREAM = "original_stream"  # the CUDA stream, where "stream" is the row that it is drawn in
_NAMES = ("str", "name")  # keys of an annotation, which files may have in any order
_MAX_ANNOTATION_LETTERS = 256
_MEMORIES: Mapping[Any, str] = MappingProxyType(
    WORDS.memories | dict(enumerate(WORDS.memories.values()))
)
# CUpti_ActivityMemcpyKind, by number; the collector writes the number where it has no word.
_COPY_KINDS = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_COPIES: Mapping[Any, str] = MappingProxyType(
    {kind: kind for kind in _COPY_KINDS} | dict(enumerate(_COPY_KINDS, 1))
)
_TIME_FIELD = re.compile(rb'("(?:ts|dur)"\s*:\s*)(-?\d[0-9.eE+-]*)')


class _RawArguments(msgspec.Struct, gc=False):
    args: msgspec.Raw = msgspec.Raw(b"{}")


_ARGUMENTS = dict(zip(Arguments.__struct_encode_fields__, Arguments.__struct_fields__, strict=True))
_KEYS = {field: key for key, field in _ARGUMENTS.items()}
_AS_WRITTEN = {x.name for x in msgspec.structs.fields(Arguments) if x.type is msgspec.Raw}
_FURTHER_KEYS = {field: b'"%b"' % _KEYS[field].encode() for field in FURTHER}
_FURTHER_DECODERS = {field: msgspec.json.Decoder(listed) for field, listed in FURTHER.items()}
_decode_regular = msgspec.json.Decoder(list[Event]).decode
_decode_texts = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_raw_arguments = msgspec.json.Decoder(list[_RawArguments]).decode


def decode(text: bytes) -> list[Event]:
    """Decode an array of events; a ValueError if the text is not JSON.

    Only the brackets and quotes of skipped text are checked, not its encoding or numbers.

    >>> [event] = decode(b'[{"ph": "X", "name": "gemm", "ts": 120.5, "args": {"stream": 7}}]')
    >>> event.name, event.ts, event.args.stream
    ('gemm', 120.5, 7)
    """
    try:
        events = _decode_regular(text)
        for field, key in _FURTHER_KEYS.items():
            if key in text:
                _decode_rare(events, text, field)
        if _has_other_layout(events):
            _translate_all(events, text)
        return events
    # Not JSON, or some value is of an unusual type.
    except (msgspec.DecodeError, orjson.JSONDecodeError, RecursionError):
        return [regular(element) for element in orjson.loads(_quote_times(text))]


def decode_with_times_as_text(text: bytes) -> list[Event]:
    """Decode an array of events whose times a float cannot hold exactly."""
    return decode(_quote_times(text))


def decode_texts(text: bytes) -> list[bytes]:
    """The text of each event of an array that `decode` can read; it raises the same errors."""
    decode(text)
    return split_texts(text)


def split_texts(text: bytes) -> list[bytes]:
    """Split an array that `decode` can read into the text of each event; decode none of them."""
    try:
        return list(map(bytes, _decode_texts(text)))
    except (msgspec.DecodeError, RecursionError):
        return [orjson.dumps(element) for element in orjson.loads(text)]


def is_event(event: Event) -> bool:
    """Return True if this is an event, not an object that is nested in one."""
    return event.ph != ""


def is_text_of_event(text: bytes) -> bool:
    """The same for a text that `decode_texts` gave."""
    return all(map(is_event, decode(b"[%b]" % text)))


def mapping(value: Any) -> dict[str, Any]:
    """The JSON object that a value is; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _decode_rare(events: list[Event], text: bytes, field: str) -> None:
    """Decode further arguments, each where the text has the key of their field."""
    key = _FURTHER_KEYS[field]
    texts, end, place = [], 0, text.find(key)
    while place >= 0:
        begin = text.find(b"{", text.rfind(b'"args"', end, place), place)
        end = text.find(b"}", place) + 1 or len(text)
        texts.append(text[begin:end])
        place = text.find(key, end)
    further = _FURTHER_DECODERS[field].decode(b"[%b]" % b",".join(texts))
    every = [event.args for event in events if event.args is not None]
    values = list(map(attrgetter(field), every))
    having = [(x, value) for x, value in zip(every, values, strict=True) if value is not None]
    if [value for _, value in having] != [x.value for x in further]:
        raise msgspec.DecodeError("it has this key elsewhere, too")
    for (arguments, _), decoded in zip(having, further, strict=True):
        setattr(arguments, field, decoded)


def _has_other_layout(events: list[Event]) -> bool:
    if not _RENAMED.isdisjoint(map(attrgetter("name"), events)):
        return True
    # A list, for a generator is a call per event.
    nodes = [event for event in events if event.args is not None and event.args.node is not None]
    return bool(nodes)


def _translate_all(events: list[Event], text: bytes) -> None:
    for event, raw in zip(events, _decode_raw_arguments(text), strict=True):
        arguments = event.args
        if arguments is not None and (arguments.node is not None or event.name in _RENAMED):
            _translate(event, mapping(orjson.loads(raw.args)))


def _translate(event: Event, arguments: dict[str, Any]) -> None:
    if event.name is not None:
        event.name = kineto_name(event.name, arguments)
    if event.args is None:
        return
    if GRAPH_NODE in arguments:
        # An annotation of `mark_stream` may have taken the place of the stream's number.
        event.args.stream = _number(arguments.get(_STREAM, event.tid))
        event.args.node = NodeArguments(annotation_of(arguments))


def regular(element: Any) -> Event:
    """The event that an element of the array is; anything else is an event without a phase."""
    fields = mapping(element)
    category = fields.get("cat")
    arguments = mapping(fields.get("args"))
    used: dict[str, Any] = {
        _ARGUMENTS[key]: _number(value) for key, value in arguments.items() if key in _ARGUMENTS
    }
    for name in _AS_WRITTEN & used.keys():
        used[name] = msgspec.Raw(orjson.dumps(arguments[_KEYS[name]]))
    for name, further in FURTHER.items():
        if arguments.get(_KEYS[name]) is not None:
            [used[name]] = msgspec.convert([arguments], further)
    event = Event(
        ph=str(fields["ph"]) if "ph" in fields else "",
        cat=category if type(category) is str else "",
        name=_text(fields.get("name")),
        pid=_text(fields.get("pid")),
        tid=_text(fields.get("tid")),
        ts=_number(fields.get("ts")),
        dur=_number(fields.get("dur")),
        id=fields.get("id"),
        args=Arguments(**used),
    )
    _translate(event, arguments)
    return event


def _quote_times(text: bytes) -> bytes:
    return _TIME_FIELD.sub(rb'\1"\2"', text)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> Number:
    """A number as it is; "" for a value that cannot be one."""
    return value if value is None or type(value) in (int, float, str) else ""


def kineto_name(name: str, arguments: Mapping[str, Any]) -> str:
    """Kineto's name of a copy or a memset of this layout; other events keep theirs."""
    if name == "Memset" and "memory kind" in arguments:
        return f"Memset ({_memory(arguments['memory kind'])})"
    if name != "Memcpy" or "copy kind" not in arguments:
        return name
    source, target = (_memory(arguments.get(side)) for side in ("src kind", "dst kind"))
    kind = _word(_COPIES, arguments["copy kind"])
    if kind is None:
        return f"Memcpy (copy kind {_brief(arguments['copy kind'])})"
    return f"Memcpy {kind} ({source} -> {target})"


def annotation_of(arguments: Mapping[str, Any]) -> str:
    """The program's name of the region in which a node was captured; "" without any.

    `mark_kernels("forward")` arrives as a key ``str``, several as a JSON list, a dictionary with
    its keys.
    """
    written = WORDS.written["by_all"]
    if _KEYS["message"] in arguments:
        written = written.union(
            WORDS.written["by_messages"], MessageArguments.__struct_encode_fields__
        )
    own = {key: value for key, value in arguments.items() if key not in written}
    regions = [*_listed(own.pop("annotation", None)), own]
    return " / ".join(filter(None, map(_text_of_region, regions)))[:_MAX_ANNOTATION_LETTERS]


def _listed(annotation: Any) -> list[Any]:
    if isinstance(annotation, str):
        try:
            decoded = orjson.loads(annotation)
        except orjson.JSONDecodeError:
            return [annotation]
        annotation = decoded if isinstance(decoded, list) else annotation
    return annotation if isinstance(annotation, list) else [annotation]


def _text_of_region(annotation: Any) -> str:
    if not isinstance(annotation, dict):
        return "" if annotation is None else _brief(annotation)
    texts = [
        _brief(value) if key in _NAMES else f"{key}={_brief(value)}"
        for key, value in sorted(annotation.items(), key=lambda item: item[0] not in _NAMES)
    ]
    return ", ".join(texts)


def _memory(kind: Any) -> str:
    """Kineto's word for a kind of memory; what is new stays as it is."""
    return _word(_MEMORIES, kind) or ("Unknown" if kind is None else _brief(kind))


def _word(words: Mapping[Any, str], key: Any) -> str | None:
    return words.get(key) if type(key) in (int, str) else None


def _brief(value: Any) -> str:
    """The beginning of a value as text; an ellipsis for one that nests too deep to be written."""
    try:
        return str(value)[:_MAX_ANNOTATION_LETTERS]
    except RecursionError:
        return "…"
