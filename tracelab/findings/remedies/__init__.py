"""Remedies, made of records in TOML: of `remedies.toml`, or of a file of your own."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracelab.base.arrays import Int64Array, Registry
from tracelab.findings.remedies import (
    backward,
    collectives,
    first_use,
    gpu_work,
    host,
    loops,
    recognizers,
)
from tracelab.findings.remedy import Remedy
from tracelab.model.graph import Graph

_Recognizer = Callable[..., Int64Array]

_MODULES = (backward, collectives, first_use, gpu_work, host, loops)
_RECOGNIZERS = {"": recognizers} | {x.__name__.rpartition(".")[2]: x for x in _MODULES}
_KEYS = frozenset(field.name for field in fields(Remedy))
_signature = cache(inspect.signature)
_PATTERNS = ("frames", "operators", "operator", "function")


def load_remedies(text: str, name: str) -> tuple[Remedy, ...]:
    """Make the remedies of a TOML file, in its order; its name is for errors.

    Raises:
        ValueError: a record is wrong; it names the record and the key.
    """
    try:
        records = tomllib.loads(text).get("remedy", [])
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}: {error}") from None
    return tuple(_remedy(record, f"{name}, remedy {i}") for i, record in enumerate(records, 1))


def _remedy(record: Mapping[str, Any], place: str) -> Remedy:
    try:
        if unknown := record.keys() - _KEYS:
            raise ValueError(f"no such key: {', '.join(sorted(unknown))}")
        return msgspec.convert(_joined(record), Remedy, dec_hook=_recognizer)
    except ValueError as error:
        raise ValueError(f"{place} ({record.get('id', 'without id')}): {error}") from None


def _joined(value: Any, between: str = " ") -> Any:
    if isinstance(value, str):
        return between.join(value.splitlines())
    if isinstance(value, list):
        return [_joined(item) for item in value]
    if isinstance(value, dict):
        return {key: _joined(item, "" if key in _PATTERNS else " ") for key, item in value.items()}
    return value


def _recognizer(_type: object, value: object) -> _Recognizer:
    """Find the function that a name stands for, or of several, one after another."""
    if not isinstance(value, list):
        return _named(str(value))
    return partial(_every, [_bind_parameters(entry) for entry in value])


def _bind_parameters(entry: object) -> _Recognizer:
    parameters = entry if isinstance(entry, dict) else {"is": entry}
    kind = "not" if "not" in parameters else "is"
    name = str(parameters.pop(kind, ""))
    function = _named(name)
    try:
        _signature(function).bind(None, None, **parameters)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    if kind == "not":
        return partial(_exclude, function, parameters)
    return partial(function, **parameters)


def _named(name: str) -> _Recognizer:
    module, _, function = name.rpartition(".")
    found = getattr(_RECOGNIZERS.get(module), function, None)
    if function.startswith("_") or not inspect.isfunction(found):
        raise ValueError(f"no recognizer is called {name!r}")
    return found


def _every(parts: Sequence[_Recognizer], graph: Graph, events: Int64Array) -> Int64Array:
    for part in parts:
        if not len(events := part(graph, events)):
            break
    return events


def _exclude(
    function: _Recognizer, parameters: Mapping[str, Any], graph: Graph, events: Int64Array
) -> Int64Array:
    return events[~np.isin(events, function(graph, events, **parameters))]


_FILE = Path(__file__).parents[1] / "remedies.toml"
REMEDIES = Registry[Remedy](load_remedies(_FILE.read_text(encoding="utf-8"), _FILE.name))
