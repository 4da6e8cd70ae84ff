"""The layout of PyTorch's own CUPTI collector (`torch.profiler.CuspyConfig`), put into Kineto's.

It writes a copy's direction and memory into arguments where Kineto writes them into the name, can
draw nodes of CUDA graphs in rows that are no streams, and adds the program's annotations of nodes
to their other arguments. Here each becomes what Kineto's files have, so that nothing after the
reader knows of two layouts. It was read in PyTorch's sources: `torch/profiler/_cuspy/trace.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

RENAMED = frozenset(("Memcpy", "Memset"))  # where Kineto says between what and in which memory

# Keys of arguments; only nodes of graphs have them.
GRAPH_NODE, GRAPH = "graph node id", "graph id"
STREAM = "original_stream"  # the CUDA stream, where "stream" is the row that the event is drawn in

_MAX_ANNOTATION_LETTERS = 256

# CUpti_ActivityMemoryKind, by number and as the collector words it; Kineto's words for it.
_MEMORY_WORDS = (
    ("unknown", "Unknown"),
    ("pageable", "Pageable"),
    ("pinned", "Pinned"),
    ("device", "Device"),
    ("array", "Array"),
    ("managed", "Managed"),
    ("device_static", "Device Static"),
    ("managed_static", "Managed Static"),
)
_MEMORIES: Mapping[Any, str] = MappingProxyType(
    dict(_MEMORY_WORDS) | {number: words for number, (_, words) in enumerate(_MEMORY_WORDS)}
)
# CUpti_ActivityMemcpyKind, by number; the collector writes the number where it has no word.
_COPY_KINDS = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_COPIES: Mapping[Any, str] = MappingProxyType(
    {kind: kind for kind in _COPY_KINDS} | dict(enumerate(_COPY_KINDS, 1))
)
# Where one side of a copy lies, by Kineto's word for its memory; managed memory moves.
_SIDES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("Pageable", "Pinned"), "H") | dict.fromkeys(("Device", "Device Static"), "D")
)

# What the collector and Kineto write themselves; whatever else a node has is its annotation.
_WRITTEN = frozenset(
    (
        "device",
        "context",
        "stream",
        "correlation",
        "grid",
        "block",
        "registers per thread",
        "shared memory",
        "priority",
        "queued",
        "channel",
        "channel_type",
        "bytes",
        "copy kind",
        "src kind",
        "dst kind",
        "flags",
        "value",
        "memory kind",
        "graph id",
        "graph node id",
        "original_stream",
        "cuda event",
        "host fn",
        "host fn addr",
        "host process",
        "host thread",
        "External id",
        "blocks per SM",
        "warps per SM",
        "est. achieved occupancy %",
        "memory bandwidth (GB/s)",
        "kind",
        "fromDevice",
        "inDevice",
        "toDevice",
    )
)
# Of a communication operation: `tracelab.read.json.arguments` reads them.
_OF_MESSAGES = frozenset(
    (
        "Collective name",
        "dtype",
        "In msg nelems",
        "Out msg nelems",
        "In split size",
        "Out split size",
        "Global rank start",
        "Global rank stride",
        "Group size",
        "Process Group Name",
        "Process Group Description",
        "Process Group Ranks",
        "Rank",
        "Seq",
        "Src Rank",
        "Dst Rank",
    )
)


def kineto_name(name: str, arguments: Mapping[str, Any]) -> str:
    """Return Kineto's name of a copy or a memset of this layout; other events keep theirs.

    Args:
        name: of the event.
        arguments: its "args".

    >>> kineto_name("Memcpy", {"copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"})
    'Memcpy HtoD (Pageable -> Device)'
    >>> kineto_name("Memset", {"memory kind": 3})
    'Memset (Device)'
    >>> kineto_name("Memcpy", {"copy kind": 42})
    'Memcpy (copy kind 42)'
    """
    if name == "Memset" and "memory kind" in arguments:
        return f"Memset ({_memory(arguments['memory kind'])})"
    if name != "Memcpy" or "copy kind" not in arguments:
        return name
    source, target = (_memory(arguments.get(side)) for side in ("src kind", "dst kind"))
    kind = _word(_COPIES, arguments["copy kind"]) or _kind_between(source, target)
    if kind is None:
        return f"Memcpy (copy kind {_brief(arguments['copy kind'])})"
    return f"Memcpy {kind} ({source} -> {target})"


def annotation_of(arguments: Mapping[str, Any]) -> str:
    """Return the program's name of the region in which a node was captured; "" without any.

    `mark_kernels("forward")` arrives as a key ``str``, several as a list in JSON, and a dictionary
    with keys of its own beside the collector's.

    Args:
        arguments: the "args" of the node.

    >>> annotation_of({"stream": 7, "str": "forward"})
    'forward'
    >>> annotation_of({"annotation": '[{"name": "block 0", "heads": 8}, {"str": "qkv"}]'})
    'block 0, heads=8 / qkv'
    """
    written = _WRITTEN | _OF_MESSAGES if "Collective name" in arguments else _WRITTEN
    own = {key: value for key, value in arguments.items() if key not in written}
    regions = [*_listed(own.pop("annotation", None)), own]
    return " / ".join(filter(None, map(_text_of_region, regions)))[:_MAX_ANNOTATION_LETTERS]


def _listed(annotation: Any) -> list[Any]:
    """The annotations in a list that may be JSON; nothing for None."""
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
        _brief(value) if key in ("str", "name") else f"{key}={_brief(value)}"
        for key, value in annotation.items()
    ]
    return ", ".join(texts)


def _memory(kind: Any) -> str:
    """Kineto's word for a kind of memory; what is new stays as it is."""
    return _word(_MEMORIES, kind) or ("Unknown" if kind is None else _brief(kind))


def _kind_between(source: str, target: str) -> str | None:
    sides = [_SIDES.get(memory) for memory in (source, target)]
    return None if None in sides else "to".join(map(str, sides))


def _word(words: Mapping[Any, str], key: Any) -> str | None:
    return words.get(key) if type(key) in (int, str) else None


def _brief(value: Any) -> str:
    """The beginning of a value as text; an ellipsis for one that nests too deep to be written."""
    try:
        return str(value)[:_MAX_ANNOTATION_LETTERS]
    except RecursionError:
        return "…"
