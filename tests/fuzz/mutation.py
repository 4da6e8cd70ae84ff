"""Changes to inputs that know their structure: most of a file stays, and some of it lies."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

# What readers trip over: limits of integers and floats, wrong types, letters that mean something.
VALUES: tuple[Any, ...] = (
    *("", "text", "a\0b", "%s", "9" * 5000, "1e400", "x" * 3000, "\x1b[31m", "../../etc/passwd"),
    *(0, -1, 1, 2**31, 2**53, 2**62, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, 1e-320),
    *(None, True, [], {}, [1], {"a": 1}, [[[[]]]]),
)
_TOKENS = (
    b"\0",
    b"\xff" * 10,
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"-",
    b"1e999",
    b"\\u0000",
    b"=",
)
_MAX_CHANGES = 4


def mutate_document(data: bytes, random: Random) -> bytes:
    """Change a JSON document: values, whole kinds of events, the order; now and then its bytes."""
    try:
        return _mutated(json.loads(data), random)
    except (ValueError, RecursionError):
        return mutate_bytes(data, random)


def _mutated(document: Any, random: Random) -> bytes:
    for _ in range(random.randint(1, _MAX_CHANGES)):
        events = document.get("traceEvents") if isinstance(document, dict) else None
        if isinstance(events, list) and events and random.random() < 0.7:
            _change_events(events, random)
        else:
            _change_value(document, random)
    changed = json.dumps(document).encode()
    return mutate_bytes(changed, random) if random.random() < 0.1 else changed


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Change bytes: flip, cut, repeat and insert."""
    changed = bytearray(data)
    for _ in range(random.randint(1, _MAX_CHANGES)):
        at = random.randrange(len(changed) + 1)
        end = min(len(changed), at + random.choice((1, 2, 8, 100, 5000)))
        change = random.choice(("flip", "cut", "truncate", "repeat", "insert", "move"))
        if change == "flip" and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif change == "cut":
            del changed[at:end]
        elif change == "truncate" and random.random() < 0.3:
            del changed[at:]
        elif change == "repeat":
            changed[at:at] = changed[at:end] * random.choice((1, 2, 50))
        elif change == "insert":
            changed[at:at] = random.choice(_TOKENS)
        elif change == "move":
            piece = bytes(changed[at:end])
            del changed[at:end]
            to = random.randrange(len(changed) + 1)
            changed[to:to] = piece
    return bytes(changed)


def _value(random: Random) -> Any:
    return copy.deepcopy(random.choice(VALUES))  # later changes are made inside of it


def _change_events(events: list[Any], random: Random) -> None:
    """Change one event of a trace, or all that are like it."""
    one = random.choice(events)
    if not isinstance(one, dict):
        events.remove(one)
        return
    key = random.choice(("cat", "name"))
    alike = [x for x in events if isinstance(x, dict) and x.get(key) == one.get(key)]
    chosen = alike if random.random() < 0.5 else [one]
    random.choice(_EVENT_CHANGES)(events, chosen, random)


def _set_field(_events: list[Any], chosen: list[Any], random: Random) -> None:
    field, value = random.choice([*chosen[0], "ts", "dur"]), _value(random)
    for event in chosen:
        event[field] = value


def _set_argument(_events: list[Any], chosen: list[Any], random: Random) -> None:
    given = chosen[0].get("args")
    field = random.choice([*given] or ["stream"]) if isinstance(given, dict) else "stream"
    value = _value(random)
    for event in chosen:
        if isinstance(event.get("args"), dict):
            event["args"][field] = value


def _remove(events: list[Any], chosen: list[Any], random: Random) -> None:
    gone = {id(x) for x in chosen if random.random() < 0.9}
    events[:] = [x for x in events if id(x) not in gone]


def _repeat(events: list[Any], chosen: list[Any], _random: Random) -> None:
    events.extend(copy.deepcopy(chosen[:1000]))


def _scale(_events: list[Any], chosen: list[Any], random: Random) -> None:
    field, factor = random.choice(("ts", "dur")), random.choice((0, 1e-3, 1e3, -1))
    for event in chosen:
        if isinstance(event.get(field), (int, float)):
            event[field] *= factor


def _shift(_events: list[Any], chosen: list[Any], random: Random) -> None:
    by = random.choice((-1e3, 1e3, 1e6, 1e12))
    for event in chosen:
        if isinstance(event.get("ts"), (int, float)):
            event["ts"] += by


def _shuffle(events: list[Any], _chosen: list[Any], random: Random) -> None:
    random.shuffle(events)


_EVENT_CHANGES: tuple[Callable[[list[Any], list[Any], Random], None], ...] = (
    *(_set_field, _set_field, _set_argument, _set_argument, _remove, _repeat),
    *(_scale, _shift, _shuffle),
)


def _change_value(document: Any, random: Random) -> None:
    """Replace, remove or add one value somewhere in the document."""
    inner = [x for x in _containers(document) if x]
    if not inner:
        return
    one = random.choice(inner)
    key = random.choice([*one]) if isinstance(one, dict) else random.randrange(len(one))
    if random.random() < 0.2:
        del one[key]
    elif random.random() < 0.2 and isinstance(one, list):
        one.extend(copy.deepcopy(one[key : key + 1]) * random.choice((1, 100)))
    else:
        one[key] = _value(random)


def _containers(value: Any) -> list[Any]:
    """The objects and lists of a document, without the events of a trace."""
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (dict, list)):
            found.append(one)
            values = one.items() if isinstance(one, dict) else enumerate(one)
            waiting += [x for key, x in values if key != "traceEvents"]
    return found
