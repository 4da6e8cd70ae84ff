"""Numbers as flags give them."""

from __future__ import annotations

from collections.abc import Iterable

from tracelab.base.errors import UsageError


def parse_number(text: str | None, flag: str) -> float | None:
    """The number that a flag gives, if it is given.

    >>> parse_number("5", "--max-idle")
    5.0

    Raises:
        UsageError: it is not a number.
    """
    try:
        return None if text is None else float(text)
    except ValueError:
        raise UsageError(f"{flag} takes a number, not {text!r}") from None


def parse_assignments(texts: Iterable[str], flag: str, example: str) -> dict[str, float]:
    """KEY=NUMBER, as flags give it, as the table that TOML would have.

    >>> parse_assignments(["comm:compute=80"], "--min-overlap", "comm:compute=80")
    {'comm:compute': 80.0}

    Args:
        texts: what the flag gives, each time that it is given.
        flag: its name, for errors.
        example: how to write it, for errors.

    Raises:
        UsageError: one of them is written in another way.
    """
    assignments: dict[str, float] = {}
    for text in texts:
        key, _, number = text.rpartition("=")
        try:
            assignments[key.strip()] = float(number)
        except ValueError:
            key = ""
        if not key:
            raise UsageError(f"{flag} takes a kind and a percentage, as {example}, not {text!r}")
    return assignments
